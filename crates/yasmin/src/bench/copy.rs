//! The limit of two copies: both CPUs copy messages at the same time, each between memory of
//! its own, as sender and receiver of a perfect ring would. The slower of the two counts.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use super::plan::Budget;
use super::ring::RING_BYTES;
use super::{Latency, Subject};
use yasmin_measure::cpus::{self, Pair};

pub struct Copy {
    pair: Pair,
}

/// One side: a message, and a ring to copy it into.
struct Side {
    /// The message begins at `begin`.
    room: Vec<u8>,
    begin: usize,
    len_bytes: usize,
    ring: Vec<u8>,
}

const PAGE_BYTES: usize = 4096;

impl Side {
    /// Message and ring are half a page apart: where the ring begins some bytes behind the message
    /// within a page, AMD's copy instruction is 20 times as slow, which is no limit of memory.
    fn new(len_bytes: usize) -> Self {
        let room = vec![1; len_bytes + PAGE_BYTES];
        let ring = vec![2; RING_BYTES];
        let apart = (ring.as_ptr() as usize).wrapping_sub(room.as_ptr() as usize);
        let begin = apart.wrapping_add(PAGE_BYTES / 2) % PAGE_BYTES;
        Self { room, begin, len_bytes, ring }
    }

    fn copy(&mut self, count: u32) -> Duration {
        let begun = Instant::now();
        let mut at = 0;
        for _ in 0..count {
            let mut rest = black_box(&self.room[self.begin..self.begin + self.len_bytes]);
            while !rest.is_empty() {
                let len = rest.len().min(self.ring.len() - at);
                black_box(&mut self.ring)[at..at + len].copy_from_slice(&rest[..len]);
                rest = &rest[len..];
                at = (at + len) % self.ring.len();
            }
        }
        begun.elapsed()
    }
}

impl Copy {
    pub fn new(pair: Pair) -> Self {
        Self { pair }
    }
}

impl Subject for Copy {
    fn name(&self) -> &'static str {
        "memcpy"
    }

    fn latency(&mut self, _: usize, _: Budget) -> anyhow::Result<Option<Latency>> {
        Ok(None)
    }

    fn bandwidth(&mut self, len_bytes: usize, budget: Budget) -> anyhow::Result<Option<f64>> {
        let mut side = Side::new(len_bytes);
        let trial = 1.max(RING_BYTES / len_bytes) as u32;
        side.copy(trial);
        let count = budget.count(side.copy(trial) / trial, trial);
        let barrier = Arc::new(Barrier::new(2));
        let (other, cpu) = (Arc::clone(&barrier), self.pair.second);
        let peer = std::thread::spawn(move || -> anyhow::Result<Duration> {
            let pinned = cpus::pin_this_thread(cpu);
            let mut side = Side::new(len_bytes);
            other.wait();
            let took = side.copy(count);
            pinned?;
            Ok(took)
        });
        barrier.wait();
        let own = side.copy(count);
        let theirs = peer.join().map_err(|_| anyhow::anyhow!("the other side panicked"))??;
        Ok(Some(len_bytes as f64 * f64::from(count) / own.max(theirs).as_secs_f64()))
    }
}
