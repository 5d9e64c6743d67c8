//! A broker for one measurement alone, and what it counted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use yasmin_control::status::Status;

use super::process::Process;
use crate::broker::Client;
use crate::broker::start::greet;
use crate::install;

pub struct Broker {
    socket: PathBuf,
    process: Process,
    /// While it is connected, the broker does not find itself idle.
    _stay: Client,
}

/// Bytes that all connections moved since the broker began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub ring_bytes: u64,
    pub tcp_bytes: u64,
}

/// A broker whose demo was killed leaves by itself.
const IDLE_S: &str = "5";
const START_LIMIT: Duration = Duration::from_secs(5);
/// How long the broker may take to see that connections are closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(5);

impl Broker {
    pub fn start(folder: &Path) -> anyhow::Result<Self> {
        Self::start_with(folder, &[])
    }

    /// The same with more options.
    pub fn start_with(folder: &Path, options: &[&str]) -> anyhow::Result<Self> {
        install::find(install::LIBRARY)?;
        let socket = folder.join(yasmin_control::SOCKET_NAME);
        let mut command = Command::new(install::find(install::BROKER)?);
        command.arg("--socket").arg(&socket).args(["--exit-when-idle", IDLE_S]).args(options);
        let process = Process::start(command, folder, install::BROKER)?;
        let begun = Instant::now();
        while let Err(trouble) = greet(&socket) {
            if begun.elapsed() > START_LIMIT {
                bail!("yasmind does not start ({trouble}): {}", process.output().trim());
            }
            std::thread::sleep(POLL_EVERY);
        }
        let stay = Client::connect(&socket)?;
        stay.hello()?;
        Ok(Self { socket, process, _stay: stay })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn status(&self) -> anyhow::Result<Status> {
        Client::connect(&self.socket)
            .and_then(|client| client.status())
            .with_context(|| format!("the broker has gone: {}", self.process.output().trim()))
    }

    /// How it proves that two ends belong together.
    pub fn proof(&self) -> anyhow::Result<String> {
        Ok(self.status()?.broker.proof)
    }

    pub fn totals(&self) -> anyhow::Result<Totals> {
        Ok(Totals::of(&self.status()?))
    }

    /// What was moved since `before`, once the connections of the run are closed.
    pub fn moved_since(&self, before: anyhow::Result<Totals>) -> anyhow::Result<Totals> {
        before?.until_closed(|| self.status())
    }
}

impl Totals {
    /// What was moved since `self`, once all connections are closed, or after a while.
    pub fn until_closed<E>(self, status: impl Fn() -> Result<Status, E>) -> Result<Self, E> {
        let begun = Instant::now();
        let now = loop {
            let status = status()?;
            if status.connections.is_empty() || begun.elapsed() > CLOSE_LIMIT {
                break Self::of(&status);
            }
            std::thread::sleep(POLL_EVERY);
        };
        Ok(Self {
            ring_bytes: now.ring_bytes.saturating_sub(self.ring_bytes),
            tcp_bytes: now.tcp_bytes.saturating_sub(self.tcp_bytes),
        })
    }

    pub fn of(status: &Status) -> Self {
        let broker = &status.broker;
        let mut totals =
            Self { ring_bytes: broker.closed_ring_bytes, tcp_bytes: broker.closed_tcp_bytes };
        for end in status.connections.iter().flat_map(|connection| &connection.ends) {
            totals.ring_bytes += end.sends.ring_bytes;
            totals.tcp_bytes += end.sends.tcp_bytes;
        }
        totals
    }
}
