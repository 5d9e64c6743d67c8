//! The objective in numbers that can be searched: functions and nodes by their places, edges
//! between functions with what passes them, and what each function costs at each node by itself.

use std::collections::HashMap;

use crate::chain::busiest_first;
use crate::{Chain, Error, FunctionId, Host, Objective, Plan};

pub struct Problem {
    pub ids: Vec<FunctionId>,
    pub nodes: usize,
    /// Free CPUs of each node.
    pub room: Vec<usize>,
    /// Row from, column to; and the same turned round, so that rows can be read either way.
    pub distance: Vec<f64>,
    pub turned: Vec<f64>,
    /// For each function a row of nodes: its hops to cards, its hops to itself, and its move.
    pub alone: Vec<f64>,
    pub edges: Vec<Vec<Edge>>,
    /// Functions of each chain, each once, the busiest chain first; none is empty.
    pub chains: Vec<Vec<u32>>,
}

/// Traffic between a function and a neighbour, from it and to it.
#[derive(Clone, Copy)]
pub struct Edge {
    pub other: u32,
    pub out: f64,
    pub back: f64,
}

impl Problem {
    /// Of the functions in `ids`; hops to others do not count.
    pub fn new(
        host: &Host,
        chains: &[Chain],
        ids: Vec<FunctionId>,
        objective: &Objective,
        current: Option<&Plan>,
    ) -> Result<Self, Error> {
        let nodes = host.nodes.len();
        let index: HashMap<FunctionId, u32> =
            ids.iter().enumerate().map(|(at, id)| (*id, at as u32)).collect();
        let at = |from: usize, to: usize| host.distance[from][to];
        let grid = || (0..nodes).flat_map(|one| (0..nodes).map(move |other| (one, other)));
        let mut problem = Self {
            nodes,
            room: host.nodes.iter().map(|node| node.free.len()).collect(),
            distance: grid().map(|(from, to)| at(from, to)).collect(),
            turned: grid().map(|(to, from)| at(from, to)).collect(),
            alone: vec![0.0; ids.len() * nodes],
            edges: vec![Vec::new(); ids.len()],
            chains: Vec::new(),
            ids,
        };
        for chain in busiest_first(chains) {
            let rate = chain.traffic.rate;
            let known: Vec<Option<u32>> =
                chain.functions.iter().map(|id| index.get(id).copied()).collect();
            if let (Some(card), Some(Some(first))) = (chain.entry.place(host)?, known.first()) {
                problem.hop_to_card(*first, |node| rate * at(card, node));
            }
            if let (Some(card), Some(Some(last))) = (chain.exit.place(host)?, known.last()) {
                problem.hop_to_card(*last, |node| rate * at(node, card));
            }
            for hop in known.windows(2) {
                match (hop[0], hop[1]) {
                    (Some(from), Some(to)) if from == to => {
                        problem.hop_to_card(from, |node| rate * at(node, node));
                    }
                    (Some(from), Some(to)) => {
                        problem.edge(from, to, rate, 0.0);
                        problem.edge(to, from, 0.0, rate);
                    }
                    _ => {}
                }
            }
            let mut seen = std::collections::HashSet::new();
            let own: Vec<u32> = known.into_iter().flatten().filter(|at| seen.insert(*at)).collect();
            if !own.is_empty() {
                problem.chains.push(own);
            }
        }
        if let Some(current) = current {
            problem.price_moves(host, objective.move_prices(host, chains), current);
        }
        Ok(problem)
    }

    fn hop_to_card(&mut self, function: u32, cost: impl Fn(usize) -> f64) {
        for node in 0..self.nodes {
            self.alone[function as usize * self.nodes + node] += cost(node);
        }
    }

    fn edge(&mut self, from: u32, to: u32, out: f64, back: f64) {
        let edges = &mut self.edges[from as usize];
        match edges.iter_mut().find(|edge| edge.other == to) {
            Some(edge) => (edge.out, edge.back) = (edge.out + out, edge.back + back),
            None => edges.push(Edge { other: to, out, back }),
        }
    }

    /// A function that stays on its node keeps its CPU, if it has one of its own.
    fn price_moves(
        &mut self,
        host: &Host,
        prices: std::collections::BTreeMap<FunctionId, f64>,
        current: &Plan,
    ) {
        for (at, id) in self.ids.iter().enumerate() {
            let Some(seat) = current.seat(*id) else { continue };
            let stays = if current.shared.contains(id) { None } else { host.node_of(seat.cpu) };
            let stays = stays.and_then(|node| host.place(node));
            let price = prices.get(id).copied().unwrap_or(0.0);
            for node in (0..self.nodes).filter(|node| Some(*node) != stays) {
                self.alone[at * self.nodes + node] += price;
            }
        }
    }

    pub fn functions(&self) -> usize {
        self.ids.len()
    }

    /// The cost of the hops between a function at `one` and its neighbour at `other`.
    pub fn between(&self, edge: &Edge, one: usize, other: usize) -> f64 {
        let at = one * self.nodes + other;
        edge.out * self.distance[at] + edge.back * self.turned[at]
    }

    /// What it costs if function `f` is at node `places[f]`.
    pub fn cost(&self, places: &[u32]) -> f64 {
        let mut cost = 0.0;
        for (function, place) in places.iter().enumerate() {
            cost += self.alone[function * self.nodes + *place as usize];
            for edge in self.edges[function].iter().filter(|edge| edge.other as usize > function) {
                let other = places[edge.other as usize] as usize;
                cost += self.between(edge, *place as usize, other);
            }
        }
        cost
    }
}
