//! What the planner knows of a machine.

use serde::{Deserialize, Serialize};
use yasmin_topology::{CpuId, Machine, NodeId};

use crate::Error;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub nodes: Vec<HostNode>,
    /// From row to column, in the order of `nodes`. Any unit: firmware distances or nanoseconds.
    pub distance: Vec<Vec<f64>>,
    /// The node of the network card through which chains enter and leave, unless they say
    /// otherwise ([`crate::End`]).
    pub nic: NodeId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNode {
    pub id: NodeId,
    /// CPUs that functions can be given, in the order in which they get them: those that are
    /// free, and those that the functions which are planned for already have.
    pub free: Vec<CpuId>,
}

impl Host {
    /// Nodes with so many free CPUs each, numbered from 0 on; distance 10 within a node and 21
    /// between two, the card at the first.
    pub fn with_free_cpus(counts: &[usize]) -> Self {
        let mut next = 0..;
        let node = |(id, count): (usize, &usize)| HostNode {
            id: NodeId(id as u32),
            free: next.by_ref().take(*count).map(CpuId).collect(),
        };
        let nodes: Vec<HostNode> = counts.iter().enumerate().map(node).collect();
        let row = |from| (0..nodes.len()).map(|to| if from == to { 10.0 } else { 21.0 }).collect();
        let distance = (0..nodes.len()).map(row).collect();
        Self { nodes, distance, nic: NodeId(0) }
    }

    /// The nodes of a machine that have CPUs, with the CPUs that are free ([`Machine::free`])
    /// and the machine's own distances. `smt`: use the siblings of a core too.
    ///
    /// Functions that are placed already are pinned, so their CPUs are not free: add these with
    /// [`Host::release`].
    pub fn of(machine: &Machine, nic: NodeId, smt: bool) -> Result<Self, Error> {
        let nodes: Vec<HostNode> =
            machine.free_by_node(smt).into_iter().map(|(id, free)| HostNode { id, free }).collect();
        let between = |from: &HostNode, to: &HostNode| {
            machine.distance(from.id, to.id).map_or(0.0, |distance| distance as f64)
        };
        let row = |from| nodes.iter().map(|to| between(from, to)).collect();
        let distance = nodes.iter().map(row).collect();
        let host = Self { nodes, distance, nic };
        host.check()?;
        Ok(host)
    }

    /// Adds a CPU to those that functions can be given, if it is not among them.
    pub fn release(&mut self, node: NodeId, cpu: CpuId) -> Result<(), Error> {
        let at = self.place(node).ok_or(Error::UnknownNode(node))?;
        let free = &mut self.nodes[at].free;
        if !free.contains(&cpu) {
            free.push(cpu);
            free.sort_unstable();
        }
        Ok(())
    }

    /// Free CPUs in all.
    pub fn cpus(&self) -> usize {
        self.nodes.iter().map(|node| node.free.len()).sum()
    }

    /// Where a node is in `nodes` and `distance`.
    pub fn place(&self, id: NodeId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    pub fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        self.nodes.iter().find(|node| node.free.contains(&cpu)).map(|node| node.id)
    }

    /// Whether the parts fit together. Policies call it themselves.
    pub fn check(&self) -> Result<(), Error> {
        let nodes = self.nodes.len();
        let columns = |row: &&Vec<f64>| row.len() != nodes;
        let wrong = self.distance.iter().find(columns).map(Vec::len);
        if self.distance.len() != nodes || wrong.is_some() {
            let (rows, columns) = (self.distance.len(), wrong.unwrap_or(nodes));
            return Err(Error::Distances { nodes, rows, columns });
        }
        for (from, row) in self.nodes.iter().zip(&self.distance) {
            for (to, value) in self.nodes.iter().zip(row) {
                if !(value.is_finite() && *value > 0.0) {
                    return Err(Error::Distance { from: from.id, to: to.id, value: *value });
                }
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let again = self.nodes[..at].iter().any(|other| other.id == node.id);
            if again || node.free.iter().any(|cpu| !seen.insert(*cpu)) {
                return Err(Error::Twice(node.id));
            }
        }
        self.place(self.nic).ok_or(Error::UnknownNode(self.nic))?;
        if self.cpus() == 0 { Err(Error::NoCpu) } else { Ok(()) }
    }

    /// Places of the nodes, the nearest to the one at `from` first; equally near ones in order.
    pub(crate) fn nearest(&self, from: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by(|one, other| {
            self.distance[from][*one].total_cmp(&self.distance[from][*other])
        });
        order
    }
}
