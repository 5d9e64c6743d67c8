//! Processes and threads, by sched_setaffinity(2).

use std::collections::BTreeSet;
use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use yasmin_topology::{CpuId, parse_cpus};

use super::{Step, Trouble};
use crate::function::Process;
use crate::process;

/// Looks at a process's threads until none has come that is not held yet; a process that starts
/// threads faster than that is given up on.
const ROUNDS: usize = 8;

pub fn processes(name: &str, processes: &[Process], cpu: CpuId) -> Result<Vec<Step>, Trouble> {
    let mut steps = Vec::new();
    let mut alive = false;
    for &of in processes {
        if !process::is_alive(of) {
            continue;
        }
        alive = true;
        for thread in process::threads(of.pid).unwrap_or_default() {
            steps.extend(step(of, thread, cpu)?);
        }
    }
    // A worker may have gone; with its last process the function is gone.
    if alive { Ok(steps) } else { Err(Trouble::Gone(name.to_owned())) }
}

pub fn threads(name: &str, of: Process, threads: &[u32], cpu: CpuId) -> Result<Vec<Step>, Trouble> {
    if !process::is_alive(of) {
        return Err(Trouble::Gone(name.to_owned()));
    }
    let steps = threads.iter().map(|thread| step(of, *thread, cpu));
    Ok(steps.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Threads that were started between the listing and the pinning, and inherited the old CPUs.
pub fn stragglers(of: Process, cpu: CpuId) -> Result<Vec<Step>, Trouble> {
    let mut steps = Vec::new();
    for thread in process::threads(of.pid).unwrap_or_default() {
        steps.extend(step(of, thread, cpu)?);
    }
    Ok(steps)
}

/// How often stragglers are looked for.
pub const fn rounds() -> usize {
    ROUNDS
}

fn step(of: Process, thread: u32, cpu: CpuId) -> Result<Option<Step>, Trouble> {
    let after = BTreeSet::from([cpu]);
    let Ok(stat) = process::thread_stat(of.pid, thread) else { return Ok(None) };
    let before = match read(thread) {
        Ok(before) => before,
        Err(error) => match Trouble::of(&title(thread), "read the CPUs of", &error) {
            Trouble::Gone(_) => return Ok(None),
            other => return Err(other),
        },
    };
    let thread = Process { pid: thread, started: stat.started };
    Ok((before != after).then_some(Step::Affinity { of, thread, before, after }))
}

pub fn set(thread: Process, cpus: &BTreeSet<CpuId>) -> Result<(), Trouble> {
    if !is_same(thread) {
        return Err(Trouble::Gone(title(thread.pid)));
    }
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| (cpu.0 as usize) < CpuSet::MAX_CPU) {
        set.set(cpu.0 as usize);
    }
    sched_setaffinity(pid(thread.pid), &set).map_err(|errno| {
        if errno == rustix::io::Errno::INVAL
            && let Some(cpu) = cpus.first()
        {
            return Trouble::Cpu { what: title(thread.pid), cpu: *cpu };
        }
        Trouble::of(&title(thread.pid), "pin", &io::Error::from(errno))
    })
}

/// Puts back a thread, and what it started since and so inherited its pinning: later threads of
/// its process, and child processes.
pub fn restore(
    of: Process,
    thread: Process,
    before: &BTreeSet<CpuId>,
    after: &BTreeSet<CpuId>,
) -> Result<(), Trouble> {
    let mut restored = Ok(());
    if is_same(thread) && read(thread.pid).is_ok_and(|now| now == *after) {
        restored = set_existing(thread, before);
    }
    // Heirs are found by the first thread's step, once.
    if thread.pid != of.pid || !process::is_alive(of) {
        return restored;
    }
    let mut pids = vec![of.pid];
    while let Some(parent) = pids.pop() {
        for heir in process::threads(parent).unwrap_or_default() {
            pids.extend(children(parent, heir));
            let Ok(stat) = process::thread_stat(parent, heir) else { continue };
            let is_later = stat.started >= thread.started && heir != thread.pid;
            if is_later && read(heir).is_ok_and(|now| now == *after) {
                let heir = Process { pid: heir, started: stat.started };
                let _ = set_existing(heir, before);
            }
        }
    }
    restored
}

/// With CPUs that have been taken offline meanwhile the kernel takes those that are left; with
/// none of them left, any will do.
fn set_existing(thread: Process, cpus: &BTreeSet<CpuId>) -> Result<(), Trouble> {
    match set(thread, cpus) {
        Err(Trouble::Cpu { .. }) => {
            let all = (0..CpuSet::MAX_CPU as u32).map(CpuId).collect();
            set(thread, &all)
        }
        other => other,
    }
}

fn children(pid: u32, thread: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub fn whereabouts(pid: u32, thread: Option<u32>) -> Option<CpuId> {
    let thread = thread.unwrap_or(pid);
    if let Some(cpu) = only(thread) {
        return Some(cpu);
    }
    let cpu = process::thread_stat(pid, thread).ok()?.cpu;
    u32::try_from(cpu).ok().map(CpuId)
}

/// The only CPU that a thread may use, if there is only one.
pub fn only(thread: u32) -> Option<CpuId> {
    let cpus = read(thread).ok()?;
    cpus.first().copied().filter(|_| cpus.len() == 1)
}

/// As it was set, CPUs that are offline included: sched_getaffinity(2) leaves those out, and what
/// is put back would lack them.
fn read(thread: u32) -> io::Result<BTreeSet<CpuId>> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpus = list.and_then(|list| parse_cpus(list.trim()).ok());
    cpus.ok_or_else(|| io::Error::other("no CPUs in /proc"))
}

fn is_same(thread: Process) -> bool {
    // A thread's own number works as a process's in /proc.
    process::stat(thread.pid).is_ok_and(|stat| stat.started == thread.started)
}

fn pid(thread: u32) -> Option<Pid> {
    i32::try_from(thread).ok().and_then(Pid::from_raw)
}

fn title(thread: u32) -> String {
    format!("thread {thread}")
}
