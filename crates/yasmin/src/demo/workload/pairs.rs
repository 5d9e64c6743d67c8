//! Ping-pong pairs where CPUs are scarce, or messages are: what rings must not make worse.

use anyhow::Context;

use super::{Expect, Measured, READY, Workload, limit};
use crate::demo::process::Process;
use crate::demo::stage::{How, Side, Stage};
use crate::pingpong::client::Answer;
use yasmin_measure::cpus;
use yasmin_measure::unit::Unit;

pub struct Pairs {
    key: &'static str,
    name: &'static str,
    pairs: usize,
    /// CPUs that all processes share.
    cpus: usize,
    hogs: usize,
    rate_hz: Option<u32>,
    /// Of each pair, in turn.
    connections: u32,
    /// Or all at once, by a thread for each on both sides. The figure is round trips a second then.
    threads: bool,
    spin_us: Option<&'static str>,
}

const MESSAGE_BYTES: u64 = 64;
const ALONE: Pairs = Pairs {
    key: "",
    name: "",
    pairs: 1,
    cpus: 2,
    hogs: 0,
    rate_hz: None,
    connections: 1,
    threads: false,
    spin_us: None,
};

pub fn all() -> Vec<Box<dyn Workload>> {
    let all = [
        Pairs { key: "pairs", name: "4 ping-pong pairs on 2 CPUs", pairs: 4, ..ALONE },
        Pairs { key: "one-cpu", name: "ping-pong, both sides on 1 CPU", cpus: 1, ..ALONE },
        Pairs {
            key: "one-cpu-hog",
            name: "ping-pong, both sides and a hog on 1 CPU",
            cpus: 1,
            hogs: 1,
            ..ALONE
        },
        Pairs { key: "hogs", name: "ping-pong beside 2 CPU hogs", hogs: 2, ..ALONE },
        Pairs { key: "rate", name: "1000 requests a second", rate_hz: Some(1000), ..ALONE },
        Pairs {
            key: "rate-no-spin",
            name: "1000 requests a second, no spinning",
            rate_hz: Some(1000),
            spin_us: Some("0"),
            ..ALONE
        },
        Pairs {
            key: "rate-spread",
            name: "1000 requests a second over 50 connections",
            rate_hz: Some(1000),
            connections: 50,
            ..ALONE
        },
        Pairs {
            key: "threads",
            name: "16 connections, each with a thread at both ends, on 2 CPUs",
            connections: 16,
            threads: true,
            ..ALONE
        },
        Pairs {
            key: "threads-hogs",
            name: "8 connections, each with a thread at both ends, beside 2 CPU hogs",
            connections: 8,
            threads: true,
            hogs: 2,
            ..ALONE
        },
    ];
    all.into_iter().map(|pairs| Box::new(pairs) as Box<dyn Workload>).collect()
}

impl Pairs {
    fn start(&self, stage: &Stage, side: Side, how: How, role: &[&str]) -> anyhow::Result<Process> {
        let cpus: Vec<String> =
            cpus::allowed()?.iter().take(self.cpus).map(ToString::to_string).collect();
        let cpus = cpus.join(",");
        let arguments = [&["pingpong", "--cpus", &cpus], role].concat();
        let environment = self.spin_us.map(|spin_us| ("YASMIN_SPIN_US", spin_us));
        stage.start_own(side, how, environment, arguments)
    }
}

impl Workload for Pairs {
    fn key(&self) -> &'static str {
        self.key
    }

    fn name(&self) -> &str {
        self.name
    }

    fn unit(&self) -> Unit {
        if self.threads { Unit::PerSecond } else { Unit::Nanoseconds }
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn commands(&self) -> Vec<String> {
        let rate = self.rate_hz.map_or_else(String::new, |rate| format!(" --rate-hz {rate}"));
        let connections = match self.connections {
            1 => String::new(),
            connections => format!(" --connections {connections}"),
        };
        let threads = if self.threads { " --threads" } else { "" };
        let spin = self.spin_us.map_or_else(String::new, |us| format!("YASMIN_SPIN_US={us} "));
        vec![
            format!("{spin}yasmin pingpong serve ADDRESS:PORT  # {} of them", self.pairs),
            format!(
                "{spin}yasmin pingpong client ADDRESS:PORT --seconds \
                 SECONDS{rate}{connections}{threads}"
            ),
        ]
    }

    fn expect(&self) -> Expect {
        Expect::Either
    }

    /// The mean of the pairs' medians, or round trips a second.
    fn measure(&self, stage: &Stage, how: How, seconds: u32) -> anyhow::Result<Measured> {
        let mut hogs = Vec::new();
        for _ in 0..self.hogs {
            hogs.push(self.start(stage, Side::Client, How::Plain, &["hog"])?);
        }
        let (seconds_text, size) = (seconds.to_string(), MESSAGE_BYTES.to_string());
        let mut servers = Vec::new();
        let mut clients = Vec::new();
        for _ in 0..self.pairs {
            let port = stage.port()?;
            let address = format!("{}:{port}", stage.address());
            let mut server = self.start(stage, Side::Server, how, &["serve", &address])?;
            server.listens(port, READY)?;
            servers.push(server);
            let mut role =
                vec!["client", &address, "--seconds", &seconds_text, "--message-bytes", &size];
            let rate = self.rate_hz.map(|rate| rate.to_string());
            if let Some(rate) = &rate {
                role.extend(["--rate-hz", rate]);
            }
            let connections = self.connections.to_string();
            role.extend(["--connections", &connections]);
            if self.threads {
                role.push("--threads");
            }
            clients.push(self.start(stage, Side::Client, how, &role)?);
        }
        let (mut sum_ns, mut rounds) = (0.0, 0);
        for client in clients {
            let answer = parse(&client.finish(limit(seconds))?)?;
            sum_ns += answer.p50_ns;
            rounds += answer.rounds;
        }
        let value = if self.threads {
            rounds as f64 / f64::from(seconds)
        } else {
            sum_ns / self.pairs as f64
        };
        Ok(Measured { value, payload_bytes: 2 * rounds * MESSAGE_BYTES })
    }
}

fn parse(output: &str) -> anyhow::Result<Answer> {
    let json = output.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(json).with_context(|| format!("the client said: {output}"))
}
