//! What is unread in a ring, where libc's stdio reads the connection: by entries of its own that nobody can
//! get in front of.
//!
//! Standard input may be such a connection, inherited or put there, and so may a stream of fdopen. Before
//! such a stream is read for the first time, what is unread is pushed back into it (ungetc(3)), as if it
//! had been read: glibc's streams take any number of bytes. musl's are given a buffer. Where they cannot go
//! there, the connection is reset: the stream would go on behind a gap.
//!
//! Storey 5: calls.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::conn::Conn;
use crate::entry::{self, Entry};
use crate::iov::Buffers;
use crate::real;
use crate::sys::{self, IoVec, MSG_WAITALL};
use crate::table::STREAMS;
use crate::{life, process, recv, tcp};

/// Streams of fdopen that were not read yet, at most.
const OPENED: usize = 16;
static FRESH: [AtomicPtr<c_void>; OPENED] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; OPENED];

/// fdopen made `stream` of a connection, to read: before its first read it gets what is unread.
pub fn opened(fd: c_int, stream: *mut c_void) {
    let Entry::Conn(conn) = entry::get(fd) else { return };
    if life::retires_drained(conn, fd) || stream.is_null() {
        return;
    }
    let null = core::ptr::null_mut();
    let is_kept = FRESH
        .iter()
        .any(|at| at.compare_exchange(null, stream, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if is_kept {
        STREAMS.store(1, Ordering::Release);
    } else {
        tcp::reset(fd);
    }
}

/// fclose, or freopen, of `stream`.
pub fn closes(stream: *mut c_void) {
    take(stream);
}

fn take(stream: *mut c_void) -> bool {
    let null = core::ptr::null_mut();
    let mut all = FRESH.iter();
    all.any(|at| at.compare_exchange(stream, null, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

/// Before a function of stdio's that reads the stream which is one of its first arguments.
pub extern "C" fn before_reading(a: usize, b: usize, c: usize, d: usize, e: usize) {
    reads([a, b, c, d, e], Width::Bytes);
}

/// Before one that reads standard input.
pub extern "C" fn before_reading_input() {
    reads([standard_input() as usize; 1], Width::Bytes);
}

/// The same of wide characters.
pub extern "C" fn before_reading_wide(a: usize, b: usize, c: usize) {
    reads([a, b, c], Width::Wide);
}

pub extern "C" fn before_reading_wide_input() {
    reads([standard_input() as usize; 1], Width::Wide);
}

/// What a function makes of a stream (fwide(3)). Bytes cannot be pushed back into one of wide characters.
#[derive(Clone, Copy, PartialEq)]
enum Width {
    Bytes,
    Wide,
}

fn reads<const COUNT: usize>(arguments: [usize; COUNT], width: Width) {
    if STREAMS.load(Ordering::Acquire) == 0 {
        // Only the function was to be found.
        return;
    }
    process::refresh();
    if process::is_borrowed() {
        return;
    }
    let standard = standard_input();
    for stream in arguments.map(|at| at as *mut c_void) {
        if !stream.is_null() && (stream == standard || take(stream)) {
            pour(stream, width);
        }
    }
}

/// libc's `stdin`.
fn standard_input() -> *mut c_void {
    let at = real::anywhere(b"stdin\0").cast::<*mut c_void>();
    // SAFETY: null, or libc's variable of this name.
    if at.is_null() { core::ptr::null_mut() } else { unsafe { at.read() } }
}

/// What is unread in the ring behind `stream`, and what TCP has before that, goes into it.
#[cold]
fn pour(stream: *mut c_void, width: Width) {
    let saved = sys::errno();
    // SAFETY: an open stream, by the contract of the function that is to read it.
    let fd = unsafe { real::fileno(stream) };
    if matches!(entry::get(fd), Entry::Conn(_)) {
        // Of several threads one takes what is unread; the others find it in the stream.
        call_with(b"flockfile\0", stream);
        if let Entry::Conn(conn) = entry::get(fd)
            && is_empty(stream)
            && !life::retires_drained(conn, fd)
            && (width == Width::Wide || pour_all(conn, fd, stream).is_none())
        {
            tcp::reset(fd);
        }
        call_with(b"funlockfile\0", stream);
    }
    sys::set_errno(saved);
}

/// libc's function `name`, which takes a stream alone.
fn call_with(name: &[u8], stream: *mut c_void) {
    let at = real::next(name);
    if !at.is_null() {
        // SAFETY: libc's function, of an open stream.
        unsafe {
            let function: extern "C" fn(*mut c_void) = core::mem::transmute(at);
            function(stream);
        }
    }
}

/// In glibc and in musl the addresses of the next byte and of the end stand behind a FILE's flags.
fn ahead(stream: *mut c_void) -> [*mut usize; 2] {
    [1, 2].map(|word| stream.cast::<usize>().wrapping_add(word))
}

/// Whether all that was read into it was taken.
fn is_empty(stream: *mut c_void) -> bool {
    let [next, end] = ahead(stream);
    // SAFETY: inside a FILE.
    unsafe { next.read() == end.read() }
}

/// `None`: not all of it could go there.
fn pour_all(conn: &'static Conn, fd: c_int, stream: *mut c_void) -> Option<()> {
    let unread = recv::unread_at(conn, fd);
    let unget = real::next(b"ungetc\0");
    if unget.is_null() {
        return None;
    }
    let base = sys::map_private(unread)?;
    if take_all(conn, fd, base, unread) < unread {
        // SAFETY: mapped above.
        unsafe { sys::unmap(base, unread) };
        return None;
    }
    if real::LIBC.is_musl() {
        // It reads to the end and then into its own buffer; ungetc takes eight bytes.
        let [next, end] = ahead(stream);
        // SAFETY: inside a FILE; what was mapped stays.
        unsafe {
            next.write(base as usize);
            end.write(base as usize + unread);
        }
    } else {
        for at in (0..unread).rev() {
            // SAFETY: libc's ungetc; inside the mapping.
            unsafe {
                let unget: extern "C" fn(c_int, *mut c_void) -> c_int = core::mem::transmute(unget);
                unget(c_int::from(base.add(at).read()), stream);
            }
        }
        // SAFETY: mapped above.
        unsafe { sys::unmap(base, unread) };
    }
    life::retires_drained(conn, fd);
    Some(())
}

/// Receives `len` bytes, which are there or on their way, into `to`. Returns how many it got.
fn take_all(conn: &'static Conn, fd: c_int, to: *mut u8, len: usize) -> usize {
    let mut done = 0;
    while done < len {
        let rest = IoVec { base: to.wrapping_add(done), len: len - done };
        match recv::recv(conn, fd, Buffers::one(&rest), MSG_WAITALL) {
            Some(got @ 1..) => done += got as usize,
            // The program's socket does not wait.
            Some(error) if error == -(sys::EAGAIN as isize) => {
                let a_moment = crate::timeout::Timeout::from_ms(1);
                tcp::poll(fd, sys::POLLIN, a_moment);
            }
            Some(error) if error == -(sys::EINTR as isize) => {}
            _ => break,
        }
    }
    done
}
