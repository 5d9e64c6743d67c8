//! `first-free`: what orchestrators do when they start functions. Each function, in the order in
//! which chains are given, gets the first free CPU, and stays there.

use std::collections::{BTreeMap, BTreeSet};

use yasmin_topology::CpuId;

use crate::chain::{check, functions};
use crate::seats::seat;
use crate::{Chain, Error, Host, Plan, Policy};

#[derive(Clone, Copy, Debug, Default)]
pub struct FirstFree;

impl Policy for FirstFree {
    fn name(&self) -> &'static str {
        "first-free"
    }

    fn plan(&self, host: &Host, chains: &[Chain], current: Option<&Plan>) -> Result<Plan, Error> {
        host.check()?;
        check(host, chains)?;
        let order = functions(chains);
        let place_of: BTreeMap<CpuId, usize> = host
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(place, node)| node.free.iter().map(move |cpu| (*cpu, place)))
            .collect();
        let mut taken = BTreeSet::new();
        let mut assigned = Vec::new();
        let mut new = Vec::new();
        for id in order {
            let seated = current.filter(|plan| !plan.shared.contains(&id));
            let cpu = seated.and_then(|plan| plan.cpu(id));
            match cpu.and_then(|cpu| Some((cpu, *place_of.get(&cpu)?))) {
                Some((cpu, place)) if taken.insert(cpu) => assigned.push((id, place)),
                _ => new.push(id),
            }
        }
        let mut room: Vec<usize> = host.nodes.iter().map(|node| node.free.len()).collect();
        for (_, place) in &assigned {
            room[*place] -= 1;
        }
        let mut leftover = Vec::new();
        for id in new {
            match room.iter().position(|room| *room > 0) {
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
