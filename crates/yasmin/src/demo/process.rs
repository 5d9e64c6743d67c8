//! Programs that the demo starts: each in a process group of its own, its output in files,
//! never waited for without a limit, gone when its value is.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::interrupt;

/// Time to end by itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Lines of a failed program's output that are shown.
const TAIL: usize = 5;

/// It still ran when its time was over.
#[derive(Debug, thiserror::Error)]
#[error("{name} does not end within {limit:?}: {tail}")]
pub struct NoEnd {
    name: String,
    limit: Duration,
    tail: String,
}

pub struct Process {
    name: String,
    child: Child,
    output: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with its output in `folder`.
    pub fn start(mut command: Command, folder: &Path, name: &str) -> anyhow::Result<Self> {
        let output = tempfile::Builder::new().prefix(name).suffix(".log").tempfile_in(folder)?;
        let (file, output) = output.keep()?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("{name} cannot be started"))?;
        interrupt::add(child.id());
        Ok(Self { name: name.to_owned(), child, output, ended: None })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.wait(Duration::ZERO)?.is_some())
    }

    /// Waits for a program that ends by itself, and returns its output.
    pub fn finish(mut self, limit: Duration) -> anyhow::Result<String> {
        let Some(status) = self.wait(limit)? else {
            bail!(NoEnd { name: self.name.clone(), limit, tail: self.tail() });
        };
        interrupt::check()?;
        if !status.success() {
            bail!("{} failed ({}): {}", self.name, describe(status), self.tail());
        }
        Ok(self.output())
    }

    /// Waits until it listens on `port`, in whatever network namespace it is.
    pub fn listens(&mut self, port: u16, limit: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !is_listening(self.pid(), port) {
            interrupt::check()?;
            if let Some(status) = self.wait(Duration::from_millis(2))? {
                bail!("{} ended ({}): {}", self.name, describe(status), self.tail());
            }
            if begun.elapsed() > limit {
                bail!("{} does not listen on port {port}: {}", self.name, self.tail());
            }
        }
        Ok(())
    }

    /// `None` when it still runs after `limit`.
    fn wait(&mut self, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            let pid = Pid::from_child(&self.child);
            let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
            let timeout = Timespec::try_from(limit)?;
            if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? == 0 {
                return Ok(None);
            }
            self.ended = Some(self.child.wait()?);
        }
        Ok(self.ended)
    }

    fn tail(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        match &lines[lines.len().saturating_sub(TAIL)..] {
            [] => "it said nothing".to_owned(),
            tail => tail.join(" | "),
        }
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.signal(Signal::TERM);
            let _ = self.wait(GRACE);
        }
        // Whatever else is in the group; and itself, if it did not listen.
        self.signal(Signal::KILL);
        if self.ended.is_none() {
            let _ = self.child.wait();
        }
        interrupt::remove(self.child.id());
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// A line of /proc/net/tcp: `sl local:port remote:port st ...`; state 0A listens.
fn is_listening(pid: u32, port: u16) -> bool {
    let local = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        text.lines().any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let address = fields.next().unwrap_or_default();
            address.ends_with(&local) && fields.nth(1) == Some("0A")
        })
    })
}

/// The program called `name`, also where servers are kept. A name with a slash is a path.
pub fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(servers).map(|folder| folder.join(name)).find(|path| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    })
}

/// Runs a helper to its end; its output is shown only if it fails.
pub fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let path = find(program).with_context(|| format!("{program} is missing"))?;
    let output = Command::new(path).args(arguments).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
