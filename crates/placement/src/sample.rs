//! Hosts and chains drawn by lot, to judge policies with. Equal seeds give equal ones.

use yasmin_topology::{CpuId, NodeId};

use crate::dice::Dice;
use crate::{Chain, ChainEnd, FunctionId, Host, HostNode, Traffic};

/// How large a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub nodes: usize,
    pub functions: usize,
}

impl Size {
    /// 2 to 8 nodes, 5 to 40 functions.
    pub fn small(seed: u64) -> Self {
        let mut dice = Dice(seed ^ 0x51ce);
        Self { nodes: 2 + dice.below(7), functions: 5 + dice.below(36) }
    }
}

/// A host of which functions need between half of the CPUs and all, each a CPU of its own, and
/// chains of 2 to 7 functions. Every sixth function of a chain
/// is one that another chain has too, and every tenth chain's ends are functions. Traffic is
/// between 10 Mbit/s and 10 Gbit/s, as likely within each power of ten.
pub fn sample(size: Size, seed: u64) -> (Host, Vec<Chain>) {
    let mut dice = Dice(seed);
    let nodes = size.nodes.max(1);
    let cpus = size.functions.max(nodes) + dice.below(size.functions + 1);
    let mut counts = vec![1; nodes];
    // Nodes of a machine are alike, but what is free on them differs a little.
    for _ in nodes..cpus {
        let (one, other) = (dice.below(nodes), dice.below(nodes));
        let fewer = if counts[one] <= counts[other] { one } else { other };
        counts[fewer] += 1;
    }
    let mut next = 0..;
    let node = |(id, count): (usize, &usize)| HostNode {
        id: NodeId(id as u32),
        free: next.by_ref().take(*count).map(CpuId).collect(),
    };
    let host = Host {
        nodes: counts.iter().enumerate().map(node).collect(),
        distance: distances(nodes, &mut dice),
        nic: NodeId(dice.below(nodes) as u32),
    };
    (host, chains(size.functions, &mut dice))
}

/// As firmware has them: all nodes equally far, or in pairs, or on a ring.
fn distances(nodes: usize, dice: &mut Dice) -> Vec<Vec<f64>> {
    let kind = dice.below(3);
    let far = 20.0 + dice.below(13) as f64;
    let between = |from: usize, to: usize| match kind {
        _ if from == to => 10.0,
        0 => far,
        1 if from / 2 == to / 2 => 12.0,
        1 => far,
        _ => {
            let way = from.abs_diff(to);
            10.0 + 6.0 * way.min(nodes - way) as f64
        }
    };
    (0..nodes).map(|from| (0..nodes).map(|to| between(from, to)).collect()).collect()
}

fn chains(functions: usize, dice: &mut Dice) -> Vec<Chain> {
    let mut chains = Vec::new();
    let mut next = 0;
    while next < functions {
        let mut own: Vec<FunctionId> = Vec::new();
        for _ in 0..2 + dice.below(6) {
            if next > 0 && dice.below(6) == 0 {
                let shared = FunctionId(dice.below(next) as u32);
                if !own.contains(&shared) {
                    own.push(shared);
                    continue;
                }
            }
            if next < functions {
                own.push(FunctionId(next as u32));
                next += 1;
            }
        }
        let traffic = Traffic::bytes_s(1.25e6 * 10f64.powf(3.0 * dice.fraction()));
        let mut chain = Chain::new(&format!("chain {}", chains.len()), &own, traffic);
        if dice.below(10) == 0 {
            (chain.entry, chain.exit) = (ChainEnd::Function, ChainEnd::Function);
        }
        chains.push(chain);
    }
    chains
}
