//! How often pairs of guests lost their memory: a few times at once, and then once a minute. Pure.
//!
//! A guest, or somebody at its QEMU, can make memory go whenever it likes. Each time costs the other
//! guest an unplugging and a copy of what is in use, and the host a new file. A pair that loses it too
//! often is left alone, on TCP, for so long that it comes no more often than this. Others are not
//! touched.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// So many times at once.
const AT_ONCE: u32 = 6;

/// And then once in so long.
const EVERY: Duration = Duration::from_secs(60);

/// By pair, the lower guest first: when all its losses are forgiven, one for each `EVERY`.
#[derive(Default)]
pub struct Losses(HashMap<[usize; 2], Instant>);

fn key(mut guests: [usize; 2]) -> [usize; 2] {
    guests.sort_unstable();
    guests
}

impl Losses {
    /// These two have lost a region.
    pub fn lost(&mut self, guests: [usize; 2], now: Instant) {
        let forgiven = self.0.entry(key(guests)).or_insert(now);
        *forgiven = (*forgiven).max(now) + EVERY;
    }

    /// For how long these two get no other one; `None`: they may have it now.
    pub fn rest(&self, guests: [usize; 2], now: Instant) -> Option<Duration> {
        let left = self.0.get(&key(guests))?.saturating_duration_since(now);
        // One more has to fit.
        let rest = left.saturating_sub(EVERY * (AT_ONCE - 1));
        (!rest.is_zero()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_at_once_and_then_one_a_minute() {
        let mut losses = Losses::default();
        let mut now = Instant::now();
        for _ in 0..AT_ONCE {
            assert_eq!(losses.rest([0, 1], now), None);
            losses.lost([0, 1], now);
        }
        // Whoever is named first; and nobody else.
        assert_eq!(losses.rest([1, 0], now), Some(EVERY));
        assert_eq!(losses.rest([0, 2], now), None);
        for _ in 0..3 {
            now += EVERY;
            assert_eq!(losses.rest([0, 1], now), None);
            losses.lost([1, 0], now);
            assert_eq!(losses.rest([0, 1], now), Some(EVERY));
        }
        now += EVERY * AT_ONCE;
        losses.lost([0, 1], now);
        assert_eq!(losses.rest([0, 1], now), None);
    }
}
