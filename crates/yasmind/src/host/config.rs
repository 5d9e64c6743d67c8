//! The file that names the guests: a line for each, or one for all of libvirt's, or of Xen's.
//!
//! ```text
//! libvirt qemu:///system
//! xen
//! # name  QMP socket              virtio-serial socket      root ports for memory
//! web     qmp=/run/vm/web.qmp     port=/run/vm/web.port     slots=slot0,slot1
//! ```

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

/// Where libvirt's guests are, if the line does not say it.
const LIBVIRT_URI: &str = "qemu:///system";

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub guests: Vec<GuestConfig>,
    /// The URI of a libvirt, all of whose guests are meant that have the port.
    pub libvirt: Option<String>,
    /// All guests of this Xen host.
    pub has_xen: bool,
}

/// How QEMU's monitor is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Monitor {
    /// A QMP socket.
    Socket(PathBuf),
    Libvirt,
    /// None: the host's broker does itself what a QEMU would.
    Xen,
}

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "at {}", path.display()),
            Self::Libvirt => f.write_str("by libvirt"),
            Self::Xen => f.write_str("of Xen"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// As `is_name` says: it becomes part of files' names.
    pub name: String,
    pub monitor: Monitor,
    /// The virtio-serial socket. `None`: the guest does not run yet.
    pub port: Option<PathBuf>,
    /// QEMU's ids of empty PCI Express ports, into which memory is plugged.
    pub slots: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadConfig {
    line: usize,
    what: String,
}

/// Letters, digits, `-`, `_` and `.`.
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 64 && !text.starts_with('.') && text.bytes().all(allowed)
}

/// # Errors
/// The first line that cannot be understood, and why.
pub fn parse(text: &str) -> Result<Config, BadConfig> {
    let (mut guests, mut libvirt, mut has_xen) = (Vec::new(), None, false);
    let mut names = HashSet::new();
    for (line, text) in (1..).zip(text.lines()) {
        let bad = |what: String| BadConfig { line, what };
        let mut words = text.split('#').next().unwrap_or("").split_whitespace();
        let Some(name) = words.next() else { continue };
        if name == "libvirt" {
            let uri = words.next().unwrap_or(LIBVIRT_URI);
            if let Some(word) = words.next() {
                return Err(bad(format!("'{word}' behind libvirt's URI '{uri}'")));
            }
            if libvirt.replace(uri.to_owned()).is_some() {
                return Err(bad("libvirt is named twice".to_owned()));
            }
            continue;
        }
        if name == "xen" {
            if let Some(word) = words.next() {
                return Err(bad(format!("'{word}' behind xen")));
            }
            has_xen = true;
            continue;
        }
        if !is_name(name) {
            return Err(bad(format!("'{name}' is no name; use letters, digits, '-', '_' and '.'")));
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
            monitor: Monitor::Socket(qmp.ok_or_else(|| missing("qmp"))?),
            port: Some(port.ok_or_else(|| missing("port"))?),
            slots: if slots.is_empty() { return Err(missing("slots")) } else { slots },
        });
    }
    Ok(Config { guests, libvirt, has_xen })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_guests() {
        let config = parse("# all\n\nweb-1 qmp=/a port=/b slots=s0,s1 # one\n").unwrap();
        let slots = vec!["s0".to_owned(), "s1".to_owned()];
        let monitor = Monitor::Socket("/a".into());
        let web = GuestConfig { name: "web-1".into(), monitor, port: Some("/b".into()), slots };
        assert_eq!(config, Config { guests: vec![web], libvirt: None, has_xen: false });
        assert!(parse("xen # all\n").unwrap().has_xen);
        for (text, uri) in
            [("libvirt", LIBVIRT_URI), ("libvirt qemu:///session #", "qemu:///session")]
        {
            assert_eq!(parse(text).unwrap().libvirt.as_deref(), Some(uri));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, wanted) in [
            ("a qmp=/a port=/b", "line 1: guest 'a' has no slots="),
            ("\na port=/b slots=s", "line 2: guest 'a' has no qmp="),
            (
                "a/b qmp=/a port=/b slots=s",
                "line 1: 'a/b' is no name; use letters, digits, '-', '_' and '.'",
            ),
            ("a qmp=/a port=/b slots=s\na", "line 2: guest 'a' is named twice"),
            ("a x=1", "line 1: 'x=1' is none of qmp=, port= and slots="),
            ("a qmp=/a port=/b slots=s/1", "line 1: 's/1' is no name of a port"),
            ("libvirt\nlibvirt", "line 2: libvirt is named twice"),
            ("xen a", "line 1: 'a' behind xen"),
            ("libvirt a b", "line 1: 'b' behind libvirt's URI 'a'"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), wanted);
        }
    }
}
