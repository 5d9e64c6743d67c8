//! mlockall: what this library maps from then on is not to be locked.
//!
//! Storey 7: exports.

use core::ffi::c_int;

use crate::sys::{self, call};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: no memory involved.
    let ret = unsafe { call!(mlockall, flags) };
    if ret == 0 {
        sys::locks_all(flags);
    }
    sys::returned(ret) as c_int
}
