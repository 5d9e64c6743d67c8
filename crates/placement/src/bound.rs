//! Lower bounds for [`crate::exact`]: how little the functions could cost if nodes had room for
//! all, but every CPU had a price (Lagrange).
//!
//! Neighbours form a graph that is nearly a forest, chains being paths that share few functions.
//! Along the trees of a forest of its heaviest edges the cheapest places are found exactly, by
//! passing messages from the leaves to the roots. An edge that is left out chooses its ends for
//! itself, and functions and edge pay each other for agreeing. Prices go up where more functions
//! want to be than there is room, or where a function wants to be and its edge does not, and down
//! elsewhere, until the bound rises no more. A node at which a function would make even the bound
//! too high is struck from its domain.

use std::rc::Rc;

use crate::problem::Problem;

pub struct Bounds {
    problem: Rc<Problem>,
    /// One of each pair, the heaviest first.
    edges: Vec<Link>,
    /// For each node those before it that could change names with it.
    twins: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq)]
struct Link {
    one: usize,
    other: usize,
    out: f64,
    back: f64,
}

/// A subproblem: where each function may still be, the prices, and what it costs at least.
#[derive(Clone)]
pub struct Relaxed {
    /// A bit for each node.
    domains: Vec<u64>,
    prices: Vec<f64>,
    pub bound: f64,
    /// Whom to try next.
    next: Option<usize>,
}

/// Rounds of price changes: at first, and for each subproblem.
const ROUNDS: usize = 300;
const ROUNDS_EACH: usize = 24;

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
        let mut edges = Vec::new();
        for (one, own) in problem.edges.iter().enumerate() {
            for edge in own.iter().filter(|edge| edge.other as usize > one) {
                let other = edge.other as usize;
                edges.push(Link { one, other, out: edge.out, back: edge.back });
            }
        }
        edges.sort_by(|a: &Link, b: &Link| (b.out + b.back).total_cmp(&(a.out + a.back)));
        let twins = twins(&problem);
        Self { problem, edges, twins }
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
        let mut forest = self.forest(&relaxed.domains);
        let nodes = self.problem.nodes;
        let mut best = (f64::NEG_INFINITY, relaxed.prices.clone());
        let mut prices = relaxed.prices.clone();
        let mut wanted = vec![0.0; nodes];
        let mut pace = 1.0;
        let mut best_cut: Vec<f64> = forest.paid.clone();
        let mut stale = 0;
        for _ in 0..rounds {
            let bound = forest.solve(&self.problem, &relaxed.domains, &prices, &mut wanted);
            if bound > best.0 {
                let rise = bound - best.0;
                best = (bound, prices.clone());
                best_cut.clone_from(&forest.paid);
                stale = if rise > 1e-5 * limit.abs() { 0 } else { stale + 1 };
            } else {
                stale += 1;
            }
            if bound >= limit {
                break;
            }
            if stale >= 4 {
                (pace, stale) = (pace * 0.6, 0);
                if pace < 0.01 {
                    break;
                }
            }
            let over = |node: usize| wanted[node] - self.problem.room[node] as f64;
            let counts = |node: &usize| over(*node) > 0.0 || prices[*node] > 0.0;
            let mut square: f64 = (0..nodes).filter(counts).map(|node| over(node).powi(2)).sum();
            // Each end that disagrees with its edge: one too many here, one too few there.
            square += 2.0 * forest.quarrels() as f64;
            if square == 0.0 {
                break;
            }
            let step = pace * (limit - bound) / square;
            let over: Vec<f64> = (0..nodes).map(over).collect();
            for (price, over) in prices.iter_mut().zip(over) {
                *price = (*price + step * over).max(0.0);
            }
            forest.settle_quarrels(step, nodes);
        }
        relaxed.bound = best.0;
        relaxed.prices = best.1;
        forest.paid = best_cut;
        if relaxed.bound < limit {
            self.strike(relaxed, &mut forest, limit);
        }
    }

    /// Strikes what would make the bound too high, and chooses whom to try next: someone at an
    /// edge that the forest leaves out, else who would lose most by not being at the best node.
    fn strike(&self, relaxed: &mut Relaxed, forest: &mut Forest, limit: f64) {
        let nodes = self.problem.nodes;
        let least = forest.least(&self.problem, &relaxed.domains, &relaxed.prices);
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

    /// The heaviest edges between undecided functions that make no circle.
    fn forest(&self, domains: &[u64]) -> Forest {
        let functions = domains.len();
        let decided = |function: usize| domains[function].count_ones() == 1;
        let mut forest = Forest {
            alone: self.problem.alone.clone(),
            order: Vec::with_capacity(functions),
            parent: vec![None; functions],
            left_out: vec![false; functions],
            cut: Vec::new(),
            paid: Vec::new(),
            ends: Vec::new(),
            at: vec![0; functions],
            up: vec![0.0; functions * self.problem.nodes],
            sums: Vec::new(),
        };
        let mut group: Vec<usize> = (0..functions).collect();
        let mut tree: Vec<Vec<Link>> = vec![Vec::new(); functions];
        for link in &self.edges {
            let (one, other) = (link.one, link.other);
            if decided(one) || decided(other) {
                forest.fold(&self.problem, domains, *link);
                continue;
            }
            let (a, b) = (find(&mut group, one), find(&mut group, other));
            if a == b {
                forest.cut.push(*link);
                forest.left_out[one] = true;
                forest.left_out[other] = true;
                continue;
            }
            group[a] = b;
            tree[one].push(*link);
            tree[other].push(Link { one: other, other: one, out: link.back, back: link.out });
        }
        let mut seen = vec![false; functions];
        for root in 0..functions {
            if seen[root] {
                continue;
            }
            seen[root] = true;
            forest.order.push(root);
            let mut at = forest.order.len() - 1;
            while let Some(function) = forest.order.get(at).copied() {
                for link in &tree[function] {
                    if !seen[link.other] {
                        seen[link.other] = true;
                        forest.parent[link.other] = Some(*link);
                        forest.order.push(link.other);
                    }
                }
                at += 1;
            }
        }
        forest.paid = vec![0.0; 2 * self.problem.nodes * forest.cut.len()];
        forest.ends = vec![(0, 0); forest.cut.len()];
        forest
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

fn find(group: &mut [usize], mut at: usize) -> usize {
    while group[at] != at {
        group[at] = group[group[at]];
        at = group[at];
    }
    at
}

struct Forest {
    /// As in the problem, with the hops to decided neighbours.
    alone: Vec<f64>,
    /// Parents before children.
    order: Vec<usize>,
    /// The edge from the parent to it.
    parent: Vec<Option<Link>>,
    left_out: Vec<bool>,
    /// Edges that are left out; for each what its ends pay it at each node, a row for either
    /// end; and where it would have its ends.
    cut: Vec<Link>,
    paid: Vec<f64>,
    ends: Vec<(usize, usize)>,
    /// Where the functions would be.
    at: Vec<usize>,
    /// up[f][v]: what the tree below f and the hop to it cost at least if its parent is at v.
    up: Vec<f64>,
    /// sums[f][v]: f at v, with the tree below it.
    sums: Vec<f64>,
}

impl Forest {
    /// An edge with a decided end becomes a cost of the other end alone.
    fn fold(&mut self, problem: &Problem, domains: &[u64], link: Link) {
        let nodes = problem.nodes;
        let at = |function: usize| domains[function].trailing_zeros() as usize;
        let cost = |one: usize, other: usize| {
            let slot = one * nodes + other;
            link.out * problem.distance[slot] + link.back * problem.turned[slot]
        };
        if domains[link.one].count_ones() == 1 {
            for node in 0..nodes {
                self.alone[link.other * nodes + node] += cost(at(link.one), node);
            }
        } else {
            for node in 0..nodes {
                self.alone[link.one * nodes + node] += cost(node, at(link.other));
            }
        }
    }

    /// The least cost at these prices, less what the room is worth; and how many want to be at
    /// each node.
    fn solve(
        &mut self,
        problem: &Problem,
        domains: &[u64],
        prices: &[f64],
        wanted: &mut [f64],
    ) -> f64 {
        let mut bound = self.collect(problem, domains, prices);
        wanted.fill(0.0);
        let nodes = problem.nodes;
        let mut at = std::mem::take(&mut self.at);
        for function in &self.order {
            let row = &self.sums[function * nodes..][..nodes];
            let best = match &self.parent[*function] {
                None => least(row.iter().copied()),
                Some(link) => {
                    let from = at[link.one] * nodes;
                    let to = &problem.distance[from..][..nodes];
                    let turned = &problem.turned[from..][..nodes];
                    least((0..nodes).map(|v| row[v] + link.out * to[v] + link.back * turned[v]))
                }
            };
            at[*function] = best;
            wanted[best] += 1.0;
        }
        self.at = at;
        for (price, room) in prices.iter().zip(&problem.room) {
            bound -= price * *room as f64;
        }
        bound
    }

    /// Messages from the leaves to the roots. Returns the sum of the roots' least costs.
    fn collect(&mut self, problem: &Problem, domains: &[u64], prices: &[f64]) -> f64 {
        let nodes = problem.nodes;
        self.sums.clear();
        self.sums.extend_from_slice(&self.alone);
        for (function, row) in self.sums.chunks_exact_mut(nodes).enumerate() {
            for (node, cost) in row.iter_mut().enumerate() {
                *cost += prices[node];
                if domains[function] >> node & 1 == 0 {
                    *cost = f64::INFINITY;
                }
            }
        }
        let mut bound = self.choose_ends(problem, domains);
        for function in self.order.iter().rev().copied() {
            let Some(link) = self.parent[function] else {
                let row = &self.sums[function * nodes..][..nodes];
                bound += row.iter().copied().fold(f64::INFINITY, f64::min);
                continue;
            };
            for above in 0..nodes {
                let row = &self.sums[function * nodes..][..nodes];
                let to = &problem.distance[above * nodes..][..nodes];
                let turned = &problem.turned[above * nodes..][..nodes];
                let mut best = f64::INFINITY;
                for node in 0..nodes {
                    best = best.min(row[node] + link.out * to[node] + link.back * turned[node]);
                }
                self.up[function * nodes + above] = best;
            }
            for above in 0..nodes {
                self.sums[link.one * nodes + above] += self.up[function * nodes + above];
            }
        }
        bound
    }

    /// The edges that are left out take the ends that are the cheapest for them; the functions
    /// pay. Returns the sum of what is then left of the edges' costs.
    fn choose_ends(&mut self, problem: &Problem, domains: &[u64]) -> f64 {
        let nodes = problem.nodes;
        let mut sum = 0.0;
        for (at, link) in self.cut.iter().enumerate() {
            let (one, other) = self.paid[2 * at * nodes..][..2 * nodes].split_at(nodes);
            let mut best = f64::INFINITY;
            for from in (0..nodes).filter(|node| domains[link.one] >> node & 1 == 1) {
                let to = &problem.distance[from * nodes..][..nodes];
                let turned = &problem.turned[from * nodes..][..nodes];
                for node in (0..nodes).filter(|node| domains[link.other] >> node & 1 == 1) {
                    let cost =
                        link.out * to[node] + link.back * turned[node] - one[from] - other[node];
                    if cost < best {
                        (best, self.ends[at]) = (cost, (from, node));
                    }
                }
            }
            sum += best;
            for node in 0..nodes {
                self.sums[link.one * nodes + node] += one[node];
                self.sums[link.other * nodes + node] += other[node];
            }
        }
        sum
    }

    /// How many ends of edges are elsewhere than the function is.
    fn quarrels(&self) -> usize {
        let count = |(link, ends): (&Link, &(usize, usize))| {
            usize::from(self.at[link.one] != ends.0) + usize::from(self.at[link.other] != ends.1)
        };
        self.cut.iter().zip(&self.ends).map(count).sum()
    }

    fn settle_quarrels(&mut self, step: f64, nodes: usize) {
        for (at, (link, ends)) in self.cut.iter().zip(&self.ends).enumerate() {
            let own = &mut self.paid[2 * at * nodes..][..2 * nodes];
            own[self.at[link.one]] += step;
            own[ends.0] -= step;
            own[nodes + self.at[link.other]] += step;
            own[nodes + ends.1] -= step;
        }
    }

    /// For each function and node: the bound if it is there.
    fn least(&mut self, problem: &Problem, domains: &[u64], prices: &[f64]) -> Vec<f64> {
        let nodes = problem.nodes;
        let mut bound = self.collect(problem, domains, prices);
        for (price, room) in prices.iter().zip(&problem.room) {
            bound -= price * *room as f64;
        }
        // The whole tree with f at v; parents are complete before their children.
        let mut whole = self.sums.clone();
        for function in self.order.iter().copied() {
            if let Some(link) = self.parent[function] {
                for node in 0..nodes {
                    let mut best = f64::INFINITY;
                    for above in 0..nodes {
                        let slot = above * nodes + node;
                        let rest =
                            whole[link.one * nodes + above] - self.up[function * nodes + above];
                        let hop =
                            link.out * problem.distance[slot] + link.back * problem.turned[slot];
                        best = best.min(rest + hop);
                    }
                    whole[function * nodes + node] += best;
                }
            }
        }
        for row in whole.chunks_exact_mut(nodes) {
            let tree = row.iter().copied().fold(f64::INFINITY, f64::min);
            for cost in row {
                *cost += bound - tree;
            }
        }
        whole
    }
}

fn least(costs: impl Iterator<Item = f64>) -> usize {
    let best = |best: (usize, f64), (at, cost)| if cost < best.1 { (at, cost) } else { best };
    costs.enumerate().fold((0, f64::INFINITY), best).0
}
