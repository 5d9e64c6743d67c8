//! One or two network namespaces and a veth pair, for as long as the value lives.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::process;

pub struct Namespaces {
    names: Vec<String>,
}

/// From the range that is set aside for measurements (RFC 2544).
pub const ADDRESSES: [&str; 2] = ["198.18.0.1", "198.18.0.2"];
const PREFIX: &str = "yasmin-net-";

impl Namespaces {
    /// A pair, joined by veth.
    pub fn pair() -> anyhow::Result<Self> {
        let made = Self::add(2)?;
        let [a, b] = [made.name(0), made.name(1)];
        ip(&["-n", a, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b])?;
        made.configure()
    }

    /// One alone, with an address of its own on an interface that leads nowhere: what its
    /// programs send each other goes by its loopback, whose counters nobody else moves.
    pub fn single() -> anyhow::Result<Self> {
        let made = Self::add(1)?;
        let alone = made.name(0);
        ip(&["-n", alone, "link", "add", "eth0", "type", "veth", "peer", "name", "nowhere"])?;
        ip(&["-n", alone, "link", "set", "nowhere", "up"])?;
        made.configure()
    }

    fn add(count: usize) -> anyhow::Result<Self> {
        remove_stale();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Made first, so that half of it is removed too.
        let made =
            Self { names: (0..count).map(|side| format!("{PREFIX}{pid}-{nth}-{side}")).collect() };
        for name in &made.names {
            ip(&["netns", "add", name])?;
        }
        Ok(made)
    }

    fn configure(self) -> anyhow::Result<Self> {
        let made = self;
        for (name, address) in made.names.iter().zip(ADDRESSES) {
            ip(&["-n", name, "address", "add", &format!("{address}/30"), "dev", "eth0"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", "eth0", "up"])?;
        }
        Ok(made)
    }

    pub fn name(&self, side: usize) -> &str {
        &self.names[side]
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| remove(name));
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    process::run("ip", arguments)
}

/// Removes a namespace, and first whoever is still in it.
fn remove(name: &str) {
    let pids = ip(&["netns", "pids", name]).unwrap_or_default();
    for pid in pids.lines().filter_map(|line| line.trim().parse().ok()) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    let _ = ip(&["netns", "delete", name]);
}

/// What a demo left behind that was killed.
fn remove_stale() {
    let listed = ip(&["netns", "list"]).unwrap_or_default();
    for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(name);
        }
    }
}
