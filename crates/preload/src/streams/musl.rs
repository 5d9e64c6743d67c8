//! musl's streams: each has the addresses of its own functions.
//!
//! Storey 1: system.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::Real;
use crate::real;

/// musl's FILE, as its src/internal/stdio_impl.h has it, from 0.9 to 1.2.
#[repr(C)]
pub struct Stream {
    flags: u32,
    read_from: *mut u8,
    read_to: *mut u8,
    close: Close,
    write_to: *mut u8,
    write_at: *mut u8,
    unused: usize,
    write_from: *mut u8,
    read: Read,
    write: Write,
    seek: usize,
    buffer: *mut u8,
    buffer_bytes: usize,
    neighbours: [usize; 2],
    number: c_int,
    process: c_int,
    locked: i64,
    width: c_int,
    lock: c_int,
    line_end: c_int,
}

type Read = unsafe extern "C" fn(*mut Stream, *mut u8, usize) -> usize;
type Write = unsafe extern "C" fn(*mut Stream, *const u8, usize) -> usize;
type Close = unsafe extern "C" fn(*mut Stream) -> c_int;

/// musl's functions, or those in their place.
#[derive(Clone, Copy)]
pub struct Functions {
    pub read: Read,
    pub write: Write,
    pub close: Close,
}

static REAL: Real = Real::new();
static OWN: Real = Real::new();
/// What standard output writes with, until it has found out whether that is a terminal.
static FIRST_WRITE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// Standard input and output.
static STANDARD: [AtomicPtr<Stream>; 2] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 2];

/// # Safety
/// Those of `REAL` or `OWN`, set.
unsafe fn functions(of: &Real) -> Functions {
    let [read, write, close] = of.get();
    // SAFETY: the caller vouches for it.
    unsafe {
        Functions {
            read: core::mem::transmute::<*mut c_void, Read>(read),
            write: core::mem::transmute::<*mut c_void, Write>(write),
            close: core::mem::transmute::<*mut c_void, Close>(close),
        }
    }
}

/// From now on standard input and output call `own`, and every stream that is shown to `see_one`. At a process's start.
pub fn see(own: Functions) {
    let names = [b"stdin\0".as_slice(), b"stdout\0", b"stderr\0"];
    let streams = names.map(|name| {
        let at = real::anywhere(name).cast::<*mut Stream>();
        // SAFETY: null, or musl's variable of this name.
        if at.is_null() { core::ptr::null_mut() } else { unsafe { at.read() } }
    });
    let is_known = |(number, stream): (c_int, &*mut Stream)| {
        // SAFETY: null, or a stream of musl's.
        unsafe { stream.as_ref() }.is_some_and(|stream| stream.number == number)
    };
    if !(0..).zip(&streams).all(is_known) {
        return;
    }
    OWN.set([own.read as *mut c_void, own.write as *mut c_void, own.close as *mut c_void]);
    // SAFETY: as above.
    let [input, output, error] = streams.map(|stream| unsafe { &mut *stream });
    FIRST_WRITE.store(output.write as *mut c_void, Ordering::Relaxed);
    REAL.set([input.read as *mut c_void, error.write as *mut c_void, input.close as *mut c_void]);
    for (place, stream) in STANDARD.iter().zip([input, output]) {
        stream.calls(own);
        place.store(stream, Ordering::Relaxed);
    }
}

/// Whether the stream that is standard input (0) or output (1) is that still, and calls this library's functions.
pub fn is_standard_seen(number: c_int) -> bool {
    let Some(at) = STANDARD.get(number as usize) else { return false };
    // SAFETY: null, or a stream of musl's, which stays.
    let stream = unsafe { at.load(Ordering::Relaxed).as_ref() };
    stream.is_some_and(|stream| stream.number == number && stream.is_seen())
}

/// # Safety
/// A stream of musl's.
pub unsafe fn sees(stream: *mut c_void) -> bool {
    // SAFETY: the caller vouches for it.
    unsafe { (*stream.cast::<Stream>()).is_seen() }
}

/// `stream` was opened for `number`. False: it is none that is known.
///
/// # Safety
/// A stream of musl's, or null.
pub unsafe fn see_one(stream: *mut c_void, number: c_int) -> bool {
    // SAFETY: the caller vouches for it.
    let Some(stream) = (unsafe { stream.cast::<Stream>().as_mut() }) else { return true };
    if stream.number != number || stream.has() != REAL.get() {
        return false;
    }
    // SAFETY: set where the real ones are.
    stream.calls(unsafe { functions(&OWN) });
    true
}

impl Stream {
    fn has(&self) -> [*mut c_void; 3] {
        [self.read as *mut c_void, self.write as *mut c_void, self.close as *mut c_void]
    }

    fn is_seen(&self) -> bool {
        self.has() == OWN.get()
    }

    fn calls(&mut self, own: Functions) {
        self.read = own.read;
        self.write = own.write;
        self.close = own.close;
    }

    pub fn number(&self) -> c_int {
        self.number
    }

    /// What stood there.
    pub fn real(&self) -> Functions {
        // SAFETY: it calls this library's functions, so they are set.
        let mut real = unsafe { functions(&REAL) };
        let first = FIRST_WRITE.load(Ordering::Relaxed);
        if self.is_output() && !first.is_null() {
            // SAFETY: musl's function.
            real.write = unsafe { core::mem::transmute::<*mut c_void, Write>(first) };
        }
        real
    }

    fn is_output(&self) -> bool {
        core::ptr::eq(self, STANDARD[1].load(Ordering::Relaxed))
    }

    /// Standard output has written for the first time, by itself or (`to_socket`) by this library.
    pub fn has_written(&mut self, to_socket: bool) {
        const HAS_BUFFER: u32 = 64;
        const NO_LINE_END: c_int = -1;
        let first = FIRST_WRITE.load(Ordering::Relaxed);
        if !self.is_output() || first.is_null() {
            return;
        }
        if to_socket && self.flags & HAS_BUFFER == 0 {
            self.line_end = NO_LINE_END;
        }
        FIRST_WRITE.store(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: set where `FIRST_WRITE` is.
        self.calls(unsafe { functions(&OWN) });
    }

    /// The stream's own buffer.
    pub fn buffer(&self) -> (*mut u8, usize) {
        (self.buffer, self.buffer_bytes)
    }

    /// Nothing was read: the end was, or an error.
    pub fn read_none(&mut self, is_end: bool) {
        const END: u32 = 16;
        self.flags |= if is_end { END } else { FAILED };
    }

    /// So much was read into its buffer. Gives the first byte of it.
    pub fn filled(&mut self, len_bytes: usize) -> u8 {
        self.read_from = self.buffer.wrapping_add(1);
        self.read_to = self.buffer.wrapping_add(len_bytes);
        // SAFETY: the stream's buffer, of which that much was filled.
        unsafe { self.buffer.read() }
    }

    /// What is to be written before anything else.
    pub fn pending(&self) -> (*mut u8, usize) {
        (self.write_from, self.write_at as usize - self.write_from as usize)
    }

    pub fn wrote_all(&mut self) {
        self.write_to = self.buffer.wrapping_add(self.buffer_bytes);
        self.write_at = self.buffer;
        self.write_from = self.buffer;
    }

    pub fn write_failed(&mut self) {
        self.write_to = core::ptr::null_mut();
        self.write_at = core::ptr::null_mut();
        self.write_from = core::ptr::null_mut();
        self.flags |= FAILED;
    }
}

const FAILED: u32 = 32;
