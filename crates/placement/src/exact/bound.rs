//! Lower bounds for [`super`]: how little the functions could cost if nodes had room for
//! all, but every CPU had a price (Lagrange), and no more neighbours were together at a node than
//! it has room for.
//!
//! Neighbours form a graph that is nearly a forest, chains being paths that share few functions.
//! Along the trees of a forest of its heaviest edges the cheapest places are then found exactly
//! ([`Forest`]). An edge that is left out chooses its ends for itself, and functions and edge pay
//! each other for agreeing. Prices go up where more functions want to be than there is room, or
//! where a function wants to be and its edge does not, and down elsewhere, until the bound rises
//! no more. A node at which a function would make even the bound too high is struck from its
//! domain.

use std::rc::Rc;

use super::forest::{Forest, Link};
use crate::problem::Problem;

pub struct Bounds {
    problem: Rc<Problem>,
    /// One of each pair, the heaviest first.
    links: Vec<Link>,
    /// For each node those before it that could change names with it.
    twins: Vec<u64>,
}

/// A subproblem: where each function may still be, the prices, and what it costs at least.
#[derive(Clone)]
pub struct Relaxed {
    /// A bit for each node.
    domains: Vec<u64>,
    prices: Vec<f64>,
    /// For links that the forest leaves out, by their number: what their ends pay them.
    paid: Vec<(usize, Vec<f64>)>,
    pub bound: f64,
    /// Whom to try next.
    next: Option<usize>,
}

/// Rounds of price changes: at first, and for each subproblem.
const ROUNDS: usize = 300;
const ROUNDS_EACH: usize = 24;
/// Rounds that hardly raise the bound, after which prices change less.
const STALE: usize = 4;

impl Relaxed {
    pub fn undecided(&self) -> Option<usize> {
        self.next
    }

    /// Where everyone is, once nobody is undecided.
    pub fn places(&self) -> Vec<u32> {
        self.domains.iter().map(|domain| domain.trailing_zeros()).collect()
    }
}

impl Bounds {
    pub fn new(problem: Rc<Problem>) -> Self {
        let mut links = Vec::new();
        for (one, own) in problem.edges.iter().enumerate() {
            for edge in own.iter().filter(|edge| edge.other as usize > one) {
                let other = edge.other as usize;
                links.push(Link { at: 0, one, other, out: edge.out, back: edge.back });
            }
        }
        links.sort_by(|a: &Link, b: &Link| (b.out + b.back).total_cmp(&(a.out + a.back)));
        for (at, link) in links.iter_mut().enumerate() {
            link.at = at;
        }
        let twins = twins(&problem);
        Self { problem, links, twins }
    }

    /// The nodes at which `function` has to be tried: of several that nobody is at yet and that
    /// could change names, the first.
    pub fn trials(&self, relaxed: &Relaxed, function: usize) -> Vec<usize> {
        let decided = relaxed.domains.iter().filter(|domain| domain.count_ones() == 1);
        let empty = !decided.fold(0, |taken, domain| taken | domain);
        let domain = relaxed.domains[function];
        let has_twin =
            |node: usize| empty >> node & 1 == 1 && self.twins[node] & empty & domain != 0;
        (0..self.problem.nodes).filter(|node| domain >> node & 1 == 1 && !has_twin(*node)).collect()
    }

    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    pub fn root(&self, best: f64) -> Relaxed {
        let nodes = self.problem.nodes;
        let all = if nodes == 64 { u64::MAX } else { (1 << nodes) - 1 };
        let mut root = Relaxed {
            domains: vec![all; self.problem.functions()],
            prices: vec![0.0; nodes],
            paid: Vec::new(),
            bound: f64::NEG_INFINITY,
            next: None,
        };
        self.tighten(&mut root, best, ROUNDS);
        root
    }

    /// The subproblem with `function` at `node`; `None` if it cannot cost less than `limit`.
    pub fn child(
        &self,
        parent: &Relaxed,
        function: usize,
        node: usize,
        limit: f64,
    ) -> Option<Relaxed> {
        let mut child = parent.clone();
        child.domains[function] = 1 << node;
        self.tighten(&mut child, limit, ROUNDS_EACH);
        // It cannot cost less than what it is a part of.
        child.bound = child.bound.max(parent.bound);
        (child.bound < limit).then_some(child)
    }

    /// Raises the bound and strikes nodes from domains; a bound of infinity: impossible.
    fn tighten(&self, relaxed: &mut Relaxed, limit: f64, rounds: usize) {
        if !self.propagate(&mut relaxed.domains) {
            relaxed.bound = f64::INFINITY;
            return;
        }
        let domains = &relaxed.domains;
        let nodes = self.problem.nodes;
        let mut forest = Forest::new(&self.problem, &self.links, domains);
        forest.prices.clone_from(&relaxed.prices);
        for (link, paid) in forest.cut.iter().zip(forest.paid.chunks_exact_mut(2 * nodes)) {
            if let Some((_, known)) = relaxed.paid.iter().find(|(at, _)| *at == link.at) {
                paid.copy_from_slice(known);
            }
        }
        let undecided: Vec<usize> =
            (0..domains.len()).filter(|function| domains[*function].count_ones() > 1).collect();
        let mut best = (f64::NEG_INFINITY, forest.prices.clone(), forest.paid.clone());
        let mut over = vec![0.0; nodes];
        let (mut pace, mut stale) = (1.0, 0);
        for _ in 0..rounds {
            let bound = forest.solve(&self.problem, domains);
            let rise = bound - best.0;
            if rise > 0.0 {
                best.0 = bound;
                best.1.clone_from(&forest.prices);
                best.2.clone_from(&forest.paid);
            }
            if bound >= limit {
                break;
            }
            stale = if rise > 1e-5 * limit.abs() { 0 } else { stale + 1 };
            if stale >= STALE {
                (pace, stale) = (pace * 0.6, 0);
                if pace < 0.01 {
                    break;
                }
            }
            for (over, room) in over.iter_mut().zip(&forest.room) {
                *over = -(*room as f64);
            }
            for function in &undecided {
                over[forest.at[*function]] += 1.0;
            }
            let counts = |node: &usize| over[*node] > 0.0 || forest.prices[*node] > 0.0;
            let mut square: f64 = (0..nodes).filter(counts).map(|node| over[node].powi(2)).sum();
            // Each end that disagrees with its edge: one too many here, one too few there.
            square += 2.0 * forest.quarrels() as f64;
            if square == 0.0 {
                break;
            }
            let step = pace * (limit - bound) / square;
            for (price, over) in forest.prices.iter_mut().zip(&over) {
                *price = (*price + step * over).max(0.0);
            }
            forest.settle_quarrels(step, nodes);
        }
        relaxed.bound = best.0;
        (forest.prices, forest.paid) = (best.1.clone(), best.2);
        relaxed.prices = best.1;
        if relaxed.bound < limit {
            let paid = forest.paid.chunks_exact(2 * nodes).map(<[f64]>::to_vec);
            relaxed.paid = forest.cut.iter().map(|link| link.at).zip(paid).collect();
            self.strike(relaxed, &mut forest, limit);
        }
    }

    /// Strikes what would make the bound too high, and chooses whom to try next: someone at an
    /// edge that the forest leaves out, else who would lose most by not being at the best node.
    fn strike(&self, relaxed: &mut Relaxed, forest: &mut Forest, limit: f64) {
        let nodes = self.problem.nodes;
        let least = forest.least(&self.problem, &relaxed.domains);
        relaxed.next = None;
        let mut most = f64::NEG_INFINITY;
        let mut struck = false;
        for (function, domain) in relaxed.domains.iter_mut().enumerate() {
            if domain.count_ones() == 1 {
                continue;
            }
            let row = &least[function * nodes..][..nodes];
            let before = *domain;
            let (mut first, mut second) = (f64::INFINITY, f64::INFINITY);
            for (node, cost) in row.iter().enumerate().filter(|(node, _)| before >> node & 1 == 1) {
                if *cost >= limit {
                    *domain &= !(1 << node);
                    struck = true;
                } else if *cost < first {
                    (first, second) = (*cost, first);
                } else {
                    second = second.min(*cost);
                }
            }
            let mut regret = if second == f64::INFINITY { 0.0 } else { second - first };
            if forest.left_out[function] {
                regret += limit;
            }
            if domain.count_ones() > 1 && regret > most {
                (relaxed.next, most) = (Some(function), regret);
            }
        }
        let possible = !struck || self.propagate(&mut relaxed.domains);
        if !possible || relaxed.domains.contains(&0) {
            relaxed.bound = f64::INFINITY;
            return;
        }
        let decided = |domain: &u64| domain.count_ones() == 1;
        if relaxed.next.is_none_or(|next| decided(&relaxed.domains[next])) {
            relaxed.next = relaxed.domains.iter().position(|domain| !decided(domain));
        }
    }

    /// Nodes that are full are struck from the others' domains. False: somebody is nowhere.
    fn propagate(&self, domains: &mut [u64]) -> bool {
        let mut done = 0u64;
        loop {
            let mut taken = vec![0; self.problem.nodes];
            for domain in domains.iter() {
                match domain.count_ones() {
                    0 => return false,
                    1 => taken[domain.trailing_zeros() as usize] += 1,
                    _ => {}
                }
            }
            let mut full = 0u64;
            for (node, taken) in taken.iter().enumerate() {
                if *taken > self.problem.room[node] {
                    return false;
                }
                if *taken == self.problem.room[node] {
                    full |= 1 << node;
                }
            }
            if full == done {
                return true;
            }
            done = full;
            for domain in domains.iter_mut().filter(|domain| domain.count_ones() > 1) {
                *domain &= !full;
            }
        }
    }
}

/// Nodes are twins if nothing changes when they change names: the same room, the same costs for
/// each function by itself, the same distances.
fn twins(problem: &Problem) -> Vec<u64> {
    let nodes = problem.nodes;
    let twin = |a: usize, b: usize| {
        let swapped = |node: usize| {
            if node == a {
                b
            } else if node == b {
                a
            } else {
                node
            }
        };
        let at = |from: usize, to: usize| problem.distance[from * nodes + to];
        problem.room[a] == problem.room[b]
            && problem.alone.chunks_exact(nodes).all(|row| row[a] == row[b])
            && (0..nodes)
                .all(|from| (0..nodes).all(|to| at(from, to) == at(swapped(from), swapped(to))))
    };
    let before = |b: usize| (0..b).filter(|a| twin(*a, b)).fold(0, |bits, a| bits | 1 << a);
    (0..nodes).map(before).collect()
}
