//! `exact`: the least cost there is, for small cases. A yardstick, not for daily use.
//!
//! Branch and bound: a function is tried at every node it may still be at, and what cannot be
//! better than the best placement known (at first that of `adaptive`) is left out. The bounds
//! come from [`bound`]. When the steps are used up, the lowest bound of what is still
//! open is proven all the same.

mod bound;
mod forest;

use std::cell::Cell;
use std::collections::BinaryHeap;
use std::rc::Rc;

use branch_and_bound::{BnbAwareContainer, Subproblem, SubproblemResolution, solve_with_container};

use crate::chain::{check, functions};
use crate::problem::Problem;
use crate::seats::seat;
use crate::{Adaptive, Chain, Error, Host, Objective, Plan, Policy};
use bound::{Bounds, Relaxed};

#[derive(Clone, Copy, Debug)]
pub struct Exact {
    pub objective: Objective,
    /// Subproblems that are looked at, at most.
    pub steps: u64,
}

impl Default for Exact {
    fn default() -> Self {
        Self { objective: Objective::default(), steps: 50_000 }
    }
}

/// The best plan found, and what is known of better ones.
#[derive(Clone, Debug)]
pub struct Proof {
    pub plan: Plan,
    /// Of `plan`.
    pub cost: f64,
    /// No plan costs less.
    pub bound: f64,
    pub steps: u64,
}

/// Closer than this is equal: part of the cost.
const EQUAL: f64 = 1e-7;
/// Functions' domains are bits of a word.
const MOST_NODES: usize = 64;

impl Proof {
    /// Whether `plan` is the best there is.
    pub fn is_best(&self) -> bool {
        self.bound >= self.cost * (1.0 - 2.0 * EQUAL)
    }
}

impl Exact {
    pub fn prove(
        &self,
        host: &Host,
        chains: &[Chain],
        current: Option<&Plan>,
    ) -> Result<Proof, Error> {
        host.check()?;
        check(host, chains)?;
        let ids = functions(chains);
        if ids.len() > host.cpus() {
            let most = host.cpus();
            return Err(Error::TooLarge { policy: "exact", functions: ids.len(), most });
        }
        if host.nodes.len() > MOST_NODES {
            return Err(Error::TooManyNodes { policy: "exact", most: MOST_NODES });
        }
        let problem = Problem::new(host, chains, ids, &self.objective, current)?;
        let known = Adaptive { objective: self.objective }.plan(host, chains, current)?;
        let place = |id| known.node(id).and_then(|node| host.place(node)).unwrap_or(0) as u32;
        let places: Vec<u32> = problem.ids.iter().map(|id| place(*id)).collect();
        let cost = problem.cost(&places);
        if problem.functions() == 0 {
            return Ok(Proof { plan: known, cost, bound: cost, steps: 0 });
        }

        let problem = Rc::new(problem);
        let bounds = Rc::new(Bounds::new(Rc::clone(&problem)));
        let best = Rc::new(Cell::new(cost));
        let mut open =
            Open { heap: BinaryHeap::new(), best: Rc::clone(&best), steps: 0, most: self.steps };
        let root = bounds.root(best.get());
        if root.bound < enough(best.get()) {
            open.heap.push(Step { bounds, relaxed: root, best: Rc::clone(&best) });
        }
        let better = solve_with_container(&mut open);
        // The library knows nothing of the placement that was there before: what it calls best
        // can be worse.
        let better = better.map(|step| step.relaxed.places());
        let better = better.filter(|better| problem.cost(better) < cost);
        let places = better.unwrap_or(places);
        let cost = problem.cost(&places);
        let lowest = open.heap.iter().map(|step| step.relaxed.bound).fold(cost, f64::min);

        let assigned = places.iter().map(|place| *place as usize);
        let assigned = problem.ids.iter().copied().zip(assigned).collect();
        let plan = seat(host, chains, &assigned, &[], current);
        Ok(Proof { plan, cost, bound: lowest, steps: open.steps })
    }
}

impl Policy for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn plan(&self, host: &Host, chains: &[Chain], current: Option<&Plan>) -> Result<Plan, Error> {
        let proof = self.prove(host, chains, current)?;
        if proof.is_best() {
            return Ok(proof.plan);
        }
        let gap_percent = 100.0 * (1.0 - proof.bound / proof.cost);
        Err(Error::Unproven { steps: proof.steps, gap_percent })
    }
}

/// What a placement has to cost less than to be better.
fn enough(best: f64) -> f64 {
    best * (1.0 - EQUAL)
}

struct Step {
    bounds: Rc<Bounds>,
    relaxed: Relaxed,
    best: Rc<Cell<f64>>,
}

/// A cost; the lower, the better, and the greater.
#[derive(PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.total_cmp(&self.0)
    }
}

impl Subproblem for Step {
    type Score = Score;

    fn branch_or_evaluate(&mut self) -> SubproblemResolution<Self, Score> {
        let Some(function) = self.relaxed.undecided() else {
            let cost = self.bounds.problem().cost(&self.relaxed.places());
            self.best.set(self.best.get().min(cost));
            return SubproblemResolution::Solved(Score(cost));
        };
        let limit = enough(self.best.get());
        let children: Vec<Step> = self
            .bounds
            .trials(&self.relaxed, function)
            .into_iter()
            .filter_map(|node| self.bounds.child(&self.relaxed, function, node, limit))
            .map(|relaxed| Step {
                relaxed,
                bounds: Rc::clone(&self.bounds),
                best: Rc::clone(&self.best),
            })
            .collect();
        SubproblemResolution::Branched(Box::new(children.into_iter()))
    }

    fn bound(&self) -> Score {
        Score(self.relaxed.bound)
    }
}

/// Subproblems still to be looked at, the lowest bound first, until the steps are used up.
struct Open {
    heap: BinaryHeap<Step>,
    best: Rc<Cell<f64>>,
    steps: u64,
    most: u64,
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.bound() == other.bound()
    }
}

impl Eq for Step {}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bound().cmp(&other.bound())
    }
}

impl BnbAwareContainer<Step> for Open {
    fn push_with_incumbent(&mut self, step: Step, _: Option<&Score>) {
        if step.relaxed.bound < enough(self.best.get()) {
            self.heap.push(step);
        }
    }

    fn pop_with_incumbent(&mut self, _: Option<&Score>) -> Option<Step> {
        if self.steps >= self.most {
            return None;
        }
        self.steps += 1;
        let step = self.heap.pop()?;
        if step.relaxed.bound < enough(self.best.get()) {
            return Some(step);
        }
        self.heap.clear();
        None
    }
}
