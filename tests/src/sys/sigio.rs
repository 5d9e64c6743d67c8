//! Signals that tell of a socket: O_ASYNC, and waiting for them. They are held back in every
//! thread and taken by the wait, so that no other call is interrupted.

use std::io::{Error, Result};
use std::ptr::null_mut;

use libc::{c_int, sigset_t};

use super::{Fd, check_int, duration};

const F_SETSIG: c_int = 10;

/// Let through they end the process.
pub fn held() -> [c_int; 2] {
    [libc::SIGIO, libc::SIGRTMIN() + 1]
}

fn signals() -> sigset_t {
    super::interrupts::set_of(&held())
}

/// In the calling thread and those that it starts.
pub fn hold() {
    let set = signals();
    // SAFETY: the set outlives the call.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, null_mut()) };
}

/// Takes one signal; whether one came in time.
pub fn take(timeout_ms: i32) -> Result<bool> {
    let (set, time) = (signals(), duration(timeout_ms));
    loop {
        // SAFETY: set and time outlive the call.
        match check_int(unsafe { libc::sigtimedwait(&raw const set, null_mut(), &raw const time) })
        {
            Ok(_) => return Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The socket's signals go to this process.
pub fn own(fd: Fd) -> Result<()> {
    super::signals::own_signals(fd)
}

/// A signal of its own, which queues, instead of SIGIO.
pub fn queue(fd: Fd, on: bool) -> Result<()> {
    let signal = if on { libc::SIGRTMIN() + 1 } else { 0 };
    // SAFETY: no pointers.
    check_int(unsafe { libc::fcntl(fd, F_SETSIG, signal) }).map(drop)
}

pub fn announce(fd: Fd, on: bool, by_ioctl: bool) -> Result<()> {
    if by_ioctl {
        let value = c_int::from(on);
        // SAFETY: reads one int.
        return check_int(unsafe { libc::ioctl(fd, libc::FIOASYNC, &raw const value) }).map(drop);
    }
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(Error::last_os_error());
    }
    let flags = if on { flags | libc::O_ASYNC } else { flags & !libc::O_ASYNC };
    // SAFETY: no pointers.
    check_int(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }).map(drop)
}
