//! Objects that keep their type for ever: freed ones are used again, pages never go back, so
//! that a thread that still holds a reference finds an object of the same kind.
//!
//! Storey 1: system.

use core::sync::atomic::{AtomicPtr, Ordering};

use crate::lock::Lock;
use crate::sys;

const CHUNK_BYTES: usize = 64 * 1024;

/// What a slab holds. All zero is a valid value.
///
/// # Safety
/// Any bytes that this type leaves behind and all-zero bytes are valid for it.
pub unsafe trait Pooled: Sized + 'static {
    fn next_free(&self) -> &AtomicPtr<Self>;
}

pub struct Slab<T> {
    lock: Lock,
    free: AtomicPtr<T>,
}

impl<T: Pooled> Slab<T> {
    pub const fn new() -> Self {
        Self { lock: Lock::new(), free: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// `None` without memory, or inside a signal handler that interrupted this very call.
    pub fn take(&self) -> Option<&'static T> {
        let _guard = self.lock.acquire()?;
        if self.free.load(Ordering::Relaxed).is_null() {
            self.grow()?;
        }
        let at = self.free.load(Ordering::Relaxed);
        // SAFETY: the free list holds objects of chunks that are never unmapped.
        let object = unsafe { &*at };
        self.free.store(object.next_free().load(Ordering::Relaxed), Ordering::Relaxed);
        Some(object)
    }

    pub fn give(&self, object: &'static T) {
        if let Some(_guard) = self.lock.acquire() {
            object.next_free().store(self.free.load(Ordering::Relaxed), Ordering::Relaxed);
            self.free.store(core::ptr::from_ref(object).cast_mut(), Ordering::Relaxed);
        }
    }

    /// For a forked child.
    pub fn reset_lock(&self) {
        self.lock.reset();
    }

    fn grow(&self) -> Option<()> {
        let base = sys::map_private(CHUNK_BYTES)?.cast::<T>();
        for i in 0..CHUNK_BYTES / size_of::<T>() {
            // SAFETY: inside the fresh chunk, and all zero is a valid T.
            let object = unsafe { &*base.add(i) };
            object.next_free().store(self.free.load(Ordering::Relaxed), Ordering::Relaxed);
            self.free.store(core::ptr::from_ref(object).cast_mut(), Ordering::Relaxed);
        }
        Some(())
    }
}
