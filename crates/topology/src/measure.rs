//! How long a cache line takes from one CPU to another: one line for each pair, passed to and
//! fro by two pinned threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::{CpuId, Machine, NodeId};

/// How thoroughly is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Times that all pairs are gone through.
    pub passes: u32,
    /// Samples of each pair in each pass; its median is the pass's.
    pub samples: u32,
    /// Round trips of each sample.
    pub round_trips: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { passes: 5, samples: 7, round_trips: 1000 }
    }
}

/// What all pairs take, one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    pub pairs: Vec<PairLatency>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairLatency {
    /// The line lies on this one's node.
    pub first: CpuId,
    pub second: CpuId,
    /// One way, the median of the passes; and the lowest and highest pass.
    pub ns: f64,
    pub min_ns: f64,
    pub max_ns: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error("cannot run on CPU {cpu}: {why}")]
    Pin { cpu: CpuId, why: rustix::io::Errno },
    #[error("a thread for CPU {0} cannot be started, or failed")]
    Thread(CpuId),
    #[error("core-to-core latency needs two CPUs, and {0} may be used")]
    TooFew(usize),
}

/// Pages enough that the allocator maps them afresh, so that they come to lie on the node of the
/// thread that first writes to them. The line is in the middle, away from everything else.
struct Line(Vec<AtomicU32>);

const WORDS: usize = 1 << 18;

impl Line {
    fn new() -> Self {
        Self((0..WORDS).map(|_| AtomicU32::new(0)).collect())
    }

    fn word(&self) -> &AtomicU32 {
        &self.0[WORDS / 2]
    }
}

impl PairLatency {
    /// How far the passes are apart, as a part of their median.
    pub fn spread(&self) -> f64 {
        (self.max_ns - self.min_ns) / self.ns
    }
}

impl Latencies {
    /// Measures every pair of `cpus`. `progress` is told after each pair of each pass.
    pub fn measure(
        cpus: &[CpuId],
        effort: Effort,
        mut progress: impl FnMut(),
    ) -> Result<Self, MeasureError> {
        if cpus.len() < 2 {
            return Err(MeasureError::TooFew(cpus.len()));
        }
        let mut passes: BTreeMap<(CpuId, CpuId), Vec<f64>> = BTreeMap::new();
        for _ in 0..effort.passes.max(1) {
            for (at, first) in cpus.iter().enumerate() {
                for second in &cpus[at + 1..] {
                    let ns = one_pair(*first, *second, effort)?;
                    passes.entry((*first, *second)).or_default().push(ns);
                    progress();
                }
            }
        }
        let pair = |((first, second), mut all): ((CpuId, CpuId), Vec<f64>)| {
            let ns = median(&mut all);
            // Sorted by now.
            PairLatency { first, second, ns, min_ns: all[0], max_ns: all[all.len() - 1] }
        };
        Ok(Self { pairs: passes.into_iter().map(pair).collect() })
    }

    pub fn between(&self, one: CpuId, other: CpuId) -> Option<&PairLatency> {
        let ends = (one.min(other), one.max(other));
        self.pairs
            .iter()
            .find(|pair| (pair.first.min(pair.second), pair.first.max(pair.second)) == ends)
    }

    /// The median over all pairs of CPUs of each pair of nodes that has any.
    pub fn between_nodes(&self, machine: &Machine) -> BTreeMap<(NodeId, NodeId), f64> {
        let mut all: BTreeMap<(NodeId, NodeId), Vec<f64>> = BTreeMap::new();
        for pair in &self.pairs {
            let node = |cpu| machine.cpu(cpu).map(|cpu| cpu.node);
            if let (Some(one), Some(other)) = (node(pair.first), node(pair.second)) {
                all.entry((one.min(other), one.max(other))).or_default().push(pair.ns);
            }
        }
        all.into_iter().map(|(nodes, mut values)| (nodes, median(&mut values))).collect()
    }

    /// The median and the worst of how far the passes over one pair are apart, as a part.
    pub fn repeatability(&self) -> (f64, f64) {
        let mut spreads: Vec<f64> = self.pairs.iter().map(PairLatency::spread).collect();
        let middle = median(&mut spreads);
        (middle, spreads.last().copied().unwrap_or(0.0))
    }
}

/// Sorts.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 if values.is_empty() => 0.0,
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

fn pin(cpu: CpuId) -> Result<(), MeasureError> {
    let mut only = CpuSet::new();
    if cpu.0 as usize >= CpuSet::MAX_CPU {
        return Err(MeasureError::Pin { cpu, why: rustix::io::Errno::INVAL });
    }
    only.set(cpu.0 as usize);
    sched_setaffinity(None, &only).map_err(|why| MeasureError::Pin { cpu, why })
}

/// Nanoseconds one way: the median of the samples.
fn one_pair(first: CpuId, second: CpuId, effort: Effort) -> Result<f64, MeasureError> {
    let rounds = (effort.samples + 1) * effort.round_trips;
    let asking = std::thread::Builder::new().spawn(move || -> Result<f64, MeasureError> {
        pin(first)?;
        let line = Arc::new(Line::new());
        let other = Arc::clone(&line);
        let answering = std::thread::Builder::new().spawn(move || -> Result<(), MeasureError> {
            // Even if it cannot be pinned it answers: the other thread waits.
            let pinned = pin(second);
            for round in 0..rounds {
                while other.word().load(Ordering::Acquire) != 2 * round + 1 {
                    std::hint::spin_loop();
                }
                other.word().store(2 * round + 2, Ordering::Release);
            }
            pinned
        });
        let answering = answering.map_err(|_| MeasureError::Thread(second))?;
        let mut samples = Vec::new();
        for sample in 0..=effort.samples {
            let begun = Instant::now();
            for round in sample * effort.round_trips..(sample + 1) * effort.round_trips {
                line.word().store(2 * round + 1, Ordering::Release);
                while line.word().load(Ordering::Acquire) != 2 * round + 2 {
                    std::hint::spin_loop();
                }
            }
            samples.push(begun.elapsed().as_nanos() as f64 / f64::from(2 * effort.round_trips));
        }
        answering.join().map_err(|_| MeasureError::Thread(second))??;
        // The first warms up.
        Ok(median(&mut samples[1..]))
    });
    let asking = asking.map_err(|_| MeasureError::Thread(first))?;
    asking.join().map_err(|_| MeasureError::Thread(first))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_that_there_are() {
        let machine = Machine::discover().unwrap();
        let cpus: Vec<CpuId> = machine.allowed.iter().copied().take(3).collect();
        let effort = Effort { passes: 2, samples: 2, round_trips: 50 };
        let mut told = 0;
        match Latencies::measure(&cpus, effort, || told += 1) {
            Ok(latencies) => {
                let pairs = cpus.len() * (cpus.len() - 1) / 2;
                assert_eq!((latencies.pairs.len(), told), (pairs, 2 * pairs));
                assert!(latencies.pairs.iter().all(|pair| pair.min_ns > 0.0));
                assert!(latencies.between(cpus[1], cpus[0]).is_some());
                assert!(!latencies.between_nodes(&machine).is_empty());
            }
            Err(MeasureError::TooFew(1)) if cpus.len() == 1 => {}
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let machine = Machine::discover().unwrap();
        let cpu = *machine.allowed.first().unwrap();
        let effort = Effort { passes: 1, samples: 1, round_trips: 10 };
        let error = Latencies::measure(&[cpu, CpuId(1000)], effort, || ()).unwrap_err();
        assert!(error.to_string().contains("CPU 1000"), "{error}");
    }
}
