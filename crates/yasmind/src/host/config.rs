//! The file that names the guests: a line for each.
//!
//! ```text
//! # name  QMP socket              virtio-serial socket      root ports for memory
//! web     qmp=/run/vm/web.qmp     port=/run/vm/web.port     slots=slot0,slot1
//! ```

use std::collections::HashSet;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// Letters, digits, `_` and `.`: it becomes part of files' names.
    pub name: String,
    pub qmp: PathBuf,
    pub port: PathBuf,
    /// QEMU's ids of empty PCI Express ports, into which memory is plugged.
    pub slots: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadConfig {
    line: usize,
    what: String,
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    !text.is_empty() && text.len() <= 64 && !text.starts_with('.') && text.bytes().all(allowed)
}

/// # Errors
/// The first line that cannot be understood, and why.
pub fn parse(text: &str) -> Result<Vec<GuestConfig>, BadConfig> {
    let mut guests = Vec::new();
    let mut names = HashSet::new();
    for (line, text) in (1..).zip(text.lines()) {
        let bad = |what: String| BadConfig { line, what };
        let mut words = text.split('#').next().unwrap_or("").split_whitespace();
        let Some(name) = words.next() else { continue };
        if !is_name(name) {
            return Err(bad(format!("'{name}' is no name; use letters, digits, '_' and '.'")));
        }
        if !names.insert(name.to_owned()) {
            return Err(bad(format!("guest '{name}' is named twice")));
        }
        let (mut qmp, mut port, mut slots) = (None, None, Vec::new());
        for word in words {
            match word.split_once('=') {
                Some(("qmp", path)) => qmp = Some(PathBuf::from(path)),
                Some(("port", path)) => port = Some(PathBuf::from(path)),
                Some(("slots", list)) => slots = list.split(',').map(str::to_owned).collect(),
                _ => return Err(bad(format!("'{word}' is none of qmp=, port= and slots="))),
            }
        }
        let missing = |what| bad(format!("guest '{name}' has no {what}="));
        if let Some(slot) = slots.iter().find(|slot| !is_name(slot)) {
            return Err(bad(format!("'{slot}' is no name of a port")));
        }
        guests.push(GuestConfig {
            name: name.to_owned(),
            qmp: qmp.ok_or_else(|| missing("qmp"))?,
            port: port.ok_or_else(|| missing("port"))?,
            slots: if slots.is_empty() { return Err(missing("slots")) } else { slots },
        });
    }
    Ok(guests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_guests() {
        let guests = parse("# all\n\nweb qmp=/a port=/b slots=s0,s1 # one\n").unwrap();
        let slots = vec!["s0".to_owned(), "s1".to_owned()];
        let web = GuestConfig { name: "web".into(), qmp: "/a".into(), port: "/b".into(), slots };
        assert_eq!(guests, [web]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, wanted) in [
            ("a qmp=/a port=/b", "line 1: guest 'a' has no slots="),
            ("\na port=/b slots=s", "line 2: guest 'a' has no qmp="),
            (
                "a/b qmp=/a port=/b slots=s",
                "line 1: 'a/b' is no name; use letters, digits, '_' and '.'",
            ),
            ("a qmp=/a port=/b slots=s\na", "line 2: guest 'a' is named twice"),
            ("a x=1", "line 1: 'x=1' is none of qmp=, port= and slots="),
            ("a qmp=/a port=/b slots=s-1", "line 1: 's-1' is no name of a port"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), wanted);
        }
    }
}
