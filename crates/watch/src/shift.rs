//! Whether the traffic has really changed since the last plan.
//!
//! What decides where functions belong is how the traffic is shared out between the edges, and
//! not how much there is. For each edge a two-sided cumulative sum (Page 1954) collects by how
//! much its share deviates from what it was, less what is taken for noise. Once a sum passes the
//! threshold the traffic has changed; it counts as settled when two looks agree.
//!
//! Twenty lines of arithmetic; the crates for change points look at whole series afterwards.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::function::End;
use crate::rate::Edge;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// Deviation of a share, relative to what it was, that is noise.
    pub noise: f64,
    /// Sum of what exceeds it that is a change.
    pub threshold: f64,
    /// Shares below count as this much, so that the small ones are not the noisy ones.
    pub least_share: f64,
    /// Bytes a second of all edges together below which nothing is going on.
    pub least_rate: f64,
}

impl Default for Sensitivity {
    fn default() -> Self {
        Self { noise: 0.15, threshold: 0.5, least_share: 0.05, least_rate: 10e3 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Steady,
    /// Something moves: look again soon.
    Unsettled,
    /// It has changed and settled; the edge that changed most, with its shares before and now.
    Shifted {
        edge: String,
        before: f64,
        now: f64,
    },
}

/// Looks over which the reference is averaged after a plan.
const LEARN: u32 = 10;
/// Looks after which traffic that never settles counts as it is.
const PATIENCE: u32 = 5;
/// Two looks that differ by less than this agree.
const AGREE: f64 = 0.25;
/// For so long a plan makes the next one less likely.
const MEMORY_S: f64 = 60.0;

type Shares = BTreeMap<(End, End), f64>;

pub struct Detector {
    sensitivity: Sensitivity,
    reference: Option<Reference>,
    sums: BTreeMap<(End, End), [f64; 2]>,
    last: Shares,
    unsettled: u32,
    plans: Vec<f64>,
}

struct Reference {
    shares: Shares,
    looks: u32,
}

impl Detector {
    pub fn new(sensitivity: Sensitivity) -> Self {
        let sums = BTreeMap::new();
        let (last, plans) = (Shares::new(), Vec::new());
        Self { sensitivity, reference: None, sums, last, unsettled: 0, plans }
    }

    /// A plan was made from the latest look: from here on that is what traffic is compared with.
    pub fn planned(&mut self, at_s: f64) {
        self.reference =
            (!self.last.is_empty()).then(|| Reference { shares: self.last.clone(), looks: 1 });
        self.sums.clear();
        self.unsettled = 0;
        self.plans.push(at_s);
    }

    pub fn look(&mut self, at_s: f64, edges: &[Edge]) -> Verdict {
        let total: f64 = edges.iter().map(|edge| edge.rate).sum();
        if total < self.sensitivity.least_rate {
            return Verdict::Steady;
        }
        let shares: Shares = edges
            .iter()
            .map(|edge| ((edge.a.clone(), edge.b.clone()), edge.rate / total))
            .collect();
        let last = std::mem::replace(&mut self.last, shares);
        let Some(reference) = &self.reference else {
            // Traffic for the first time.
            let agrees = !last.is_empty() && self.furthest(&last).is_none_or(|one| one.1 <= AGREE);
            return self.settle(agrees, |detector| {
                let most = detector.last.iter().max_by(|a, b| a.1.total_cmp(b.1));
                most.map_or_else(
                    || (String::new(), 0.0, 0.0),
                    |(key, share)| (title(key), 0.0, *share),
                )
            });
        };
        let mut suspicious = false;
        let mut worst: Option<((End, End), f64)> = None;
        let keys: BTreeSet<&(End, End)> = self.last.keys().chain(reference.shares.keys()).collect();
        for key in keys {
            let was = reference.shares.get(key).copied().unwrap_or(0.0);
            let is = self.last.get(key).copied().unwrap_or(0.0);
            let deviation = (is - was) / was.max(self.sensitivity.least_share);
            if !self.sums.contains_key(key) {
                self.sums.insert(key.clone(), [0.0; 2]);
            }
            let Some(sums) = self.sums.get_mut(key) else { continue };
            sums[0] = (sums[0] + deviation - self.sensitivity.noise).max(0.0);
            sums[1] = (sums[1] - deviation - self.sensitivity.noise).max(0.0);
            suspicious |= deviation.abs() > 2.0 * self.sensitivity.noise;
            let sum = sums[0].max(sums[1]);
            if worst.as_ref().is_none_or(|(_, most)| sum > *most) {
                worst = Some((key.clone(), sum));
            }
        }
        self.plans.retain(|plan| at_s - plan < MEMORY_S);
        let threshold = self.sensitivity.threshold * self.plans.len().max(1) as f64;
        let Some((key, sum)) = worst else { return Verdict::Steady };
        if sum > threshold {
            let before = reference.shares.get(&key).copied().unwrap_or(0.0);
            let agrees = self.furthest(&last).is_none_or(|one| one.1 <= AGREE);
            let now = self.last.get(&key).copied().unwrap_or(0.0);
            return self.settle(agrees, |_| (title(&key), before, now));
        }
        self.unsettled = 0;
        if suspicious {
            return Verdict::Unsettled;
        }
        self.learn();
        Verdict::Steady
    }

    fn settle(&mut self, agrees: bool, what: impl FnOnce(&Self) -> (String, f64, f64)) -> Verdict {
        self.unsettled += 1;
        if !agrees && self.unsettled < PATIENCE {
            return Verdict::Unsettled;
        }
        let (edge, before, now) = what(self);
        Verdict::Shifted { edge, before, now }
    }

    /// The edge whose share differs most between two looks, and by how much.
    fn furthest(&self, other: &Shares) -> Option<((End, End), f64)> {
        let keys = self.last.keys().chain(other.keys());
        let difference = |key: &(End, End)| {
            let (one, two) = (self.last.get(key), other.get(key));
            let (one, two) = (one.copied().unwrap_or(0.0), two.copied().unwrap_or(0.0));
            (one - two).abs() / one.max(two).max(self.sensitivity.least_share)
        };
        let all = keys.map(|key| (key.clone(), difference(key)));
        all.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// One look is noisy: the reference is the mean of the first ones after a plan.
    fn learn(&mut self) {
        let Some(reference) = &mut self.reference else { return };
        if reference.looks >= LEARN {
            return;
        }
        let seen = f64::from(reference.looks);
        reference.looks += 1;
        for share in reference.shares.values_mut() {
            *share *= seen / (seen + 1.0);
        }
        for (key, share) in &self.last {
            *reference.shares.entry(key.clone()).or_default() += share / (seen + 1.0);
        }
    }
}

fn title(key: &(End, End)) -> String {
    format!("{} - {}", key.0, key.1)
}

#[cfg(test)]
mod tests;
