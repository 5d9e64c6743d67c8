//! A process's memory follows it, by migrate_pages(2).
#![allow(unsafe_code, reason = "no crate wraps migrate_pages")]

use std::collections::BTreeSet;
use std::io;

use yasmin_topology::NodeId;

use super::{Step, Trouble};
use crate::function::Process;
use crate::process;

/// Words of 64 bits for 1,024 nodes, the most that Linux is built for.
const WORDS: usize = 16;

/// Brings the memory of `of` to `to` from all other `nodes`.
pub fn step(of: Process, nodes: &[NodeId], to: NodeId) -> Option<Step> {
    let before: BTreeSet<NodeId> = nodes.iter().copied().filter(|node| *node != to).collect();
    (!before.is_empty()).then_some(Step::Memory { process: of, before, after: to })
}

pub fn migrate(of: Process, from: &BTreeSet<NodeId>, to: NodeId) -> Result<(), Trouble> {
    call(of, from, &BTreeSet::from([to]))
}

/// Which page came from which node is not kept: with several nodes they are spread over them.
pub fn migrate_back(of: Process, to: &BTreeSet<NodeId>, from: NodeId) -> Result<(), Trouble> {
    call(of, &BTreeSet::from([from]), to)
}

fn call(of: Process, from: &BTreeSet<NodeId>, to: &BTreeSet<NodeId>) -> Result<(), Trouble> {
    let title = format!("process {}", of.pid);
    if !process::is_alive(of) {
        return Err(Trouble::Gone(title));
    }
    let (from, to) = (words(from), words(to));
    let pid = i64::from(of.pid);
    // SAFETY: the kernel reads WORDS * 64 bits from each array and writes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_migrate_pages,
            pid,
            (WORDS * 64) as libc::c_ulong,
            from.as_ptr(),
            to.as_ptr(),
        )
    };
    if result < 0 {
        return Err(Trouble::of(&title, "move the memory of", &io::Error::last_os_error()));
    }
    Ok(())
}

fn words(nodes: &BTreeSet<NodeId>) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for node in nodes.iter().map(|node| node.0 as usize).filter(|node| *node < WORDS * 64) {
        words[node / 64] |= 1 << (node % 64);
    }
    words
}
