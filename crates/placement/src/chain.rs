//! Chains of functions and their traffic.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use yasmin_topology::NodeId;

use crate::{Error, Host};

/// A function: a process, thread, container or VM that is to have a CPU. The number is the
/// caller's; a function may be in several chains.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct FunctionId(pub u32);

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Functions in the order in which traffic passes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    pub name: String,
    pub functions: Vec<FunctionId>,
    pub traffic: Traffic,
    #[serde(default)]
    pub entry: ChainEnd,
    #[serde(default)]
    pub exit: ChainEnd,
}

/// Where a chain's traffic comes from, or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChainEnd {
    /// The host's network card.
    #[default]
    Nic,
    /// A card, or another device, at this node.
    Node(NodeId),
    /// The first or last function itself: programs of this host that talk to each other.
    Function,
}

/// How much passes a chain. All chains of one plan count in the same unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    pub rate: f64,
    pub unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "bytes/s")]
    Bytes,
    #[serde(rename = "packets/s")]
    Packets,
}

impl Traffic {
    pub fn bytes_s(rate: f64) -> Self {
        Self { rate, unit: Unit::Bytes }
    }

    pub fn packets_s(rate: f64) -> Self {
        Self { rate, unit: Unit::Packets }
    }
}

impl Chain {
    /// A chain that comes from the network card and goes back to it.
    pub fn new(name: &str, functions: &[FunctionId], traffic: Traffic) -> Self {
        let functions = functions.to_vec();
        Self {
            name: name.to_owned(),
            functions,
            traffic,
            entry: ChainEnd::Nic,
            exit: ChainEnd::Nic,
        }
    }
}

impl ChainEnd {
    /// The place of its node in the host, unless it is the function itself.
    pub(crate) fn place(self, host: &Host) -> Result<Option<usize>, Error> {
        let id = match self {
            ChainEnd::Nic => host.nic,
            ChainEnd::Node(id) => id,
            ChainEnd::Function => return Ok(None),
        };
        host.place(id).map(Some).ok_or(Error::UnknownNode(id))
    }
}

/// Traffic must be numbers from 0 on, of one unit; ends must be nodes of the host.
pub(crate) fn check(host: &Host, chains: &[Chain]) -> Result<(), Error> {
    for chain in chains {
        let value = chain.traffic.rate;
        if !(value.is_finite() && value >= 0.0) {
            return Err(Error::Traffic { chain: chain.name.clone(), value });
        }
        if chain.traffic.unit != chains[0].traffic.unit {
            return Err(Error::MixedUnits { chain: chain.name.clone() });
        }
        chain.entry.place(host)?;
        chain.exit.place(host)?;
    }
    Ok(())
}

/// The busiest first; equally busy ones in their order.
pub(crate) fn busiest_first(chains: &[Chain]) -> Vec<&Chain> {
    let mut sorted: Vec<&Chain> = chains.iter().collect();
    sorted.sort_by(|one, other| other.traffic.rate.total_cmp(&one.traffic.rate));
    sorted
}

/// Every function once, in the order of `chains`.
pub(crate) fn functions<'a>(chains: impl IntoIterator<Item = &'a Chain>) -> Vec<FunctionId> {
    let mut seen = std::collections::HashSet::new();
    let all = chains.into_iter().flat_map(|chain| &chain.functions);
    all.filter(|id| seen.insert(**id)).copied().collect()
}

/// What passes each function, over all its chains.
pub(crate) fn traffic_of(chains: &[Chain]) -> BTreeMap<FunctionId, f64> {
    let mut sums = BTreeMap::new();
    for chain in chains {
        for id in functions([chain]) {
            *sums.entry(id).or_insert(0.0) += chain.traffic.rate;
        }
    }
    sums
}
