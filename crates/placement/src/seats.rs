//! From nodes to CPUs: functions that stay on their node keep their CPU, the others get the next
//! free one; who is left over shares.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use yasmin_topology::CpuId;

use crate::chain::{Chain, FunctionId, traffic_of};
use crate::{Host, Plan, Seat};

/// A function and the place of its node, in the order in which CPUs are given.
pub type Assigned = Vec<(FunctionId, usize)>;

/// Seats `assigned`, of which no node has more than it has CPUs, then shares CPUs among
/// `leftover`.
pub fn seat(
    host: &Host,
    chains: &[Chain],
    assigned: &Assigned,
    leftover: &[FunctionId],
    current: Option<&Plan>,
) -> Plan {
    let mut plan = Plan::default();
    let mut taken: BTreeSet<CpuId> = BTreeSet::new();
    let mut by_node: Vec<Vec<FunctionId>> = vec![Vec::new(); host.nodes.len()];
    for (id, place) in assigned {
        by_node[*place].push(*id);
    }
    for (node, ids) in host.nodes.iter().zip(&by_node) {
        let free: BTreeSet<CpuId> = node.free.iter().copied().collect();
        let mut homeless = Vec::new();
        for id in ids {
            let kept = current.filter(|plan| !plan.shared.contains(id));
            let kept = kept.and_then(|plan| plan.cpu(*id)).filter(|cpu| free.contains(cpu));
            match kept.filter(|cpu| taken.insert(*cpu)) {
                Some(cpu) => drop(plan.seats.insert(*id, Seat { cpu, node: node.id })),
                None => homeless.push(*id),
            }
        }
        let mut next = node.free.iter().filter(|cpu| !taken.contains(cpu));
        let given: Vec<CpuId> = next.by_ref().take(homeless.len()).copied().collect();
        taken.extend(&given);
        for (id, cpu) in homeless.into_iter().zip(given) {
            plan.seats.insert(id, Seat { cpu, node: node.id });
        }
    }
    share(host, chains, leftover, current, &mut plan);
    plan
}

/// Each leftover goes to a CPU with the fewest functions: of these its present one, else the one
/// with the least traffic, else the first.
fn share(
    host: &Host,
    chains: &[Chain],
    leftover: &[FunctionId],
    current: Option<&Plan>,
    plan: &mut Plan,
) {
    if leftover.is_empty() {
        return;
    }
    let traffic = traffic_of(chains);
    let of = |id: &FunctionId| traffic.get(id).copied().unwrap_or(0.0);
    let mut load: HashMap<CpuId, (usize, f64)> = HashMap::new();
    for (id, seat) in &plan.seats {
        let load = load.entry(seat.cpu).or_default();
        *load = (load.0 + 1, load.1 + of(id));
    }
    let seats: Vec<Seat> = host
        .nodes
        .iter()
        .flat_map(|node| node.free.iter().map(|cpu| Seat { cpu: *cpu, node: node.id }))
        .collect();
    let mut order: BTreeMap<(usize, u64, usize), Seat> = BTreeMap::new();
    // The bits of floats from 0 on sort as the floats do.
    let key = |(functions, traffic): (usize, f64), at: usize| (functions, traffic.to_bits(), at);
    let place: HashMap<CpuId, usize> =
        seats.iter().enumerate().map(|(at, seat)| (seat.cpu, at)).collect();
    for (at, seat) in seats.iter().enumerate() {
        order.insert(key(load.get(&seat.cpu).copied().unwrap_or_default(), at), *seat);
    }
    for id in leftover {
        let Some((first, _)) = order.first_key_value() else { return };
        let fewest = first.0;
        let present = current.and_then(|plan| plan.cpu(*id));
        let present = present.and_then(|cpu| {
            let at = *place.get(&cpu)?;
            let load = load.get(&cpu).copied().unwrap_or_default();
            (load.0 == fewest).then(|| key(load, at))
        });
        let chosen = present.unwrap_or(*first);
        let Some(seat) = order.remove(&chosen) else { return };
        let load = load.entry(seat.cpu).or_default();
        *load = (load.0 + 1, load.1 + of(id));
        order.insert(key(*load, chosen.2), seat);
        plan.seats.insert(*id, seat);
        plan.shared.insert(*id);
    }
}
