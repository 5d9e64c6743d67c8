//! The entries that stand in front of libc's.
//!
//! Each looks its descriptor up and takes one of three ways: nothing there, libc; a candidate,
//! libc and a count; a connection with a channel, `recv`, `send`, `poll` or `set`.

pub mod by_number;
mod descriptor;
mod mapping;
pub mod program;
mod signal;
mod stream;
mod wait;

use core::ffi::c_int;

use crate::conn::Conn;
use crate::iov::Buffers;
use crate::send::Source;
use crate::sys::{self, IoVec, Ret};
use crate::table::{self, Entry};
use crate::{guest, in_flight, memory, process, promote, recv, send};

/// Runs `kernel` on a candidate and counts it.
#[inline]
fn counted(fd: c_int, kernel: impl FnOnce() -> isize) -> isize {
    let Some(inside) = in_flight::enter(fd) else { return kernel() };
    let ret = kernel();
    in_flight::leave(fd, inside);
    if let Entry::Candidate(candidate) = table::get(fd) {
        promote::after_call(fd, candidate, ret);
    }
    ret
}

/// The three ways of a call on a stream; `ring` says `None` where libc does it all the same,
/// and `after` hears what it did.
#[inline]
fn routed<Kernel: FnOnce() -> isize>(
    fd: c_int,
    ring: impl FnOnce(&'static Conn) -> Option<Ret>,
    kernel: Kernel,
    after: impl FnOnce(&'static Conn, isize),
    vsock: impl FnOnce(c_int, Kernel) -> isize,
) -> isize {
    let mut entry = table::get(fd);
    if matches!(entry, Entry::Candidate(_)) && promote::at_once(fd) {
        entry = table::get(fd);
    }
    match entry {
        Entry::Conn(conn) => {
            process::refresh();
            process::cancellation_point();
            ring(conn).map_or_else(
                || {
                    let ret = kernel();
                    after(conn, ret);
                    ret
                },
                sys::returned,
            )
        }
        Entry::Candidate(_) => counted(fd, kernel),
        Entry::Guest(behind) => vsock(behind, kernel),
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
    let wanted = to.map_or(0, |to| to.len_bytes);
    let vsock = |behind, kernel: _| guest::received(fd, behind, wanted, call_once(kernel));
    routed(fd, |conn| recv::recv(conn, fd, to?, flags), kernel, |_, _| (), vsock)
}

#[inline]
fn transmit(
    fd: c_int,
    from: Option<Buffers<'_>>,
    flags: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let after = |conn, ret| send::sent_verbatim(conn, fd, ret);
    let vsock = |behind, kernel: _| match from {
        // An address is no more to TCP than to say where it goes anyway.
        Some(from) => guest::send(fd, behind, from, flags),
        None => guest::sent(behind, flags, call_once(kernel)),
    };
    routed(fd, |conn| send::send(conn, fd, Source::Buffers(from?), flags), kernel, after, vsock)
}

/// For closures whose argument's type nobody can name.
fn call_once(f: impl FnOnce() -> isize) -> isize {
    f()
}

fn piece(base: *const u8, len: usize) -> IoVec {
    IoVec { base: base.cast_mut(), len }
}

/// recv and send, unlike read and write, cut a length before they look at the address.
fn piece_cut(base: *const u8, len: usize) -> IoVec {
    piece(base, len.min(memory::MOST_BYTES))
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
