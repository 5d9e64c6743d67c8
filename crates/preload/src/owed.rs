//! What the broker has yet to be told: names of ends that are to be released, where its socket has no room. Who closes
//! a thousand connections is faster than the broker, and what it never heard of would keep its memory.
//!
//! Storey 1: system.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::lock::Lock;
use crate::sys;

/// So many ends the broker lets a process have at most.
const MOST: usize = 16384;

static LOCK: Lock = Lock::new();
/// Mapped with the first of them.
static NAMES: AtomicPtr<[AtomicU64; MOST]> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether there is something to tell. One load.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Without memory, or in a handler that interrupted this very call, it is not kept.
#[cold]
pub fn push(name: u64) {
    let Some(_guard) = LOCK.acquire() else { return };
    if NAMES.load(Ordering::Relaxed).is_null() {
        let Some(fresh) = sys::map_private(size_of::<[AtomicU64; MOST]>()) else { return };
        NAMES.store(fresh.cast(), Ordering::Relaxed);
    }
    let count = COUNT.load(Ordering::Relaxed);
    if let Some(place) = names().get(count) {
        place.store(name, Ordering::Relaxed);
        COUNT.store(count + 1, Ordering::Relaxed);
    }
}

/// Tells of each by `tell`, as long as that is true. True: there is none left.
#[cold]
pub fn pay(mut tell: impl FnMut(u64) -> bool) -> bool {
    let Some(_guard) = LOCK.try_acquire() else { return false };
    let mut left = COUNT.load(Ordering::Relaxed);
    while left > 0 && tell(names()[left - 1].load(Ordering::Relaxed)) {
        left -= 1;
    }
    COUNT.store(left, Ordering::Relaxed);
    left == 0
}

/// In a forked child: they are the parent's.
pub fn forget() {
    LOCK.reset();
    COUNT.store(0, Ordering::Relaxed);
}

fn names() -> &'static [AtomicU64] {
    // SAFETY: null, or a mapping of zeros that stays.
    unsafe { NAMES.load(Ordering::Relaxed).as_ref() }.map_or(&[], |all| &all[..])
}
