//! A command between `leave` and, where it fails, `join`: one that moves the guest, or saves it.

use super::{ask, done, join, leave};
use crate::exit;
use crate::signals::Signals;
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// As shells have it: not there, not to be run.
const NO_COMMAND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Takes all memory from the guest, runs the command, and gives its exit status. The guest joins again
/// unless that is 0.
///
/// # Errors
/// The command was not run.
pub fn run(
    socket: &Path,
    guests: &[String],
    within_s: u32,
    command: &[OsString],
) -> anyhow::Result<u8> {
    let [guest] = guests else {
        bail!("a command moves one guest, and {} are named", guests.len());
    };
    let guests = std::slice::from_ref(guest);
    // Whatever comes from now on is the command's, or comes before it: the guest is not left without
    // memory by a ^C.
    let signals = Signals::new().context("cannot watch signals")?;
    if let Err(error) = leave(socket, guests, within_s) {
        // It has not moved.
        let _ = ask(socket, &join(guests), Duration::ZERO);
        return Err(error);
    }
    let code = if signals.is_any() {
        eprintln!("yasmin: interrupted before the command was run");
        1
    } else {
        carry_out(command, &signals)?
    };
    if code != 0 {
        match ask(socket, &join(guests), Duration::ZERO).and_then(done) {
            Ok(()) => eprintln!("yasmin: {guest} has not moved, and may have memory again"),
            Err(error) => eprintln!(
                "yasmin: {guest} has not moved, and gets no memory: say 'yasmin host join {guest}' ({error:#})"
            ),
        }
    }
    Ok(code)
}

/// Its exit code; what somebody sends to this process goes to it.
fn carry_out(command: &[OsString], signals: &Signals) -> anyhow::Result<u8> {
    let Some((program, arguments)) = command.split_first() else { return Ok(0) };
    let mut command = Command::new(program);
    command.args(arguments);
    signals.give_back_to(&mut command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("yasmin: cannot run {}: {error}", program.display());
            return Ok(if error.kind() == ErrorKind::NotFound { NO_COMMAND } else { NOT_RUN });
        }
    };
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(exit::code(status));
        }
        let mut fds = [
            PollFd::new(&pidfd, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(signal) = signals.next() {
            let _ = kill_process(pid, signal);
        }
    }
}
