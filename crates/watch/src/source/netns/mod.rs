//! Network namespaces: who is joined to whom by veths, bridges and routes, and what the
//! interfaces between them count.

mod graph;
mod inventory;
mod rtnl;
mod survey;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::Stats64;
use netlink_packet_route::stats::{StatsAttribute, StatsFilterMask, StatsMessage};

use super::{Source, Trouble};
use crate::function::{Link, Path, Reading};
use graph::{Graph, Place, graph};
pub use rtnl::enter;
use survey::{Open, survey};

/// Looking for what is there costs more than reading counters: at most one part in so many of
/// the time.
const SURVEY_SHARE: u32 = 2000;
const SURVEY_AT_LEAST: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Netns {
    opened: Vec<Open>,
    names: Vec<String>,
    graph: Graph,
    /// For each edge the counter that is read.
    chosen: Vec<Place>,
    next_survey: Option<Instant>,
    /// Links that were there at the last reading.
    seen: BTreeSet<String>,
    has_read: bool,
}

impl Netns {
    pub fn new() -> Self {
        Self::default()
    }

    /// What could not be told about who talks to whom.
    pub fn notes(&self) -> &[String] {
        &self.graph.notes
    }

    fn survey(&mut self, names: Vec<String>) -> Result<(), Trouble> {
        let began = Instant::now();
        self.opened =
            survey(std::mem::take(&mut self.opened)).map_err(Trouble::failed("namespaces"))?;
        let namespaces: Vec<_> = self.opened.iter().map(|open| open.namespace.clone()).collect();
        self.graph = graph(&namespaces);
        self.chosen = choose(&self.graph);
        self.names = names;
        let pause = (began.elapsed() * SURVEY_SHARE).max(SURVEY_AT_LEAST);
        self.next_survey = Some(Instant::now() + pause);
        Ok(())
    }

    fn counters(&mut self) -> Result<HashMap<Place, Stats64>, Trouble> {
        let wanted: BTreeSet<u64> = self.chosen.iter().map(|place| place.0).collect();
        let mut counters = HashMap::new();
        for open in self.opened.iter_mut().filter(|open| wanted.contains(&open.namespace.inode)) {
            let mut question = StatsMessage::default();
            question.header.filter_mask = StatsFilterMask::Link64;
            let answers = open
                .rtnl
                .dump(RouteNetlinkMessage::GetStats(question))
                .map_err(Trouble::failed("interface counters"))?;
            for answer in answers {
                let RouteNetlinkMessage::NewStats(stats) = answer else { continue };
                for attribute in stats.attributes {
                    if let StatsAttribute::Link64(values) = attribute {
                        counters.insert((open.namespace.inode, stats.header.ifindex), values);
                    }
                }
            }
        }
        Ok(counters)
    }
}

impl Source for Netns {
    fn name(&self) -> &'static str {
        "netns"
    }

    fn read(&mut self) -> Result<Reading, Trouble> {
        let names = survey::names();
        let due = self.next_survey.is_none_or(|due| due <= Instant::now());
        if due || names != self.names {
            self.survey(names)?;
        }
        let mut counters = self.counters()?;
        if self.chosen.iter().any(|place| !counters.contains_key(place)) {
            // An interface has gone since: look again, once.
            self.survey(survey::names())?;
            counters = self.counters()?;
        }
        if self.graph.functions.is_empty() {
            return Err(Trouble::Absent("no network namespaces with veths or taps".into()));
        }
        let mut reading = Reading { functions: self.graph.functions.clone(), links: Vec::new() };
        for (edge, place) in self.graph.edges.iter().zip(&self.chosen) {
            let Some(stats) = counters.get(place) else { continue };
            let id = format!("{}:{}", place.0, place.1);
            reading.links.push(Link {
                fresh: self.has_read && !self.seen.contains(&id),
                id,
                a: edge.a.clone(),
                b: edge.b.clone(),
                path: Path::Interface,
                origin: edge.origin.clone(),
                bytes: stats.rx_bytes.wrapping_add(stats.tx_bytes),
                dropped: stats.rx_dropped.wrapping_add(stats.tx_dropped),
            });
        }
        self.seen = reading.links.iter().map(|link| link.id.clone()).collect();
        self.has_read = true;
        Ok(reading)
    }
}

/// Both ends of a veth count the same bytes: read as few namespaces as possible, those that
/// count most edges first.
fn choose(graph: &Graph) -> Vec<Place> {
    let mut chosen: Vec<Option<Place>> = vec![None; graph.edges.len()];
    loop {
        let mut open: BTreeMap<u64, usize> = BTreeMap::new();
        for (edge, _) in graph.edges.iter().zip(&chosen).filter(|(_, chosen)| chosen.is_none()) {
            let inodes: BTreeSet<u64> = edge.counters.iter().map(|place| place.0).collect();
            inodes.into_iter().for_each(|inode| *open.entry(inode).or_default() += 1);
        }
        // Of equals the first, so that the choice is the same each time.
        let most = open.iter().max_by_key(|(inode, count)| (**count, std::cmp::Reverse(**inode)));
        let Some((&inode, _)) = most else { break };
        for (edge, chosen) in graph.edges.iter().zip(&mut chosen) {
            if chosen.is_none() {
                *chosen = edge.counters.iter().copied().find(|place| place.0 == inode);
            }
        }
    }
    chosen.into_iter().flatten().collect()
}
