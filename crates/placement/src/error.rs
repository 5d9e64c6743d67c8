//! What cannot be planned for.

use yasmin_topology::NodeId;

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Error {
    #[error("the host has no free CPU")]
    NoCpu,
    #[error("the distance table has {rows} rows and {columns} columns for {nodes} nodes")]
    Distances { nodes: usize, rows: usize, columns: usize },
    #[error("the distance from node {from} to node {to} is {value}: no positive number")]
    Distance { from: NodeId, to: NodeId, value: f64 },
    #[error("node {0} is not one of the host")]
    UnknownNode(NodeId),
    #[error("node {0} or one of its CPUs appears twice")]
    Twice(NodeId),
    #[error("the traffic of chain '{chain}' is {value}: no number from 0 on")]
    Traffic { chain: String, value: f64 },
    #[error("chain '{chain}' counts its traffic in another unit than the first")]
    MixedUnits { chain: String },
    #[error("there is no policy '{0}'; there are: {1}")]
    UnknownPolicy(String, String),
    #[error(
        "not proven to be the best within {steps} steps: a better plan could save {gap_percent:.2} %"
    )]
    Unproven { steps: u64, gap_percent: f64 },
    #[error("{functions} functions are too many for {policy}: at most {most}")]
    TooLarge { policy: &'static str, functions: usize, most: usize },
    #[error("{policy} can plan for {most} nodes at most")]
    TooManyNodes { policy: &'static str, most: usize },
}
