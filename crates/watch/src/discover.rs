//! From edges to chains: the paths that the traffic takes, the widest first.
//!
//! The heaviest edge is extended at both ends, each time by the heaviest edge that goes on, while
//! that carries at least half of what the path carries. What the path carries is then taken from
//! its edges, and the next path is looked for. So a function that two chains share is found in
//! both. Functions on which no traffic is seen come last, by the edges that are known.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::function::LinkEnd;
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

/// Edges with what is left of each, and which of them meet at each end.
struct Rests<'a> {
    edges: &'a [Edge],
    left: Vec<f64>,
    /// By number: an end and its edges.
    ends: Vec<(&'a LinkEnd, Vec<usize>)>,
    /// Of each edge the numbers of its ends.
    joins: Vec<[usize; 2]>,
}

impl<'a> Rests<'a> {
    fn new(edges: &'a [Edge]) -> Self {
        let mut rests = Self {
            edges,
            left: edges.iter().map(|edge| edge.rate).collect(),
            ends: Vec::new(),
            joins: Vec::new(),
        };
        let mut numbers: HashMap<&LinkEnd, usize> = HashMap::new();
        for (at, edge) in edges.iter().enumerate() {
            let join = [&edge.a, &edge.b].map(|end| {
                let number = *numbers.entry(end).or_insert(rests.ends.len());
                if number == rests.ends.len() {
                    rests.ends.push((end, Vec::new()));
                }
                rests.ends[number].1.push(at);
                number
            });
            rests.joins.push(join);
        }
        rests
    }

    fn function(&self, end: usize) -> Option<&'a str> {
        self.ends[end].0.function()
    }

    fn other(&self, edge: usize, end: usize) -> usize {
        let [a, b] = self.joins[edge];
        if a == end { b } else { a }
    }
}

pub fn chains<'a>(edges: &'a [Edge], functions: impl Iterator<Item = &'a str>) -> Vec<Found> {
    let heaviest = edges.iter().map(|edge| edge.rate).fold(0.0, f64::max);
    let least = |edge: &Edge| (edge.rate * REST_OF_OWN).max(heaviest * REST_OF_ALL);
    let mut rests = Rests::new(edges);
    let mut found = Vec::new();
    let mut covered = vec![false; rests.ends.len()];
    for (left, edge) in rests.left.iter_mut().zip(edges) {
        if *left <= least(edge) {
            *left = 0.0;
        }
    }
    while let Some(path) = widest(&rests, |at| rests.left[at] > 0.0) {
        let rate = path.edges.iter().map(|at| rests.left[*at]).fold(f64::INFINITY, f64::min);
        for at in &path.edges {
            rests.left[*at] -= rate;
            if rests.left[*at] <= least(&edges[*at]) {
                rests.left[*at] = 0.0;
            }
        }
        path.ends.iter().for_each(|end| covered[*end] = true);
        found.push(path.found(&rests, rate));
    }
    // Idle ones: by edges between functions that are in no chain yet.
    let mut used = vec![false; edges.len()];
    loop {
        let is_new = |end: usize| rests.function(end).is_none() || !covered[end];
        let is_open = |at: usize| !used[at] && rests.joins[at].into_iter().all(is_new);
        let Some(path) = widest(&rests, is_open) else { break };
        path.edges.iter().for_each(|at| used[*at] = true);
        path.ends.iter().for_each(|end| covered[*end] = true);
        found.push(path.found(&rests, 0.0));
    }
    let ends = rests.ends.iter().zip(&covered).filter(|(_, covered)| **covered);
    let mut listed: HashSet<&str> = ends.filter_map(|((end, _), _)| end.function()).collect();
    for function in functions {
        if listed.insert(function) {
            let functions = vec![function.to_owned()];
            let origins = Vec::new();
            found.push(Found { functions, entry: None, exit: None, rate: 0.0, origins });
        }
    }
    found
}

/// By numbers.
struct Path {
    ends: VecDeque<usize>,
    edges: VecDeque<usize>,
}

/// The heaviest open edge, extended both ways.
fn widest(rests: &Rests, is_open: impl Fn(usize) -> bool) -> Option<Path> {
    let open = (0..rests.edges.len()).filter(|at| is_open(*at));
    // Of equals the first, here and below.
    let heavier = |best: Option<usize>, at: usize| match best {
        Some(best) if rests.left[best] >= rests.left[at] => Some(best),
        _ => Some(at),
    };
    let first = open.fold(None, heavier)?;
    let mut path = Path { ends: rests.joins[first].into(), edges: [first].into() };
    let mut width = rests.left[first];
    for forward in [true, false] {
        loop {
            let end = path.ends[if forward { path.ends.len() - 1 } else { 0 }];
            if rests.function(end).is_none() {
                break;
            }
            let goes_on = |at: &usize| {
                let other = rests.other(*at, end);
                // A path may end where it began only at a card.
                let is_new = rests.function(other).is_none() || !path.ends.contains(&other);
                is_open(*at)
                    && !path.edges.contains(at)
                    && is_new
                    && rests.left[*at] >= width * GOES_ON
            };
            let next = rests.ends[end].1.iter().copied().filter(goes_on).fold(None, heavier);
            let Some(next) = next else { break };
            let other = rests.other(next, end);
            width = width.min(rests.left[next]);
            if forward {
                path.ends.push_back(other);
                path.edges.push_back(next);
            } else {
                path.ends.push_front(other);
                path.edges.push_front(next);
            }
        }
    }
    // Cards first, so that a chain reads from the network on.
    let card = |end: Option<&usize>| end.is_some_and(|end| rests.function(*end).is_none());
    if !card(path.ends.front()) && card(path.ends.back()) {
        path.ends.make_contiguous().reverse();
        path.edges.make_contiguous().reverse();
    }
    Some(path)
}

impl Path {
    fn found(&self, rests: &Rests, rate: f64) -> Found {
        let card = |end: Option<&usize>| match end.map(|end| rests.ends[*end].0) {
            Some(LinkEnd::Nic(name)) => Some(name.clone()),
            _ => None,
        };
        let functions = self.ends.iter().filter_map(|end| rests.function(*end));
        let mut origins = Vec::new();
        for origin in self.edges.iter().flat_map(|at| &rests.edges[*at].origins) {
            if !origins.contains(origin) {
                origins.push(origin.clone());
            }
        }
        Found {
            functions: functions.map(str::to_owned).collect(),
            entry: card(self.ends.front()),
            exit: card(self.ends.back()),
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
            Some(card) => LinkEnd::Nic(card.into()),
            None => LinkEnd::Function(name.into()),
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
