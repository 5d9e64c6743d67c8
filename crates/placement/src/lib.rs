//! Where functions go: topology and traffic in, [`Plan`] out.
//!
//! Pure: no input or output, no clock, no chance that is not seeded; equal input gives equal
//! output. Chains of functions ([`Chain`]) run from a network card through functions and back to
//! it. A [`Policy`] seats each function on a CPU of a [`Host`]; an [`Objective`] says what a plan
//! costs: traffic times distance over all neighbours, and a price for each move.
//!
//! ```
//! use yasmin_placement::{Chain, FunctionId, Host, Traffic, policy};
//!
//! let host = Host::with_free_cpus(&[5, 6]);
//! let functions = [1, 4, 3].map(FunctionId);
//! let chains = [Chain::new("web", &functions, Traffic::bytes_s(4e8))];
//! let plan = policy("chain-first", &Default::default())?.plan(&host, &chains, None)?;
//! assert_eq!(plan.node(FunctionId(4)), Some(host.nodes[0].id));
//! # Ok::<(), yasmin_placement::Error>(())
//! ```
#![forbid(unsafe_code)]

mod adaptive;
mod chain;
mod chain_first;
mod dice;
mod error;
mod exact;
mod first_free;
mod host;
mod model;
mod numad_like;
mod objective;
mod plan;
mod policy;
mod problem;
mod random;
mod sample;
mod search;
mod seats;
pub mod simulation;
mod state;

pub use adaptive::Adaptive;
pub use chain::{Chain, ChainEnd, FunctionId, Traffic, Unit};
pub use chain_first::ChainFirst;
pub use error::Error;
pub use exact::{Exact, Proof};
pub use first_free::FirstFree;
pub use host::{Host, HostNode};
pub use model::{Fare, LOCAL_NS, Model, REMOTE_NS};
pub use numad_like::NumadLike;
pub use objective::{Cost, MovePrice, Objective};
pub use plan::{Move, Plan, Seat};
pub use policy::{POLICIES, Policy, Settings, policy};
pub use random::Random;
pub use sample::{Size, sample};
pub use yasmin_topology::{CpuId, NodeId};
