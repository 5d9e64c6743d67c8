//! mmap and its kin: the kernel's own, and noted where a copy may fault afterwards, or where what
//! this library maps would be locked.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_void};

use crate::memory::{self, Why};
use crate::sys::{self, call};

const PROT_BOTH: c_int = 3;
const MAP_ANONYMOUS: c_int = 0x20;

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the program's own arguments.
    let ret = unsafe { call!(mmap, at, len, protection, flags, fd as isize, offset) };
    if ret > 0 {
        let why = if flags & MAP_ANONYMOUS == 0 {
            Some(Why::File)
        } else {
            (protection & PROT_BOTH != PROT_BOTH).then_some(Why::NoAccess)
        };
        memory::mapped(ret as usize, len, why);
    }
    sys::returned(ret) as *mut c_void
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the program's own arguments.
    unsafe { mmap(at, len, protection, flags, fd, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: the program's own arguments.
    let ret = unsafe { call!(munmap, at, len) };
    if ret == 0 {
        memory::mapped(at as usize, len, None);
    }
    sys::returned(ret) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, protection: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let ret = unsafe { call!(mprotect, at, len, protection) };
    if ret == 0 {
        memory::protected(at as usize, len, protection & PROT_BOTH == PROT_BOTH);
    }
    sys::returned(ret) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: no memory involved.
    let ret = unsafe { call!(mlockall, flags) };
    if ret == 0 {
        sys::locks_all(flags);
    }
    sys::returned(ret) as c_int
}
