//! `oshrun`: starts the processing elements (PEs) of an OpenSHMEM program, and ends them together.
//!
//! The PEs find each other by a job's name in their environment; the first one makes their segment.
//! One that ends otherwise than well ends the others, which would wait for it for ever.

use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::broker::{socket, start};
use crate::cli::Oshrun;
use crate::signals::Signals;

/// Time to end by themselves after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// The program cannot be started, as shells have it.
const NO_PROGRAM: u8 = 127;
/// A PE that was killed by a signal, as shells have it.
const KILLED: i32 = 128;

pub fn run(options: &Oshrun) -> ExitCode {
    match job(options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("oshrun: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn job(options: &Oshrun) -> anyhow::Result<u8> {
    let socket = socket::resolve(options.broker.socket.as_deref())?;
    if !options.no_broker {
        start::ensure(&socket).with_context(|| format!("broker {}", socket.display()))?;
    }
    let signals = Signals::new().context("cannot watch signals")?;
    // Each PE inherits the end that is written to: a byte there is the status of a global exit.
    let (said, says) = std::io::pipe().context("cannot make a pipe")?;
    rustix::io::fcntl_setfd(&says, FdFlags::empty())?;
    rustix::io::ioctl_fionbio(&said, true)?;
    let own = std::process::id();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let job = Job {
        name: format!("{own}-{:x}", since.map_or(0, |since| since.as_millis() & 0xffff_ffff)),
        exit_fd: says.as_raw_fd().to_string(),
        socket,
        options,
        signals: &signals,
    };
    let mut pes = Pes { all: Vec::new(), said };
    for number in 0..options.n {
        match job.start(number) {
            Ok(pe) => pes.all.push(pe),
            Err(error) => {
                let program = options.program[0].display();
                eprintln!("oshrun: {program} cannot be started: {error}");
                return Ok(NO_PROGRAM);
            }
        }
    }
    let code = pes.watch(&signals);
    // Before it is dropped: nobody writes to a pipe that nobody reads.
    drop(pes);
    code
}

struct Job<'a> {
    name: String,
    exit_fd: String,
    socket: PathBuf,
    options: &'a Oshrun,
    signals: &'a Signals,
}

impl Job<'_> {
    fn start(&self, number: u16) -> std::io::Result<Pe> {
        let program = &self.options.program;
        let mut command = Command::new(&program[0]);
        command
            .args(&program[1..])
            .env(yasmin_control::SOCKET_ENV, &self.socket)
            .env("YASMIN_SHMEM_PES", self.options.n.to_string())
            .env("YASMIN_SHMEM_PE", number.to_string())
            .env("YASMIN_SHMEM_JOB", &self.name)
            .env("YASMIN_SHMEM_LAUNCHER", std::process::id().to_string())
            .env("YASMIN_SHMEM_EXIT_FD", &self.exit_fd);
        if number > 0 {
            command.stdin(Stdio::null());
        }
        self.signals.give_back_to(&mut command);
        let child = command.spawn()?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Pe { number, child, pidfd, has_ended: false })
    }
}

struct Pe {
    number: u16,
    child: Child,
    pidfd: OwnedFd,
    has_ended: bool,
}

/// All that were started. Dropped, they end.
struct Pes {
    all: Vec<Pe>,
    said: PipeReader,
}

impl Pes {
    /// Until all have ended well, or one has not: the exit code.
    fn watch(&mut self, signals: &Signals) -> anyhow::Result<u8> {
        while self.all.iter().any(|pe| !pe.has_ended) {
            self.sleep(Some(signals), None)?;
            if let Some(code) = self.global_exit() {
                return Ok(code);
            }
            while let Some(signal) = signals.next() {
                self.kill(signal);
            }
            for (number, status) in self.reap()? {
                if status.success() {
                    continue;
                }
                // It may have said so in its last moment.
                if let Some(code) = self.global_exit() {
                    return Ok(code);
                }
                eprintln!("oshrun: PE {number} {}: all others end", describe(status));
                let code = status.code().unwrap_or(KILLED + status.signal().unwrap_or(0));
                return Ok(u8::try_from(code).unwrap_or(1));
            }
        }
        Ok(0)
    }

    /// Until something may have happened.
    fn sleep(&self, signals: Option<&Signals>, limit: Option<Timespec>) -> anyhow::Result<()> {
        let running = self.all.iter().filter(|pe| !pe.has_ended);
        let mut fds: Vec<PollFd<'_>> =
            running.map(|pe| PollFd::new(&pe.pidfd, PollFlags::IN)).collect();
        if let Some(signals) = signals {
            fds.push(PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN));
            fds.push(PollFd::new(&self.said, PollFlags::IN));
        }
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The status of shmem_global_exit, if a PE has called it.
    fn global_exit(&mut self) -> Option<u8> {
        let mut status = [0];
        matches!(self.said.read(&mut status), Ok(1)).then_some(status[0])
    }

    fn kill(&self, signal: Signal) {
        for pe in self.all.iter().filter(|pe| !pe.has_ended) {
            let _ = kill_process(Pid::from_child(&pe.child), signal);
        }
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
        while self.all.iter().any(|pe| !pe.has_ended) {
            let left = GRACE.saturating_sub(begun.elapsed());
            if left.is_zero() {
                self.kill(Signal::KILL);
            }
            // A killed one is gone when the kernel has taken it apart.
            let nap = left.max(Duration::from_millis(10));
            self.sleep(None, Some(Timespec::try_from(nap)?))?;
            self.reap()?;
        }
        Ok(())
    }
}

impl Drop for Pes {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("oshrun: some processes may still run: {error:#}");
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(_)) => format!("was killed, {status}"),
        (None, None) => status.to_string(),
    }
}
