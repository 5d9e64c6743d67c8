//! Read locks of open file descriptions (fcntl(2), F_OFD_SETLK): they live as long as a
//! descriptor or a mapping of their description does, in whatever process.

use rustix::fd::{AsFd, AsRawFd};
use std::io;

fn flock(kind: i32, start: i64, len: i64) -> libc::flock {
    // SAFETY: all zero is a flock; a pid of 0 is what these locks ask for.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = start;
    lock.l_len = len;
    lock
}

/// Locks byte `at` for reading. It never waits.
pub fn set(fd: impl AsFd, at: i64) -> io::Result<()> {
    change(fd, flock(libc::F_RDLCK, at, 1))
}

fn change(fd: impl AsFd, lock: libc::flock) -> io::Result<()> {
    // SAFETY: the kernel reads the structure, which lives through the call.
    let result = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// As a member's sign of life.
#[cfg(test)]
pub fn set_to_write(fd: impl AsFd, at: i64) -> io::Result<()> {
    change(fd, flock(libc::F_WRLCK, at, 1))
}

/// As a member that means ill: every second byte of so many, by the shortest way, which is to lock
/// all and to let go of one after the other from the end.
#[cfg(test)]
pub fn set_every_second(fd: impl AsFd, count: i64) -> io::Result<()> {
    change(&fd, flock(libc::F_RDLCK, 0, 2 * count))?;
    let holes = (0..count).rev().map(|hole| flock(libc::F_UNLCK, 2 * hole + 1, 1));
    holes.into_iter().try_for_each(|hole| change(&fd, hole))
}

/// One of the locks of other descriptions that touch `len` bytes from `start` on, as start and
/// length; a length of 0 is without end.
pub fn any(fd: impl AsFd, start: i64, len: i64) -> io::Result<Option<(i64, i64)>> {
    in_the_way(fd, flock(libc::F_WRLCK, start, len))
}

/// Whether another description, of one who may write, has byte `at` locked for writing.
pub fn is_set_to_write(fd: impl AsFd, at: i64) -> io::Result<bool> {
    Ok(in_the_way(fd, flock(libc::F_RDLCK, at, 1))?.is_some())
}

fn in_the_way(fd: impl AsFd, mut lock: libc::flock) -> io::Result<Option<(i64, i64)>> {
    // SAFETY: the kernel reads and writes the structure, which lives through the call.
    let result = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_locked = i32::from(lock.l_type) != libc::F_UNLCK;
    Ok(is_locked.then_some((lock.l_start, lock.l_len)))
}
