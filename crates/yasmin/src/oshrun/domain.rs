//! Where PEs run, and how an `oshrun` is started there.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::Context;

/// Prefixes of the environment that PEs elsewhere get, too: what the specification names.
const TOLD: [&str; 2] = ["SHMEM_", "SMA_"];

/// A domain as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// `.`: that of this process.
    Here,
    /// `podman:NAME`, `docker:NAME`: a container that runs.
    Container { engine: &'static str, name: String },
    /// `ssh:HOST`: whatever ssh reaches so, and has the same broker.
    Ssh(String),
    /// `NAME`: a container of that name, else one where somebody starts it by hand.
    Named(String),
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text.split_once(':').unwrap_or(("", text));
        // What begins with a hyphen would be an option of podman's or ssh's.
        if name.is_empty() || name.starts_with('-') {
            return Err(
                "give a name, such as web, podman:web, docker:web, ssh:host, or . for here"
                    .to_owned(),
            );
        }
        let name = name.to_owned();
        match kind {
            "" if name == "." => Ok(Self::Here),
            "" => Ok(Self::Named(name)),
            "podman" => Ok(Self::Container { engine: "podman", name }),
            "docker" => Ok(Self::Container { engine: "docker", name }),
            "ssh" => Ok(Self::Ssh(name)),
            other => Err(format!("'{other}' is none of podman, docker, ssh")),
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => out.write_str("."),
            Self::Container { engine, name } => write!(out, "{engine}:{name}"),
            Self::Ssh(name) => write!(out, "ssh:{name}"),
            Self::Named(name) => out.write_str(name),
        }
    }
}

impl Domain {
    /// A name that is a running container's means that.
    pub fn found(self) -> Self {
        let Self::Named(name) = &self else { return self };
        let runs = |engine: &&str| {
            let asked = Command::new(engine)
                .args(["container", "inspect", "--format", "{{.State.Running}}", name])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output();
            asked.is_ok_and(|output| output.stdout.trim_ascii() == b"true")
        };
        match ["podman", "docker"].into_iter().find(runs) {
            Some(engine) => Self::Container { engine, name: name.clone() },
            None => self,
        }
    }

    /// What starts these words there; none where a person has to.
    pub fn command(&self, words: &[OsString]) -> anyhow::Result<Option<Command>> {
        let (program, arguments) = match self {
            Self::Here | Self::Named(_) => return Ok(None),
            Self::Container { engine, name } => (*engine, ["exec", "-i", name]),
            Self::Ssh(host) => ("ssh", ["-T", "--", host]),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        match self {
            // Its words are one line for the shell there.
            Self::Ssh(_) => command.arg(line(words)?),
            _ => command.args(words),
        };
        Ok(Some(command))
    }
}

/// The words that start a part of a job.
pub fn words(ticket: &str, segment: Option<&str>, program: &[OsString]) -> Vec<OsString> {
    let told = std::env::vars_os().filter(|(name, _)| {
        TOLD.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
    });
    let told: Vec<OsString> = told
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        })
        .collect();
    let mut words: Vec<OsString> = Vec::new();
    if !told.is_empty() {
        words.push("env".into());
        words.extend(told);
    }
    words.push("oshrun".into());
    if let Some(segment) = segment {
        words.extend(["--segment", segment].map(OsString::from));
    }
    words.extend(["--join", ticket, "--"].map(OsString::from));
    words.extend_from_slice(program);
    words
}

/// As a person types them.
pub fn line(words: &[OsString]) -> anyhow::Result<OsString> {
    let quoted = shlex::bytes::try_join(words.iter().map(|word| word.as_bytes()))
        .context("a NUL byte in a word of the command line")?;
    Ok(OsStr::from_bytes(&quoted).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let read = |text: &str| text.parse::<Domain>();
        assert_eq!(read("."), Ok(Domain::Here));
        assert_eq!(read("web"), Ok(Domain::Named("web".into())));
        assert_eq!(
            read("podman:web"),
            Ok(Domain::Container { engine: "podman", name: "web".into() })
        );
        assert_eq!(read("ssh:me@host"), Ok(Domain::Ssh("me@host".into())));
        for bad in ["", "ssh:", "-x", "ssh:-oProxyCommand=x", "podman:--help"] {
            assert!(read(bad).unwrap_err().starts_with("give a name"), "{bad}");
        }
        assert_eq!(read("lxc:web"), Err("'lxc' is none of podman, docker, ssh".into()));
    }

    #[test]
    fn a_shell_gets_one_line() {
        let plain = ["oshrun", "--join", "7:1", "--", "./a b", "it's"];
        let words = plain.map(OsString::from);
        let ssh = Domain::Ssh("host".into()).command(&words).unwrap().unwrap();
        let arguments: Vec<_> = ssh.get_args().collect();
        assert_eq!(arguments[..3], ["-T", "--", "host"]);
        let line = arguments[3].to_str().unwrap();
        assert_eq!(shlex::split(line).unwrap(), plain);
        let podman = Domain::Container { engine: "podman", name: "web".into() };
        let podman = podman.command(&words).unwrap().unwrap();
        assert_eq!(podman.get_args().skip(3).collect::<Vec<_>>(), words);
    }
}
