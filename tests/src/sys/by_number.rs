//! Calls by their number, by libc's syscall.

use std::io::Result;

use super::{Fd, check, libc};

pub fn read(fd: Fd, out: &mut [u8]) -> Result<usize> {
    // SAFETY: a buffer of ours.
    check(unsafe { libc::syscall(libc::SYS_read, fd, out.as_mut_ptr(), out.len()) } as isize)
}

pub fn write(fd: Fd, data: &[u8]) -> Result<usize> {
    // SAFETY: a buffer of ours.
    check(unsafe { libc::syscall(libc::SYS_write, fd, data.as_ptr(), data.len()) } as isize)
}

pub fn close(fd: Fd) -> Result<()> {
    // SAFETY: no memory involved.
    check(unsafe { libc::syscall(libc::SYS_close, fd) } as isize).map(drop)
}

/// recvfrom has six arguments, the last one on the stack.
pub fn recvfrom(fd: Fd, out: &mut [u8], flags: i32) -> Result<usize> {
    let (base, len) = (out.as_mut_ptr(), out.len());
    // SAFETY: a buffer of ours, no address.
    check(unsafe {
        libc::syscall(libc::SYS_recvfrom, fd, base, len, flags, 0_usize, 0_usize) as isize
    })
}
