//! What is measured, how often, and for how long.

use std::time::Duration;

/// Time for one measurement of one way.
#[derive(Clone, Copy)]
pub struct Budget {
    pub time: Duration,
}

pub struct Plan {
    pub sizes: Vec<usize>,
    pub repetitions: usize,
    pub budget: Budget,
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

impl Plan {
    /// About two and a half minutes.
    pub fn full() -> Self {
        Self {
            sizes: (0..=11).map(|step| 4usize.pow(step)).collect(),
            repetitions: 5,
            budget: Budget { time: Duration::from_millis(150) },
        }
    }

    /// A few seconds.
    pub fn quick() -> Self {
        Self {
            sizes: vec![1, 64, 4 * KIB, 64 * KIB, 4 * MIB],
            repetitions: 3,
            budget: Budget { time: Duration::from_millis(30) },
        }
    }
}

impl Budget {
    /// How often to repeat what took `once`, to fill the budget. At least `least` times.
    pub fn count(&self, once: Duration, least: u32) -> u32 {
        let times = self.time.as_secs_f64() / once.as_secs_f64().max(1e-9);
        (times as u32).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_reach_from_a_byte_to_four_mebibytes() {
        for plan in [Plan::full(), Plan::quick()] {
            assert_eq!((plan.sizes[0], *plan.sizes.last().unwrap()), (1, 4 * MIB));
        }
    }

    #[test]
    fn counts_fill_the_budget() {
        let budget = Budget { time: Duration::from_millis(100) };
        assert_eq!(budget.count(Duration::from_millis(1), 1), 100);
        assert_eq!(budget.count(Duration::from_secs(1), 3), 3);
        assert!(budget.count(Duration::ZERO, 1) > 0);
    }
}
