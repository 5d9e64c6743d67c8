//! A direction's ring bytes: the one audited copy in each direction.

use yasmin_wire::Position;
use yasmin_wire::layout::{MIN_PAGED_CLASS, class_bytes};

/// Where ring bytes are kept: a place for the ring of each class, of which one is in use at a time.
/// Real pages are [`Pages`]; a model brings its own.
pub trait Memory {
    /// Copies `len_bytes` from `from` to `place`.
    ///
    /// # Safety
    /// `from` is readable for `len_bytes`, and so many are left in the ring from `place` on.
    unsafe fn copy_in(&self, place: Place, from: *const u8, len_bytes: usize);

    /// Copies `len_bytes` from `place` to `to`.
    ///
    /// # Safety
    /// `to` is writable for `len_bytes`, and so many are left in the ring from `place` on.
    unsafe fn copy_out(&self, place: Place, to: *mut u8, len_bytes: usize);

    /// `place` is about to be written.
    fn expect_write(&self, _place: Place) {}

    /// `place` is about to be read.
    fn expect_read(&self, _place: Place) {}
}

/// A byte of a direction's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of the ring.
    pub class: u8,
    /// Bytes from its beginning, fewer than it has.
    pub at: u32,
}

impl Place {
    /// That of a position in the ring of `class`.
    pub const fn of(position: Position, class: u8) -> Self {
        Self { class, at: position.offset(class_bytes(class)) }
    }
}

/// Rings in mapped pages which the peer may write at any time: never a reference to them,
/// never a byte read twice.
#[derive(Clone, Copy)]
pub struct Pages {
    /// That of class 0.
    small: *mut u8,
    /// Those of the other classes.
    paged: *mut u8,
}

impl Pages {
    /// # Safety
    /// As long as any copy of the value is used, `small` stays mapped, readable and writable, for
    /// the bytes of class 0, and `paged` for those of the largest class that an end of it has.
    pub const unsafe fn new(small: *mut u8, paged: *mut u8) -> Self {
        Self { small, paged }
    }

    /// Its address, for who copies by other means.
    pub fn at(&self, place: Place) -> *mut u8 {
        let base = if place.class < MIN_PAGED_CLASS { self.small } else { self.paged };
        base.wrapping_add(place.at as usize)
    }
}

impl Memory for Pages {
    unsafe fn copy_in(&self, place: Place, from: *const u8, len_bytes: usize) {
        // SAFETY: the caller vouches for both ranges; program memory and ring do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(from, self.at(place), len_bytes) }
    }

    unsafe fn copy_out(&self, place: Place, to: *mut u8, len_bytes: usize) {
        // SAFETY: as above.
        unsafe { core::ptr::copy_nonoverlapping(self.at(place), to, len_bytes) }
    }

    fn expect_write(&self, place: Place) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch changes nothing that a program can see and never faults; a
        // processor that has no such instruction does nothing.
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) self.at(place),
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = place;
    }

    fn expect_read(&self, place: Place) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "prefetcht0 [{}]",
                in(reg) self.at(place),
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = place;
    }
}

/// The one or two pieces (place, bytes) that `len_bytes` take in the ring of `class` from `start`
/// on; at most the ring's bytes.
pub(crate) fn pieces(start: Position, class: u8, len_bytes: usize) -> [(Place, usize); 2] {
    let place = Place::of(start, class);
    let first = len_bytes.min((class_bytes(class) - place.at) as usize);
    [(place, first), (Place { class, at: 0 }, len_bytes - first)]
}
