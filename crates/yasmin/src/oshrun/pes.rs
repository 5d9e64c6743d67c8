//! The processing elements (PEs) that this process has started, and their ends.

use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::say;
use crate::exit;
use crate::signals::Signals;

/// Time to end by themselves after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(2);

struct Pe {
    number: u16,
    child: Child,
    pidfd: OwnedFd,
    has_ended: bool,
}

/// All that were started here. Dropped, they end.
pub struct Pes {
    all: Vec<Pe>,
    said: PipeReader,
}

impl Pes {
    /// `said`: what a PE says there is the status of a global exit, one byte.
    pub const fn new(said: PipeReader) -> Self {
        Self { all: Vec::new(), said }
    }

    pub fn add(&mut self, number: u16, child: Child) -> std::io::Result<()> {
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        self.all.push(Pe { number, child, pidfd, has_ended: false });
        Ok(())
    }

    pub fn have_ended(&self) -> bool {
        self.all.iter().all(|pe| pe.has_ended)
    }

    /// Until something may have happened.
    pub fn sleep(&self, signals: Option<&Signals>, limit: Option<Duration>) -> anyhow::Result<()> {
        let running = self.all.iter().filter(|pe| !pe.has_ended);
        let mut fds: Vec<PollFd<'_>> =
            running.map(|pe| PollFd::new(&pe.pidfd, PollFlags::IN)).collect();
        if let Some(signals) = signals {
            fds.push(PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN));
            fds.push(PollFd::new(&self.said, PollFlags::IN));
        }
        let limit = limit.map(Timespec::try_from).transpose()?;
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub fn kill(&self, signal: Signal) {
        for pe in self.all.iter().filter(|pe| !pe.has_ended) {
            let _ = kill_process(Pid::from_child(&pe.child), signal);
        }
    }

    /// The exit code that all have to end with, if one of them says so by now: it has called
    /// shmem_global_exit, or has failed.
    pub fn look(&mut self) -> anyhow::Result<Option<u8>> {
        if let Some(code) = self.global_exit() {
            return Ok(Some(code));
        }
        for (number, status) in self.reap()? {
            if status.success() {
                continue;
            }
            // It may have said so in its last moment.
            if let Some(code) = self.global_exit() {
                return Ok(Some(code));
            }
            say(format_args!("PE {number} {}: all others end", describe(status)));
            return Ok(Some(exit::code(status)));
        }
        Ok(None)
    }

    fn global_exit(&mut self) -> Option<u8> {
        let mut status = [0];
        matches!(self.said.read(&mut status), Ok(1)).then_some(status[0])
    }

    /// Those that have ended since.
    fn reap(&mut self) -> std::io::Result<Vec<(u16, ExitStatus)>> {
        let mut ended = Vec::new();
        for pe in self.all.iter_mut().filter(|pe| !pe.has_ended) {
            if let Some(status) = pe.child.try_wait()? {
                pe.has_ended = true;
                ended.push((pe.number, status));
            }
        }
        Ok(ended)
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.kill(Signal::TERM);
        let begun = Instant::now();
        while !self.have_ended() {
            let left = GRACE.saturating_sub(begun.elapsed());
            if left.is_zero() {
                self.kill(Signal::KILL);
            }
            // A killed one is gone when the kernel has taken it apart.
            self.sleep(None, Some(left.max(Duration::from_millis(10))))?;
            self.reap()?;
        }
        Ok(())
    }
}

impl Drop for Pes {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            say(format_args!("some processes may still run: {error:#}"));
        }
    }
}

pub fn describe(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("ended with exit code {code}"),
        None => format!("was killed, {status}"),
    }
}
