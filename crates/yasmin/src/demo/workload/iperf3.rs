//! iperf3, one stream.

use anyhow::Context;

use super::{Measured, READY, Workload, limit};
use crate::demo::stage::{How, Side, Stage};
use yasmin_measure::unit::Unit;

pub struct Stream;

impl Workload for Stream {
    fn key(&self) -> &'static str {
        "iperf3"
    }

    fn name(&self) -> &str {
        "iperf3, one stream"
    }

    fn unit(&self) -> Unit {
        Unit::BitsPerSecond
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        &[("iperf3", "iperf3")]
    }

    fn commands(&self) -> Vec<String> {
        vec!["iperf3 -s".into(), "iperf3 -c ADDRESS -t SECONDS -J".into()]
    }

    fn measure(&self, stage: &Stage, how: How, seconds: u32) -> anyhow::Result<Measured> {
        let port = stage.port()?.to_string();
        let mut server = stage.start(Side::Server, how, "iperf3", ["-s", "-1", "-p", &port])?;
        server.listens(port.parse()?, READY)?;
        let time = seconds.to_string();
        let arguments = ["-c", stage.address(), "-p", &port, "-t", &time, "-J"];
        let client = stage.start(Side::Client, how, "iperf3", arguments)?;
        let output = client.finish(limit(seconds))?;
        parse(&output).with_context(|| format!("iperf3 said: {output}"))
    }
}

fn parse(output: &str) -> anyhow::Result<Measured> {
    // A line of another program may come before.
    let json = output.find('{').map_or(output, |at| &output[at..]);
    let report: serde_json::Value = serde_json::from_str(json)?;
    let received = &report["end"]["sum_received"];
    let value = received["bits_per_second"].as_f64().context("no rate in it")?;
    let payload_bytes = received["bytes"].as_u64().context("no bytes in it")?;
    Ok(Measured { value, payload_bytes })
}
