//! `adaptive`: the least sum of traffic times distance, with a price for every move.
//!
//! Searches from where the functions are, from what `chain-first` says, and from chains put
//! where they are cheapest, the busiest first; then takes chains out and puts them back until
//! its work is used up. The best of all is taken, among them `chain-first`'s plan and, if it is
//! one for the same functions, the present one: so it is never worse than either.

use crate::chain::check;
use crate::chain_first;
use crate::problem::Problem;
use crate::search::{build, restore, settle, shake, sweep};
use crate::seats::{Assigned, seat};
use crate::state::State;
use crate::{Chain, ChainFirst, Error, FunctionId, Host, Objective, Plan, Policy};

#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive {
    pub objective: Objective,
}

/// Work for each function, up to a limit, and more for each function and node: on a core of 2020,
/// milliseconds for hundreds of functions and less than a second for ten thousand.
const WORK_EACH: u64 = 200_000;
const WORK: u64 = 2_000_000;
const WORK_TABLE: u64 = 60;

impl Policy for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn plan(&self, host: &Host, chains: &[Chain], current: Option<&Plan>) -> Result<Plan, Error> {
        host.check()?;
        check(host, chains)?;
        let first = chain_first::assign(host, chains)?;
        let seated: Vec<FunctionId> = first.0.iter().map(|(id, _)| *id).collect();
        let problem = Problem::new(host, chains, seated, &self.objective, current)?;
        let places = search(&problem, host, &first.0, current);
        let assigned: Assigned =
            problem.ids.iter().copied().zip(places.iter().map(|place| *place as usize)).collect();

        let mut best = seat(host, chains, &assigned, &first.1, current);
        let mut least = self.objective.cost(host, chains, &best, current)?.total();
        let stay = current.filter(|current| is_valid(current, host, &problem, &first.1));
        let others = [stay.cloned(), Some(ChainFirst.plan(host, chains, current)?)];
        for other in others.into_iter().flatten() {
            let total = self.objective.cost(host, chains, &other, current)?.total();
            if total < least {
                (best, least) = (other, total);
            }
        }
        Ok(best)
    }
}

/// Whether a plan is one for just these functions and this host.
fn is_valid(plan: &Plan, host: &Host, problem: &Problem, leftover: &[FunctionId]) -> bool {
    let mut taken = std::collections::HashSet::new();
    let own = |id: &FunctionId| {
        let seat = plan.seat(*id);
        seat.is_some_and(|seat| host.node_of(seat.cpu) == Some(seat.node) && taken.insert(seat.cpu))
    };
    leftover.is_empty()
        && plan.shared.is_empty()
        && plan.seats.len() == problem.functions()
        && problem.ids.iter().all(own)
}

/// A place for each function of the problem.
fn search(problem: &Problem, host: &Host, first: &Assigned, current: Option<&Plan>) -> Vec<u32> {
    let functions = problem.functions() as u64;
    let limit = WORK.min(WORK_EACH * functions) + WORK_TABLE * functions * problem.nodes as u64;
    let mut state = State::new(problem);
    build(&mut state, 0..problem.chains.len());
    polish(&mut state, limit);
    let mut best = (state.cost, state.places.clone());

    let chain_first: Vec<u32> = first.iter().map(|(_, place)| *place as u32).collect();
    let mut starts = vec![chain_first];
    starts.extend(current.and_then(|current| present(problem, host, current)));
    for start in starts {
        restore(&mut state, &start);
        polish(&mut state, limit);
        if state.cost < best.0 {
            best = (state.cost, state.places.clone());
        }
    }
    restore(&mut state, &best.1);
    shake(&mut state, limit);
    settle(&mut state, limit);
    state.places
}

fn polish(state: &mut State<'_>, limit: u64) {
    settle(state, limit);
    sweep(state, limit);
    settle(state, limit);
}

/// Where the functions are, new ones put where they are cheapest. `None`: none is placed.
fn present(problem: &Problem, host: &Host, current: &Plan) -> Option<Vec<u32>> {
    let mut state = State::new(problem);
    for (at, id) in problem.ids.iter().enumerate() {
        let node = current.cpu(*id).and_then(|cpu| host.node_of(cpu));
        let place = node.and_then(|node| host.place(node));
        if let Some(place) = place.filter(|place| state.room[*place] > 0) {
            state.put(at as u32, place);
        }
    }
    if state.room == problem.room {
        return None;
    }
    build(&mut state, 0..problem.chains.len());
    Some(state.places)
}
