//! The machine as the planner sees it. Plain data; it can be written as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// The kernel's number of a CPU (a hyper-thread).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct CpuId(pub u32);

/// The kernel's number of a NUMA node.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub origin: Origin,
    /// In order of their ids.
    pub cpus: Vec<Cpu>,
    /// In order of their ids. A node may have memory and no CPU.
    pub nodes: Vec<Node>,
    pub distances: Distances,
    pub caches: Vec<Cache>,
    pub nics: Vec<Nic>,
    /// CPUs that this process's control group may use.
    pub allowed: BTreeSet<CpuId>,
    /// CPUs that the kernel was told to keep free of ordinary work (`isolcpus`).
    pub isolated: BTreeSet<CpuId>,
    /// CPUs that some thread in user space is pinned to; see [`crate::pinned_threads`].
    pub pinned: BTreeSet<CpuId>,
}

/// Where the description of a machine came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    ThisMachine,
    Xml,
    Synthetic(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    pub id: CpuId,
    pub node: NodeId,
    pub package: u32,
    /// Number of the core within the whole machine; equal for SMT siblings.
    pub core: u32,
    /// All hyper-threads of its core, this one included, in order.
    pub siblings: Vec<CpuId>,
    /// Its data and unified caches, the nearest first, as places in [`Machine::caches`].
    pub caches: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub memory_bytes: u64,
    /// In order of their ids.
    pub cpus: Vec<CpuId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    pub level: u8,
    pub kind: CacheKind,
    pub size_bytes: u64,
    pub line_bytes: u64,
    pub cpus: Vec<CpuId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    Unified,
    Data,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    pub name: String,
    /// `None`: the machine does not say, as many virtual ones.
    pub node: Option<NodeId>,
    /// As in `0000:3b:00.0`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pci: Option<String>,
}

/// How far nodes are from each other, in the order of [`Machine::nodes`]: row from, column to.
/// The firmware's table gives 10 for a node and itself; only relations mean something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distances {
    pub table: Vec<Vec<u64>>,
    /// False: nobody said, and 10 and 20 were put in.
    pub known: bool,
}

impl Distances {
    /// What the kernel, too, assumes where the firmware has no table.
    pub fn assumed(nodes: usize) -> Self {
        let row = |from| (0..nodes).map(|to| if from == to { 10 } else { 20 }).collect();
        Self { table: (0..nodes).map(row).collect(), known: false }
    }
}

impl Machine {
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        let at = self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok()?;
        self.cpus.get(at)
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    pub fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.name == name)
    }

    /// The distance between two nodes that exist.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u64> {
        let at = |id| self.nodes.iter().position(|node| node.id == id);
        self.distances.table.get(at(from)?)?.get(at(to)?).copied()
    }

    /// CPUs that functions can be given: the isolated ones if there are any, else the allowed
    /// ones; less those that others are pinned to.
    pub fn free(&self) -> BTreeSet<CpuId> {
        let isolated: BTreeSet<CpuId> =
            self.isolated.intersection(&self.allowed).copied().collect();
        let usable = if isolated.is_empty() { &self.allowed } else { &isolated };
        usable.difference(&self.pinned).copied().collect()
    }

    /// The free CPUs of each node that has CPUs, in the order in which functions get them.
    ///
    /// Without `smt` one of each core, and none of a core on which a sibling is pinned to.
    /// With it, first one of each core, then their siblings.
    pub fn free_by_node(&self, smt: bool) -> Vec<(NodeId, Vec<CpuId>)> {
        let free = self.free();
        let with_cpus = self.nodes.iter().filter(|node| !node.cpus.is_empty());
        with_cpus
            .map(|node| {
                let mut ranked: BTreeMap<usize, Vec<CpuId>> = BTreeMap::new();
                let cpus = node.cpus.iter().filter_map(|id| self.cpu(*id));
                for cpu in cpus.filter(|cpu| free.contains(&cpu.id)) {
                    let mut before = cpu.siblings.iter().take_while(|id| **id != cpu.id);
                    let rank = before.by_ref().filter(|id| free.contains(id)).count();
                    let beside_others = cpu.siblings.iter().any(|id| self.pinned.contains(id));
                    if smt || (rank == 0 && !beside_others) {
                        ranked.entry(rank).or_default().push(cpu.id);
                    }
                }
                (node.id, ranked.into_values().flatten().collect())
            })
            .collect()
    }
}
