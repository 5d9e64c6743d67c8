//! From counters to rates, whatever counters do: begin, end, start again at zero, run backwards.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::function::{End, Link, Path};

/// Two ends and what passes between them, by all sources together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    pub a: End,
    pub b: End,
    /// Bytes a second, both directions.
    pub rate: f64,
    /// Packets lost a second.
    pub dropped: f64,
    pub origins: Vec<String>,
}

#[derive(Default)]
pub struct Rates {
    links: HashMap<String, Counter>,
    /// Counters that ran backwards so far.
    pub resets: u64,
}

#[derive(Clone, Copy)]
struct Counter {
    bytes: u64,
    dropped: u64,
    /// Unknown until a counter was read twice.
    rate: Option<f64>,
    dropped_rate: f64,
}

impl Rates {
    pub fn new() -> Self {
        Self::default()
    }

    /// The edges between `links`, read `elapsed_s` after the ones before. One whose rate is not
    /// known yet has 0.
    pub fn update(&mut self, links: &[Link], elapsed_s: f64) -> Vec<Edge> {
        let before = std::mem::take(&mut self.links);
        let mut pairs: BTreeMap<(&End, &End), Sums> = BTreeMap::new();
        for link in links {
            let counter = self.advance(before.get(&link.id).copied(), link, elapsed_s);
            self.links.insert(link.id.clone(), counter);
            let key = if link.a <= link.b { (&link.a, &link.b) } else { (&link.b, &link.a) };
            pairs.entry(key).or_default().add(link, counter);
        }
        pairs.into_iter().map(|((a, b), sums)| sums.edge(a, b)).collect()
    }

    fn advance(&mut self, before: Option<Counter>, link: &Link, elapsed_s: f64) -> Counter {
        let mut now =
            Counter { bytes: link.bytes, dropped: link.dropped, rate: None, dropped_rate: 0.0 };
        let zero = Counter { bytes: 0, dropped: 0, rate: None, dropped_rate: 0.0 };
        let Some(before) = before.or(link.fresh.then_some(zero)) else { return now };
        let (bytes, dropped) =
            (link.bytes.checked_sub(before.bytes), link.dropped.checked_sub(before.dropped));
        match (bytes, dropped) {
            (Some(bytes), Some(dropped)) if elapsed_s > 0.0 => {
                now.rate = Some(bytes as f64 / elapsed_s);
                now.dropped_rate = dropped as f64 / elapsed_s;
            }
            // What passed since is not known: as much as before, until it can be counted again.
            _ => {
                self.resets += u64::from(elapsed_s > 0.0);
                (now.rate, now.dropped_rate) = (before.rate, before.dropped_rate);
            }
        }
        now
    }
}

#[derive(Default)]
struct Sums {
    own: f64,
    tcp: f64,
    interface: f64,
    dropped: f64,
    origins: Vec<String>,
}

impl Sums {
    fn add(&mut self, link: &Link, counter: Counter) {
        let rate = counter.rate.unwrap_or(0.0);
        match link.path {
            Path::Memory | Path::Told => self.own += rate,
            Path::Tcp => self.tcp += rate,
            Path::Interface => self.interface += rate,
        }
        self.dropped += counter.dropped_rate;
        if !self.origins.contains(&link.origin) {
            self.origins.push(link.origin.clone());
        }
    }

    /// An interface between two ends counts their TCP again, with headers.
    fn edge(self, a: &End, b: &End) -> Edge {
        let rate = self.own + self.tcp.max(self.interface);
        Edge { a: a.clone(), b: b.clone(), rate, dropped: self.dropped, origins: self.origins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(id: &str, path: Path, bytes: u64) -> Link {
        Link {
            id: id.into(),
            a: End::Function("b".into()),
            b: End::Function("a".into()),
            path,
            origin: id.into(),
            bytes,
            dropped: 0,
            fresh: false,
        }
    }

    fn rates(readings: &[&[Link]]) -> Vec<f64> {
        let mut rates = Rates::new();
        let rate = |edges: Vec<Edge>| edges.first().map_or(0.0, |edge| edge.rate);
        readings.iter().map(|links| rate(rates.update(links, 2.0))).collect()
    }

    #[test]
    fn a_counter_that_starts_again_leaves_no_hole_and_no_peak() {
        let at = |bytes| [link("x", Path::Memory, bytes)];
        let seen = rates(&[&at(100), &at(300), &at(50), &at(250)]);
        assert_eq!(seen, [0.0, 100.0, 100.0, 100.0]);
    }

    #[test]
    fn ended_links_carry_nothing_and_fresh_ones_all_they_count() {
        let old = link("x", Path::Memory, 100);
        let new = Link { fresh: true, ..link("y", Path::Memory, 80) };
        let late = link("y", Path::Memory, 80);
        assert_eq!(rates(&[std::slice::from_ref(&old), &[new]]), [0.0, 40.0]);
        assert_eq!(rates(&[std::slice::from_ref(&old), &[late]]), [0.0, 0.0]);
        assert_eq!(rates(&[&[old], &[]]), [0.0, 0.0]);
    }

    #[test]
    fn the_same_bytes_are_not_counted_twice() {
        let at = |tcp, interface, ring| {
            [
                link("t", Path::Tcp, tcp),
                link("i", Path::Interface, interface),
                link("r", Path::Memory, ring),
            ]
        };
        assert_eq!(rates(&[&at(0, 0, 0), &at(200, 220, 1000)]), [0.0, 610.0]);
    }

    #[test]
    fn no_time_no_rate() {
        let mut rates = Rates::new();
        rates.update(&[link("x", Path::Memory, 1)], 0.0);
        let edges = rates.update(&[link("x", Path::Memory, 9)], 0.0);
        assert_eq!((edges[0].rate, rates.resets), (0.0, 0));
    }
}
