//! A ring's bytes: the one audited copy in each direction.

/// Where ring bytes are kept. Real pages are [`Pages`]; a model brings its own.
pub trait Memory {
    /// Copies `len_bytes` from `from` to offset `at`.
    ///
    /// # Safety
    /// `from` is readable for `len_bytes`, and `at + len_bytes` is inside the largest ring.
    unsafe fn copy_in(&self, at: u32, from: *const u8, len_bytes: usize);

    /// Copies `len_bytes` from offset `at` to `to`.
    ///
    /// # Safety
    /// `to` is writable for `len_bytes`, and `at + len_bytes` is inside the largest ring.
    unsafe fn copy_out(&self, at: u32, to: *mut u8, len_bytes: usize);

    /// Offset `at` is about to be written.
    fn expect_write(&self, _at: u32) {}

    /// Offset `at` is about to be read.
    fn expect_read(&self, _at: u32) {}
}

/// A ring in mapped pages which the peer may write at any time: never a reference to them,
/// never a byte read twice.
#[derive(Clone, Copy)]
pub struct Pages {
    base: *mut u8,
}

impl Pages {
    /// # Safety
    /// `base` stays mapped, readable and writable, for the largest ring's bytes as long as any
    /// copy of the value is used.
    pub const unsafe fn new(base: *mut u8) -> Self {
        Self { base }
    }

    /// Address of offset `at`, for a system call that writes the ring itself.
    pub fn at(&self, at: u32) -> *mut u8 {
        self.base.wrapping_add(at as usize)
    }
}

impl Memory for Pages {
    unsafe fn copy_in(&self, at: u32, from: *const u8, len_bytes: usize) {
        // SAFETY: the caller vouches for both ranges; program memory and ring do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(from, self.base.add(at as usize), len_bytes) }
    }

    unsafe fn copy_out(&self, at: u32, to: *mut u8, len_bytes: usize) {
        // SAFETY: as above.
        unsafe { core::ptr::copy_nonoverlapping(self.base.add(at as usize), to, len_bytes) }
    }

    fn expect_write(&self, at: u32) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch changes nothing that a program can see and never faults; a
        // processor that has no such instruction does nothing.
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) self.at(at),
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    fn expect_read(&self, at: u32) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "prefetcht0 [{}]",
                in(reg) self.at(at),
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}
