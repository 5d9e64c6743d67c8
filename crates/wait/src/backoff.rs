//! Attempts that fail are made less often.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What a kind of attempt taught: after attempts that failed it skips more and more of them.
/// All zero is a fresh one.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Backoff {
    fails: AtomicU32,
    skip: AtomicU32,
    /// When an attempt ended in vain that is not judged yet; 0: none did.
    vain_at: AtomicU64,
}

/// At most so many attempts are skipped, as a power of two: 63.
const FAILS_MAX: u32 = 7;

impl Backoff {
    pub const fn new() -> Self {
        Self { fails: AtomicU32::new(0), skip: AtomicU32::new(0), vain_at: AtomicU64::new(0) }
    }

    /// An attempt ended in vain. It failed if what it was made for stays away: of a peer that is
    /// busy, or whose CPU was taken from it, it was only a little too short.
    pub fn was_vain(&self, now: u64) {
        self.vain_at.store(now.max(1), Relaxed);
    }

    /// Whether to make an attempt, now that there is an occasion. The last one in vain failed if
    /// the occasion took longer than `patience` to come.
    pub fn allows(&self, now: u64, patience: u64) -> bool {
        let vain_at = self.vain_at.load(Relaxed);
        if vain_at != 0 {
            self.vain_at.store(0, Relaxed);
            if now.wrapping_sub(vain_at) > patience {
                self.failed();
            }
        }
        let skip = self.skip.load(Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Relaxed);
        }
        skip == 0
    }

    /// An attempt was worth it: everything before is forgotten.
    pub fn won(&self) {
        if self.vain_at.load(Relaxed) != 0 {
            self.vain_at.store(0, Relaxed);
        }
        if self.fails.load(Relaxed) != 0 {
            self.fails.store(0, Relaxed);
            self.skip.store(0, Relaxed);
        }
    }

    /// Makes it a fresh one.
    pub fn reset(&self) {
        self.won();
    }

    /// An attempt failed, whatever comes.
    pub fn failed(&self) {
        let fails = (self.fails.load(Relaxed) + 1).min(FAILS_MAX);
        self.fails.store(fails, Relaxed);
        // The first failure is free: one late answer is no pattern.
        self.skip.store((1 << (fails - 1)) - 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: u64 = 1000;

    /// Of `occasions`, `gap` ticks apart, on how many an attempt was made. All end in vain.
    fn attempts(backoff: &Backoff, occasions: u64, gap: u64) -> u64 {
        let made = |nth: u64| {
            let is_made = backoff.allows(1 + nth * gap, PATIENCE);
            if is_made {
                backoff.was_vain(1 + nth * gap);
            }
            u64::from(is_made)
        };
        (0..occasions).map(made).sum()
    }

    #[test]
    fn a_busy_peer_is_tried_each_time() {
        assert_eq!(attempts(&Backoff::new(), 100, PATIENCE), 100);
    }

    #[test]
    fn a_peer_that_stays_away_is_tried_less_and_less() {
        let backoff = Backoff::new();
        // Skipped after each failure: 0, 1, 3, 7, 15, 31, 63, 63.
        assert_eq!(attempts(&backoff, 128, PATIENCE + 1), 8);
        assert_eq!(attempts(&backoff, 6400, PATIENCE + 1), 100);
    }

    #[test]
    fn what_is_won_is_tried_at_once_again() {
        let backoff = Backoff::new();
        attempts(&backoff, 1000, PATIENCE + 1);
        backoff.won();
        assert!(backoff.allows(0, PATIENCE));
        backoff.was_vain(1);
        // One late answer is no pattern.
        assert!(backoff.allows(10 * PATIENCE, PATIENCE));
    }

    /// A long gap between busy times, as when a host takes the CPUs: one failure, which is free.
    #[test]
    fn one_gap_costs_nothing() {
        let backoff = Backoff::new();
        backoff.was_vain(1);
        assert!(backoff.allows(1_000_000, PATIENCE));
        backoff.won();
        backoff.was_vain(1_000_100);
        assert!(backoff.allows(2_000_000, PATIENCE));
    }

    #[test]
    fn a_counter_that_stands_at_zero_is_no_reason_to_forget() {
        let backoff = Backoff::new();
        let made = [(); 3].map(|()| {
            backoff.was_vain(0);
            backoff.allows(PATIENCE * 2, PATIENCE)
        });
        assert_eq!(made, [true, false, false]);
    }
}
