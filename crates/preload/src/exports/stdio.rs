//! libc's streams: what they do in place of glibc's own functions, and libc's calls that change numbers 0 to 2.
//!
//! Storey 7: exports.

mod formatted;
mod glibc;
mod musl;

use core::ffi::{c_char, c_int, c_void};

use super::stream;
use crate::{bare, object, options, process, real, streams, sys, table};

/// Before the program's own code runs.
pub fn start() {
    if bare::is() {
        return;
    }
    formatted::start();
    if real::LIBC.is_musl() {
        streams::musl::see(musl::OWN);
    } else {
        streams::glibc::see(glibc::OWN);
    }
}

/// Runs `call` where this thread cannot be cancelled.
fn without_cancelling(call: impl FnOnce() -> isize) -> isize {
    let before = real::set_cancel_state(real::CANCEL_DISABLE);
    let ret = call();
    if let Some(before) = before {
        real::set_cancel_state(before);
    }
    ret
}

/// Where the stream is not seen, what it reads and writes stays TCP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    let at = real::next(b"fdopen\0");
    if at.is_null() {
        sys::set_errno(sys::ENOSYS);
        return core::ptr::null_mut();
    }
    // SAFETY: libc's function, and the program's own arguments.
    let stream = unsafe {
        let open: extern "C" fn(c_int, *const c_char) -> *mut c_void = core::mem::transmute(at);
        open(fd, mode)
    };
    let is_seen = if real::LIBC.is_musl() {
        // SAFETY: musl's stream, just opened.
        unsafe { streams::musl::see_one(stream, fd) }
    } else {
        streams::glibc::are_seen()
    };
    if !is_seen {
        let saved = sys::errno();
        options::leave_to_stream(fd);
        sys::set_errno(saved);
    }
    stream
}

/// Whether `at` is in the object that has `other`, as libc's function is: some have one of their own by its name.
fn is_beside(at: *mut c_void, other: &[u8]) -> bool {
    let base = |at: *mut c_void| object::around(at as usize).map(|object| object.base);
    !at.is_null() && base(at) == base(real::next(other))
}

/// libc's function `name`, which puts other files at 0 to 2 where `has` says so of what it gave. It stands beside `other`.
/// Six words: what one by that name takes in registers, whatever it is.
fn changes_standard_numbers(
    [name, other]: [&[u8]; 2],
    words: [usize; 6],
    has: impl Fn(c_int) -> bool,
) -> usize {
    let at = real::next(name);
    if at.is_null() {
        sys::set_errno(sys::ENOSYS);
        return usize::MAX;
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: the program's own arguments.
    let ret = unsafe {
        let call: extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize =
            core::mem::transmute(at);
        call(a, b, c, d, e, f)
    };
    let is_known = (0..=2).any(|fd| table::raw(fd) != 0);
    if is_known && has(ret as c_int) && !process::is_borrowed() && is_beside(at, other) {
        let saved = sys::errno();
        (0..=2).for_each(options::renumbered);
        sys::set_errno(saved);
    }
    ret
}

#[unsafe(no_mangle)]
extern "C" fn daemon(stays: usize, keeps: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
    let has = |ret| ret == 0 && keeps as c_int == 0;
    changes_standard_numbers([b"daemon\0", b"printf\0"], [stays, keeps, c, d, e, f], has)
}

#[unsafe(no_mangle)]
extern "C" fn login_tty(fd: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
    changes_standard_numbers([b"login_tty\0", b"openpty\0"], [fd, b, c, d, e, f], |ret| ret == 0)
}

/// In the child, which it gives 0.
#[unsafe(no_mangle)]
extern "C" fn forkpty(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
    changes_standard_numbers([b"forkpty\0", b"openpty\0"], [a, b, c, d, e, f], |ret| ret == 0)
}
