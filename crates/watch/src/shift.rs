//! Whether the traffic has really changed since the last plan.
//!
//! What decides where functions belong is how the traffic is shared out between the edges, and
//! not how much there is. For each edge a two-sided cumulative sum (Page 1954) collects by how
//! much its share deviates from what it was, less what is taken for noise. Once a sum passes the
//! threshold the traffic has changed; it counts as settled when two looks agree.
//!
//! Twenty lines of arithmetic; the crates for change points look at whole series afterwards.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::function::LinkEnd;
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

pub struct Detector {
    sensitivity: Sensitivity,
    /// The edges of the latest look in its order, then those that are gone since the last plan.
    tracks: Vec<Track>,
    /// How many there are of the former.
    present: usize,
    /// There was a look with traffic.
    looked: bool,
    /// Looks that the references are the mean of; none before the first plan.
    learnt: Option<u32>,
    unsettled: u32,
    plans: Vec<f64>,
}

/// One edge over time.
struct Track {
    ends: (LinkEnd, LinkEnd),
    /// Its share of all traffic, now and at the look before.
    share: f64,
    before: f64,
    reference: f64,
    /// What deviates upwards and downwards, collected.
    sums: [f64; 2],
}

impl Track {
    fn new(ends: (LinkEnd, LinkEnd)) -> Self {
        Self { ends, share: 0.0, before: 0.0, reference: 0.0, sums: [0.0; 2] }
    }
}

impl Detector {
    pub fn new(sensitivity: Sensitivity) -> Self {
        let (tracks, plans) = (Vec::new(), Vec::new());
        Self { sensitivity, tracks, present: 0, looked: false, learnt: None, unsettled: 0, plans }
    }

    /// A plan was made from the latest look: from here on that is what traffic is compared with.
    pub fn planned(&mut self, at_s: f64) {
        self.learnt = self.looked.then_some(1);
        self.tracks.truncate(self.present);
        for track in &mut self.tracks {
            track.reference = track.share;
            track.sums = [0.0; 2];
        }
        self.unsettled = 0;
        self.plans.push(at_s);
    }

    pub fn look(&mut self, at_s: f64, edges: &[Edge]) -> Verdict {
        let total: f64 = edges.iter().map(|edge| edge.rate).sum();
        if total < self.sensitivity.least_rate {
            return Verdict::Steady;
        }
        self.note(edges, total);
        let first = !std::mem::replace(&mut self.looked, true);
        if self.learnt.is_none() {
            // Traffic for the first time.
            let most = self.tracks.iter().max_by(|a, b| a.share.total_cmp(&b.share));
            let what = most.map(|track| (title(&track.ends), 0.0, track.share));
            return self.settle(!first && self.agrees(), what.unwrap_or_default());
        }
        let Sensitivity { noise, threshold, least_share, .. } = self.sensitivity;
        let mut suspicious = false;
        let mut worst: Option<(usize, f64)> = None;
        for (at, track) in self.tracks.iter_mut().enumerate() {
            let deviation = (track.share - track.reference) / track.reference.max(least_share);
            let sums = &mut track.sums;
            sums[0] = (sums[0] + deviation - noise).max(0.0);
            sums[1] = (sums[1] - deviation - noise).max(0.0);
            suspicious |= deviation.abs() > 2.0 * noise;
            let sum = sums[0].max(sums[1]);
            if worst.is_none_or(|(_, most)| sum > most) {
                worst = Some((at, sum));
            }
        }
        self.plans.retain(|plan| at_s - plan < MEMORY_S);
        let threshold = threshold * self.plans.len().max(1) as f64;
        let Some((at, sum)) = worst else { return Verdict::Steady };
        if sum > threshold {
            let track = &self.tracks[at];
            let what = (title(&track.ends), track.reference, track.share);
            return self.settle(self.agrees(), what);
        }
        self.unsettled = 0;
        if suspicious {
            return Verdict::Unsettled;
        }
        self.learn();
        Verdict::Steady
    }

    /// Shares of all traffic, with those before kept beside them.
    fn note(&mut self, edges: &[Edge], total: f64) {
        let is = |track: &Track, edge: &Edge| track.ends.0 == edge.a && track.ends.1 == edge.b;
        let present = &self.tracks[..self.present];
        if present.len() != edges.len() || !present.iter().zip(edges).all(|(a, b)| is(a, b)) {
            self.follow(edges);
        }
        for track in &mut self.tracks {
            track.before = std::mem::replace(&mut track.share, 0.0);
        }
        for (track, edge) in self.tracks.iter_mut().zip(edges) {
            track.share = edge.rate / total;
        }
    }

    /// Other edges than before.
    fn follow(&mut self, edges: &[Edge]) {
        let before = std::mem::take(&mut self.tracks).into_iter();
        let mut before: BTreeMap<(LinkEnd, LinkEnd), Track> =
            before.map(|track| (track.ends.clone(), track)).collect();
        self.present = edges.len();
        for edge in edges {
            let ends = (edge.a.clone(), edge.b.clone());
            self.tracks.push(before.remove(&ends).unwrap_or_else(|| Track::new(ends)));
        }
        self.tracks.extend(before.into_values());
    }

    fn settle(&mut self, agrees: bool, what: (String, f64, f64)) -> Verdict {
        self.unsettled += 1;
        if !agrees && self.unsettled < PATIENCE {
            return Verdict::Unsettled;
        }
        let (edge, before, now) = what;
        Verdict::Shifted { edge, before, now }
    }

    /// No share differs much between the two latest looks.
    fn agrees(&self) -> bool {
        self.tracks.iter().all(|track| {
            let (one, two) = (track.share, track.before);
            (one - two).abs() / one.max(two).max(self.sensitivity.least_share) <= AGREE
        })
    }

    /// One look is noisy: the reference is the mean of the first ones after a plan.
    fn learn(&mut self) {
        let Some(looks) = self.learnt.as_mut().filter(|looks| **looks < LEARN) else { return };
        let seen = f64::from(*looks);
        *looks += 1;
        for track in &mut self.tracks {
            track.reference = (track.reference * seen + track.share) / (seen + 1.0);
        }
    }
}

fn title(key: &(LinkEnd, LinkEnd)) -> String {
    format!("{} - {}", key.0, key.1)
}

#[cfg(test)]
mod tests;
