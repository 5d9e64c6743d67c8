//! The source's own figures: nodes by their free CPUs, the card at node 0, chains by traffic.

use yasmin_placement::{Chain, FunctionId, Host, NodeId, Plan, Settings, Traffic, policy};

/// Chains from the heaviest to the lightest, handed over in another order.
fn chains(functions: &[&[u32]]) -> Vec<Chain> {
    let busiest = functions.len() as f64;
    let chain = |(at, functions): (usize, &&[u32])| {
        let ids: Vec<FunctionId> = functions.iter().copied().map(FunctionId).collect();
        let traffic = Traffic::bytes_s((busiest - at as f64) * 1e8);
        Chain::new(&format!("{functions:?}"), &ids, traffic)
    };
    let mut chains: Vec<Chain> = functions.iter().enumerate().map(chain).collect();
    chains.reverse();
    chains
}

#[track_caller]
fn golden(free: &[usize], functions: &[&[u32]], expected: &[&[u32]]) {
    let host = Host::with_free_cpus(free);
    let chains = chains(functions);
    let policy = policy("chain-first", &Settings::default()).unwrap();
    let plan = policy.plan(&host, &chains, None).unwrap();
    assert_eq!(by_node(&plan, expected.len()), sorted(expected));
    assert!(plan.shared.is_empty());
    let mut cpus: Vec<_> = plan.seats.values().map(|seat| seat.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    assert_eq!(cpus.len(), plan.seats.len(), "each function has a CPU of its own");
    for seat in plan.seats.values() {
        assert_eq!(host.node_of(seat.cpu), Some(seat.node));
    }
}

fn by_node(plan: &Plan, nodes: usize) -> Vec<Vec<u32>> {
    let on = |node: usize| {
        let node = NodeId(node as u32);
        let here = plan.seats.iter().filter(move |(_, seat)| seat.node == node);
        here.map(|(id, _)| id.0).collect()
    };
    (0..nodes).map(on).collect()
}

fn sorted(expected: &[&[u32]]) -> Vec<Vec<u32>> {
    let sort = |ids: &&[u32]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    expected.iter().map(sort).collect()
}

#[test]
fn one_chain_beside_the_card() {
    golden(&[6, 6], &[&[1, 2, 3, 4, 5, 6]], &[&[1, 2, 3, 4, 5, 6], &[]]);
}

#[test]
fn one_chain_whole_away_from_the_card() {
    golden(&[5, 6], &[&[1, 2, 3, 4, 5, 6]], &[&[], &[1, 2, 3, 4, 5, 6]]);
}

#[test]
fn a_shared_chain_follows_its_part() {
    golden(&[5, 6], &[&[1, 4, 3], &[1, 2, 3], &[5, 6]], &[&[1, 4, 3, 2], &[5, 6]]);
}

#[test]
fn a_shared_chain_spills() {
    golden(&[3, 6], &[&[1, 4, 3], &[1, 2, 3], &[5, 6]], &[&[1, 4, 3], &[2, 5, 6]]);
}

#[test]
fn three_chains_three_nodes() {
    let chains: &[&[u32]] = &[&[7, 8, 9], &[1, 2, 3], &[4, 5, 6]];
    golden(&[4, 4, 4], chains, chains);
}

#[test]
fn no_node_holds_the_last_chain() {
    golden(
        &[4, 4, 1],
        &[&[7, 8, 9], &[1, 2, 3], &[4, 5, 6]],
        &[&[7, 8, 9, 4], &[1, 2, 3, 5], &[6]],
    );
}

#[test]
fn traffic_turned_round() {
    golden(&[5, 6], &[&[5, 6], &[1, 4, 3], &[1, 2, 3]], &[&[5, 6, 1, 4, 3], &[2]]);
}
