//! What holds for every host and every chain.

use proptest::prelude::*;
use yasmin_placement::{Chain, Host, Objective, Plan, Settings, Size, Traffic, policy, sample};

/// All but `exact`, which takes its time.
const POLICIES: [&str; 5] = ["adaptive", "chain-first", "first-free", "numad-like", "random"];

fn sizes() -> impl Strategy<Value = Size> {
    (1usize..9, 1usize..41).prop_map(|(nodes, functions)| Size { nodes, functions })
}

/// Fewer CPUs than a sample has: then some functions are left over.
fn scarce(host: &mut Host, keep: usize) {
    for node in &mut host.nodes {
        node.free.truncate(keep);
    }
}

fn noisy(chains: &[Chain], factors: &[f64]) -> Vec<Chain> {
    let mut chains = chains.to_vec();
    for (chain, factor) in chains.iter_mut().zip(factors.iter().cycle()) {
        chain.traffic = Traffic { rate: chain.traffic.rate * factor, ..chain.traffic };
    }
    chains
}

fn plan(name: &str, host: &Host, chains: &[Chain], current: Option<&Plan>) -> Plan {
    policy(name, &Settings::default()).unwrap().plan(host, chains, current).unwrap()
}

fn total(host: &Host, chains: &[Chain], plan: &Plan, current: Option<&Plan>) -> f64 {
    Objective::default().cost(host, chains, plan, current).unwrap().total()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn everyone_has_a_seat(size in sizes(), seed: u64, keep in 1usize..12) {
        let (mut host, chains) = sample(size, seed);
        scarce(&mut host, keep);
        for name in POLICIES {
            let plan = plan(name, &host, &chains, None);
            let mut functions: Vec<_> =
                chains.iter().flat_map(|chain| chain.functions.clone()).collect();
            functions.sort_unstable();
            functions.dedup();
            prop_assert!(plan.seats.keys().eq(&functions), "{name}");
            let mut cpus: Vec<_> = plan.seats.values().map(|seat| seat.cpu).collect();
            for seat in plan.seats.values() {
                prop_assert_eq!(host.node_of(seat.cpu), Some(seat.node));
            }
            let left = functions.len().saturating_sub(host.cpus());
            prop_assert_eq!(plan.shared.len(), left, "{}", name);
            // Shared evenly: no CPU has two functions more than another.
            cpus.sort_unstable();
            let most = functions.len().div_ceil(host.cpus());
            prop_assert!(cpus.chunk_by(|a, b| a == b).all(|same| same.len() <= most));
        }
    }

    #[test]
    fn equal_input_gives_an_equal_plan(size in sizes(), seed: u64) {
        let (host, chains) = sample(size, seed);
        for name in POLICIES {
            let first = plan(name, &host, &chains, None);
            prop_assert_eq!(&first, &plan(name, &host, &chains, None));
        }
    }

    #[test]
    fn adaptive_is_never_worse_than_chain_first(
        size in sizes(), seed: u64, keep in 1usize..12,
        factors in prop::collection::vec(0.2..5.0, 1..6),
    ) {
        let (mut host, chains) = sample(size, seed);
        scarce(&mut host, keep);
        let mut current: Option<Plan> = None;
        for chains in [chains.clone(), noisy(&chains, &factors)] {
            let ours = plan("adaptive", &host, &chains, current.as_ref());
            let theirs = plan("chain-first", &host, &chains, current.as_ref());
            let cost = |plan| total(&host, &chains, plan, current.as_ref());
            prop_assert!(cost(&ours) <= cost(&theirs) * (1.0 + 1e-12));
            current = Some(ours);
        }
    }

    #[test]
    fn noise_moves_nothing(
        size in sizes(), seed: u64,
        factors in prop::collection::vec(0.9..1.1, 1..6),
    ) {
        let (host, chains) = sample(size, seed);
        let before = plan("adaptive", &host, &chains, None);
        let before = plan("adaptive", &host, &chains, Some(&before));
        let chains = noisy(&chains, &factors);
        let after = plan("adaptive", &host, &chains, Some(&before));
        // Nothing moves, unless that gains more than it costs.
        let gain = total(&host, &chains, &before, Some(&before))
            - total(&host, &chains, &after, Some(&before));
        prop_assert!(after == before || gain > 0.0);
    }
}
