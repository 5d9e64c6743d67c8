//! Pages of a memfd, mapped shared.

use rustix::fd::AsFd;
use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use yasmin_channel::side::{SIDE_BYTES, Side};
use yasmin_wire::layout::PAGE_BYTES;

/// A page of a memfd. The other side writes it at any time: what is read from here is
/// for display only, and checked.
///
/// Dropping it unmaps the page; while it lives, the whole file's memory does.
pub struct Page {
    start: NonNull<c_void>,
}

// SAFETY: the page is reached through atomics only, and unmapped once, by the owner.
unsafe impl Send for Page {}

impl Page {
    /// `memfd` has at least one page and is sealed against shrinking: an access never faults.
    pub fn map(memfd: impl AsFd) -> io::Result<Self> {
        Self::map_at(memfd, 0)
    }

    /// The page at `offset`, a multiple of its size; `memfd` reaches beyond it, and is sealed.
    pub fn map_at(memfd: impl AsFd, offset: u64) -> io::Result<Self> {
        // SAFETY: no address is asked for, so no other mapping is touched.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memfd,
                offset,
            )?
        };
        let start = NonNull::new(start).ok_or(io::Errno::NOMEM)?;
        Ok(Self { start })
    }

    /// The 8 bytes at `offset`, a multiple of 8 inside the page.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < PAGE_BYTES);
        // SAFETY: inside the mapping and aligned, as just asserted; the mapping lives as long
        // as the reference, and every process accesses these bytes atomically.
        unsafe { &*self.start.as_ptr().byte_add(offset).cast::<AtomicU64>() }
    }

    /// The page as an end's side page.
    pub fn side(&self) -> &Side {
        const _: () = assert!(size_of::<Side>() <= SIDE_BYTES && SIDE_BYTES == PAGE_BYTES);
        // SAFETY: `Side` fits in the page (asserted above), a page is aligned for it, and all
        // that is ever read or written through it is atomic.
        unsafe { self.start.cast::<Side>().as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped nowhere else, and no reference outlives `self`.
        // It cannot fail for a mapping of ours; if it did, the page would merely stay mapped.
        let _ = unsafe { munmap(self.start.as_ptr(), PAGE_BYTES) };
    }
}

/// The beginning of a memfd, for as long as something is written there.
pub struct Pages {
    start: NonNull<c_void>,
    len_bytes: usize,
}

impl Pages {
    /// `memfd` has at least so many bytes, a multiple of its pages, and nobody else has it yet.
    pub fn map(memfd: impl AsFd, len_bytes: usize) -> io::Result<Self> {
        // SAFETY: no address is asked for, so no other mapping is touched.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap(std::ptr::null_mut(), len_bytes, protection, MapFlags::SHARED, memfd, 0)?
        };
        let start = NonNull::new(start).ok_or(io::Errno::NOMEM)?;
        Ok(Self { start, len_bytes })
    }

    /// Writes `bytes` at the beginning.
    pub fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len_bytes);
        // SAFETY: inside the mapping, as just asserted, which nobody else has a reference to.
        unsafe {
            self.start
                .cast::<u8>()
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped nowhere else.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len_bytes) };
    }
}
