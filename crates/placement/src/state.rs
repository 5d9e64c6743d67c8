//! A placement while it is searched: who is where, how much room is left, and what each function
//! would cost at each node, given where its neighbours are.

use crate::problem::Problem;

/// The place of a function that has none.
pub const NOWHERE: u32 = u32::MAX;

/// Longer paths are put in piece by piece.
const LONGEST_PATH: usize = 64;

pub struct State<'a> {
    pub problem: &'a Problem,
    pub places: Vec<u32>,
    pub room: Vec<usize>,
    /// For each function a row of nodes; neighbours that are nowhere do not count.
    pub table: Vec<f64>,
    /// Of all functions that are somewhere.
    pub cost: f64,
    /// Work done so far, in steps of the innermost loops: the clock of the search.
    pub work: u64,
    path: Path,
}

/// Buffers of [`State::insert`].
#[derive(Default)]
struct Path {
    reach: Vec<f64>,
    enter: Vec<f64>,
    from: Vec<u32>,
    begin: Vec<u32>,
    runs: Vec<(usize, usize, usize)>,
    sum: Vec<f64>,
    key: Vec<f64>,
}

impl<'a> State<'a> {
    pub fn new(problem: &'a Problem) -> Self {
        Self {
            places: vec![NOWHERE; problem.functions()],
            room: problem.room.clone(),
            table: problem.alone.clone(),
            cost: 0.0,
            work: 0,
            path: Path::default(),
            problem,
        }
    }

    pub fn row(&self, function: u32) -> &[f64] {
        let nodes = self.problem.nodes;
        &self.table[function as usize * nodes..][..nodes]
    }

    pub fn put(&mut self, function: u32, node: usize) {
        self.cost += self.row(function)[node];
        self.places[function as usize] = node as u32;
        self.room[node] -= 1;
        self.tell_neighbours(function, node, 1.0);
    }

    pub fn take(&mut self, function: u32) -> usize {
        let node = self.places[function as usize] as usize;
        self.places[function as usize] = NOWHERE;
        self.room[node] += 1;
        self.cost -= self.row(function)[node];
        self.tell_neighbours(function, node, -1.0);
        node
    }

    fn tell_neighbours(&mut self, function: u32, node: usize, sign: f64) {
        let problem = self.problem;
        let nodes = problem.nodes;
        let to = &problem.distance[node * nodes..][..nodes];
        let from = &problem.turned[node * nodes..][..nodes];
        for edge in &problem.edges[function as usize] {
            let row = &mut self.table[edge.other as usize * nodes..][..nodes];
            let (out, back) = (sign * edge.out, sign * edge.back);
            for ((cost, to), from) in row.iter_mut().zip(to).zip(from) {
                *cost += out * to + back * from;
            }
        }
        self.work += (problem.edges[function as usize].len() * nodes) as u64;
    }

    /// Puts functions that are nowhere, in their order along a chain, where they are cheapest
    /// together: nodes are changed between runs, and no run is longer than its node has room.
    pub fn insert(&mut self, path: &[u32]) {
        for piece in path.chunks(LONGEST_PATH) {
            let mut rest = piece;
            while !rest.is_empty() {
                rest = &rest[self.insert_runs(rest)..];
            }
        }
    }

    /// Puts a beginning of `path` and returns how long it was. A node that the best way enters
    /// twice may not have room for both: what follows is then looked at again.
    fn insert_runs(&mut self, path: &[u32]) -> usize {
        let mut work = std::mem::take(&mut self.path);
        self.best_runs(path, &mut work);
        let mut done = 0;
        for (node, begin, end) in work.runs.iter().rev().copied() {
            if end - begin > self.room[node] {
                break;
            }
            for function in &path[begin..end] {
                self.put(*function, node);
            }
            done = end;
        }
        self.path = work;
        done
    }

    /// Dynamic programming over the path and the nodes. Leaves the runs, the last first.
    fn best_runs(&mut self, path: &[u32], work: &mut Path) {
        let (nodes, len) = (self.problem.nodes, path.len());
        let Path { reach, enter, from, begin, runs, sum, key, .. } = work;
        // sum[i][v]: the first i functions at v, with the hops between them.
        // enter[i][v]: the first i functions where they are cheapest, and the hop to v.
        // from[i][v]: the node before that hop.
        // key[i][v]: what enter[i][v] saves or costs against having been at v all the time.
        // reach[i][v]: the first i + 1 functions, of which the last is at v and ends a run there.
        // begin[i][v]: where that run began.
        for table in [&mut *reach, &mut *enter, &mut *key] {
            table.clear();
            table.resize(len * nodes, f64::INFINITY);
        }
        enter[..nodes].fill(0.0);
        key[..nodes].fill(0.0);
        from.clear();
        from.resize(len * nodes, NOWHERE);
        begin.clear();
        begin.resize(len * nodes, 0);
        sum.clear();
        sum.resize(nodes, 0.0);
        for at in 0..len {
            let link = (at > 0).then(|| self.link(path[at - 1], path[at])).flatten();
            let row = &self.table[path[at] as usize * nodes..][..nodes];
            for node in 0..nodes {
                let stay = link.map_or(0.0, |edge| self.problem.between(&edge, node, node));
                if at > 0 {
                    let entered = enter[at * nodes + node];
                    key[at * nodes + node] = entered - sum[node] - stay;
                }
                sum[node] += row[node] + stay;
                if self.room[node] == 0 {
                    continue;
                }
                let first = (at + 1).saturating_sub(self.room[node]);
                let mut best = (f64::INFINITY, first);
                for start in first..=at {
                    let key = key[start * nodes + node];
                    if key < best.0 {
                        best = (key, start);
                    }
                }
                reach[at * nodes + node] = best.0 + sum[node];
                begin[at * nodes + node] = best.1 as u32;
                self.work += (at + 1 - first) as u64;
            }
            if at + 1 == len {
                break;
            }
            let link = self.link(path[at], path[at + 1]);
            let (out, back) = link.map_or((0.0, 0.0), |edge| (edge.out, edge.back));
            let next = &mut enter[(at + 1) * nodes..][..nodes];
            let from = &mut from[(at + 1) * nodes..][..nodes];
            for before in 0..nodes {
                let base = reach[at * nodes + before];
                if base == f64::INFINITY {
                    continue;
                }
                let to = &self.problem.distance[before * nodes..][..nodes];
                let turned = &self.problem.turned[before * nodes..][..nodes];
                for node in 0..nodes {
                    let cost = base + out * to[node] + back * turned[node];
                    if cost < next[node] && node != before {
                        next[node] = cost;
                        from[node] = before as u32;
                    }
                }
                self.work += nodes as u64;
            }
        }
        runs.clear();
        let last = &reach[(len - 1) * nodes..];
        let mut node = (0..nodes).min_by(|one, other| last[*one].total_cmp(&last[*other]));
        let mut end = len;
        while let Some(at) = node.filter(|_| end > 0) {
            let start = begin[(end - 1) * nodes + at] as usize;
            runs.push((at, start, end));
            node = Some(from[start * nodes + at]).filter(|at| *at != NOWHERE).map(|at| at as usize);
            end = start;
        }
    }

    fn link(&self, one: u32, other: u32) -> Option<crate::problem::Edge> {
        let edges = &self.problem.edges[one as usize];
        edges.iter().find(|edge| edge.other == other).copied()
    }
}
