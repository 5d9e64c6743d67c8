//! From what lies in the namespaces to functions and the edges between them. No system calls.
//!
//! Interfaces that reach each other without a router form a segment: the two ends of a veth, a
//! bridge with all its ports. Whoever has an interface in a segment, and is not just a bridge's
//! port, stands at it. Two at a segment talk to each other. Of more, those talk whose routes
//! lead from one to the other; without such routes nobody knows, and that is said.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::inventory::{Interface, Kind, Namespace};
use crate::function::{Function, LinkEnd, Target};
use crate::process;

/// Namespace and interface whose counters are an edge's traffic.
pub type Place = (u64, u32);

#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    pub a: LinkEnd,
    pub b: LinkEnd,
    pub origin: String,
    /// Any of these counts it.
    pub counters: Vec<Place>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    pub functions: Vec<Function>,
    pub edges: Vec<Edge>,
    /// What could not be told, for people.
    pub notes: Vec<String>,
}

/// Somebody at a segment.
struct Stand<'a> {
    who: LinkEnd,
    place: Place,
    interface: &'a Interface,
}

pub fn graph(namespaces: &[Namespace]) -> Graph {
    let mut graph = Graph::default();
    let mut functions = BTreeMap::new();
    for (name, members) in segments(namespaces) {
        let stands: Vec<Stand> =
            members.iter().filter_map(|place| stand(namespaces, *place, &mut functions)).collect();
        match stands.as_slice() {
            [] | [_] => {}
            [a, b] => graph.edges.extend(edge(a, b, &name, vec![a.place, b.place])),
            many => routed(many, &name, &mut graph),
        }
    }
    for namespace in namespaces {
        cards(namespace, &mut functions, &mut graph);
    }
    graph.functions = functions.into_values().collect();
    graph
}

/// Each with a name for people, and its interfaces.
fn segments(namespaces: &[Namespace]) -> Vec<(String, Vec<Place>)> {
    let places: Vec<Place> = namespaces
        .iter()
        .flat_map(|one| one.interfaces.iter().map(|interface| (one.inode, interface.index)))
        .collect();
    let numbers: HashMap<Place, usize> =
        places.iter().enumerate().map(|(at, place)| (*place, at)).collect();
    let mut parents: Vec<usize> = (0..places.len()).collect();
    fn root(parents: &mut [usize], mut at: usize) -> usize {
        while parents[at] != at {
            parents[at] = parents[parents[at]];
            at = parents[at];
        }
        at
    }
    let mut titles: BTreeMap<usize, String> = BTreeMap::new();
    for namespace in namespaces {
        for interface in &namespace.interfaces {
            let own = numbers[&(namespace.inode, interface.index)];
            let bridge = interface.bridge.map(|bridge| (namespace.inode, bridge));
            for other in [bridge, interface.peer].into_iter().flatten() {
                let Some(other) = numbers.get(&other) else { continue };
                let (a, b) = (root(&mut parents, own), root(&mut parents, *other));
                // The smaller number stays the root, so that the order does not matter.
                parents[a.max(b)] = a.min(b);
            }
            if interface.kind == Kind::Bridge {
                titles.insert(own, format!("bridge {}", interface.name));
            }
        }
    }
    let mut segments: BTreeMap<usize, (String, Vec<Place>)> = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        let (title, members) = segments.entry(root(&mut parents, at)).or_default();
        if let Some(bridge) = titles.get(&at) {
            title.clone_from(bridge);
        }
        members.push(*place);
    }
    segments.into_values().filter(|(_, members)| members.len() > 1).collect()
}

/// Who stands at a segment by this interface, if anybody does.
fn stand<'a>(
    namespaces: &'a [Namespace],
    place: Place,
    functions: &mut BTreeMap<String, Function>,
) -> Option<Stand<'a>> {
    let namespace = namespaces.iter().find(|one| one.inode == place.0)?;
    let interface = namespace.interface(place.1)?;
    let who = if let Some(owner) = interface.owner {
        // The guest behind a tap; the tap itself is mostly a bridge's port.
        let name = process::label(owner.pid, interface.owner_program.as_deref().unwrap_or("?"));
        let target = Target::Processes { processes: vec![owner] };
        functions.entry(name.clone()).or_insert(Function { name: name.clone(), target });
        LinkEnd::Function(name)
    } else if interface.kind == Kind::Card {
        LinkEnd::Nic(interface.name.clone())
    } else if interface.bridge.is_some() || !is_inhabited(interface) {
        return None;
    } else if namespace.is_host {
        LinkEnd::Nic(uplink(namespace))
    } else {
        LinkEnd::Function(member(namespace, functions))
    };
    Some(Stand { who, place, interface })
}

/// A bridge without addresses only joins its ports. A veth carries packets either way: a
/// namespace may forward without addresses (a DPDK or AF_PACKET program in it).
fn is_inhabited(interface: &Interface) -> bool {
    match interface.kind {
        Kind::Bridge => !interface.addresses.is_empty(),
        Kind::Loopback => false,
        _ => true,
    }
}

/// What the host reaches the world by.
fn uplink(host: &Namespace) -> String {
    let cards = || host.interfaces.iter().filter(|one| one.kind == Kind::Card);
    let chosen = cards().find(|one| one.has_default_route).or_else(|| cards().next());
    chosen.map_or_else(|| "host".to_owned(), |one| one.name.clone())
}

fn member(namespace: &Namespace, functions: &mut BTreeMap<String, Function>) -> String {
    let name = namespace.label();
    functions.entry(name.clone()).or_insert_with(|| {
        let target = if namespace.processes.is_empty() {
            let carries = |one: &&Interface| one.kind != Kind::Loopback;
            let interfaces = namespace.interfaces.iter().filter(carries);
            Target::Kernel {
                namespace: namespace.path.clone(),
                interfaces: interfaces.map(|one| one.name.clone()).collect(),
            }
        } else {
            Target::Processes { processes: namespace.processes.clone() }
        };
        Function { name: name.clone(), target }
    });
    name
}

fn edge(a: &Stand, b: &Stand, segment: &str, counters: Vec<Place>) -> Option<Edge> {
    if a.who == b.who {
        return None;
    }
    let title = if segment.is_empty() { "veth" } else { segment };
    let origin = format!("{title}: {} to {}", a.interface.name, b.interface.name);
    Some(Edge { a: a.who.clone(), b: b.who.clone(), origin, counters })
}

/// More than two at a segment.
fn routed(stands: &[Stand], segment: &str, graph: &mut Graph) {
    let mut owners: HashMap<IpAddr, usize> = HashMap::new();
    for (at, stand) in stands.iter().enumerate() {
        owners.extend(stand.interface.addresses.iter().map(|address| (*address, at)));
    }
    let mut pairs = BTreeSet::new();
    for (at, stand) in stands.iter().enumerate() {
        for hop in &stand.interface.next_hops {
            if let Some(&to) = owners.get(hop).filter(|to| **to != at) {
                pairs.insert((at.min(to), at.max(to)));
            }
        }
    }
    let degree = |at: usize| pairs.iter().filter(|(a, b)| *a == at || *b == at).count();
    for &(a, b) in &pairs {
        // An interface with one neighbour counts that neighbour's traffic and no other.
        let alone = [a, b].into_iter().filter(|at| degree(*at) == 1);
        let mut counters: Vec<Place> = alone.map(|at| stands[at].place).collect();
        if counters.is_empty() {
            let least = if degree(a) <= degree(b) { a } else { b };
            counters.push(stands[least].place);
            graph.notes.push(format!(
                "{segment}: {} has several neighbours there; its traffic with {} is at most what \
                 it counts in all",
                stands[least].who,
                stands[a + b - least].who
            ));
        }
        let mut found = edge(&stands[a], &stands[b], segment, counters);
        if let Some(edge) = &mut found {
            edge.origin.push_str(", by route");
        }
        graph.edges.extend(found);
    }
    let lost: Vec<String> = (0..stands.len())
        .filter(|at| degree(*at) == 0)
        .map(|at| stands[at].who.to_string())
        .collect();
    if !lost.is_empty() {
        graph.notes.push(format!(
            "{segment}: no route leads from or to {}; whom they talk to is not known",
            lost.join(", ")
        ));
    }
}

/// A network card that was moved into a namespace belongs to the function there. The host's own
/// cards carry what its own programs send, too: they are ends of edges, and no edges.
fn cards(namespace: &Namespace, functions: &mut BTreeMap<String, Function>, graph: &mut Graph) {
    if namespace.is_host {
        return;
    }
    let free = |one: &&Interface| one.kind == Kind::Card && one.bridge.is_none();
    for card in namespace.interfaces.iter().filter(free) {
        graph.edges.push(Edge {
            a: LinkEnd::Nic(card.name.clone()),
            b: LinkEnd::Function(member(namespace, functions)),
            origin: format!("card {}", card.name),
            counters: vec![(namespace.inode, card.index)],
        });
    }
}

#[cfg(test)]
mod tests;
