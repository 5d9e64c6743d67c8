//! The entries that stand in front of libc's.
//!
//! Each looks its descriptor up and takes one of three ways: nothing there, libc; a candidate,
//! libc and a count; a connection with a channel, `recv`, `send`, `poll` or `set`.
//!
//! Storey 7: exports.

pub mod aio;
mod aliases;
pub mod by_number;
mod descriptor;
mod lookup;
mod mapping;
pub mod program;
mod signal;
pub mod stdio;
mod stream;
mod uring;
mod wait;

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::conn::Conn;
use crate::entry::Entry;
use crate::in_flight::Inside;
use crate::iov::Buffers;
use crate::send::Source;
use crate::sys::{self, IoVec, Ret};
use crate::table::{self, Way};
use crate::{elsewhere, entry, guest, in_flight, life, memory, process, promote, recv, send};

/// What `fd` is, and if it is a candidate the mark that keeps it one until the call is over. A
/// connection never gets a call that took it for a candidate.
#[inline]
fn entered(fd: c_int, may_offer: bool) -> (Entry, Option<Inside>) {
    let entry = entry::get(fd);
    if !matches!(entry, Entry::Candidate(_)) {
        return (entry, None);
    }
    if may_offer {
        promote::at_once(fd);
    }
    let inside = in_flight::enter(fd);
    (entry::get(fd), inside)
}

/// Runs `kernel` on a candidate that was entered, and counts it.
#[inline]
fn counted(fd: c_int, inside: Inside, way: Way, kernel: impl FnOnce() -> isize) -> isize {
    let ret = kernel();
    if ret > 0 && matches!(way, Way::Out) {
        elsewhere::note_step();
    }
    in_flight::leave_with(fd, inside, way, ret);
    if let Entry::Candidate(candidate) = entry::get(fd) {
        promote::after_call(fd, candidate);
    }
    ret
}

/// The three ways of a call on a stream; `ring` says `None` where libc does it all the same,
/// and `after` hears what it did.
#[inline]
fn routed<Kernel: FnOnce() -> isize>(
    fd: c_int,
    way: Way,
    ring: impl Fn(&'static Conn) -> Option<Ret>,
    kernel: Kernel,
    after: impl FnOnce(&'static Conn, isize),
    vsock: impl FnOnce(c_int, Kernel) -> isize,
) -> isize {
    loop {
        return match entered(fd, true) {
            (Entry::Conn(conn), _) => {
                process::refresh();
                process::cancellation_point();
                let id = conn.id.load(Ordering::Relaxed);
                if let Some(ret) = ring(conn) {
                    return sys::returned(ret);
                }
                if !conn.is_at(fd) || conn.id.load(Ordering::Relaxed) != id {
                    if let Some(error) = conn.number_went(fd, id) {
                        return sys::returned(error);
                    }
                    // Another thread made it a candidate meanwhile: libc's call has to be counted as
                    // what it is now.
                    continue;
                }
                let ret = kernel();
                after(conn, ret);
                ret
            }
            (_, Some(inside)) => counted(fd, inside, way, kernel),
            (Entry::Guest(behind), None) => vsock(behind, kernel),
            (Entry::Leaving, None) => {
                table::await_leaving(fd);
                continue;
            }
            _ => {
                let ret = kernel();
                if ret > 0 && matches!(way, Way::Out) {
                    elsewhere::note_step();
                }
                ret
            }
        };
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
    let way = way_of(fd, Way::In, flags, sys::MSG_PEEK | sys::MSG_ERRQUEUE);
    routed(fd, way, |conn| recv::recv(conn, fd, to?, flags), kernel, |_, _| (), vsock)
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
    let way = way_of(fd, Way::Out, flags, 0);
    let ring = |conn| send::send(conn, fd, Source::Buffers(from?), flags);
    routed(fd, way, ring, kernel, after, vsock)
}

/// Whether a call moves bytes of the stream: not with the flags `aside`. A candidate that
/// handles urgent bytes stays TCP: what its counters say is hard to tell from then on.
#[inline]
fn way_of(fd: c_int, way: Way, flags: c_int, aside: c_int) -> Way {
    if flags & sys::MSG_OOB != 0 && matches!(entry::get(fd), Entry::Candidate(_)) {
        life::leave_to_others(fd);
    }
    if flags & (aside | sys::MSG_OOB) == 0 { way } else { Way::Nowhere }
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

fn counted_if(
    fd: c_int,
    inside: Option<Inside>,
    way: Way,
    kernel: impl FnOnce() -> isize,
) -> isize {
    match inside {
        Some(inside) => counted(fd, inside, way, kernel),
        None => kernel(),
    }
}
