//! The mapped table of other guests' addresses, as the broker writes it.

use rustix::fd::AsFd;
use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use yasmin_control::directory::{TABLE_BYTES, TABLE_WORDS};

/// A file's first `TABLE_BYTES`, mapped to write.
pub struct Mapped {
    start: NonNull<c_void>,
}

// SAFETY: reached through atomics only, and unmapped once, by the owner.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// `file` has all the bytes, and only root or this user can cut it.
    pub fn map(file: impl AsFd) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: no address is asked for, so no other mapping is touched.
        let start = unsafe { mmap(std::ptr::null_mut(), TABLE_BYTES, protection, flags, file, 0)? };
        Ok(Self { start: NonNull::new(start).ok_or(io::Errno::NOMEM)? })
    }

    pub fn words(&self) -> &[AtomicU64; TABLE_WORDS] {
        // SAFETY: the mapping has so many words and lives as long as the reference; everybody
        // reaches them atomically.
        unsafe { self.start.cast().as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped nowhere else, and no reference outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), TABLE_BYTES) };
    }
}
