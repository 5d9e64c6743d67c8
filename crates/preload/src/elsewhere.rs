//! What this process does by the kernel, for those who get ring bytes from it.
//!
//! A program that sends on one connection and then on another one finds that the other side's waits
//! tell of the first no later than of the second, and before it. So it is with what it writes into a pipe, an
//! eventfd or a Unix socket. So whoever publishes says when something went by the kernel last, and in the
//! answer of a wait ring bytes come behind what the kernel tells, if that is later than when it was asked
//! before (spec/wire.md section 5.7).
//!
//! What must stay true: a step is noted when the kernel has taken it, and ring bytes that are
//! published after that by the same process say a time that is no earlier. Not every step can be noted: a file
//! that comes into a folder is one, and what another process does. A wait that finds ring bytes asks the kernel in any
//! case, and only the order inside its answer depends on what is noted here.
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

/// Whether steps are noted.
#[inline]
pub fn is_told() -> bool {
    HAS_CHANNELS.load(Ordering::SeqCst) != 0
}

/// The kernel took bytes, a connection, an end or a signal.
#[inline]
pub fn note_step() {
    if is_told() {
        STEPPED_AT.fetch_max(clock::ticks(), Ordering::AcqRel);
    }
}

/// Ticks no earlier than this thread's last step.
#[inline]
pub fn stepped_at() -> u64 {
    STEPPED_AT.load(Ordering::Acquire)
}
