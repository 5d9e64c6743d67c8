//! From counters to rates, whatever counters do: begin, end, start again at zero, run backwards.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::function::{Counter, Link, LinkEnd, Path};

/// Two ends and what passes between them, by all sources together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    pub a: LinkEnd,
    pub b: LinkEnd,
    /// Bytes a second, both directions.
    pub rate: f64,
    /// Packets lost a second.
    pub dropped: f64,
    pub origins: Vec<String>,
}

/// Links are arranged into edges when they change; a look then is arithmetic on numbers.
#[derive(Default)]
pub struct Rates {
    links: Vec<Tracked>,
    edges: Vec<Edge>,
    /// Of each edge, what its links sum up to.
    sums: Vec<Sum>,
    /// Counters that ran backwards so far.
    pub resets: u64,
}

struct Tracked {
    id: String,
    path: Path,
    /// Where its counter stands among those of all sources.
    counter: usize,
    edge: usize,
    last: Option<Last>,
}

#[derive(Clone, Copy)]
struct Last {
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

    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// From here on these are the links, each with the place of its counter. Those that were there
    /// before go on counting where they were.
    pub fn arrange(&mut self, links: &[(usize, Link)]) {
        let before = std::mem::take(&mut self.links);
        let mut last: HashMap<String, Option<Last>> =
            before.into_iter().map(|link| (link.id, link.last)).collect();
        let mut pairs: BTreeMap<(&LinkEnd, &LinkEnd), Vec<usize>> = BTreeMap::new();
        for (at, (_, link)) in links.iter().enumerate() {
            let key = if link.a <= link.b { (&link.a, &link.b) } else { (&link.b, &link.a) };
            pairs.entry(key).or_default().push(at);
        }
        self.links = links
            .iter()
            .map(|(counter, link)| Tracked {
                id: link.id.clone(),
                path: link.path,
                counter: *counter,
                edge: 0,
                last: last.remove(&link.id).flatten(),
            })
            .collect();
        self.edges.clear();
        for (edge, ((a, b), members)) in pairs.into_iter().enumerate() {
            let mut origins: Vec<String> = Vec::new();
            for at in members {
                self.links[at].edge = edge;
                if !origins.contains(&links[at].1.origin) {
                    origins.push(links[at].1.origin.clone());
                }
            }
            let (a, b) = (a.clone(), b.clone());
            self.edges.push(Edge { a, b, rate: 0.0, dropped: 0.0, origins });
        }
    }

    /// The counters of all sources, read `elapsed_s` after the ones before. An edge whose rate is
    /// not known yet has 0.
    pub fn update(&mut self, counters: &[Counter], elapsed_s: f64) {
        self.sums.clear();
        self.sums.resize(self.edges.len(), Sum::default());
        for link in &mut self.links {
            let Some(counter) = counters.get(link.counter) else { continue };
            let now = advance(link.last, *counter, elapsed_s, &mut self.resets);
            self.sums[link.edge].add(link.path, now);
            link.last = Some(now);
        }
        for (edge, sum) in self.edges.iter_mut().zip(&self.sums) {
            edge.rate = sum.rate();
            edge.dropped = sum.dropped;
        }
    }
}

fn advance(before: Option<Last>, counter: Counter, elapsed_s: f64, resets: &mut u64) -> Last {
    let mut now =
        Last { bytes: counter.bytes, dropped: counter.dropped, rate: None, dropped_rate: 0.0 };
    let zero = Last { bytes: 0, dropped: 0, rate: None, dropped_rate: 0.0 };
    let Some(before) = before.or(counter.fresh.then_some(zero)) else { return now };
    let (bytes, dropped) =
        (counter.bytes.checked_sub(before.bytes), counter.dropped.checked_sub(before.dropped));
    match (bytes, dropped) {
        (Some(bytes), Some(dropped)) if elapsed_s > 0.0 => {
            now.rate = Some(bytes as f64 / elapsed_s);
            now.dropped_rate = dropped as f64 / elapsed_s;
        }
        // What passed since is not known: as much as before, until it can be counted again.
        _ => {
            *resets += u64::from(elapsed_s > 0.0);
            (now.rate, now.dropped_rate) = (before.rate, before.dropped_rate);
        }
    }
    now
}

#[derive(Clone, Copy, Default)]
struct Sum {
    own: f64,
    tcp: f64,
    interface: f64,
    dropped: f64,
}

impl Sum {
    fn add(&mut self, path: Path, last: Last) {
        let rate = last.rate.unwrap_or(0.0);
        match path {
            Path::Memory | Path::Told => self.own += rate,
            Path::Tcp => self.tcp += rate,
            Path::Interface => self.interface += rate,
        }
        self.dropped += last.dropped_rate;
    }

    /// An interface between two ends counts their TCP again, with headers.
    fn rate(&self) -> f64 {
        self.own + self.tcp.max(self.interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Counted = (Link, Counter);

    fn link(id: &str, path: Path, bytes: u64) -> Counted {
        let link = Link {
            id: id.into(),
            a: LinkEnd::Function("b".into()),
            b: LinkEnd::Function("a".into()),
            path,
            origin: id.into(),
        };
        (link, Counter { bytes, ..Counter::default() })
    }

    fn look(rates: &mut Rates, counted: &[Counted], elapsed_s: f64) -> f64 {
        let links: Vec<_> = counted.iter().map(|(link, _)| link.clone()).enumerate().collect();
        let counters: Vec<_> = counted.iter().map(|(_, counter)| *counter).collect();
        rates.arrange(&links);
        rates.update(&counters, elapsed_s);
        rates.edges().first().map_or(0.0, |edge| edge.rate)
    }

    fn rates(readings: &[&[Counted]]) -> Vec<f64> {
        let mut rates = Rates::new();
        readings.iter().map(|counted| look(&mut rates, counted, 2.0)).collect()
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
        let mut new = link("y", Path::Memory, 80);
        new.1.fresh = true;
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
    fn a_link_counts_on_in_another_place() {
        let first = [link("x", Path::Memory, 100), link("y", Path::Memory, 7)];
        let later = [link("y", Path::Memory, 7), link("x", Path::Memory, 300)];
        assert_eq!(rates(&[&first, &later]), [0.0, 100.0]);
    }

    #[test]
    fn no_time_no_rate() {
        let mut rates = Rates::new();
        look(&mut rates, &[link("x", Path::Memory, 1)], 0.0);
        let rate = look(&mut rates, &[link("x", Path::Memory, 9)], 0.0);
        assert_eq!((rate, rates.resets), (0.0, 0));
    }
}
