//! Local search on a [`State`]: single functions change places, whole chains are taken out and
//! put back. How long it goes on is counted in work, not in time, so that it always ends with
//! the same answer.

use crate::dice::Dice;
use crate::state::{NOWHERE, State};

/// Functions that are taken out at once, at most.
const HANDFUL: usize = 24;
/// Functions times nodes up to which single functions are moved between handfuls.
const SMALL: usize = 4096;
/// How much worse than the best a placement may be that the search goes on from, at the beginning
/// of a round; every second round goes far.
const PATIENCE: f64 = 0.02;
const FAR: f64 = 0.3;
/// Of small problems.
const ROUNDS: u64 = 4;

/// Changes below this are rounding.
fn tiny(state: &State<'_>) -> f64 {
    1e-9 * state.cost.abs()
}

/// Moves single functions to where there is room, and exchanges two, until that helps no more.
pub fn settle(state: &mut State<'_>, limit: u64) {
    let nodes = state.problem.nodes;
    let functions = state.problem.functions() as u32;
    loop {
        let before = state.cost;
        let (members, least) = exchanges(state);
        for function in 0..functions {
            let here = state.places[function as usize] as usize;
            let mut work = nodes;
            let row = state.row(function);
            let gain = |node: usize| row[node] - row[here];
            let mut best = (-tiny(state), None, here);
            for node in (0..nodes).filter(|node| *node != here) {
                if state.room[node] > 0 && gain(node) < best.0 {
                    best = (gain(node), None, node);
                }
                if gain(node) + least[node * nodes + here] >= best.0 {
                    continue;
                }
                for other in &members[node] {
                    if state.places[*other as usize] as usize != node {
                        continue;
                    }
                    let delta = gain(node) + exchange(state, function, *other);
                    if delta < best.0 {
                        best = (delta, Some(*other), node);
                    }
                }
                work += members[node].len();
            }
            state.work += work as u64;
            match best {
                (_, Some(other), node) => {
                    state.take(function);
                    state.take(other);
                    state.put(function, node);
                    state.put(other, here);
                }
                (_, None, node) if node != here => {
                    state.take(function);
                    state.put(function, node);
                }
                _ => {}
            }
        }
        if state.cost >= before - tiny(state) || state.work > limit {
            break;
        }
    }
}

/// Who is at each node, and for each node and each other one (row from, column to) what the
/// cheapest of its functions would cost there instead.
fn exchanges(state: &mut State<'_>) -> (Vec<Vec<u32>>, Vec<f64>) {
    let nodes = state.problem.nodes;
    let mut members = vec![Vec::new(); nodes];
    let mut least = vec![f64::INFINITY; nodes * nodes];
    for (function, node) in state.places.iter().enumerate() {
        members[*node as usize].push(function as u32);
        let row = state.row(function as u32);
        let least = &mut least[*node as usize * nodes..][..nodes];
        for (least, cost) in least.iter_mut().zip(row) {
            *least = least.min(cost - row[*node as usize]);
        }
    }
    state.work += (state.places.len() * nodes) as u64;
    (members, least)
}

/// What it costs that `other` goes to the place of `one`, and, if they are neighbours, that the
/// tables of both were made for where the other was.
fn exchange(state: &State<'_>, one: u32, other: u32) -> f64 {
    let (here, there) =
        (state.places[one as usize] as usize, state.places[other as usize] as usize);
    let row = state.row(other);
    let mut delta = row[here] - row[there];
    let edges = &state.problem.edges[one as usize];
    if let Some(edge) = edges.iter().find(|edge| edge.other == other) {
        let between = |one, other| state.problem.between(edge, one, other);
        delta += between(there, here) + between(here, there);
        delta -= between(here, here) + between(there, there);
    }
    delta
}

/// Takes each chain out and puts it back where it is cheapest.
pub fn sweep(state: &mut State<'_>, limit: u64) {
    for chain in 0..state.problem.chains.len() {
        if state.work > limit {
            break;
        }
        let bound = state.cost - tiny(state);
        let chain = state.problem.chains[chain].clone();
        retry(state, &[chain], (0, 0), bound);
    }
}

/// Takes functions out and puts them back, again and again, and leaves the best. In rounds: each
/// begins with the best, at first far from which the search may go, then less and less far.
pub fn shake(state: &mut State<'_>, limit: u64) {
    if state.problem.chains.is_empty() {
        return;
    }
    let mut dice = Dice(0x9a75_6d1e);
    let mut best = (state.cost, state.places.clone());
    let small = state.places.len() * state.problem.nodes <= SMALL;
    let rounds = if small { ROUNDS } else { 1 };
    for round in 0..rounds {
        let begun = state.work;
        let span = (limit.saturating_sub(begun) / (rounds - round)).max(1);
        let patience = if round % 2 == 1 { FAR } else { PATIENCE };
        while state.work < begun + span {
            let left = 1.0 - (state.work - begun) as f64 / span as f64;
            let slack = patience * left * left * dice.fraction();
            let bound = best.0 + slack * best.0.abs();
            if small && dice.below(3) == 0 {
                let picked = pick_functions(state, &mut dice);
                retry(state, &picked, (0, 0), bound);
            } else {
                let picked: Vec<Vec<u32>> = pick(state, &mut dice);
                // A chain does not know what others will need: now and then it is held off a node.
                let node = dice.below(state.problem.nodes);
                let closed = if dice.below(3) == 0 {
                    1 + dice.below(state.problem.room[node] + 1)
                } else {
                    0
                };
                retry(state, &picked, (node, closed), bound);
            }
            if small && dice.below(8) == 0 {
                settle(state, limit);
            }
            if state.cost < best.0 - tiny(state) {
                best = (state.cost, state.places.clone());
            }
            state.work += 32;
        }
        restore(state, &best.1);
    }
}

/// Pieces of chains, so that each goes back as a whole: those at one or two nodes, or runs of
/// some length anywhere.
fn pick_functions(state: &State<'_>, dice: &mut Dice) -> Vec<Vec<u32>> {
    let problem = state.problem;
    let mut pieces: Vec<Vec<u32>> = Vec::new();
    if dice.below(2) == 0 {
        let near: Vec<u32> =
            (0..1 + dice.below(2)).map(|_| dice.below(problem.nodes) as u32).collect();
        for chain in &problem.chains {
            let piece: Vec<u32> = chain
                .iter()
                .copied()
                .filter(|one| near.contains(&state.places[*one as usize]))
                .collect();
            if !piece.is_empty() {
                pieces.push(piece);
            }
        }
    } else {
        for _ in 0..2 + dice.below(3) {
            let chain = &problem.chains[dice.below(problem.chains.len())];
            let first = dice.below(chain.len());
            let length = 1 + dice.below((chain.len() - first).min(4));
            pieces.push(chain[first..][..length].to_vec());
        }
    }
    dice.shuffle(&mut pieces);
    pieces
}

/// Some chains: any, or such as use one node, or two.
fn pick(state: &State<'_>, dice: &mut Dice) -> Vec<Vec<u32>> {
    let problem = state.problem;
    let chains = problem.chains.len();
    let kind = dice.below(3);
    let near: Vec<u32> = (0..kind).map(|_| dice.below(problem.nodes) as u32).collect();
    let mut wanted = 1 + dice.below(4);
    let mut count = 0;
    let mut picked = Vec::new();
    // In large problems few chains are near: so many are looked at.
    for _ in 0..chains.min(16) + wanted {
        let chain = dice.below(chains);
        let functions = &problem.chains[chain];
        let fits = near.is_empty()
            || functions.iter().any(|one| near.contains(&state.places[*one as usize]));
        if picked.contains(&chain) || !fits {
            continue;
        }
        count += functions.len();
        if count > HANDFUL && !picked.is_empty() {
            break;
        }
        picked.push(chain);
        wanted -= 1;
        if wanted == 0 {
            break;
        }
    }
    dice.shuffle(&mut picked);
    // The busiest first, more often than not.
    if dice.below(3) > 0 {
        picked.sort_unstable();
    }
    picked.into_iter().map(|chain| problem.chains[chain].clone()).collect()
}

/// Takes functions out and puts them back, path by path in this order, with `closed` CPUs of a
/// node not to be had; undone unless it then costs less than `bound`.
fn retry(state: &mut State<'_>, paths: &[Vec<u32>], closed: (usize, usize), bound: f64) {
    let mut before = Vec::new();
    for function in paths.iter().flatten() {
        if state.places[*function as usize] != NOWHERE {
            before.push((*function, state.take(*function)));
        }
    }
    let spare = state.room.iter().sum::<usize>() - before.len();
    let closed = (closed.0, closed.1.min(state.room[closed.0]).min(spare));
    state.room[closed.0] -= closed.1;
    let mut rest = Vec::new();
    for path in paths {
        put_rest(state, path, &mut rest);
    }
    state.room[closed.0] += closed.1;
    if state.cost >= bound {
        for (function, _) in &before {
            state.take(*function);
        }
        for (function, node) in before.iter().rev() {
            state.put(*function, *node);
        }
    }
}

/// Puts those functions of the chains that are nowhere, chain by chain.
pub fn build(state: &mut State<'_>, chains: impl Iterator<Item = usize>) {
    let mut rest = Vec::new();
    for chain in chains {
        put_rest(state, &state.problem.chains[chain], &mut rest);
    }
}

/// Puts those functions of a path that are nowhere.
fn put_rest(state: &mut State<'_>, path: &[u32], rest: &mut Vec<u32>) {
    rest.clear();
    rest.extend(path.iter().filter(|one| state.places[**one as usize] == NOWHERE));
    state.insert(rest);
}

pub fn restore(state: &mut State<'_>, places: &[u32]) {
    let moved = |state: &State<'_>, function: usize| state.places[function] != places[function];
    let changed: Vec<u32> =
        (0..places.len() as u32).filter(|function| moved(state, *function as usize)).collect();
    for function in &changed {
        if state.places[*function as usize] != NOWHERE {
            state.take(*function);
        }
    }
    for function in changed {
        state.put(function, places[function as usize] as usize);
    }
}
