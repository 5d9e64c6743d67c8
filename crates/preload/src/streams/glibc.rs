//! glibc's streams: each has the address of a table of functions.
//!
//! Storey 1: system.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::Real;
use crate::{object, real};

/// glibc's FILE, as <bits/types/struct_FILE.h> has it.
#[repr(C)]
pub struct Stream {
    flags: c_int,
    buffers: [usize; 13],
    number: c_int,
    more_flags: c_int,
    old_offset: i64,
    column: u64,
    lock: usize,
    offset: i64,
    wide: [usize; 3],
    rest: [u64; 5],
}

const _: () = assert!(size_of::<Stream>() == 216);

type Read = unsafe extern "C" fn(*mut Stream, *mut u8, isize) -> isize;
type Write = unsafe extern "C" fn(*mut Stream, *const u8, isize) -> isize;
type Close = unsafe extern "C" fn(*mut Stream) -> c_int;

/// glibc's functions, or those in their place.
pub struct Functions {
    pub read: Read,
    pub write: Write,
    pub close: Close,
}

static REAL: Real = Real::new();
/// Of streams of bytes, and of wide characters.
static TABLES: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 2];
static ARE_SEEN: AtomicBool = AtomicBool::new(false);

/// Whether this library's functions read and write for libc's streams.
pub fn are_seen() -> bool {
    ARE_SEEN.load(Ordering::Relaxed)
}

/// Whether `stream` has one of the tables that they stand in.
///
/// # Safety
/// A stream of glibc's.
pub unsafe fn sees(stream: *mut c_void) -> bool {
    // SAFETY: the address of its table stands behind a FILE (libioP.h).
    let table = unsafe { stream.cast::<Stream>().add(1).cast::<*mut c_void>().read() };
    are_seen() && TABLES.iter().any(|known| known.load(Ordering::Relaxed) == table)
}

/// What stood in the tables.
pub fn real() -> Functions {
    let [read, write, close] = REAL.get();
    // SAFETY: glibc's functions, found by their names.
    unsafe {
        Functions {
            read: core::mem::transmute::<*mut c_void, Read>(read),
            write: core::mem::transmute::<*mut c_void, Write>(write),
            close: core::mem::transmute::<*mut c_void, Close>(close),
        }
    }
}

/// From now on `own` are called. At a process's start.
pub fn see(own: Functions) {
    const NAMES: [&[u8]; 3] = [b"_IO_file_read\0", b"_IO_file_write\0", b"_IO_file_close\0"];
    let found = NAMES.map(real::next);
    let tables = [b"_IO_file_jumps\0".as_slice(), b"_IO_wfile_jumps\0"].map(real::next);
    if found.iter().chain(&tables).any(|at| at.is_null()) {
        return;
    }
    let own = [own.read as usize, own.write as usize, own.close as usize];
    let mut words = [(core::ptr::null_mut(), 0); 6];
    let pairs = tables.iter().flat_map(|table| found.iter().zip(own).map(move |it| (table, it)));
    for (place, (table, (function, own))) in words.iter_mut().zip(pairs) {
        let Some(slot) = slot_of(table.cast(), *function as usize) else { return };
        *place = (slot, own);
    }
    let Some(libc) = object::around(words[0].0 as usize) else { return };
    REAL.set(found);
    for (place, table) in TABLES.iter().zip(tables) {
        place.store(table, Ordering::Relaxed);
    }
    // SAFETY: slots of glibc's tables, for functions that do the same; glibc stays.
    let are_seen = unsafe { object::put(&words, libc.base, libc.headers()) };
    ARE_SEEN.store(are_seen, Ordering::Relaxed);
}

/// Where in `table` the function stands.
fn slot_of(table: *mut usize, function: usize) -> Option<*mut usize> {
    /// Two words of nothing, and 19 functions (libioP.h).
    const WORDS: usize = 21;
    // SAFETY: inside the table.
    (0..WORDS).map(|at| table.wrapping_add(at)).find(|slot| unsafe { slot.read() } == function)
}

impl Stream {
    pub fn number(&self) -> c_int {
        self.number
    }

    /// Its calls are no cancellation points: opened with `c`, or by libc for itself.
    pub fn is_uncancelled(&self) -> bool {
        const IO_FLAGS2_NOTCANCEL: c_int = 2;
        self.more_flags & IO_FLAGS2_NOTCANCEL != 0
    }

    /// So much was written, of more if it `failed`.
    pub fn wrote(&mut self, len_bytes: isize, failed: bool) {
        const IO_ERR_SEEN: c_int = 0x20;
        if failed {
            self.flags |= IO_ERR_SEEN;
        }
        if self.offset >= 0 {
            self.offset += len_bytes as i64;
        }
    }
}
