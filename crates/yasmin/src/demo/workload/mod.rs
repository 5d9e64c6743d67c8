//! What the demo runs: a server and a client that users have, and the figure they report.

mod idle;
mod iperf3;
mod mpi;
mod nginx;
mod pairs;
mod redis;
mod sockperf;

use std::time::Duration;

use serde::Serialize;

use super::stage::{How, Stage};
use yasmin_measure::unit::Unit;

/// A server and a client, run once.
pub trait Workload {
    /// One word, for `--only`.
    fn key(&self) -> &'static str;
    /// For people.
    fn name(&self) -> &str;
    fn unit(&self) -> Unit;
    /// Programs and the Debian packages that have them.
    fn needs(&self) -> &'static [(&'static str, &'static str)];
    /// The commands, as a reader would repeat them; server first.
    fn commands(&self) -> Vec<String>;
    fn expect(&self) -> Expect {
        Expect::Rings
    }
    /// Pairs of runs, where `asked` are too few to tell.
    fn pairs(&self, asked: usize) -> usize {
        asked
    }
    /// Runs both sides for about `seconds`.
    fn measure(&self, stage: &Stage, how: How, seconds: u32) -> anyhow::Result<Measured>;
}

/// Where a workload's bytes must go under `yasmin run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// Through rings, or the demo fails.
    Rings,
    /// By ring or TCP: too short or too idle for a ring to be worth it.
    Either,
}

pub struct Measured {
    pub value: f64,
    /// Bytes that the program itself says it moved, at least.
    pub payload_bytes: u64,
}

/// Time for a server to listen.
const READY: Duration = Duration::from_secs(5);

/// A client's time limit: what it was asked for, and a good deal more.
fn limit(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds) * 3 + 20)
}

/// Programs as their users run them.
pub fn usual() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(sockperf::PingPong),
        Box::new(iperf3::Stream),
        Box::new(redis::Benchmark::get()),
        Box::new(redis::Benchmark::set()),
        Box::new(nginx::Page::keep_alive()),
        Box::new(nginx::Page::close()),
    ]
}

/// What else must not get worse, and message-passing libraries.
pub fn special() -> Vec<Box<dyn Workload>> {
    let mut special = mpi::all();
    special.extend(pairs::all());
    special.push(Box::new(idle::Idle::cpu()));
    special.push(Box::new(idle::Idle::memory()));
    special
}
