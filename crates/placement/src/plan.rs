//! The answer: which function runs where.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use yasmin_topology::{CpuId, NodeId};

use crate::FunctionId;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub seats: BTreeMap<FunctionId, Seat>,
    /// Functions for which there was no CPU left: their seat is another function's too.
    pub shared: BTreeSet<FunctionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    pub cpu: CpuId,
    pub node: NodeId,
}

/// A function that changes its CPU. `from` is `None` for one that had none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    pub function: FunctionId,
    pub from: Option<Seat>,
    pub to: Seat,
}

impl Plan {
    pub fn seat(&self, function: FunctionId) -> Option<Seat> {
        self.seats.get(&function).copied()
    }

    pub fn cpu(&self, function: FunctionId) -> Option<CpuId> {
        self.seat(function).map(|seat| seat.cpu)
    }

    pub fn node(&self, function: FunctionId) -> Option<NodeId> {
        self.seat(function).map(|seat| seat.node)
    }

    /// What has to be done to get here from `before`, in order of the functions.
    pub fn moves_from(&self, before: &Plan) -> Vec<Move> {
        let changed = self.seats.iter().filter(|(id, seat)| before.seat(**id) != Some(**seat));
        changed
            .map(|(id, seat)| Move { function: *id, from: before.seat(*id), to: *seat })
            .collect()
    }
}
