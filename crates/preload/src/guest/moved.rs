//! Calls on a connection that goes by vsock: the kernel's own, made to look like TCP's by the TCP
//! socket `behind`.
//!
//! Storey 4: life.

use core::cell::UnsafeCell;
use core::ffi::c_int;

use crate::entry::{self, Entry};
use crate::iov::Buffers;
use crate::request::{wait, wait_ns};
use crate::sys::{self, IoVec, MSG_DONTWAIT, MSG_NOSIGNAL, MsgHdr, POLLIN, SOL_SOCKET, call};
use crate::{clock, real, table, tcp};

/// One descriptor less names the connection: with the last, the TCP socket behind is closed.
pub fn unname(fd: c_int, behind: c_int) {
    let is_shared = table::is_guest_shared(fd);
    table::clear(fd);
    if !table::unname_behind(behind) {
        return;
    }
    if !is_shared {
        end_unread(fd, behind);
    }
    sys::close(behind);
}

/// As TCP does: who lets go of unread bytes resets.
pub fn end_unread(fd: c_int, behind: c_int) {
    let mut byte = 0u8;
    let flags = MSG_DONTWAIT | sys::MSG_PEEK;
    // SAFETY: one byte of ours.
    if unsafe { call!(recvfrom, fd, &raw mut byte, 1, flags, 0, 0) } > 0 {
        sys::setsockopt_bytes(behind, SOL_SOCKET, sys::SO_LINGER, &sys::LINGER_0);
    }
}

/// The program puts something else under the number of a socket behind.
pub fn abandon(behind: c_int) {
    for fd in 0..table::end() {
        if matches!(entry::get(fd), Entry::Guest(at) if at == behind) {
            table::clear(fd);
        }
    }
    table::clear(behind);
}

/// After a receive on a connection that goes by vsock, for what TCP says otherwise.
pub fn received(fd: c_int, behind: c_int, wanted: usize, ret: isize) -> isize {
    const ENOTCONN: i32 = 107;
    if ret > 0 || wanted == 0 {
        return ret;
    }
    if ret < 0 {
        // After its error was told, TCP tells of the end.
        return if sys::errno() == ENOTCONN { 0 } else { ret };
    }
    if !table::guest_ended(fd) && is_reset(behind) {
        sys::set_errno(sys::ECONNRESET);
        return -1;
    }
    ret
}

/// The end has come by vsock. Whether it is a reset the TCP connection says, whose own end
/// comes at about the same time.
fn is_reset(behind: c_int) -> bool {
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT: [u8; 2] = [4, 5];
    const CLOSE: u8 = 7;
    let saved = sys::errno();
    let until_ns = clock::now_ns() + wait_ns();
    let state = loop {
        let state = tcp::state(behind);
        let is_open = state == ESTABLISHED || FIN_WAIT.contains(&state);
        if !is_open || !wait(behind, POLLIN | sys::POLLRDHUP, until_ns) {
            break state;
        }
        let now = tcp::state(behind);
        if now == state {
            // Shut down by ourselves.
            break state;
        }
    };
    sys::set_errno(saved);
    state == CLOSE && error_of(behind) == sys::ECONNRESET as u64
}

fn error_of(fd: c_int) -> u64 {
    const SO_ERROR: c_int = 4;
    sys::getsockopt_u64(fd, SOL_SOCKET, SO_ERROR, 4).unwrap_or(0)
}

/// A send on a connection that goes by vsock: no signal but ours, which not all kernels send.
pub fn send(fd: c_int, behind: c_int, from: Buffers<'_>, flags: c_int) -> isize {
    let pieces = from.pieces();
    let message = message(pieces.as_ptr().cast_mut(), pieces.len());
    // SAFETY: the program's pieces.
    let ret = unsafe { real::sendmsg(fd, &raw const message, flags | MSG_NOSIGNAL) };
    sent(behind, flags, ret)
}

/// After a send with MSG_NOSIGNAL on a connection that goes by vsock, for what TCP says
/// otherwise; `flags` are the program's.
pub fn sent(behind: c_int, flags: c_int, ret: isize) -> isize {
    const EPIPE: i32 = 32;
    const ENOTCONN: i32 = 107;
    const SIGPIPE: usize = 13;
    if ret >= 0 || !matches!(sys::errno(), EPIPE | ENOTCONN) {
        return ret;
    }
    let error = error_of(behind) as i32;
    if error != 0 {
        sys::set_errno(error);
        return -1;
    }
    if flags & MSG_NOSIGNAL == 0 {
        // SAFETY: no memory involved.
        unsafe { call!(tgkill, sys::getpid(), sys::gettid(), SIGPIPE) };
    }
    sys::set_errno(EPIPE);
    -1
}

/// FIONREAD, which AF_VSOCK has not. yasmin.ko counts without a copy (MSG_TRUNC, as TCP does).
pub fn unread(fd: c_int) -> c_int {
    /// No ring is larger.
    const MOST_BYTES: usize = 1 << 21;
    const PIECES: usize = MOST_BYTES / SCRATCH_BYTES;
    let piece = IoVec { base: SCRATCH.0.get().cast(), len: SCRATCH_BYTES };
    let mut pieces = [piece; PIECES];
    let message = message(pieces.as_mut_ptr(), PIECES);
    let flags = MSG_DONTWAIT | sys::MSG_PEEK | sys::MSG_TRUNC;
    // SAFETY: memory of ours, that nobody reads.
    let ret = unsafe { call!(recvmsg, fd, &raw const message, flags) };
    ret.max(0) as c_int
}

const SCRATCH_BYTES: usize = 1 << 16;

/// Where other transports put what is only counted.
struct Scratch(UnsafeCell<[u8; SCRATCH_BYTES]>);

// SAFETY: never read.
unsafe impl Sync for Scratch {}

static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; SCRATCH_BYTES]));

fn message(iov: *mut IoVec, iovlen: usize) -> MsgHdr {
    MsgHdr {
        name: core::ptr::null_mut(),
        namelen: 0,
        iov,
        iovlen,
        control: core::ptr::null_mut(),
        controllen: 0,
        flags: 0,
    }
}

/// By TCP and, by `kernel`, on the vsock connection.
pub fn shutdown(behind: c_int, how: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    // First by TCP, so that a peer that learns of it by vsock finds it there.
    // SAFETY: no memory involved.
    let ret = unsafe { call!(shutdown, behind, how) };
    if ret < 0 {
        return sys::returned(ret) as c_int;
    }
    kernel()
}
