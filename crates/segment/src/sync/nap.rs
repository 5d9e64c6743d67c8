//! How long a wait sleeps at a time.
//!
//! Nobody wakes the waiter of a dead holder, and a wake-up may go to one who dies of something
//! else before it acts. So every sleep is a nap, after which the waiter looks for itself. A wait
//! for a holder naps for [`NAP_LONGEST_NS`] at most; one for an event, which has no holder, for
//! ten times as long.

use super::Waiter;
use super::primitive::AtomicU64;

/// 10 ms: so long after a holder's death its waiter knows, at the latest.
pub const NAP_LONGEST_NS: u64 = 10_000_000;
const NAP_FIRST_NS: u64 = 1_000_000;

/// How long the caller wants to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    No,
    Forever,
    /// By the waiter's clock, nanoseconds: CLOCK_MONOTONIC with [`super::Futex`].
    Until(u64),
}

pub(crate) enum Rest {
    Woken,
    /// The nap is over: look whether who one waits for lives.
    Elapsed,
    /// So is the caller's patience: look for the last time.
    Late,
}

pub(crate) struct Nap {
    next_ns: u64,
    longest_ns: u64,
}

impl Nap {
    pub fn for_holder() -> Self {
        Self { next_ns: NAP_FIRST_NS, longest_ns: NAP_LONGEST_NS }
    }

    pub fn for_event() -> Self {
        Self { next_ns: NAP_LONGEST_NS, longest_ns: 10 * NAP_LONGEST_NS }
    }

    pub fn rest(&mut self, waiter: &dyn Waiter, word: &AtomicU64, low: u32, wait: Wait) -> Rest {
        let left_ns = match wait {
            Wait::No => 0,
            Wait::Forever => u64::MAX,
            Wait::Until(deadline_ns) => deadline_ns.saturating_sub(waiter.now_ns()),
        };
        if left_ns == 0 {
            return Rest::Late;
        }
        if !waiter.sleep(word, low, left_ns.min(self.next_ns)) {
            return Rest::Woken;
        }
        self.next_ns = (self.next_ns * 2).min(self.longest_ns);
        Rest::Elapsed
    }
}
