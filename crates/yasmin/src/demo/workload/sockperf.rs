//! sockperf ping-pong: half a round trip of 64 bytes.

use anyhow::Context;

use super::{Measured, READY, Workload, limit};
use crate::demo::stage::{How, Side, Stage};
use yasmin_measure::unit::Unit;

pub struct PingPong;

const MESSAGE_BYTES: u64 = 64;
/// sockperf aborts when it runs faster than its own limit on messages a second.
const RATE: &str = "--mps=500000";

impl Workload for PingPong {
    fn key(&self) -> &'static str {
        "sockperf"
    }

    fn name(&self) -> &str {
        "sockperf ping-pong, 64 B, median"
    }

    fn unit(&self) -> Unit {
        Unit::Nanoseconds
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        &[("sockperf", "sockperf")]
    }

    fn commands(&self) -> Vec<String> {
        vec![
            "sockperf server --tcp -i ADDRESS".into(),
            format!("sockperf ping-pong --tcp -i ADDRESS -t SECONDS -m {MESSAGE_BYTES} {RATE}"),
        ]
    }

    fn measure(&self, stage: &Stage, how: How, seconds: u32) -> anyhow::Result<Measured> {
        let port = stage.port()?.to_string();
        let place = ["--tcp", "-i", stage.address(), "-p", &port];
        let arguments = [&["server"], place.as_slice()].concat();
        let mut server = stage.start(Side::Server, how, "sockperf", arguments)?;
        server.listens(port.parse()?, READY)?;
        let (time, size) = (seconds.to_string(), MESSAGE_BYTES.to_string());
        let what = ["-t", &time, "-m", &size, RATE];
        let arguments = [&["ping-pong"], place.as_slice(), &what].concat();
        let client = stage.start(Side::Client, how, "sockperf", arguments)?;
        let output = client.finish(limit(seconds))?;
        parse(&output).with_context(|| format!("sockperf said: {output}"))
    }
}

fn parse(output: &str) -> anyhow::Result<Measured> {
    let after = |words: &str| {
        let rest = &output[output.find(words)? + words.len()..];
        let rest = rest.trim_start_matches([' ', '=']);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        rest[..end].parse::<f64>().ok()
    };
    let median_us = after("percentile 50.000").context("no median in it")?;
    let messages = after("ReceivedMessages").context("no messages in it")? as u64;
    Ok(Measured { value: median_us * 1000.0, payload_bytes: 2 * messages * MESSAGE_BYTES })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_sockperf_prints() {
        let output = "sockperf: [Total Run] RunTime=1.000 sec; SentMessages=143; \
             ReceivedMessages=142\nsockperf: ---> percentile 75.000 =    3.224\n\
             sockperf: ---> percentile 50.000 =    0.142\n";
        let measured = parse(output).unwrap();
        assert_eq!((measured.value, measured.payload_bytes), (142.0, 2 * 142 * 64));
        assert!(parse("sockperf: ERROR").is_err());
    }
}
