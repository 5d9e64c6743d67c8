//! mlockall: what this library maps from then on is not to be locked. mmap, where there is no loader: text of a file that
//! comes later is another program, whose calls nobody sees.
//!
//! Storey 7: exports.

use core::ffi::c_int;

use crate::sys::{self, call};
use crate::{handover, text};

pub const PROT_EXEC: c_int = 4;

/// Of pages that may be run, in a process without libc. A JIT's have no file, or one that it shares with
/// itself, to write there.
///
/// # Safety
/// As the program called.
pub unsafe fn mmap(
    at: usize,
    len: usize,
    prot: usize,
    flags: usize,
    fd: usize,
    from: usize,
) -> isize {
    const MAP_TYPE: usize = 0xf;
    const MAP_PRIVATE: usize = 2;
    const MAP_ANONYMOUS: usize = 0x20;
    if flags & (MAP_TYPE | MAP_ANONYMOUS) == MAP_PRIVATE {
        text::turn_careful();
        handover::nobody_reads();
    }
    // SAFETY: the caller's.
    sys::returned(unsafe { call!(mmap, at, len, prot, flags, fd, from) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: no memory involved.
    let ret = unsafe { call!(mlockall, flags) };
    if ret == 0 {
        sys::locks_all(flags);
    }
    sys::returned(ret) as c_int
}
