//! Signals whose handlers count, or use sockets.

use std::io::Result;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::{Fd, check_int};
use crate::sys::libc::{self, c_int};

/// How often each signal was handled.
static CAUGHT: [AtomicU64; 65] = [const { AtomicU64::new(0) }; 65];

extern "C" fn count(signal: c_int) {
    CAUGHT[signal as usize].fetch_add(1, Ordering::SeqCst);
}

fn install(signal: c_int, handler: extern "C" fn(c_int), flags: c_int) -> Result<()> {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler as extern "C" fn(c_int) as usize;
    action.sa_flags = flags;
    // SAFETY: the handlers here call only what a handler may call, and keep errno.
    check_int(unsafe { libc::sigaction(signal, &raw const action, null_mut()) }).map(drop)
}

/// Counts `signal` from now on.
pub fn count_signal(signal: c_int) -> Result<()> {
    install(signal, count, libc::SA_RESTART)
}

pub fn caught(signal: c_int) -> u64 {
    CAUGHT[signal as usize].load(Ordering::SeqCst)
}

/// What the handler of SIGUSR2 uses, and what it did.
static FD: AtomicI32 = AtomicI32::new(-1);
static DONE: AtomicU64 = AtomicU64::new(0);
static SUM: AtomicU64 = AtomicU64::new(0);
static STRANGE: AtomicI32 = AtomicI32::new(0);

/// The marker that the handler sends.
pub static MARK: u8 = b'h';

fn with_errno_kept(act: impl FnOnce()) {
    // SAFETY: libc's thread-local errno.
    let saved = unsafe { *libc::__errno_location() };
    act();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = saved };
}

fn note_failure() {
    // SAFETY: libc's thread-local errno.
    let errno = unsafe { *libc::__errno_location() };
    if errno != libc::EAGAIN {
        STRANGE.store(errno, Ordering::SeqCst);
    }
}

extern "C" fn send_mark(_: c_int) {
    with_errno_kept(|| {
        // SAFETY: one byte of a constant.
        let sent = unsafe {
            libc::send(FD.load(Ordering::SeqCst), (&raw const MARK).cast(), 1, libc::MSG_NOSIGNAL)
        };
        if sent == 1 {
            DONE.fetch_add(1, Ordering::SeqCst);
        } else {
            note_failure();
        }
    });
}

extern "C" fn take_some(_: c_int) {
    with_errno_kept(|| {
        let mut bytes = [0u8; 7];
        // SAFETY: `bytes` is writable for its length.
        let got = unsafe {
            let (fd, at) = (FD.load(Ordering::SeqCst), bytes.as_mut_ptr().cast());
            libc::recv(fd, at, bytes.len(), libc::MSG_DONTWAIT)
        };
        match usize::try_from(got) {
            Ok(got) => {
                DONE.fetch_add(got as u64, Ordering::SeqCst);
                let sum = bytes[..got].iter().map(|byte| u64::from(*byte)).sum();
                SUM.fetch_add(sum, Ordering::SeqCst);
            }
            Err(_) => note_failure(),
        }
    });
}

/// From now on SIGUSR2's handler sends on, or receives from, `fd`.
pub fn handler_uses(fd: Fd, sends: bool) -> Result<()> {
    FD.store(fd, Ordering::SeqCst);
    DONE.store(0, Ordering::SeqCst);
    SUM.store(0, Ordering::SeqCst);
    STRANGE.store(0, Ordering::SeqCst);
    install(libc::SIGUSR2, if sends { send_mark } else { take_some }, libc::SA_RESTART)
}

/// Bytes that the handler moved, their sum if it received them, and an errno that was neither
/// EAGAIN nor 0.
pub fn handler_did() -> (u64, u64, i32) {
    let [done, sum] = [&DONE, &SUM].map(|word| word.load(Ordering::SeqCst));
    (done, sum, STRANGE.load(Ordering::SeqCst))
}

/// SIGURG and SIGIO of `fd` go to this process.
pub fn own_signals(fd: Fd) -> Result<()> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) }).map(drop)
}
