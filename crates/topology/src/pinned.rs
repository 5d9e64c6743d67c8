//! Who is pinned where: threads whose affinity allows only CPUs of one core.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{CpuId, parse_cpus};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedThread {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    pub cpus: BTreeSet<CpuId>,
}

/// Threads in user space that may run on at most `most` CPUs, and on fewer than there are.
///
/// Kernel threads are left out: most are pinned and hardly run. So are threads that ended while
/// they were looked at, and those that may not be looked at.
pub fn pinned_threads(online: &BTreeSet<CpuId>, most: usize) -> Vec<PinnedThread> {
    let mut found = Vec::new();
    for process in numbered(Path::new("/proc")) {
        let root = format!("/proc/{process}");
        // A kernel thread has no memory of its own, and so no command line and no program.
        if fs::read_link(format!("{root}/exe")).is_err() && is_kernel_thread(&root) {
            continue;
        }
        for thread in numbered(Path::new(&format!("{root}/task"))) {
            let Ok(status) = fs::read_to_string(format!("{root}/task/{thread}/status")) else {
                continue;
            };
            let field =
                |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            let Some(cpus) = field("Cpus_allowed_list:").and_then(|list| parse_cpus(list).ok())
            else {
                continue;
            };
            let cpus: BTreeSet<CpuId> = cpus.intersection(online).copied().collect();
            if !cpus.is_empty() && cpus.len() <= most && cpus.len() < online.len() {
                let name = field("Name:").unwrap_or_default().to_owned();
                found.push(PinnedThread { pid: process, tid: thread, name, cpus });
            }
        }
    }
    found
}

fn numbered(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn is_kernel_thread(root: &str) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let Ok(stat) = fs::read_to_string(format!("{root}/stat")) else { return true };
    // The name, in brackets, may hold anything; state is the first field behind it, flags the 7th.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let flags = fields.split_whitespace().nth(6).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    #[test]
    fn this_thread_when_it_is_pinned() {
        let before = sched_getaffinity(None).unwrap();
        let online = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu));
        let online: BTreeSet<CpuId> = online.map(|cpu| CpuId(cpu as u32)).collect();
        let last = *online.last().unwrap();
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let here = |found: Vec<PinnedThread>| found.into_iter().find(|one| one.tid == tid);

        assert_eq!(here(pinned_threads(&online, 1)), None);
        let mut only = CpuSet::new();
        only.set(last.0 as usize);
        sched_setaffinity(None, &only).unwrap();
        let found = here(pinned_threads(&online, 1));
        sched_setaffinity(None, &before).unwrap();
        // With one CPU in all, nobody is pinned.
        assert_eq!(found.map(|one| one.cpus), (online.len() > 1).then(|| [last].into()));
    }
}
