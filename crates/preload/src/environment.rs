//! Environments: the program's own, and those that it hands to others.
//!
//! Storey 1: system.

use core::ffi::c_char;

use crate::{bare, memory, real};

/// The program's own, as it is now; null if there is none.
pub fn own() -> *const *const c_char {
    if bare::is() {
        return bare::environment();
    }
    let variable = real::anywhere(b"environ\0").cast::<*const *const c_char>();
    // SAFETY: null, or libc's variable of this name.
    if variable.is_null() { core::ptr::null() } else { unsafe { *variable } }
}

/// The value of the variable that `name` (with its `=`) begins; it lives as long as the string.
///
/// # Safety
/// An array of C strings that ends with null, or null.
pub unsafe fn variable<'a>(environment: *const *const c_char, name: &[u8]) -> Option<&'a [u8]> {
    let mut at = environment;
    // A bad pointer ends it: the exec will fail.
    while let Some(entry) = memory::get(at).filter(|entry| !entry.is_null()) {
        let byte = |i: usize| memory::get(entry.cast::<u8>().wrapping_add(i)).unwrap_or(0);
        if (0..name.len()).all(|i| byte(i) == name[i]) {
            let len = (name.len()..).take_while(|&i| byte(i) != 0).count();
            // SAFETY: looked at just now.
            return Some(unsafe {
                core::slice::from_raw_parts(entry.cast::<u8>().add(name.len()), len)
            });
        }
        at = at.wrapping_add(1);
    }
    None
}
