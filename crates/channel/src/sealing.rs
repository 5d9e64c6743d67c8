//! Nobody can take pages out of a channel's memory any more.
//!
//! Who may write a memfd may punch holes into it, and whoever touches it meanwhile waits in the kernel. The
//! seal against it (F_SEAL_FUTURE_WRITE, Linux 5.1) refuses new mappings too, so it comes when both
//! ends have mapped the memory. Until then neither touches it, so an end cannot say there that it has mapped
//! it: it locks a byte of the file instead. Of two ends that lock theirs and look for the other's
//! one finds it at least, and seals. The locks are of descriptions (F_OFD_SETLK), of which each end has
//! its own, so that both may be of one process.

use core::ffi::{c_int, c_short};

use crate::sys::{Errno, Sysno, syscall};

const F_ADD_SEALS: usize = 1033;
const F_GET_SEALS: usize = 1034;
const F_SEAL_SEAL: usize = 1;
const F_SEAL_FUTURE_WRITE: usize = 16;

const F_OFD_GETLK: usize = 36;
const F_OFD_SETLK: usize = 37;
const F_WRLCK: c_short = 1;
const F_UNLCK: c_short = 2;

/// The kernel's `struct flock`, of 64-bit machines.
#[repr(C)]
struct Flock {
    kind: c_short,
    whence: c_short,
    start: i64,
    len: i64,
    pid: i32,
}

impl Flock {
    const fn of_byte(end: usize) -> Self {
        Self { kind: F_WRLCK, whence: 0, start: end as i64, len: 1, pid: 0 }
    }
}

/// End `end` (0: connector, 1: acceptor) has mapped the channel behind `memfd`, a description of its
/// own. Whether both have, and it is sealed; else `is_sealed` tells later. The description stays open until
/// then.
///
/// # Errors
/// EPERM: the other end sealed it otherwise. EAGAIN: it has taken this one's lock. Else the kernel's.
pub fn arrive(memfd: c_int, end: usize) -> Result<bool, Errno> {
    let mut own = Flock::of_byte(end);
    // SAFETY: a lock of ours, which the kernel reads.
    unsafe { syscall!(Sysno::fcntl, memfd, F_OFD_SETLK, &raw mut own) }?;
    let mut other = Flock::of_byte(1 - end);
    // SAFETY: the kernel writes what is in the way of it.
    unsafe { syscall!(Sysno::fcntl, memfd, F_OFD_GETLK, &raw mut other) }?;
    if other.kind == F_UNLCK {
        return Ok(false);
    }
    match add_seals(memfd, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) {
        // A kernel without that seal.
        Err(Errno::EINVAL) => add_seals(memfd, F_SEAL_SEAL)?,
        // The other end found this one's lock, too.
        Err(Errno::EPERM) => return is_sealed(memfd),
        result => result?,
    }
    Ok(true)
}

/// Whether the other end, or `arrive`, has sealed it.
///
/// # Errors
/// EPERM: against further seals alone. Else the kernel's.
pub fn is_sealed(memfd: c_int) -> Result<bool, Errno> {
    // SAFETY: no memory involved.
    let seals = unsafe { syscall!(Sysno::fcntl, memfd, F_GET_SEALS) }?;
    if seals & F_SEAL_SEAL == 0 || seals & F_SEAL_FUTURE_WRITE != 0 {
        return Ok(seals & F_SEAL_SEAL != 0);
    }
    match add_seals(memfd, F_SEAL_FUTURE_WRITE) {
        // A kernel without that seal.
        Err(Errno::EINVAL) => Ok(true),
        _ => Err(Errno::EPERM),
    }
}

fn add_seals(memfd: c_int, seals: usize) -> Result<(), Errno> {
    // SAFETY: no memory involved.
    unsafe { syscall!(Sysno::fcntl, memfd, F_ADD_SEALS, seals) }.map(|_| ())
}
