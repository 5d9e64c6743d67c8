//! A thousand connections that were busy and now are not: what they cost.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::{Expect, Measured, READY, Workload, limit};
use crate::demo::process::Process;
use crate::demo::stage::{How, Side, Stage};
use yasmin_measure::unit::Unit;

pub struct Idle {
    cost: Cost,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cost {
    Cpu,
    Memory,
}

const CONNECTIONS: u32 = 1000;
/// For a thousand connections to be made and warmed up.
const BUSY_LIMIT: Duration = Duration::from_secs(60);
/// Clock ticks of /proc/PID/stat.
const TICKS_S: f64 = 100.0;

impl Idle {
    pub fn cpu() -> Self {
        Self { cost: Cost::Cpu }
    }

    pub fn memory() -> Self {
        Self { cost: Cost::Memory }
    }
}

impl Workload for Idle {
    fn key(&self) -> &'static str {
        match self.cost {
            Cost::Cpu => "idle-cpu",
            Cost::Memory => "idle-memory",
        }
    }

    fn name(&self) -> &str {
        match self.cost {
            Cost::Cpu => "1000 idle connections, CPU of both sides",
            Cost::Memory => "an idle connection, memory of both sides",
        }
    }

    fn unit(&self) -> Unit {
        match self.cost {
            Cost::Cpu => Unit::CpuPercent,
            Cost::Memory => Unit::Bytes,
        }
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn commands(&self) -> Vec<String> {
        vec![
            "yasmin pingpong serve ADDRESS:PORT".into(),
            format!("yasmin {}", client_words("ADDRESS:PORT", "SECONDS")),
        ]
    }

    fn expect(&self) -> Expect {
        Expect::Either
    }

    fn measure(&self, stage: &Stage, how: How, seconds: u32) -> anyhow::Result<Measured> {
        let port = stage.port()?;
        let address = format!("{}:{port}", stage.address());
        let serve = vec!["pingpong", "serve", &address];
        let mut server = stage.start_own(Side::Server, how, None, serve)?;
        server.listens(port, READY)?;
        let ask = client_words(&address, &(seconds + 1).to_string());
        let mut client = stage.start_own(Side::Client, how, None, ask.split(' ').collect())?;
        wait_until_idle(&mut client)?;
        let pids = [server.pid(), client.pid()];
        let value = match self.cost {
            Cost::Cpu => {
                let (before, begun) = (cpu_s(&pids)?, Instant::now());
                std::thread::sleep(Duration::from_secs(u64::from(seconds)));
                100.0 * (cpu_s(&pids)? - before) / begun.elapsed().as_secs_f64()
            }
            Cost::Memory => memory_bytes(&pids)? / f64::from(CONNECTIONS),
        };
        client.finish(limit(seconds))?;
        Ok(Measured { value, payload_bytes: 0 })
    }
}

/// The words of `yasmin` for it.
fn client_words(address: &str, seconds: &str) -> String {
    format!("pingpong client {address} --idle --connections {CONNECTIONS} --seconds {seconds}")
}

fn wait_until_idle(client: &mut Process) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !client.output().lines().any(|line| line == "idle") {
        if begun.elapsed() > BUSY_LIMIT || client.has_ended()? {
            bail!("the connections did not get idle: {}", client.output());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// User and system time so far.
fn cpu_s(pids: &[u32]) -> anyhow::Result<f64> {
    let ticks = |pid: &u32| -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // Behind the name, which may hold spaces: state is field 3, utime 14, stime 15.
        let (_, rest) = stat.rsplit_once(')').context("no name in /proc/PID/stat")?;
        let mut fields = rest.split_whitespace().skip(11);
        let mut next = || fields.next().and_then(|field| field.parse::<f64>().ok());
        next().zip(next()).map(|(user, system)| user + system).context("no times in it")
    };
    pids.iter().map(ticks).sum::<anyhow::Result<f64>>().map(|ticks| ticks / TICKS_S)
}

/// Resident, what several map divided among them.
fn memory_bytes(pids: &[u32]) -> anyhow::Result<f64> {
    let pss = |pid: &u32| -> anyhow::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.map(|kib| kib * 1024.0).context("no Pss in /proc/PID/smaps_rollup")
    };
    pids.iter().map(pss).sum()
}
