//! Where the two sides of a workload run, and how a program is started there.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context;

use super::netns::{self, Namespaces};
use super::process::{self, Process};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Plain,
    Rings,
    /// As `Rings`, by another version of YASMIN.
    Before,
}

impl How {
    pub fn describe(self) -> &'static str {
        match self {
            Self::Plain => "plain TCP",
            Self::Rings => "yasmin run",
            Self::Before => "yasmin run of the version before",
        }
    }
}

#[derive(Clone, Copy)]
pub enum Side {
    Server = 0,
    Client = 1,
}

pub struct Stage {
    namespaces: Option<Namespaces>,
    folder: PathBuf,
    socket: PathBuf,
    /// This executable.
    yasmin: PathBuf,
    /// Another version's, which starts a broker of its own.
    before: Option<PathBuf>,
    next_port: AtomicU16,
}

/// Below the ports that the kernel gives to clients.
const FIRST_PORT: u16 = 20000;

impl Stage {
    pub fn set(folder: &Path, socket: &Path, before: Option<PathBuf>) -> anyhow::Result<Self> {
        let namespaces = if rustix::process::geteuid().is_root() {
            Some(Namespaces::pair().context("the network namespaces cannot be made")?)
        } else {
            None
        };
        Ok(Self {
            namespaces,
            folder: folder.to_owned(),
            socket: socket.to_owned(),
            yasmin: std::env::current_exe()?,
            before,
            next_port: AtomicU16::new(FIRST_PORT),
        })
    }

    pub fn describe(&self) -> String {
        match &self.namespaces {
            Some(_) => "two network namespaces, joined by a veth pair".to_owned(),
            None => "over loopback; as root: two network namespaces".to_owned(),
        }
    }

    /// The server's address.
    pub fn address(&self) -> &'static str {
        if self.namespaces.is_some() { netns::ADDRESSES[0] } else { "127.0.0.1" }
    }

    /// A port that nobody listens on.
    pub fn port(&self) -> anyhow::Result<u16> {
        if self.namespaces.is_some() {
            return Ok(self.next_port.fetch_add(1, Ordering::Relaxed));
        }
        Ok(TcpListener::bind((self.address(), 0))?.local_addr()?.port())
    }

    /// For configuration and data of the workload's servers.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The ways to run a workload, in the order of the first round.
    pub fn ways(&self) -> &'static [How] {
        let all = &[How::Plain, How::Rings, How::Before];
        if self.before.is_some() { all } else { &all[..2] }
    }

    /// What stands before a program, for it to run so.
    pub fn words(&self, how: How) -> Vec<String> {
        match how {
            How::Plain => Vec::new(),
            How::Rings => {
                let (yasmin, socket) = (self.yasmin.display(), self.socket.display());
                [yasmin.to_string(), "run".into(), "--no-broker".into(), "--socket".into()]
                    .into_iter()
                    .chain([socket.to_string(), "--".into()])
                    .collect()
            }
            How::Before => {
                let socket = self.folder.join("before.sock").display().to_string();
                let yasmin = self.before.as_deref().unwrap_or(&self.yasmin).display().to_string();
                [yasmin, "run".into(), "--socket".into(), socket, "--".into()].into()
            }
        }
    }

    /// Starts `program` on `side`.
    pub fn start<S: AsRef<OsStr>>(
        &self,
        side: Side,
        how: How,
        program: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> anyhow::Result<Process> {
        let path = process::find(program).with_context(|| format!("{program} is missing"))?;
        let mut command = self.command(side, how, &path);
        command.args(arguments);
        Process::start(command, &self.folder, program)
    }

    /// Starts this command itself on `side`.
    pub fn start_own(
        &self,
        side: Side,
        how: How,
        environment: Option<(&str, &str)>,
        arguments: Vec<&str>,
    ) -> anyhow::Result<Process> {
        let mut command = self.command(side, how, &self.yasmin);
        command.args(arguments).envs(environment);
        Process::start(command, &self.folder, "yasmin")
    }

    fn command(&self, side: Side, how: How, program: &Path) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some(namespaces) = &self.namespaces {
            let enter = ["ip", "netns", "exec", namespaces.name(side as usize)];
            words.extend(enter.map(String::from));
        }
        words.extend(self.words(how));
        words.push(program.display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_remove("LD_PRELOAD");
        command
    }
}
