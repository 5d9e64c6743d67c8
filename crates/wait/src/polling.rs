//! Waits that must not last, called again and again.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Backoff, Budget, Rate, Watched};

/// How long such a wait watches the rings before it asks the kernel: longer than the two ends of
/// an MPI ping-pong take.
const WATCH_US: u64 = 4;
/// Two empty waits so close together are a program that polls.
const GAP_US: u64 = 2;
/// A wait so soon after a won one is likely to follow an answer.
const ANSWER_US: u64 = 8;

/// For waits with a timeout of 0: a program that polls, which the rings answer sooner than the
/// kernel does. All zero is a fresh one.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Polling {
    /// When the last wait found nothing.
    empty_at: AtomicU64,
    /// When the last watch was worth it; 0 after one that was not.
    won_at: AtomicU64,
    /// What watches after an empty wait taught.
    empties: Backoff,
    /// What watches after a won one taught: in a ping-pong the program answers, polls, and has
    /// the next message before the kernel could be asked.
    answers: Backoff,
}

/// Why such a wait watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    Empty,
    Answer,
}

impl Polling {
    pub const fn new() -> Self {
        Self {
            empty_at: AtomicU64::new(0),
            won_at: AtomicU64::new(0),
            empties: Backoff::new(),
            answers: Backoff::new(),
        }
    }

    pub fn found_nothing(&self, now: u64) {
        self.empty_at.store(now, Relaxed);
    }

    /// Whether a wait watches: the last empty or won one was just now, and watching was worth it
    /// lately. `is_off`: nobody may watch at the moment.
    pub fn begin(
        &self,
        now: u64,
        rate: Rate,
        is_off: impl Fn() -> bool,
    ) -> Option<(Occasion, Budget)> {
        let is_soon = |at: &AtomicU64, us| now.wrapping_sub(at.load(Relaxed)) <= rate.us(us);
        let occasion = if is_soon(&self.empty_at, GAP_US) {
            Occasion::Empty
        } else if is_soon(&self.won_at, ANSWER_US) {
            Occasion::Answer
        } else {
            return None;
        };
        if is_off() || !self.of(occasion).allows(now, u64::MAX) {
            return None;
        }
        self.empty_at.store(0, Relaxed);
        Some((occasion, Budget::new(rate.us(WATCH_US))))
    }

    pub fn end(&self, occasion: Occasion, watched: Watched, now: u64) {
        let is_won = watched == Watched::Stirs;
        self.won_at.store(if is_won { now } else { 0 }, Relaxed);
        let backoff = self.of(occasion);
        if is_won { backoff.won() } else { backoff.failed() }
    }

    const fn of(&self, occasion: Occasion) -> &Backoff {
        match occasion {
            Occasion::Empty => &self.empties,
            Occasion::Answer => &self.answers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate(1000);
    const fn us(count: u64) -> u64 {
        RATE.us(count)
    }

    fn occasion(polling: &Polling, now: u64) -> Option<Occasion> {
        polling.begin(now, RATE, || false).map(|(occasion, _)| occasion)
    }

    #[test]
    fn who_waits_now_and_then_does_not_watch() {
        let polling = Polling::new();
        for nth in 1..100 {
            assert_eq!(occasion(&polling, us(100 * nth)), None);
            polling.found_nothing(us(100 * nth));
        }
    }

    #[test]
    fn who_polls_watches_and_again_after_its_answer() {
        let polling = Polling::new();
        polling.found_nothing(us(100));
        assert_eq!(occasion(&polling, us(101)), Some(Occasion::Empty));
        polling.end(Occasion::Empty, Watched::Stirs, us(103));
        assert_eq!(occasion(&polling, us(108)), Some(Occasion::Answer));
        polling.end(Occasion::Answer, Watched::InVain, us(112));
        assert_eq!(occasion(&polling, us(113)), None);
    }

    #[test]
    fn who_watches_in_vain_watches_less_and_less() {
        let polling = Polling::new();
        let mut watches = 0;
        for nth in 1..=1000 {
            if let Some(occasion) = occasion(&polling, us(100 + nth)) {
                watches += 1;
                polling.end(occasion, Watched::InVain, us(100 + nth));
            }
            polling.found_nothing(us(100 + nth));
        }
        assert!((10..30).contains(&watches), "{watches}");
    }

    #[test]
    fn nobody_watches_who_may_not() {
        let polling = Polling::new();
        polling.found_nothing(us(100));
        assert!(polling.begin(us(101), RATE, || true).is_none());
    }
}
