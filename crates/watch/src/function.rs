//! What is placed: functions, and the traffic between them as counters tell it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A process, told from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// In clock ticks after boot, as in /proc/PID/stat.
    pub started: u64,
}

/// What has to be moved to move a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Target {
    /// Every thread of these processes.
    Processes { processes: Vec<Process> },
    /// These threads of a process, its others stay where they are: one of several DPDK workers.
    Threads { process: Process, threads: Vec<u32> },
    /// A container: every process of the control group. `path` as in /proc/PID/cgroup.
    Cgroup { path: String },
    /// A virtual machine that libvirt runs.
    Domain { name: String },
    /// No process at all: the kernel forwards what these interfaces of a namespace receive.
    Kernel { namespace: String, interfaces: Vec<String> },
    /// Known to carry traffic, not ours to move.
    Fixed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// For people, and unique: `nginx[812]`, `netns:fw`.
    pub name: String,
    pub target: Target,
}

impl Function {
    /// The processes that are known to be this function, whatever moves it.
    pub fn processes(&self) -> &[Process] {
        match &self.target {
            Target::Processes { processes } => processes,
            Target::Threads { process, .. } => std::slice::from_ref(process),
            _ => &[],
        }
    }
}

/// Where a link ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkEnd {
    Function(String),
    /// A network card of the host, by its interface or PCI address.
    Nic(String),
}

impl LinkEnd {
    pub fn function(&self) -> Option<&str> {
        match self {
            Self::Function(name) => Some(name),
            Self::Nic(_) => None,
        }
    }
}

impl std::fmt::Display for LinkEnd {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Function(name) => out.write_str(name),
            Self::Nic(name) => write!(out, "nic:{name}"),
        }
    }
}

/// How a link's bytes travel, so that two sources that see the same bytes are not added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Shared memory of a kind that no other source counts.
    Memory,
    /// The kernel's TCP, counted at its ends: interfaces on the way count it too.
    Tcp,
    /// The kernel's interfaces.
    Interface,
    /// What a file or command says.
    Told,
}

/// Two ends that exchange traffic, and one counter of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Tells this counter from every other of its source, for as long as it counts.
    pub id: String,
    pub a: LinkEnd,
    pub b: LinkEnd,
    pub path: Path,
    /// Where this edge is known from, for people: "veth fw-a", "yasmin 10.0.0.1:80".
    pub origin: String,
}

/// What a link counts, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    pub bytes: u64,
    /// Packets that were lost on it, where somebody counts them.
    pub dropped: u64,
    /// It began to count after the last reading: all of `bytes` is new.
    pub fresh: bool,
}

/// What one source knows, apart from what moves all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub functions: Vec<Function>,
    pub links: Vec<Link>,
}

/// What one source sees at one moment. Counters move and the layout mostly stays: a source that
/// knows so hands out the same layout again, and nothing has to be compared.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub layout: Arc<Layout>,
    /// In the order of the layout's links.
    pub counters: Vec<Counter>,
}

impl Reading {
    pub fn new(functions: Vec<Function>, counted: Vec<(Link, Counter)>) -> Self {
        let (links, counters) = counted.into_iter().unzip();
        Self { layout: Arc::new(Layout { functions, links }), counters }
    }
}
