//! The entries that stand in front of libc's.
//!
//! Each looks its descriptor up and takes one of three ways: nothing there, libc; a candidate,
//! libc and a count; a connection with a channel, `recv`, `send`, `poll` or `set`.

mod descriptor;
mod stream;
mod wait;

use core::ffi::c_int;

use crate::conn::Conn;
use crate::iov::Buffers;
use crate::send::Source;
use crate::sys::{self, IoVec, Ret};
use crate::table::{self, Entry};
use crate::{process, promote, recv, send};

/// Runs `kernel` on a candidate and counts it.
#[inline]
fn counted(fd: c_int, kernel: impl FnOnce() -> isize) -> isize {
    if !table::enter(fd) {
        return kernel();
    }
    let ret = kernel();
    if let Some(candidate) = table::leave(fd, ret.max(0) as usize, ret > 0) {
        promote::after_call(fd, candidate);
    }
    ret
}

/// The three ways of a call on a stream; `ring` says `None` where libc does it all the same.
#[inline]
fn routed(
    fd: c_int,
    ring: impl FnOnce(&'static Conn) -> Option<Ret>,
    kernel: impl FnOnce() -> isize,
) -> isize {
    match table::get(fd) {
        Entry::Conn(conn) => {
            process::refresh();
            ring(conn).map_or_else(kernel, sys::returned)
        }
        Entry::Candidate(_) => counted(fd, kernel),
        _ => kernel(),
    }
}

#[inline]
fn receive(
    fd: c_int,
    to: Option<Buffers<'_>>,
    flags: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    routed(fd, |conn| recv::recv(conn, fd, to?, flags), kernel)
}

#[inline]
fn transmit(
    fd: c_int,
    from: Option<Buffers<'_>>,
    flags: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    routed(fd, |conn| send::send(conn, fd, Source::Buffers(from?), flags), kernel)
}

fn piece(base: *const u8, len: usize) -> IoVec {
    IoVec { base: base.cast_mut(), len }
}

/// What _FORTIFY_SOURCE wants: a length past the buffer ends the program.
fn check(len: usize, size: usize) {
    if len > size {
        sys::abort();
    }
}

fn counted_if_candidate(fd: c_int, kernel: impl FnOnce() -> isize) -> isize {
    if matches!(table::get(fd), Entry::Candidate(_)) { counted(fd, kernel) } else { kernel() }
}
