//! Which CPUs a measurement uses.

use std::fs;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// The CPUs of the two sides.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    pub first: usize,
    pub second: usize,
}

/// Why a measurement has not the CPUs that it needs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the allowed CPUs: {0}")]
    Read(Errno),
    #[error("cannot run on CPUs {cpus:?}: {why}")]
    Pin { cpus: Vec<usize>, why: Errno },
    #[error("two CPUs are needed, only CPUs {allowed:?} are allowed")]
    TooFew { allowed: Vec<usize> },
}

/// Busier than this before the measurement begins, figures suffer.
const BUSY_LOAD: f64 = 0.7;

/// Where a CPU sits; equal package and core: two hyper-threads.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seat {
    package: Option<u32>,
    core: Option<u32>,
}

impl Seat {
    fn of(cpu: usize) -> Self {
        let read = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        Self { package: read("physical_package_id"), core: read("core_id") }
    }
}

/// CPUs that this process may use.
pub fn allowed() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None).map_err(Error::Read)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Two allowed CPUs, if possible different cores of one package.
pub fn choose() -> Result<Pair, Error> {
    let allowed = allowed()?;
    let [first, second, ..] = *allowed.as_slice() else { return Err(Error::TooFew { allowed }) };
    let seat = Seat::of(first);
    let neighbour = |cpu: &usize| {
        let other = Seat::of(*cpu);
        other.package == seat.package && other.core != seat.core
    };
    let second = allowed[1..].iter().copied().find(neighbour).unwrap_or(second);
    Ok(Pair { first, second })
}

/// What makes the figures of this machine, now, less certain.
pub fn warnings(pair: Pair) -> Vec<String> {
    let mut warnings = Vec::new();
    if Seat::of(pair.first) == Seat::of(pair.second) {
        let (first, second) = (pair.first, pair.second);
        warnings.push(format!("CPUs {first} and {second} seem to be two threads of one core"));
    }
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load: Option<f64> = load.and_then(|text| text.split(' ').next()?.parse().ok());
    if let Some(load) = load.filter(|load| *load > BUSY_LOAD) {
        warnings.push(format!("the machine is busy (load {load})"));
    }
    warnings
}

/// Lets the calling thread, and those it starts, run on `cpus` only.
pub fn allow_this_thread(cpus: &[usize]) -> Result<(), Error> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    sched_setaffinity(None, &set).map_err(|why| Error::Pin { cpus: cpus.to_vec(), why })
}

/// Pins the calling thread and returns where it was allowed before.
pub fn pin_this_thread(cpu: usize) -> Result<CpuSet, Error> {
    let previous = sched_getaffinity(None).map_err(Error::Read)?;
    allow_this_thread(&[cpu])?;
    Ok(previous)
}

pub fn restore_this_thread(previous: &CpuSet) -> Result<(), Error> {
    let cpus = || (0..CpuSet::MAX_CPU).filter(|cpu| previous.is_set(*cpu)).collect();
    sched_setaffinity(None, previous).map_err(|why| Error::Pin { cpus: cpus(), why })
}
