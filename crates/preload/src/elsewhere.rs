//! What this process does by TCP, for those who get ring bytes from it.
//!
//! A program that sends on one connection and then on another one finds that the other side's waits
//! tell of the first no later than of the second. Ring bytes are seen at once, though, and the
//! kernel is asked now and then. So whoever publishes says when something went by TCP last, and
//! whoever has not asked the kernel since does so first (spec/wire.md section 5.7).
//!
//! What must stay true: a step is noted when the kernel has taken it, and ring bytes that are
//! published after that by the same process say a time that is no earlier.
//!
//! Storey 1: system.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock;

/// Ticks of the last step.
static STEPPED_AT: AtomicU64 = AtomicU64::new(0);
/// Not 0: some connection of this process has or had a channel. Before that nobody is told anything,
/// and many threads that send by TCP alone would write one line.
static HAS_CHANNELS: AtomicU32 = AtomicU32::new(0);

/// A connection gets a channel: what was done before counts as done now.
pub fn begin() {
    HAS_CHANNELS.store(1, Ordering::SeqCst);
    note_step();
}

/// The kernel took bytes, a connection or an end on some connection.
#[inline]
pub fn note_step() {
    if HAS_CHANNELS.load(Ordering::SeqCst) != 0 {
        STEPPED_AT.fetch_max(clock::ticks(), Ordering::AcqRel);
    }
}

/// Ticks no earlier than this thread's last step.
#[inline]
pub fn stepped_at() -> u64 {
    STEPPED_AT.load(Ordering::Acquire)
}
