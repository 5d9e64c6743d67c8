//! Pages of a memfd, mapped shared.

use rustix::fd::{AsFd, AsRawFd};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use yasmin_channel::region::{Filling, Mapping, Region};
use yasmin_channel::side::{SIDE_BYTES, Side};
use yasmin_wire::layout::PAGE_BYTES;

/// A page of a memfd. The other side writes it at any time: what is read from here is
/// for display only, and checked.
///
/// Dropping it unmaps the page; while it lives, the whole file's memory does.
pub struct Page {
    mapping: Mapping,
}

impl Page {
    /// The first page of `memfd`.
    pub fn map(memfd: impl AsFd) -> io::Result<Self> {
        Self::map_at(memfd, 0)
    }

    /// The page at `offset_bytes`, a multiple of its size, of a memfd that nobody can cut.
    pub fn map_at(memfd: impl AsFd, offset_bytes: usize) -> io::Result<Self> {
        let fd = memfd.as_fd().as_raw_fd();
        let page = Region { fd, offset_bytes, len_bytes: PAGE_BYTES };
        Ok(Self { mapping: page.map(Filling::Usual).map_err(super::io_error)? })
    }

    /// The 8 bytes at `offset`, a multiple of 8 inside the page.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < PAGE_BYTES);
        // SAFETY: inside the mapping and aligned, as just asserted; the mapping lives as long
        // as the reference, and every process accesses these bytes atomically.
        unsafe { &*self.mapping.as_ptr().byte_add(offset).cast::<AtomicU64>() }
    }

    /// Adds one to the 4 bytes that have this place among the page's, /then/ wakes who sleeps on them.
    pub fn ring(&self, at: usize) {
        assert!(at < PAGE_BYTES / size_of::<AtomicU32>());
        // SAFETY: inside the mapping and aligned; the mapping lives as long as the reference, and
        // every process accesses these bytes atomically.
        let count = unsafe { &*self.mapping.as_ptr().cast::<AtomicU32>().add(at) };
        count.fetch_add(1, Ordering::AcqRel);
        // Nothing that the kernel says of it changes what is to be done.
        let _ = rustix::thread::futex::wake(count, rustix::thread::futex::Flags::empty(), u32::MAX);
    }

    /// The page as an end's side page.
    pub fn side(&self) -> &Side {
        const _: () = assert!(size_of::<Side>() <= SIDE_BYTES && SIDE_BYTES == PAGE_BYTES);
        // SAFETY: `Side` fits in the page (asserted above), a page is aligned for it, and all
        // that is ever read or written through it is atomic.
        unsafe { &*self.mapping.as_ptr().cast::<Side>() }
    }
}

/// The beginning of a memfd, for as long as something is written there.
pub struct Pages {
    mapping: Mapping,
}

impl Pages {
    /// `memfd` has at least so many bytes, a multiple of its pages, and nobody else has it yet.
    pub fn map(memfd: impl AsFd, len_bytes: usize) -> io::Result<Self> {
        let region = Region::first(memfd.as_fd().as_raw_fd(), len_bytes);
        // SAFETY: nobody else can cut it.
        let mapping = unsafe { region.map_trusted(Filling::Usual) }.map_err(super::io_error)?;
        Ok(Self { mapping })
    }

    /// Writes `bytes` at the beginning.
    pub fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.mapping.len_bytes());
        // SAFETY: inside the mapping, as just asserted, which nobody else has a reference to.
        unsafe { self.mapping.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}
