//! A forest of the heaviest edges between functions, and the cheapest places along its trees: by
//! passing messages from the leaves to the roots. Edges that would close a circle are left out;
//! they choose their ends for themselves, and their ends pay them.

use crate::problem::Problem;

/// An edge between two functions, by its number in [`super::bound::Bounds`].
#[derive(Clone, Copy, PartialEq)]
pub struct Link {
    pub at: usize,
    pub one: usize,
    pub other: usize,
    pub out: f64,
    pub back: f64,
}

pub struct Forest {
    /// As in the problem, with the hops to decided neighbours.
    pub alone: Vec<f64>,
    /// Parents before children.
    pub order: Vec<usize>,
    /// The edge from the parent to it.
    pub parent: Vec<Option<Link>>,
    pub left_out: Vec<bool>,
    /// Of a CPU at each node. Decided functions pay none.
    pub prices: Vec<f64>,
    /// Edges that are left out; for each what its ends pay it at each node, a row for either
    /// end; and where it would have its ends.
    pub cut: Vec<Link>,
    pub paid: Vec<f64>,
    ends: Vec<(usize, usize)>,
    /// Where the functions would be.
    pub at: Vec<usize>,
    /// How many of a component may be at each node.
    pub room: Vec<usize>,
    /// runs[f][v][k]: f at v with k of the tree below it, itself counted, all joined there.
    runs: Vec<f64>,
    /// For a child, a node of its parent and the size of what is joined there: how much of that
    /// is the child's; 0: it is elsewhere.
    joined: Vec<u16>,
    size: Vec<usize>,
    left: Vec<usize>,
    /// up[f][v]: what the tree below f and the hop to it cost at least if its parent is at v.
    up: Vec<f64>,
    /// sums[f][v]: f at v, with the tree below it.
    sums: Vec<f64>,
}

impl Forest {
    /// Of `links`, the heaviest first, those between undecided functions.
    pub fn new(problem: &Problem, links: &[Link], domains: &[u64]) -> Self {
        let (functions, nodes) = (domains.len(), problem.nodes);
        let decided = |function: usize| domains[function].count_ones() == 1;
        let mut forest = Self {
            alone: problem.alone.clone(),
            order: Vec::with_capacity(functions),
            parent: vec![None; functions],
            left_out: vec![false; functions],
            prices: vec![0.0; nodes],
            cut: Vec::new(),
            paid: Vec::new(),
            ends: Vec::new(),
            at: vec![0; functions],
            room: problem.room.clone(),
            runs: Vec::new(),
            joined: Vec::new(),
            size: Vec::new(),
            left: Vec::new(),
            up: vec![0.0; functions * nodes],
            sums: Vec::new(),
        };
        for domain in domains.iter().filter(|domain| domain.count_ones() == 1) {
            forest.room[domain.trailing_zeros() as usize] -= 1;
        }
        let mut group: Vec<usize> = (0..functions).collect();
        let mut tree: Vec<Vec<Link>> = vec![Vec::new(); functions];
        for link in links {
            let (one, other) = (link.one, link.other);
            if decided(one) || decided(other) {
                forest.fold(problem, domains, *link);
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
            let (out, back) = (link.back, link.out);
            tree[other].push(Link { at: link.at, one: other, other: one, out, back });
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
        forest.paid = vec![0.0; 2 * nodes * forest.cut.len()];
        forest.ends = vec![(0, 0); forest.cut.len()];
        forest
    }

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

    /// The least cost if no more neighbours are together at a node than it has room for; leaves
    /// where the functions would then be.
    pub fn solve(&mut self, problem: &Problem, domains: &[u64]) -> f64 {
        let nodes = problem.nodes;
        let functions = self.at.len();
        let mut bound = self.begin(problem, domains);
        let row = self.room.iter().copied().max().unwrap_or(0).max(1) + 1;
        let slot = |function: usize, node: usize| (function * nodes + node) * row;
        self.runs.clear();
        self.runs.resize(functions * nodes * row, f64::INFINITY);
        self.joined.clear();
        self.joined.resize(functions * nodes * row, 0);
        self.size.clear();
        self.size.resize(functions, 1);
        for (function, domain) in domains.iter().enumerate() {
            for node in (0..nodes).filter(|node| domain >> node & 1 == 1) {
                self.runs[slot(function, node) + 1] = self.sums[function * nodes + node];
            }
        }
        let mut merged = vec![0.0; row];
        for function in self.order.iter().rev().copied() {
            for node in 0..nodes {
                let run = &self.runs[slot(function, node) + 1..][..self.size[function]];
                self.sums[function * nodes + node] =
                    run.iter().copied().fold(f64::INFINITY, f64::min);
            }
            let own = &self.sums[function * nodes..][..nodes];
            let Some(link) = self.parent[function] else {
                bound += own.iter().copied().fold(f64::INFINITY, f64::min);
                continue;
            };
            let (before, size) = (self.size[link.one], self.size[function]);
            self.size[link.one] = (before + size).min(row - 1);
            for above in (0..nodes).filter(|node| domains[link.one] >> node & 1 == 1) {
                let to = &problem.distance[above * nodes..][..nodes];
                let turned = &problem.turned[above * nodes..][..nodes];
                let mut apart = f64::INFINITY;
                for node in (0..nodes).filter(|node| *node != above) {
                    apart = apart.min(own[node] + link.out * to[node] + link.back * turned[node]);
                }
                let stay = link.out * to[above] + link.back * turned[above];
                let room = self.room[above];
                let after = (before + size).min(room);
                let joined = &mut self.joined[slot(function, above)..][..row];
                let (base, branch) =
                    (slot(link.one, above), &self.runs[slot(function, above)..][..row]);
                let merged = &mut merged[..=after];
                merged.fill(f64::INFINITY);
                for count in 1..=before.min(room) {
                    let base = self.runs[base + count];
                    if base + apart < merged[count] {
                        (merged[count], joined[count]) = (base + apart, 0);
                    }
                    for (own, cost) in branch.iter().enumerate().take(after + 1 - count).skip(1) {
                        if base + cost + stay < merged[count + own] {
                            (merged[count + own], joined[count + own]) =
                                (base + cost + stay, own as u16);
                        }
                    }
                }
                self.runs[base..][..=after].copy_from_slice(merged);
            }
        }
        self.trace(problem, row);
        bound
    }

    fn trace(&mut self, problem: &Problem, row: usize) {
        let nodes = problem.nodes;
        self.left.clear();
        self.left.resize(self.at.len(), 0);
        // What was joined last comes off first.
        for function in self.order.iter().copied() {
            let sums = &self.sums[function * nodes..][..nodes];
            let at = match &self.parent[function] {
                None => least(sums.iter().copied()),
                Some(link) => {
                    let above = self.at[link.one];
                    let slot = (function * nodes + above) * row + self.left[link.one];
                    let own = usize::from(self.joined[slot]);
                    if own > 0 {
                        self.left[link.one] -= own;
                        (self.at[function], self.left[function]) = (above, own);
                        continue;
                    }
                    let to = &problem.distance[above * nodes..][..nodes];
                    let turned = &problem.turned[above * nodes..][..nodes];
                    let hop = |v: usize| link.out * to[v] + link.back * turned[v];
                    let cost = |v: usize| if v == above { f64::INFINITY } else { sums[v] + hop(v) };
                    least((0..nodes).map(cost))
                }
            };
            self.at[function] = at;
            let runs = &self.runs[(function * nodes + at) * row..][..row];
            self.left[function] = least(runs.iter().copied());
        }
    }

    /// Each function by itself, and the edges that are left out. Returns what the latter cost,
    /// less what the room is worth.
    fn begin(&mut self, problem: &Problem, domains: &[u64]) -> f64 {
        let nodes = problem.nodes;
        self.sums.clear();
        self.sums.extend_from_slice(&self.alone);
        for (row, domain) in self.sums.chunks_exact_mut(nodes).zip(domains) {
            let decided = domain.count_ones() == 1;
            for (node, cost) in row.iter_mut().enumerate() {
                if domain >> node & 1 == 0 {
                    *cost = f64::INFINITY;
                } else if !decided {
                    *cost += self.prices[node];
                }
            }
        }
        let worth: f64 =
            self.prices.iter().zip(&self.room).map(|(price, room)| price * *room as f64).sum();
        self.choose_ends(problem, domains) - worth
    }

    /// Messages from the leaves to the roots. Returns the sum of the roots' least costs.
    fn collect(&mut self, problem: &Problem, domains: &[u64]) -> f64 {
        let nodes = problem.nodes;
        let mut bound = self.begin(problem, domains);
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
    pub fn quarrels(&self) -> usize {
        let count = |(link, ends): (&Link, &(usize, usize))| {
            usize::from(self.at[link.one] != ends.0) + usize::from(self.at[link.other] != ends.1)
        };
        self.cut.iter().zip(&self.ends).map(count).sum()
    }

    pub fn settle_quarrels(&mut self, step: f64, nodes: usize) {
        for (at, (link, ends)) in self.cut.iter().zip(&self.ends).enumerate() {
            let own = &mut self.paid[2 * at * nodes..][..2 * nodes];
            own[self.at[link.one]] += step;
            own[ends.0] -= step;
            own[nodes + self.at[link.other]] += step;
            own[nodes + ends.1] -= step;
        }
    }

    /// For each function and node: what it costs at least if it is there, with any number of
    /// neighbours together.
    pub fn least(&mut self, problem: &Problem, domains: &[u64]) -> Vec<f64> {
        let nodes = problem.nodes;
        let bound = self.collect(problem, domains);
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

fn find(group: &mut [usize], mut at: usize) -> usize {
    while group[at] != at {
        group[at] = group[group[at]];
        at = group[at];
    }
    at
}
