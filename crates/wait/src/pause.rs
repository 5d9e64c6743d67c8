//! How long something that did not work is left alone: a second, and twice as long each time, up to
//! a bound. In a few bits, for who has no more room.

/// The first pause lasts a second, the longest 2 to this power.
const LONGEST: u32 = 6;
/// Seconds are counted modulo 2 to this power.
const CLOCK_BITS: u32 = 20;
const CLOCK: u32 = (1 << CLOCK_BITS) - 1;
const COUNT: u32 = 7;

/// Until which second, above how many pauses there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause(u32);

impl Pause {
    /// None yet.
    pub const NONE: Self = Self(0);
    /// All bits that one may have.
    pub const MOST_BITS: u32 = CLOCK << 3 | COUNT;

    pub const fn of_bits(bits: u32) -> Self {
        Self(bits & Self::MOST_BITS)
    }

    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether there was one.
    pub const fn is_any(self) -> bool {
        self.0 & COUNT != 0
    }

    /// The next one, from this second on. Seconds of any clock that runs evenly.
    #[must_use]
    pub const fn longer(self, second: u64) -> Self {
        let count = self.0 & COUNT;
        let power = if count > LONGEST { LONGEST } else { count };
        let until = (second as u32).wrapping_add(1 << power) & CLOCK;
        let count = if count > LONGEST { count } else { count + 1 };
        Self(until << 3 | count)
    }

    /// No pause, but as many as there were: it `lasts` for two seconds from this one on.
    #[must_use]
    pub const fn window(self, second: u64) -> Self {
        let until = (second as u32).wrapping_add(2) & CLOCK;
        Self(until << 3 | self.0 & COUNT)
    }

    /// Whether there were as many as are counted.
    pub const fn is_last(self) -> bool {
        self.0 & COUNT > LONGEST
    }

    /// As long as any, from this second on, and the `nth`, as far as they are counted.
    #[must_use]
    pub const fn longest(second: u64, nth: u32) -> Self {
        let count = if nth < COUNT { nth } else { COUNT };
        Self(Self(COUNT).longer(second).0 & !COUNT | count)
    }

    /// How many there were, as far as they are counted.
    pub const fn count(self) -> u32 {
        self.0 & COUNT
    }

    /// Whether it goes on in this second.
    pub const fn lasts(self, second: u64) -> bool {
        // More than any pause has left is one that ended before the count of seconds went round.
        let left = (self.0 >> 3).wrapping_sub(second as u32) & CLOCK;
        self.is_any() && left != 0 && left <= 1 << LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long it lasts, looked at from this second on.
    fn length(pause: Pause, from: u64) -> u64 {
        (from..).take_while(|&second| pause.lasts(second)).count() as u64
    }

    #[test]
    fn each_is_twice_as_long_up_to_a_bound() {
        // Also where the bits of the clock go round.
        for start in [0, 7, u64::from(CLOCK) - 3, u64::from(u32::MAX) - 40] {
            let (mut pause, mut now) = (Pause::NONE, start);
            assert!(!pause.is_any() && !pause.lasts(now));
            for length_wanted in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
                pause = Pause::of_bits(pause.longer(now).bits());
                assert!(pause.is_any());
                assert_eq!(length(pause, now), length_wanted);
                now += length_wanted + 5;
            }
        }
    }

    #[test]
    fn a_window_counts_for_none() {
        let (mut pause, now) = (Pause::NONE, u64::from(CLOCK));
        for _ in 0..7 {
            assert!(!pause.is_last());
            pause = Pause::of_bits(pause.longer(now).bits());
            let window = Pause::of_bits(pause.window(now).bits());
            assert_eq!(length(window, now), 2);
            assert_eq!(length(window.longer(now), now), length(pause.longer(now), now));
        }
        assert!(pause.is_last());
    }

    #[test]
    fn one_that_is_long_over_does_not_come_back_for_longer_than_it_was() {
        let pause = Pause::NONE.longer(100);
        let round = 100 + (1 << CLOCK_BITS);
        for second in [101, 200, 1 << 19, round - 100] {
            assert!(!pause.lasts(second), "{second}");
        }
        assert!(length(pause, round - 63) <= 64);
    }
}
