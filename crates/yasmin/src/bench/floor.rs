//! The floor: how fast one cache line gets from one CPU to the other and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::plan::Budget;
use super::{Latency, Subject};
use yasmin_measure::cpus::{self, Pair};

pub struct Floor {
    pair: Pair,
}

/// A cache line and its prefetched neighbour to itself.
#[repr(align(128))]
struct Line(AtomicU32);

const BATCH: u32 = 1000;

impl Floor {
    pub fn new(pair: Pair) -> Self {
        Self { pair }
    }

    /// Nanoseconds for one way, each value the mean of a batch.
    fn bounce(&self, batches: u32) -> anyhow::Result<Latency> {
        let line = Arc::new(Line(AtomicU32::new(0)));
        let other = Arc::clone(&line);
        let cpu = self.pair.second;
        let rounds = batches * BATCH;
        let peer = std::thread::spawn(move || -> anyhow::Result<()> {
            let pinned = cpus::pin_this_thread(cpu);
            for round in 0..rounds {
                while other.0.load(Ordering::Acquire) != 2 * round + 1 {
                    std::hint::spin_loop();
                }
                other.0.store(2 * round + 2, Ordering::Release);
            }
            pinned?;
            Ok(())
        });
        let mut times = super::linked::histogram()?;
        for batch in 0..batches {
            let begun = Instant::now();
            for round in batch * BATCH..(batch + 1) * BATCH {
                line.0.store(2 * round + 1, Ordering::Release);
                while line.0.load(Ordering::Acquire) != 2 * round + 2 {
                    std::hint::spin_loop();
                }
            }
            super::linked::record(&mut times, begun.elapsed(), 2 * BATCH);
        }
        peer.join().map_err(|_| anyhow::anyhow!("the other side panicked"))??;
        Ok(super::linked::summary(&times))
    }
}

impl Subject for Floor {
    fn name(&self) -> &'static str {
        "cache line"
    }

    /// One line holds no more than a byte, or sixty-four of them.
    fn latency(&mut self, len_bytes: usize, budget: Budget) -> anyhow::Result<Option<Latency>> {
        if len_bytes != 1 {
            return Ok(None);
        }
        let batches = budget.count(Duration::from_micros(u64::from(BATCH) / 5), 10);
        self.bounce(batches).map(Some)
    }

    fn bandwidth(&mut self, _: usize, _: Budget) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }
}
