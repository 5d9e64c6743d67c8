//! What lies in the machine's network namespaces, as plain data: the graph is made from it
//! without asking the kernel again.

use std::net::IpAddr;

use crate::function::Process;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The inode of its file, by which the kernel tells them apart.
    pub inode: u64,
    /// From /run/netns, where it has one.
    pub name: Option<String>,
    /// A path by which it can be entered.
    pub path: String,
    /// Ours, which is no function: its network cards are the machine's.
    pub is_host: bool,
    pub processes: Vec<Process>,
    /// The name of the first process.
    pub program: Option<String>,
    pub interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub index: u32,
    pub name: String,
    pub kind: Kind,
    /// The other end of a veth, where it was found: namespace and index.
    pub peer: Option<(u64, u32)>,
    /// The bridge that it is a port of.
    pub bridge: Option<u32>,
    /// Who holds a tap's other side.
    pub owner: Option<Process>,
    pub owner_program: Option<String>,
    pub addresses: Vec<IpAddr>,
    /// Gateways of the routes that leave by it, the default route's first.
    pub next_hops: Vec<IpAddr>,
    pub has_default_route: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    Loopback,
    Veth,
    Bridge,
    Tap,
    /// Hardware.
    Card,
    #[default]
    Other,
}

impl Namespace {
    pub fn label(&self) -> String {
        match (&self.name, &self.program, self.processes.first()) {
            (Some(name), _, _) => format!("netns:{name}"),
            (None, Some(program), Some(first)) => crate::process::label(first.pid, program),
            _ => format!("netns:{}", self.inode),
        }
    }

    pub fn interface(&self, index: u32) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.index == index)
    }
}
