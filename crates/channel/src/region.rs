//! A region: part of the memory behind a descriptor, which several programs map.
//!
//! Where its pages come from is its medium's affair; whoever maps a region asks only that no access
//! to it can ever fault.

use core::ffi::c_int;
use core::ptr::NonNull;

use yasmin_wire::Medium;

use crate::sys::{Errno, Sysno, syscall};

const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;
const MAP_SHARED: usize = 0x01;
const MAP_FIXED: usize = 0x10;

const F_GET_SEALS: usize = 1034;
const F_SEAL_SHRINK: usize = 2;
const F_SEAL_GROW: usize = 4;

/// Length and offset in bytes; the offset is a multiple of a page. The descriptor is the caller's,
/// and open while the region is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub fd: c_int,
    pub offset_bytes: usize,
    pub len_bytes: usize,
}

/// When a mapping takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// As the process has it.
    Usual,
    /// As it is used, and never locked, also in a process that has all its memory locked.
    AsUsed,
}

impl Region {
    /// The first `len_bytes` behind `fd`.
    pub const fn first(fd: c_int, len_bytes: usize) -> Self {
        Self { fd, offset_bytes: 0, len_bytes }
    }

    /// A part of it; `None` where that reaches beyond its end.
    pub fn slice(&self, offset_bytes: usize, len_bytes: usize) -> Option<Self> {
        let end = offset_bytes.checked_add(len_bytes)?;
        (end <= self.len_bytes).then_some(Self {
            fd: self.fd,
            offset_bytes: self.offset_bytes.checked_add(offset_bytes)?,
            len_bytes,
        })
    }

    /// Whether the memory is there and nobody, whoever made it, can take it away: the descriptor
    /// is a memfd sealed against shrinking and growing that reaches to the region's end.
    pub fn is_sound(&self) -> bool {
        let wanted = F_SEAL_SHRINK | F_SEAL_GROW;
        // Asked first: a file that is no memfd may answer anything else when its owner likes.
        // SAFETY: no memory involved.
        let seals = unsafe { syscall!(Sysno::fcntl, self.fd, F_GET_SEALS) };
        seals.is_ok_and(|seals| seals & wanted == wanted)
            && self
                .offset_bytes
                .checked_add(self.len_bytes)
                .is_some_and(|end| file_bytes(self.fd).is_some_and(|bytes| end <= bytes))
    }

    /// Maps a sound region to read and write, at an address of the kernel's choice.
    ///
    /// # Errors
    /// EINVAL: it is not sound. Else the kernel's.
    pub fn map(&self, filling: Filling) -> Result<Mapping, Errno> {
        if !self.is_sound() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: nobody can cut it.
        unsafe { self.map_trusted(filling) }
    }

    /// Maps a region of that medium, as the program's broker says: a memfd has to be sound, for the
    /// other one its driver vouches.
    ///
    /// # Errors
    /// EINVAL: it is not sound. Else the kernel's.
    pub fn map_from(&self, medium: Medium, filling: Filling) -> Result<Mapping, Errno> {
        match medium {
            Medium::Memfd => self.map(filling),
            // SAFETY: the driver keeps a slice's pages for as long as it is mapped.
            Medium::Ivshmem => unsafe { self.map_trusted(filling) },
        }
    }

    /// The same for a file whose owner is trusted not to cut it.
    ///
    /// # Safety
    /// The file keeps the region's bytes while it is mapped.
    pub unsafe fn map_trusted(&self, filling: Filling) -> Result<Mapping, Errno> {
        let Self { fd, offset_bytes, len_bytes } = *self;
        // SAFETY: shared pages of a file, which the caller vouches for.
        let at = unsafe { map_pages(len_bytes, MAP_SHARED, fd, offset_bytes, filling) }?;
        Ok(Mapping { at, len_bytes })
    }

    /// The same to read only.
    ///
    /// # Safety
    /// As `map_trusted`.
    pub unsafe fn map_to_read(&self) -> Result<Mapping, Errno> {
        let Self { fd, offset_bytes, len_bytes } = *self;
        // SAFETY: a fresh mapping.
        let at = unsafe {
            syscall!(Sysno::mmap, 0, len_bytes, PROT_READ, MAP_SHARED, fd, offset_bytes)
        }?;
        let at = NonNull::new(at as *mut u8).ok_or(Errno::ENOMEM)?;
        Ok(Mapping { at, len_bytes })
    }

    /// Maps it in place of what is mapped at `at`.
    ///
    /// # Errors
    /// The kernel's; then what was there may be gone.
    ///
    /// # Safety
    /// As many bytes are mapped at `at`, whoever uses them goes on with the region's, and the
    /// region is sound or its owner trusted.
    pub unsafe fn map_over(&self, at: *mut u8) -> Result<(), Errno> {
        let (both, flags) = (PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED);
        let Self { fd, offset_bytes, len_bytes } = *self;
        // SAFETY: the caller vouches for the range.
        unsafe { syscall!(Sysno::mmap, at, len_bytes, both, flags, fd, offset_bytes) }?;
        Ok(())
    }
}

/// How long the file is; `None` where that cannot be asked. It moves the descriptor's offset,
/// which nobody uses.
pub fn file_bytes(fd: c_int) -> Option<usize> {
    const SEEK_END: usize = 2;
    // SAFETY: no memory involved.
    unsafe { syscall!(Sysno::lseek, fd, 0, SEEK_END) }.ok()
}

/// Pages to read and write at an address of the kernel's choice; `flags` are mmap's.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// `flags` ask for no fixed address, and nobody cuts the file.
pub unsafe fn map_pages(
    len_bytes: usize,
    flags: usize,
    fd: c_int,
    offset_bytes: usize,
    filling: Filling,
) -> Result<NonNull<u8>, Errno> {
    let both = PROT_READ | PROT_WRITE;
    let at_first = if filling == Filling::AsUsed { 0 } else { both };
    // SAFETY: a fresh mapping.
    let at = unsafe { syscall!(Sysno::mmap, 0, len_bytes, at_first, flags, fd, offset_bytes) }?;
    if filling == Filling::AsUsed {
        // Without access there was nothing to fill.
        // SAFETY: the mapping of just now.
        let usable = unsafe {
            syscall!(Sysno::munlock, at, len_bytes)
                .and_then(|_| syscall!(Sysno::mprotect, at, len_bytes, both))
        };
        if let Err(error) = usable {
            // SAFETY: as above; nobody knows of it.
            let _ = unsafe { syscall!(Sysno::munmap, at, len_bytes) };
            return Err(error);
        }
    }
    NonNull::new(at as *mut u8).ok_or(Errno::ENOMEM)
}

/// Mapped memory, until it is dropped. Others may write there at any time.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping belongs to its value, wherever that moves; what lies there is reached through
// raw pointers and atomics alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub const fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// It stays mapped; see `of_kept`.
    pub fn keep(self) -> *mut u8 {
        core::mem::ManuallyDrop::new(self).at.as_ptr()
    }

    /// What was kept, to be unmapped.
    ///
    /// # Safety
    /// `keep` gave `at`, of a mapping of `len_bytes`, and nobody uses it any more.
    pub unsafe fn of_kept(at: *mut u8, len_bytes: usize) -> Option<Self> {
        NonNull::new(at).map(|at| Self { at, len_bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped for this value, and no reference outlives it. It cannot fail for
        // a mapping of ours; if it did, the pages would merely stay mapped.
        let _ = unsafe { syscall!(Sysno::munmap, self.at.as_ptr(), self.len_bytes) };
    }
}
