//! From edges to chains: the paths that the traffic takes, the widest first.
//!
//! The heaviest edge is extended at both ends, each time by the heaviest edge that goes on, while
//! that carries at least half of what the path carries. What the path carries is then taken from
//! its edges, and the next path is looked for. So a function that two chains share is found in
//! both. Functions on which no traffic is seen come last, by the edges that are known.

use std::collections::{BTreeMap, BTreeSet};

use crate::function::End;
use crate::rate::Edge;

/// A path of functions, from a card or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Functions in order.
    pub functions: Vec<String>,
    /// The cards before the first and after the last.
    pub entry: Option<String>,
    pub exit: Option<String>,
    pub rate: f64,
    pub origins: Vec<String>,
}

/// An edge goes on if it carries this part of what the path carries.
const GOES_ON: f64 = 0.5;
/// What is left of an edge, of its own or of the heaviest one's traffic, that is not looked at.
const REST_OF_OWN: f64 = 0.1;
const REST_OF_ALL: f64 = 0.001;

struct Rest<'a> {
    edge: &'a Edge,
    left: f64,
}

pub fn chains<'a>(edges: &'a [Edge], functions: impl Iterator<Item = &'a str>) -> Vec<Found> {
    let heaviest = edges.iter().map(|edge| edge.rate).fold(0.0, f64::max);
    let least = |edge: &Edge| (edge.rate * REST_OF_OWN).max(heaviest * REST_OF_ALL);
    let mut rests: Vec<Rest> = edges.iter().map(|edge| Rest { edge, left: edge.rate }).collect();
    let mut found = Vec::new();
    let mut covered = BTreeSet::new();
    loop {
        for rest in &mut rests {
            if rest.left <= least(rest.edge) {
                rest.left = 0.0;
            }
        }
        let is_open = |rest: &Rest| rest.left > 0.0;
        let Some(path) = widest(&rests, is_open) else { break };
        let rate = path.edges.iter().map(|at| rests[*at].left).fold(f64::INFINITY, f64::min);
        path.edges.iter().for_each(|at| rests[*at].left -= rate);
        covered.extend(path.functions());
        found.push(path.found(&rests, rate));
    }
    // Idle ones: by edges between functions that are in no chain yet.
    let mut used = BTreeSet::new();
    loop {
        let is_new = |end: &End| end.function().is_none_or(|name| !covered.contains(name));
        let is_open = |rest: &Rest| {
            let key = (&rest.edge.a, &rest.edge.b);
            !used.contains(&key) && is_new(&rest.edge.a) && is_new(&rest.edge.b)
        };
        let Some(path) = widest(&rests, is_open) else { break };
        used.extend(path.edges.iter().map(|at| (&rests[*at].edge.a, &rests[*at].edge.b)));
        covered.extend(path.functions());
        found.push(path.found(&rests, 0.0));
    }
    for function in functions {
        if covered.insert(function.to_owned()) {
            let functions = vec![function.to_owned()];
            let origins = Vec::new();
            found.push(Found { functions, entry: None, exit: None, rate: 0.0, origins });
        }
    }
    found
}

struct Path<'a> {
    ends: Vec<&'a End>,
    edges: Vec<usize>,
}

/// The heaviest open edge, extended both ways.
fn widest<'a>(rests: &[Rest<'a>], is_open: impl Fn(&Rest) -> bool) -> Option<Path<'a>> {
    let mut neighbours: BTreeMap<&End, Vec<usize>> = BTreeMap::new();
    let mut first: Option<usize> = None;
    for (at, rest) in rests.iter().enumerate().filter(|(_, rest)| is_open(rest)) {
        neighbours.entry(&rest.edge.a).or_default().push(at);
        neighbours.entry(&rest.edge.b).or_default().push(at);
        if first.is_none_or(|first| rest.left > rests[first].left) {
            first = Some(at);
        }
    }
    let first = first?;
    let mut path =
        Path { ends: vec![&rests[first].edge.a, &rests[first].edge.b], edges: vec![first] };
    let mut width = rests[first].left;
    for forward in [true, false] {
        loop {
            let end = if forward { path.ends[path.ends.len() - 1] } else { path.ends[0] };
            if end.function().is_none() {
                break;
            }
            let goes_on = |at: &&usize| {
                let edge = rests[**at].edge;
                let other = if edge.a == *end { &edge.b } else { &edge.a };
                // A path may end where it began only at a card.
                let is_new = other.function().is_none() || !path.ends.contains(&other);
                !path.edges.contains(*at) && is_new && rests[**at].left >= width * GOES_ON
            };
            let open = neighbours.get(end).into_iter().flatten().filter(goes_on);
            // Of equals the first.
            let next = open.fold(None, |best: Option<usize>, at| match best {
                Some(best) if rests[best].left >= rests[*at].left => Some(best),
                _ => Some(*at),
            });
            let Some(next) = next else { break };
            let edge = rests[next].edge;
            let other = if edge.a == *end { &edge.b } else { &edge.a };
            width = width.min(rests[next].left);
            if forward {
                path.ends.push(other);
                path.edges.push(next);
            } else {
                path.ends.insert(0, other);
                path.edges.insert(0, next);
            }
        }
    }
    // Cards first, so that a chain reads from the network on.
    if path.ends[0].function().is_some() && path.ends[path.ends.len() - 1].function().is_none() {
        path.ends.reverse();
        path.edges.reverse();
    }
    Some(path)
}

impl Path<'_> {
    fn functions(&self) -> Vec<String> {
        self.ends.iter().filter_map(|end| end.function()).map(str::to_owned).collect()
    }

    fn found(&self, rests: &[Rest], rate: f64) -> Found {
        let card = |end: Option<&&End>| match end {
            Some(End::Nic(name)) => Some(name.clone()),
            _ => None,
        };
        let mut origins = Vec::new();
        for origin in self.edges.iter().flat_map(|at| &rests[*at].edge.origins) {
            if !origins.contains(origin) {
                origins.push(origin.clone());
            }
        }
        Found {
            functions: self.functions(),
            entry: card(self.ends.first()),
            exit: card(self.ends.last()),
            rate,
            origins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(a: &str, b: &str, rate: f64) -> Edge {
        let end = |name: &str| match name.strip_prefix("nic:") {
            Some(card) => End::Nic(card.into()),
            None => End::Function(name.into()),
        };
        Edge { a: end(a), b: end(b), rate, dropped: 0.0, origins: vec![format!("{a}{b}")] }
    }

    fn read(edges: &[Edge], functions: &[&str]) -> Vec<String> {
        let name = |card: &Option<String>| card.as_deref().unwrap_or("-").to_owned();
        let found = chains(edges, functions.iter().copied());
        let line = |one: &Found| {
            let middle = one.functions.join(" ");
            format!("{} {middle} {} {}", name(&one.entry), name(&one.exit), one.rate)
        };
        found.iter().map(line).collect()
    }

    #[test]
    fn a_shared_function_is_in_both_chains() {
        // [1 4 3] carries 6, [1 2 3] carries 3: the source's own example, card at both ends.
        let edges = [
            edge("nic:e", "1", 9.0),
            edge("1", "4", 6.0),
            edge("4", "3", 6.0),
            edge("1", "2", 3.0),
            edge("2", "3", 3.0),
            edge("3", "nic:f", 9.0),
        ];
        let found = read(&edges, &["1", "2", "3", "4"]);
        assert_eq!(found, ["e 1 4 3 f 6", "e 1 2 3 f 3"]);
    }

    #[test]
    fn what_ends_in_a_function_does_not_go_on() {
        let edges = [edge("a", "b", 100.0), edge("b", "c", 20.0)];
        assert_eq!(read(&edges, &[]), ["- a b - 100", "- b c - 20"]);
    }

    #[test]
    fn a_card_at_both_ends() {
        let edges = [edge("nic:e", "a", 5.0), edge("a", "b", 5.0), edge("b", "nic:e", 5.0)];
        assert_eq!(read(&edges, &[]), ["e a b e 5"]);
    }

    #[test]
    fn idle_functions_keep_their_chains_and_lone_ones_are_not_lost() {
        let edges = [edge("a", "b", 7.0), edge("c", "d", 0.0), edge("b", "c", 0.0)];
        assert_eq!(read(&edges, &["a", "b", "c", "d", "x"]), ["- a b - 7", "- c d - 0", "- x - 0"]);
    }

    #[test]
    fn rings_end() {
        let edges = [edge("a", "b", 4.0), edge("b", "c", 4.0), edge("c", "a", 4.0)];
        assert_eq!(read(&edges, &[]), ["- a b c - 4", "- c a - 4"]);
    }
}
