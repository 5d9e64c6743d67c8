//! `chain-first`: the algorithm of Apostolopoulos (NTUA 2021).
//!
//! Chains are taken by their traffic, the busiest first. If a part of a chain already has a node,
//! because an earlier chain has that function too, the rest goes there if it fits, else nodes are
//! filled in order of their distance from there. Otherwise the chain goes to the nearest node to
//! its card that holds all of it; if none does, nodes are filled in that order. Each function has
//! a CPU of its own. Where functions are now does not matter (but for which CPU of its node a
//! function gets: the one it has).

use std::collections::HashMap;

use crate::chain::{busiest_first, check, functions};
use crate::seats::{Assigned, seat};
use crate::{Chain, Error, FunctionId, Host, Plan, Policy};

#[derive(Clone, Copy, Debug, Default)]
pub struct ChainFirst;

impl Policy for ChainFirst {
    fn name(&self) -> &'static str {
        "chain-first"
    }

    fn plan(&self, host: &Host, chains: &[Chain], current: Option<&Plan>) -> Result<Plan, Error> {
        host.check()?;
        check(host, chains)?;
        let (assigned, leftover) = assign(host, chains)?;
        Ok(seat(host, chains, &assigned, &leftover, current))
    }
}

/// The node of each function, and the functions for which no CPU was left.
pub fn assign(host: &Host, chains: &[Chain]) -> Result<(Assigned, Vec<FunctionId>), Error> {
    let mut room: Vec<usize> = host.nodes.iter().map(|node| node.free.len()).collect();
    let mut placed: HashMap<FunctionId, usize> = HashMap::new();
    let mut assigned = Assigned::new();
    let mut leftover = Vec::new();
    let nearest: Vec<Vec<usize>> = (0..room.len()).map(|at| host.nearest(at)).collect();
    for chain in busiest_first(chains) {
        let all = functions([chain]);
        let home = all.iter().find_map(|id| placed.get(id)).copied();
        let rest: Vec<FunctionId> = all.into_iter().filter(|id| !placed.contains_key(id)).collect();
        let from = match home {
            Some(home) => home,
            None => {
                let end = chain.entry.place(host)?.or(chain.exit.place(host)?);
                end.unwrap_or_else(|| host.place(host.nic).unwrap_or(0))
            }
        };
        let order = &nearest[from];
        let whole = match home {
            Some(home) => Some(home).filter(|home| room[*home] >= rest.len()),
            None => order.iter().copied().find(|place| room[*place] >= rest.len()),
        };
        for id in rest {
            let place = whole.or_else(|| order.iter().copied().find(|place| room[*place] > 0));
            match place {
                Some(place) => {
                    room[place] -= 1;
                    placed.insert(id, place);
                    assigned.push((id, place));
                }
                None if leftover.contains(&id) => {}
                None => leftover.push(id),
            }
        }
    }
    Ok((assigned, leftover))
}
