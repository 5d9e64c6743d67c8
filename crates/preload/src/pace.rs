//! How fast messages come to each thread by TCP.
//!
//! Storey 1: system.

use yasmin_wait::Pace;

use crate::thread::thread_word;
use crate::{clock, spin};

thread_word! {
    /// The thread's `Pace`.
    pace: u64
}

thread_word! {
    /// When its batch began.
    batch_begun: u64
}

/// A message of this thread's went by TCP.
#[inline]
pub fn note() {
    let mut begun = batch_begun::get();
    let before = begun;
    pace::set(Pace(pace::get()).one_more(&mut begun, clock::ticks, spin::rate).0);
    if begun != before {
        batch_begun::set(begun);
    }
}

/// Whether they come so fast that a ring would be of use for one that has been given back so often in a row.
pub fn is_busy(seldom: u32) -> bool {
    Pace(pace::get()).is_busy(seldom, batch_begun::get(), clock::ticks(), spin::rate())
}

/// Whether they come so slowly that none is.
pub fn is_slow() -> bool {
    Pace(pace::get()).is_slow(batch_begun::get(), clock::ticks(), spin::rate())
}
