//! Signals to this process, as a descriptor: they are those of the programs that it has started.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

/// What somebody may send to them.
const FORWARDED: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// From now on they do nothing to this process but that.
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    pub fn new() -> std::io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `set` is initialised first; both live through the calls.
        let fd = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in FORWARDED {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made the descriptor for this process, and filled `before`.
        Ok(unsafe { Self { fd: OwnedFd::from_raw_fd(fd), before: before.assume_init() } })
    }

    /// Has the command begin with the signals that this process had: std passes the mask on.
    pub fn give_back_to(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: one system call, which is allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let none = std::ptr::null_mut();
                match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, none) {
                    0 => Ok(()),
                    errno => Err(std::io::Error::from_raw_os_error(errno)),
                }
            });
        }
    }

    /// Whether one has come, a terminal's too.
    pub fn is_any(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut fds, Some(&now)), Ok(1..))
    }

    /// The next one that a process has sent. What a terminal sends it sends to all of its foreground
    /// job, so they have it already.
    pub fn next(&self) -> Option<Signal> {
        std::iter::from_fn(|| self.next_sent()).find(|sent| !sent.by_terminal).map(|it| it.signal)
    }

    /// The next one, whoever has sent it.
    pub fn next_sent(&self) -> Option<Sent> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let len = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` is writable for its size.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), len) };
        if usize::try_from(read) != Ok(len) {
            return None;
        }
        // SAFETY: the kernel filled all of it.
        let info = unsafe { info.assume_init() };
        let signal = Signal::from_named_raw(i32::try_from(info.ssi_signo).ok()?)?;
        Some(Sent { signal, by_terminal: info.ssi_code == libc::SI_KERNEL })
    }
}

/// A signal that has come.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub signal: Signal,
    pub by_terminal: bool,
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
