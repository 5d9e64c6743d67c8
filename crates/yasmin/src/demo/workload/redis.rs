//! redis-server and redis-benchmark: 50 clients, no pipelining, the key present.

use anyhow::Context;

use super::{Measured, READY, Workload, limit};
use crate::demo::process::Process;
use crate::demo::stage::{How, Side, Stage};
use yasmin_measure::unit::Unit;

pub struct Benchmark {
    test: &'static str,
    key: &'static str,
    name: &'static str,
}

/// Requests from which the rate is guessed; they also bring every connection to its ring.
const TRIAL: u64 = 100_000;
/// A request and its reply are at least so long.
const REQUEST_BYTES: u64 = 40;

impl Benchmark {
    pub fn get() -> Self {
        Self { test: "get", key: "redis-get", name: "redis-benchmark GET, 50 clients" }
    }

    pub fn set() -> Self {
        Self { test: "set", key: "redis-set", name: "redis-benchmark SET, 50 clients" }
    }

    fn client(
        &self,
        stage: &Stage,
        how: How,
        port: &str,
        requests: u64,
    ) -> anyhow::Result<Process> {
        let requests = requests.to_string();
        let place = ["-h", stage.address(), "-p", port, "-t", self.test];
        let what = ["-c", "50", "-P", "1", "-n", &requests, "--csv"];
        stage.start(Side::Client, how, "redis-benchmark", [place.as_slice(), &what].concat())
    }
}

impl Workload for Benchmark {
    fn key(&self) -> &'static str {
        self.key
    }

    fn name(&self) -> &str {
        self.name
    }

    fn unit(&self) -> Unit {
        Unit::PerSecond
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        &[("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")]
    }

    fn commands(&self) -> Vec<String> {
        vec![
            "redis-server --bind ADDRESS --save '' --appendonly no --protected-mode no".into(),
            format!("redis-benchmark -h ADDRESS -t {} -c 50 -P 1 -n REQUESTS --csv", self.test),
        ]
    }

    fn measure(&self, stage: &Stage, how: How, seconds: u32) -> anyhow::Result<Measured> {
        let port = stage.port()?.to_string();
        let place = ["--port", &port, "--bind", stage.address(), "--protected-mode", "no"];
        let keep = ["--save", "", "--appendonly", "no"];
        let arguments = [place.as_slice(), &keep].concat();
        let mut server = stage.start(Side::Server, how, "redis-server", arguments)?;
        server.listens(port.parse()?, READY)?;
        // The key that is to be got.
        let fill = Self::set().client(stage, how, &port, 1000)?;
        fill.finish(limit(seconds))?;
        let trial = self.client(stage, how, &port, TRIAL)?.finish(limit(seconds))?;
        let requests = (parse(&trial)? * f64::from(seconds)) as u64;
        let output = self.client(stage, how, &port, requests.max(TRIAL))?.finish(limit(seconds))?;
        Ok(Measured {
            value: parse(&output)?,
            payload_bytes: (requests.max(TRIAL) + TRIAL) * REQUEST_BYTES,
        })
    }
}

/// Requests a second, from the line after the headings: `"GET","114416.48",...`.
fn parse(output: &str) -> anyhow::Result<f64> {
    let rate = |line: &str| line.split(',').nth(1)?.trim_matches('"').parse::<f64>().ok();
    output.lines().find_map(rate).with_context(|| format!("redis-benchmark said: {output}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_redis_benchmark_prints() {
        let output = "\"test\",\"rps\",\"avg\"\n\"GET\",\"114416.48\",\"0.283\"\n";
        assert_eq!(parse(output).unwrap(), 114_416.48);
        assert!(parse("Could not connect").is_err());
    }
}
