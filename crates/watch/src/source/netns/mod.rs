//! Network namespaces: who is joined to whom by veths, bridges and routes, and what the
//! interfaces between them count.

mod graph;
mod inventory;
mod rtnl;
mod survey;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::stats::{StatsAttribute, StatsFilterMask, StatsMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::{Source, Trouble};
use crate::folder::Folder;
use crate::function::{Counter, Layout, Link, Path, Reading};
use graph::{Edge, Graph, Place, graph};
use rtnl::Buffer;
pub use rtnl::enter;
use survey::{Found, Open, find, survey};

/// Counters are read at each look. Which namespaces there are and who lives in them is searched
/// for, and what is in them surveyed, for at most one part in so many of the time; what tells of
/// itself is looked at sooner: names that come and go, and links.
const SHARE: u32 = 2000;
const SHARE_STIRRED: u32 = 50;
const AT_LEAST: Duration = Duration::from_secs(5);

pub struct Netns {
    names: Folder,
    found: Found,
    opened: Vec<Open>,
    graph: Graph,
    layout: Arc<Layout>,
    /// All that there are.
    interfaces: HashSet<Place>,
    /// The counters that are read: by namespace, the interfaces and whose edge each counts.
    wanted: HashMap<u64, Vec<(u32, usize)>>,
    /// Whether an edge's counter is a new one.
    fresh: Vec<bool>,
    search: Periodic,
    survey: Periodic,
    /// A link has come, gone or changed since the last survey.
    stirred: bool,
    has_read: bool,
    buffer: Buffer,
}

/// Something that is done again, not too often.
#[derive(Default)]
struct Periodic {
    /// When it was done last, and how long it took.
    last: Option<(Instant, Duration)>,
}

impl Periodic {
    fn is_due(&self, share: u32, at_least: Duration) -> bool {
        self.last.is_none_or(|(end, took)| end.elapsed() >= (took * share).max(at_least))
    }

    fn done(&mut self, began: Instant) {
        self.last = Some((Instant::now(), began.elapsed()));
    }
}

impl Default for Netns {
    fn default() -> Self {
        // A socket for each namespace: as many as this process may have.
        let mut files = getrlimit(Resource::Nofile);
        files.current = files.maximum;
        // What cannot be had shows when there are too many.
        let _ = setrlimit(Resource::Nofile, files);
        Self {
            names: Folder::new(survey::NAMED.into()),
            found: Found::default(),
            opened: Vec::new(),
            graph: Graph::default(),
            layout: Arc::default(),
            interfaces: HashSet::new(),
            wanted: HashMap::new(),
            fresh: Vec::new(),
            search: Periodic::default(),
            survey: Periodic::default(),
            stirred: false,
            has_read: false,
            buffer: Buffer::default(),
        }
    }
}

impl Netns {
    pub fn new() -> Self {
        Self::default()
    }

    /// What could not be told about who talks to whom.
    pub fn notes(&self) -> &[String] {
        &self.graph.notes
    }

    fn update(&mut self) -> Result<(), Trouble> {
        let renamed = self.names.look();
        self.listen();
        let mut wanted = self.survey.is_due(SHARE, AT_LEAST)
            || (self.stirred && self.survey.is_due(SHARE_STIRRED, Duration::ZERO));
        if wanted || renamed || self.search.is_due(SHARE, AT_LEAST) {
            let began = Instant::now();
            let found = find(self.names.names()).map_err(Trouble::failed("namespaces"))?;
            self.search.done(began);
            wanted |= found.keys().ne(self.found.keys());
            if !wanted && found != self.found {
                self.settle(&found);
            }
            self.found = found;
        }
        if wanted {
            self.survey()?;
        }
        Ok(())
    }

    /// Whether any namespace tells of its links.
    fn listen(&mut self) {
        let fds =
            self.opened.iter().map(|open| PollFd::from_borrowed_fd(open.rtnl.fd(), PollFlags::IN));
        let mut fds: Vec<PollFd> = fds.collect();
        if poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count == 0) {
            return;
        }
        let told: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (open, _) in self.opened.iter_mut().zip(told).filter(|(_, told)| *told) {
            self.stirred |= open.rtnl.stirred(&mut self.buffer);
        }
    }

    fn survey(&mut self) -> Result<(), Trouble> {
        let began = Instant::now();
        let before = std::mem::take(&mut self.opened);
        self.opened =
            survey(&self.found, before, &mut self.buffer).map_err(Trouble::failed("namespaces"))?;
        self.stirred = false;
        self.lay_out();
        self.survey.done(began);
        Ok(())
    }

    /// The same namespaces with other processes or names.
    fn settle(&mut self, found: &Found) {
        for Open { namespace, .. } in &mut self.opened {
            if let Some(other) = found.get(&namespace.inode) {
                let interfaces = std::mem::take(&mut namespace.interfaces);
                *namespace = inventory::Namespace { interfaces, ..other.clone() };
            }
        }
        self.lay_out();
    }

    fn lay_out(&mut self) {
        let namespaces: Vec<_> = self.opened.iter().map(|open| open.namespace.clone()).collect();
        let graph = graph(&namespaces);
        let interfaces = namespaces.iter().flat_map(|namespace| {
            namespace.interfaces.iter().map(|interface| (namespace.inode, interface.index))
        });
        let before = std::mem::replace(&mut self.interfaces, interfaces.collect());
        if graph == self.graph {
            return;
        }
        let chosen = choose(&graph, |place| {
            self.wanted.get(&place.0).is_some_and(|read| read.iter().any(|one| one.0 == place.1))
        });
        // Of the first ones nobody knows when they began to count.
        self.fresh = chosen.iter().map(|one| self.has_read && !before.contains(one)).collect();
        self.wanted.clear();
        for (edge, (inode, index)) in chosen.iter().enumerate() {
            self.wanted.entry(*inode).or_default().push((*index, edge));
        }
        let links = graph.edges.iter().zip(&chosen).map(|(edge, place)| Link {
            id: format!("{}:{}", place.0, place.1),
            a: edge.a.clone(),
            b: edge.b.clone(),
            path: Path::Interface,
            origin: edge.origin.clone(),
        });
        let links = links.collect();
        self.layout = Arc::new(Layout { functions: graph.functions.clone(), links });
        self.graph = graph;
    }

    /// By edge; None where an interface has gone.
    fn counters(&mut self) -> Result<Vec<Option<Counter>>, Trouble> {
        let mut counters = vec![None; self.fresh.len()];
        for open in &mut self.opened {
            let Some(wanted) = self.wanted.get(&open.namespace.inode) else { continue };
            let take = |answer| {
                let RouteNetlinkMessage::NewStats(stats) = answer else { return };
                let StatsMessage { header, attributes, .. } = stats;
                for (_, edge) in wanted.iter().filter(|(index, _)| *index == header.ifindex) {
                    let counted = attributes.iter().find_map(|attribute| match attribute {
                        StatsAttribute::Link64(stats) => Some(stats),
                        _ => None,
                    });
                    counters[*edge] = counted.map(|stats| Counter {
                        bytes: stats.rx_bytes.wrapping_add(stats.tx_bytes),
                        dropped: stats.rx_dropped.wrapping_add(stats.tx_dropped),
                        fresh: self.fresh[*edge],
                    });
                }
            };
            let mut question = StatsMessage::default();
            question.header.filter_mask = StatsFilterMask::Link64;
            open.rtnl
                .dump(RouteNetlinkMessage::GetStats(question), &mut self.buffer, take)
                .map_err(Trouble::failed("interface counters"))?;
        }
        Ok(counters)
    }
}

impl Source for Netns {
    fn name(&self) -> &'static str {
        "netns"
    }

    fn read(&mut self) -> Result<Reading, Trouble> {
        self.update()?;
        let mut counters = self.counters()?;
        if counters.contains(&None) {
            // An interface has gone since: look again, once.
            self.doubt();
            self.update()?;
            counters = self.counters()?;
        }
        if self.graph.functions.is_empty() {
            return Err(Trouble::Absent("no network namespaces with veths or taps".into()));
        }
        self.fresh.fill(false);
        self.has_read = true;
        let counters = counters.into_iter().map(Option::unwrap_or_default).collect();
        Ok(Reading { layout: Arc::clone(&self.layout), counters })
    }

    fn doubt(&mut self) {
        (self.search, self.survey) = (Periodic::default(), Periodic::default());
    }
}

/// Both ends of a veth count the same bytes: read as few namespaces as possible, those that
/// count most edges first. What is read already stays: another counter would begin anew.
fn choose(graph: &Graph, is_read: impl Fn(&Place) -> bool) -> Vec<Place> {
    let kept = |edge: &Edge| edge.counters.iter().copied().find(&is_read);
    let mut chosen: Vec<Option<Place>> = graph.edges.iter().map(kept).collect();
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

#[cfg(test)]
mod tests;
