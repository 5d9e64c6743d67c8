//! Moving a function: one file for each kind of thing that is moved.
//!
//! An actuator first says everything that has to be set and what is set now ([`Step`]); the
//! steps go to the journal; only then are they taken. A step can be taken back at any time, by
//! any later process, from what the journal says, and taking it back twice does no harm.

pub mod affinity;
pub mod cgroup;
pub mod domain;
pub mod memory;
pub mod receive;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use yasmin_topology::{CpuId, NodeId};

use crate::function::{Function, Process, Target};

/// One thing that is set, with what it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Step {
    /// The CPUs of a thread. `of` is the process that it belongs to.
    Affinity { of: Process, thread: Process, before: BTreeSet<CpuId>, after: BTreeSet<CpuId> },
    /// A file of a control group.
    Cgroup { file: String, before: String, after: String },
    /// The CPUs of a virtual machine's virtual CPU.
    Domain { name: String, vcpu: u32, before: String, after: String },
    /// The CPUs that handle what an interface's queue receives (RPS).
    Receive { namespace: String, queue: String, before: String, after: String },
    /// A process's memory, page by page from some nodes to another.
    Memory { process: Process, before: BTreeSet<NodeId>, after: NodeId },
}

impl Step {
    /// Whether `later` sets the same thing on from where this step left it; then this step stands
    /// for both.
    pub fn absorb(&mut self, later: &Self) -> bool {
        match (self, later) {
            (
                Self::Affinity { of, thread, before: first, after },
                Self::Affinity { of: later_of, thread: later, before, after: last },
                // When its only CPU is unplugged the kernel lets a thread run anywhere.
            ) if of == later_of
                && thread == later
                && (after == before || before.is_superset(first)) =>
            {
                after.clone_from(last);
            }
            (
                Self::Cgroup { file, after, .. },
                Self::Cgroup { file: later, before, after: last },
            ) if file == later && after == before => {
                after.clone_from(last);
            }
            (
                Self::Domain { name, vcpu, after, .. },
                Self::Domain { name: later, vcpu: number, before, after: last },
            ) if name == later && vcpu == number && after == before => after.clone_from(last),
            (
                Self::Receive { namespace, queue, after, .. },
                Self::Receive { namespace: other, queue: later, before, after: last },
            ) if namespace == other && queue == later && after == before => after.clone_from(last),
            _ => return false,
        }
        true
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// It ended. What was planned with it is void.
    #[error("{0} is gone")]
    Gone(String),
    #[error("no permission to {0}")]
    Permission(String),
    /// The CPU is not there any more, or not for this function.
    #[error("{what} cannot run on CPU {cpu}: it is offline, or not allowed there")]
    Cpu { what: String, cpu: CpuId },
    #[error("{0}")]
    Failed(String),
}

impl Trouble {
    fn of(what: &str, doing: &str, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::Gone(what.to_owned()),
            std::io::ErrorKind::PermissionDenied => Self::Permission(format!("{doing} {what}")),
            _ if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                Self::Gone(what.to_owned())
            }
            _ => Self::Failed(format!("cannot {doing} {what}: {error}")),
        }
    }
}

/// What has to be set so that `function` runs on `cpu`; nothing where it does already.
pub fn steps(function: &Function, cpu: CpuId) -> Result<Vec<Step>, Trouble> {
    match &function.target {
        Target::Processes { processes } => affinity::processes(&function.name, processes, cpu),
        Target::Threads { process, threads } => {
            affinity::threads(&function.name, *process, threads, cpu)
        }
        Target::Cgroup { path } => cgroup::steps(path, cpu),
        Target::Domain { name } => domain::steps(name, cpu),
        Target::Kernel { namespace, interfaces } => receive::steps(namespace, interfaces, cpu),
        Target::Fixed => Ok(Vec::new()),
    }
}

pub fn take(step: &Step) -> Result<(), Trouble> {
    match step {
        Step::Affinity { thread, after, .. } => affinity::set(*thread, after),
        Step::Cgroup { file, after, .. } => cgroup::set(file, after),
        Step::Domain { name, vcpu, after, .. } => domain::set(name, *vcpu, after),
        Step::Receive { namespace, queue, after, .. } => receive::set(namespace, queue, after),
        Step::Memory { process, before, after } => memory::migrate(*process, before, *after),
    }
}

/// Back to what it was. What has gone meanwhile needs nothing; what somebody else has set since
/// stays as they set it.
pub fn take_back(step: &Step) -> Result<(), Trouble> {
    let result = match step {
        Step::Affinity { of, thread, before, after } => {
            affinity::restore(*of, *thread, before, after)
        }
        Step::Cgroup { file, before, after } => cgroup::restore(file, before, after),
        Step::Domain { name, vcpu, before, .. } => domain::set(name, *vcpu, before),
        Step::Receive { namespace, queue, before, after } => {
            receive::restore(namespace, queue, before, after)
        }
        Step::Memory { process, before, after } => memory::migrate_back(*process, before, *after),
    };
    match result {
        Err(Trouble::Gone(_)) => Ok(()),
        other => other,
    }
}

/// The CPU that a function is on now: the only one that it may use, or where it last ran.
pub fn whereabouts(function: &Function) -> Option<CpuId> {
    match &function.target {
        Target::Processes { processes } => affinity::whereabouts(processes.first()?.pid, None),
        Target::Threads { process, threads } => {
            affinity::whereabouts(process.pid, threads.first().copied())
        }
        Target::Cgroup { path } => cgroup::whereabouts(path),
        Target::Kernel { namespace, interfaces } => receive::whereabouts(namespace, interfaces),
        Target::Domain { .. } | Target::Fixed => None,
    }
}

/// The only CPU that a function may use, if there is only one.
pub fn pinned(function: &Function) -> Option<CpuId> {
    match &function.target {
        Target::Processes { processes } => affinity::only(processes.first()?.pid),
        Target::Threads { threads, .. } => affinity::only(*threads.first()?),
        Target::Cgroup { path } => cgroup::pinned(path),
        Target::Kernel { namespace, interfaces } => receive::whereabouts(namespace, interfaces),
        Target::Domain { .. } | Target::Fixed => None,
    }
}
