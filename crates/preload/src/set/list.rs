//! A list that grows, under its set's lock.
//!
//! Storey 3: connection.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::sys;

/// All zero is an empty list without memory.
#[repr(C)]
pub struct List<T: Copy + 'static> {
    items: AtomicPtr<T>,
    len: AtomicU32,
    room: AtomicU32,
}

impl<T: Copy> List<T> {
    /// Items of the first page.
    const FIRST: u32 = (4096 / size_of::<T>()) as u32;

    /// May be read without the lock, as a hint.
    pub fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn clear(&self) {
        self.len.store(0, Ordering::Relaxed);
    }

    pub fn get(&self, index: u32) -> Option<T> {
        // SAFETY: an item below `len`.
        (index < self.len()).then(|| unsafe { *self.item(index) })
    }

    /// In the place of the item at `index`.
    pub fn put(&self, index: u32, item: T) {
        if index < self.len() {
            // SAFETY: as above; who reads items holds the set's lock, as this thread does.
            unsafe { *self.item(index) = item };
        }
    }

    /// Whether so many items find room; false without memory.
    pub fn reserve(&self, count: u32) -> bool {
        let room = || self.room.load(Ordering::Relaxed);
        while room() < count {
            if self.grow(room()).is_none() {
                return false;
            }
        }
        true
    }

    /// Puts the items into the order of their keys.
    pub fn sort(&self, key: impl Fn(&T) -> u64) {
        let len = self.len() as usize;
        if len > 1 {
            let first = self.items.load(Ordering::Relaxed);
            // SAFETY: `len` items, under the set's lock.
            let items = unsafe { core::slice::from_raw_parts_mut(first, len) };
            items.sort_unstable_by_key(key);
        }
    }

    pub fn truncate(&self, len: u32) {
        self.len.store(len.min(self.len()), Ordering::Relaxed);
    }

    /// Where it is now; `None` without memory.
    pub fn push(&self, item: T) -> Option<u32> {
        let len = self.len();
        if len == self.room.load(Ordering::Relaxed) {
            self.grow(len)?;
        }
        // SAFETY: below `room`, under the set's lock.
        unsafe { self.item(len).write(item) };
        self.len.store(len + 1, Ordering::Relaxed);
        Some(len)
    }

    /// Takes the item at `index` out; the last one, which is given, moves to its place.
    pub fn swap_remove(&self, index: u32) -> Option<T> {
        let last = self.get(self.len().checked_sub(1)?)?;
        self.put(index, last);
        self.len.store(self.len() - 1, Ordering::Relaxed);
        Some(last)
    }

    fn item(&self, index: u32) -> *mut T {
        self.items.load(Ordering::Relaxed).wrapping_add(index as usize)
    }

    #[cold]
    fn grow(&self, held: u32) -> Option<()> {
        let room = if held == 0 { Self::FIRST } else { held.checked_mul(2)? };
        let fresh = sys::map_private(room as usize * size_of::<T>())?.cast::<T>();
        let old = self.items.load(Ordering::Relaxed);
        if held > 0 {
            // SAFETY: both hold `len` items, and who reads items holds the set's lock, as this
            // thread does.
            unsafe {
                core::ptr::copy_nonoverlapping(old, fresh, self.len() as usize);
                sys::unmap(old.cast(), held as usize * size_of::<T>());
            }
        }
        self.items.store(fresh, Ordering::Relaxed);
        self.room.store(room, Ordering::Relaxed);
        Some(())
    }
}
