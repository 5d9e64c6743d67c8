//! libc's own streams (stdio), which read, write and close their numbers by entries that nobody can get in front of.
//!
//! They do so through addresses of functions: glibc's have the address of a table of them, musl's have them one by
//! one. There this library's functions take the place of libc's.
//!
//! Storey 1: system.

pub mod glibc;
pub mod musl;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::{bare, real};

/// The functions of libc whose place was taken: to read, to write and to close.
struct Real([AtomicPtr<c_void>; 3]);

impl Real {
    const fn new() -> Self {
        Self([const { AtomicPtr::new(core::ptr::null_mut()) }; 3])
    }

    fn set(&self, functions: [*mut c_void; 3]) {
        for (slot, function) in self.0.iter().zip(functions) {
            slot.store(function, Ordering::Relaxed);
        }
    }

    fn get(&self) -> [*mut c_void; 3] {
        [0, 1, 2].map(|at: usize| self.0[at].load(Ordering::Relaxed))
    }
}

/// Whether the stream calls this library's functions.
pub fn sees(stream: *mut c_void) -> bool {
    // SAFETY: a stream of libc's.
    unsafe { if real::LIBC.is_musl() { musl::sees(stream) } else { glibc::sees(stream) } }
}

/// Whether libc moves bytes by this number unseen: by its own streams, and where it says on 2 what is wrong.
pub fn hides(fd: c_int) -> bool {
    if !(0..=2).contains(&fd) || bare::is() {
        return false;
    }
    let is_seen = if real::LIBC.is_musl() { musl::is_standard_seen(fd) } else { glibc::are_seen() };
    fd == 2 || !is_seen
}
