//! A list that grows, under its set's lock, of objects that keep their type for ever.
//!
//! Storey 3: connection.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::sys;

/// Items of a list's first page.
const FIRST: u32 = (4096 / size_of::<AtomicPtr<()>>()) as u32;

/// All zero is an empty list without memory.
#[repr(C)]
pub struct List<T: 'static> {
    items: AtomicPtr<AtomicPtr<T>>,
    len: AtomicU32,
    room: AtomicU32,
}

impl<T> List<T> {
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

    pub fn get(&self, index: u32) -> Option<&'static T> {
        // SAFETY: an item below `len` is of the memory of a T, which stays one.
        (index < self.len()).then(|| unsafe { &*self.item(index).load(Ordering::Relaxed) })
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
        if len < 2 {
            return;
        }
        let first = self.items.load(Ordering::Relaxed).cast::<*mut T>();
        // SAFETY: `len` items, under the set's lock; an atomic pointer is laid out as a pointer.
        let items = unsafe { core::slice::from_raw_parts_mut(first, len) };
        // SAFETY: each of the memory of a T, which stays one.
        items.sort_unstable_by_key(|item| key(unsafe { &**item }));
    }

    pub fn truncate(&self, len: u32) {
        self.len.store(len.min(self.len()), Ordering::Relaxed);
    }

    /// Where it is now; `None` without memory.
    pub fn push(&self, one: &'static T) -> Option<u32> {
        let len = self.len();
        if len == self.room.load(Ordering::Relaxed) {
            self.grow(len)?;
        }
        self.item(len).store(core::ptr::from_ref(one).cast_mut(), Ordering::Relaxed);
        self.len.store(len + 1, Ordering::Relaxed);
        Some(len)
    }

    /// Takes the item at `index` out; the last one, which is given, moves to its place.
    pub fn swap_remove(&self, index: u32) -> Option<&'static T> {
        let last = self.get(self.len().checked_sub(1)?)?;
        self.item(index).store(core::ptr::from_ref(last).cast_mut(), Ordering::Relaxed);
        self.len.store(self.len() - 1, Ordering::Relaxed);
        Some(last)
    }

    fn item(&self, index: u32) -> &AtomicPtr<T> {
        // SAFETY: callers stay below `room`.
        unsafe { &*self.items.load(Ordering::Relaxed).add(index as usize) }
    }

    #[cold]
    fn grow(&self, held: u32) -> Option<()> {
        let len = self.len();
        let room = if held == 0 { FIRST } else { held.checked_mul(2)? };
        let fresh =
            sys::map_private(room as usize * size_of::<AtomicPtr<T>>())?.cast::<AtomicPtr<T>>();
        let old = self.items.load(Ordering::Relaxed);
        for at in 0..len as usize {
            // SAFETY: both hold `len` items.
            unsafe {
                (*fresh.add(at)).store((*old.add(at)).load(Ordering::Relaxed), Ordering::Relaxed)
            };
        }
        self.items.store(fresh, Ordering::Relaxed);
        self.room.store(room, Ordering::Relaxed);
        if held > 0 {
            // SAFETY: who reads items holds the set's lock, as this thread does.
            unsafe { sys::unmap(old.cast(), held as usize * size_of::<AtomicPtr<T>>()) };
        }
        Some(())
    }
}
