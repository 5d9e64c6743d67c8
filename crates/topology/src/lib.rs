//! CPUs, SMT siblings, caches, NUMA nodes with their distances, network cards: one [`Machine`];
//! and how long a cache line takes between CPUs ([`Latencies`]).
//!
//! A machine is discovered through hwloc, or loaded from hwloc's XML or a synthetic
//! description, so that machines that are not at hand can be planned for. Nothing is changed.
#![forbid(unsafe_code)]

mod cpulist;
mod hwloc;
mod machine;
mod measure;
mod pinned;
mod xml;

pub use cpulist::{CpuListError, format_cpus, parse_cpus};
pub use hwloc::Error;
pub use machine::{Cache, CacheKind, Cpu, CpuId, Distances, Machine, Nic, Node, NodeId, Origin};
pub use measure::{Effort, Latencies, MeasureError, PairLatency};
pub use pinned::{PinnedThread, pinned_threads};
