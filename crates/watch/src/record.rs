//! The log: what was seen and what was done, one JSON object a line, enough to decide again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use yasmin_topology::{CpuId, Machine, NodeId};

use crate::function::{Function, LinkEnd};
use crate::shift::Sensitivity;

pub const VERSION: u32 = 1;

/// How decisions are made, apart from what is seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub policy: String,
    pub sensitivity: Sensitivity,
    /// The card's node, where none can be found or another is meant.
    pub nic: Option<NodeId>,
    /// Siblings of a core are used, too.
    pub smt: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let sensitivity = Sensitivity::default();
        Self { policy: "adaptive".into(), sensitivity, nic: None, smt: false }
    }
}

/// `at_s` is in seconds after the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    Start {
        version: u32,
        unix_s: u64,
        settings: Settings,
    },
    /// At the start and whenever it changed.
    Machine {
        at_s: f64,
        machine: Box<Machine>,
        #[serde(default)]
        pinned: BTreeMap<String, CpuId>,
    },
    Functions {
        at_s: f64,
        functions: Vec<Function>,
    },
    /// The edges that the rates of the following samples belong to, in their order.
    Edges {
        at_s: f64,
        edges: Vec<EdgeName>,
    },
    Sample {
        at_s: f64,
        rates: Vec<f64>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        dropped: Vec<f64>,
    },
    Decision(Decision),
    Applied {
        at_s: f64,
        steps: usize,
        took_s: f64,
    },
    Failed {
        at_s: f64,
        why: String,
    },
    Measured(Measured),
    Stop {
        at_s: f64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeName {
    pub a: LinkEnd,
    pub b: LinkEnd,
    #[serde(default)]
    pub origins: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub at_s: f64,
    pub why: String,
    pub moves: Vec<Move>,
    /// Traffic times distance, as it is and as it is to be.
    pub cost_before: f64,
    pub cost_after: f64,
    /// Functions that got no CPU of their own.
    pub shared: Vec<String>,
    pub chains: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    pub function: String,
    pub from: Option<CpuId>,
    pub from_node: Option<NodeId>,
    pub to: CpuId,
    pub to_node: NodeId,
}

/// What became of a decision: the same sums from where functions run and what passes now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub at_s: f64,
    /// Traffic times distance of the present traffic, had nothing been moved, and as it is.
    pub cost_unmoved: f64,
    pub cost: f64,
    /// Bytes and lost packets a second of all edges, before and after.
    pub rate_before: f64,
    pub rate_after: f64,
    pub dropped_before: f64,
    pub dropped_after: f64,
}

impl std::fmt::Display for Move {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} ", self.function)?;
        if self.from == Some(self.to) {
            return write!(out, "to where it runs, CPU {} (node {})", self.to, self.to_node);
        }
        if let (Some(cpu), Some(node)) = (self.from, self.from_node) {
            write!(out, "from CPU {cpu} (node {node}) ")?;
        }
        write!(out, "to CPU {} (node {})", self.to, self.to_node)
    }
}

/// The change in percent, in words for a line.
pub fn change(before: f64, after: f64) -> String {
    if before <= 0.0 {
        return "no change".into();
    }
    let percent = (after / before - 1.0) * 100.0;
    if percent.abs() < 0.5 { "no change".into() } else { format!("{percent:+.0} %") }
}

impl Decision {
    /// One line for each move; `verb` is "move" or "would move".
    pub fn lines(&self, verb: &str) -> Vec<String> {
        let gain = change(self.cost_before, self.cost_after);
        let line =
            |one: &Move| format!("{verb} {one}: {}; expected traffic x distance {gain}", self.why);
        self.moves.iter().map(line).collect()
    }

    pub fn sharing(&self) -> Option<String> {
        (!self.shared.is_empty()).then(|| {
            format!("more functions than CPUs: {} share one with another", self.shared.join(", "))
        })
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "measured: traffic x distance {} against not moving, bytes {}, lost packets {:.0}/s \
             (were {:.0}/s)",
            change(self.cost_unmoved, self.cost),
            change(self.rate_before, self.rate_after),
            self.dropped_after,
            self.dropped_before
        )
    }
}
