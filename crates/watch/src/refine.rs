//! How a function is best moved: a process in a container with its container, a guest by libvirt.

use std::collections::HashMap;

use crate::actuator::cgroup;
use crate::function::{Function, Process, Target};
use crate::process;

/// Where libvirt says which process a domain is.
const DOMAINS: &str = "/run/libvirt/qemu";

#[derive(Default)]
pub struct Refiner {
    known: HashMap<Process, Option<Target>>,
}

impl Refiner {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn refine(&mut self, functions: &mut [Function]) {
        let mut known = std::mem::take(&mut self.known);
        for function in functions {
            let Target::Processes { processes } = &function.target else { continue };
            let Some(&first) = processes.first() else { continue };
            let better = known.remove(&first).unwrap_or_else(|| better(processes));
            if let Some(target) = &better {
                function.target = target.clone();
            }
            self.known.insert(first, better);
        }
    }
}

fn better(processes: &[Process]) -> Option<Target> {
    let first = processes.first()?;
    if let Some(name) = domain(first.pid) {
        return Some(Target::Domain { name });
    }
    let path = process::cgroup(first.pid).ok()?;
    let together =
        processes.iter().all(|one| process::cgroup(one.pid).is_ok_and(|other| other == path));
    let usable = together && cgroup::is_container(&path) && cgroup::is_placeable(&path);
    usable.then_some(Target::Cgroup { path })
}

fn domain(pid: u32) -> Option<String> {
    for entry in std::fs::read_dir(DOMAINS).ok()?.flatten() {
        let name = entry.file_name().into_string().ok()?;
        let Some(name) = name.strip_suffix(".pid") else { continue };
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        if text.trim().parse() == Ok(pid) {
            return Some(name.to_owned());
        }
    }
    None
}
