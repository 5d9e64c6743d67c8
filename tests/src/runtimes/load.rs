//! One run of a load on a server, and what it carried.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Protocol, Runtime, Server, build};
use crate::lab::Lab;
use crate::process::{Process, eventually};
use crate::status::Status;

pub const CONNECTIONS: u32 = 64;

/// What a load carried, after its warm-up.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    pub requests_per_s: f64,
    /// Bytes by ring, and by TCP where there is a channel: to the server, and back.
    pub to_server: [u64; 2],
    pub to_client: [u64; 2],
    /// Times that a direction went from open to parked, to the server and back.
    pub parked: [u64; 2],
    /// Nanoseconds of CPU that server and client took.
    pub cpu_ns: [u64; 2],
    /// How many of the connections have a channel, and why the others have none.
    pub channels: u32,
    pub reasons: BTreeMap<String, u32>,
}

impl Carried {
    /// In percent; `total_bytes` were carried by ring, TCP with a channel and TCP without.
    pub fn ring_percent(&self, total_bytes: u64) -> f64 {
        (self.to_server[0] + self.to_client[0]) as f64 * 100.0 / total_bytes.max(1) as f64
    }

    fn add(&mut self, status: &Status, client: u32, sign: i64) {
        let count = |to: &mut u64, more: u64| {
            *to = to.wrapping_add(more.wrapping_mul(sign.cast_unsigned()));
        };
        for one in &status.connections {
            if !one.ends.iter().any(|end| end.pid == client) {
                continue;
            }
            for end in &one.ends {
                let at = usize::from(end.pid == client);
                let to = if at == 1 { &mut self.to_server } else { &mut self.to_client };
                count(&mut to[0], end.sends.ring_bytes);
                count(&mut to[1], end.sends.tcp_bytes);
                count(&mut self.parked[1 - at], end.sends.parked);
            }
        }
    }

    fn note_channels(&mut self, status: &Status) {
        for one in &status.connections {
            match &one.reason {
                None => self.channels += 1,
                Some(reason) => *self.reasons.entry(reason.clone()).or_default() += 1,
            }
        }
    }
}

/// A server with its client, both started.
pub struct Running<'a> {
    lab: &'a Lab,
    pub server: Process,
    pub client: Process,
}

impl<'a> Running<'a> {
    /// `runtimes` is this package's program of that name.
    #[track_caller]
    pub fn start(
        lab: &'a Lab,
        runtime: &Runtime,
        server: &Server,
        runtimes: &Path,
        requests: u32,
    ) -> Self {
        let mut process = lab.start(runtime.name, &lab.a, &server.program, &server.arguments);
        let port = match server.port {
            None => process.expect("port "),
            Some(port) => {
                process.wait_until_listening(&lab.a, port);
                port.to_string()
            }
        };
        let at = [lab.a.v4().to_string(), port.trim().to_owned()];
        let (program, first) = match runtime.protocol {
            Protocol::Bytes => (runtimes.to_owned(), vec!["drive".to_owned()]),
            Protocol::Redis => (runtimes.to_owned(), vec!["drive-redis".to_owned()]),
            Protocol::Grpc(how) => {
                let source = build::source("runtimes/grpc_echo.py");
                let python = build::python_with_grpc().unwrap_or_default();
                (python, vec![source, "drive".to_owned(), how.to_owned()])
            }
        };
        let last = [CONNECTIONS.to_string(), requests.to_string()];
        let arguments = [&first[..], &at, &last].concat();
        let client = lab.start("client", &lab.b, &program, &arguments);
        Self { lab, server: process, client }
    }

    fn count(&self, carried: &mut Carried, sign: i64) {
        if let Some(status) = self.lab.status() {
            carried.add(&status, self.client.pid(), sign);
            if sign > 0 {
                carried.note_channels(&status);
            }
        }
        for (ns, process) in carried.cpu_ns.iter_mut().zip([&self.server, &self.client]) {
            *ns = ns.wrapping_add(process.cpu_ns().wrapping_mul(sign.cast_unsigned()));
        }
    }

    /// The load, from the end of its warm-up on.
    #[track_caller]
    pub fn measure(&mut self) -> Carried {
        let mut carried = Carried::default();
        self.client.expect("warm");
        self.count(&mut carried, -1);
        self.client.say("go");
        let rate = self.client.expect("rate=");
        carried.requests_per_s = rate.parse().unwrap_or(f64::NAN);
        self.client.expect("done");
        self.count(&mut carried, 1);
        self.client.say("end");
        self.client.finish();
        self.server.kill();
        // So that the next load's connections are not taken for these.
        if self.lab.proves() {
            let status = || self.lab.status();
            eventually(
                "the end of all connections",
                || status().filter(|status| status.connections.is_empty()).map(drop),
                || format!("{:?}", status().map(|status| status.connections.len())),
            );
        }
        carried
    }
}

/// Starts a server and its load, and measures.
#[track_caller]
pub fn run(lab: &Lab, runtime: &Runtime, server: &Server, runtimes: &Path, n: u32) -> Carried {
    Running::start(lab, runtime, server, runtimes, n).measure()
}
