//! What a process may spend on watching, as a share of its CPU time.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Rate;

/// So long the process may watch without a pause before the share counts, in microseconds of the
/// share's own pace.
const BURST_US: u64 = 100_000;

/// How much of one CPU the waits of a process may use, all threads together. All zero: nothing is
/// used so far.
///
/// A leaky bucket kept as one time (the generic cell rate algorithm, ITU-T I.371): when what was
/// used so far is paid for at the pace of the share.
#[derive(Debug, Default)]
pub struct Share {
    paid_at: AtomicU64,
}

impl Share {
    pub const fn new() -> Self {
        Self { paid_at: AtomicU64::new(0) }
    }

    /// Whether anybody may watch at the moment.
    pub fn allows(&self, now: u64, rate: Rate) -> bool {
        self.paid_at.load(Relaxed) <= now.saturating_add(rate.us(BURST_US))
    }

    /// Somebody watched for so many ticks; `percent` of one CPU are allowed.
    pub fn used(&self, now: u64, ticks: u64, percent: u32) {
        let paid_for = ticks.saturating_mul(100) / u64::from(percent.max(1));
        let paid_at = self.paid_at.load(Relaxed).max(now);
        self.paid_at.store(paid_at.saturating_add(paid_for), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate(3);

    /// Of a second in which every wait watches for 50 us where it may, and does something else for
    /// `between_us`, how many percent it watched.
    fn percent_watched(percent: u32, between_us: u64) -> u64 {
        let share = Share::new();
        let (mut now_us, mut watched_us) = (1_000_000, 0);
        while now_us < 11_000_000 {
            now_us += between_us;
            if share.allows(RATE.us(now_us), RATE) {
                now_us += 50;
                watched_us += 50;
                share.used(RATE.us(now_us), RATE.us(50), percent);
            }
        }
        watched_us * 100 / 10_000_000
    }

    #[test]
    fn a_process_stays_below_its_share() {
        for percent in [1, 5, 20, 70] {
            let watched = percent_watched(percent, 1);
            // The burst is one more percent of these ten seconds at most.
            let wanted = u64::from(percent);
            assert!((wanted.saturating_sub(1)..=wanted + 1).contains(&watched), "{watched}");
        }
    }

    #[test]
    fn who_watches_less_is_never_held_back() {
        assert_eq!(percent_watched(50, 150), 25);
    }

    #[test]
    fn what_was_used_long_ago_is_forgotten() {
        let share = Share::new();
        share.used(RATE.us(10), RATE.us(1_000_000), 10);
        assert!(!share.allows(RATE.us(20), RATE));
        assert!(share.allows(RATE.us(10_000_010), RATE));
    }

    #[test]
    fn no_percent_at_all_does_not_divide_by_it() {
        let share = Share::new();
        share.used(5, u64::MAX, 0);
        assert!(!share.allows(u64::MAX / 2, RATE));
    }
}
