//! `numad-like`: what a NUMA daemon does that sees load and no traffic. Each function by itself
//! goes to the node with the most free CPUs; one that has a CPU of its own stays.

use std::collections::BTreeSet;

use crate::chain::{check, functions};
use crate::seats::seat;
use crate::{Chain, Error, Host, Plan, Policy};

#[derive(Clone, Copy, Debug, Default)]
pub struct NumadLike;

impl Policy for NumadLike {
    fn name(&self) -> &'static str {
        "numad-like"
    }

    fn plan(&self, host: &Host, chains: &[Chain], current: Option<&Plan>) -> Result<Plan, Error> {
        host.check()?;
        check(host, chains)?;
        let mut room: Vec<usize> = host.nodes.iter().map(|node| node.free.len()).collect();
        let mut taken = BTreeSet::new();
        let mut assigned = Vec::new();
        let mut new = Vec::new();
        for id in functions(chains) {
            let seat = current.filter(|plan| !plan.shared.contains(&id));
            let seat = seat.and_then(|plan| plan.seat(id));
            let place = seat.and_then(|seat| {
                let place = host.place(host.node_of(seat.cpu)?)?;
                taken.insert(seat.cpu).then_some(place)
            });
            match place {
                Some(place) => {
                    room[place] -= 1;
                    assigned.push((id, place));
                }
                None => new.push(id),
            }
        }
        let mut leftover = Vec::new();
        for id in new {
            // Of equal ones the first.
            let most = (0..room.len()).rev().max_by_key(|place| room[*place]);
            match most.filter(|place| room[*place] > 0) {
                Some(place) => {
                    room[place] -= 1;
                    assigned.push((id, place));
                }
                None => leftover.push(id),
            }
        }
        Ok(seat(host, chains, &assigned, &leftover, current))
    }
}
