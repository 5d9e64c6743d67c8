//! What this process does by TCP, for those who get ring bytes from it.
//!
//! A program that sends on one connection and then on another one finds that the other side's waits
//! tell of the first no later than of the second. Ring bytes are seen at once, though, and the
//! kernel is asked now and then. So whoever publishes says whether something went by TCP before,
//! and whoever is told of that asks the kernel first (spec/wire.md section 5.7).
//!
//! What must stay true: a step is noted when the kernel has taken it, and ring bytes that are
//! published after that by the same process carry another count than those before.
//!
//! Storey 1: system.

use core::sync::atomic::{AtomicU64, Ordering};

/// Which part of this process's time it is: each ends when somebody publishes after a step.
static ERA: AtomicU64 = AtomicU64::new(1);
/// The last one that had a step. A process that uses rings alone only ever reads these.
static STEPPED: AtomicU64 = AtomicU64::new(0);

/// The kernel took bytes, a connection or an end on some connection.
#[inline]
pub fn note_step() {
    let era = ERA.load(Ordering::Acquire);
    if STEPPED.load(Ordering::Relaxed) != era {
        STEPPED.store(era, Ordering::Release);
    }
}

/// Another value than before this thread's last step, and than any that was given before that.
#[inline]
pub fn era() -> u64 {
    let era = ERA.load(Ordering::Acquire);
    if STEPPED.load(Ordering::Acquire) == era {
        // Whoever is faster ends it for both.
        let _ = ERA.compare_exchange(era, era.wrapping_add(1), Ordering::AcqRel, Ordering::Acquire);
        return ERA.load(Ordering::Acquire);
    }
    era
}
