//! Prometheus metrics of a running `watch`, served at /metrics.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::anyhow;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use yasmin_watch::watch::{Counts, Watch};

/// What is served, as of the last look.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    counts: Counts,
    functions: Vec<(String, Option<u32>)>,
    edges: Vec<(String, String, f64, f64)>,
    cpu_s: f64,
}

impl Snapshot {
    pub fn of(watch: &Watch) -> Self {
        let engine = watch.engine();
        let pinned = engine.pinned();
        let functions = engine.functions().iter();
        let edges = watch.edges().iter();
        Self {
            counts: watch.counts,
            functions: functions
                .map(|one| (one.name.clone(), pinned.get(&one.name).map(|cpu| cpu.0)))
                .collect(),
            edges: edges
                .map(|edge| (edge.a.to_string(), edge.b.to_string(), edge.rate, edge.dropped))
                .collect(),
            cpu_s: cpu_s(),
        }
    }
}

/// What this process has cost so far.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[derive(Debug)]
struct Latest(Arc<Mutex<Snapshot>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FunctionLabel {
    function: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EdgeLabel {
    a: String,
    b: String,
}

impl Collector for Latest {
    fn encode(&self, mut out: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let snapshot = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let counts = snapshot.counts;
        for (name, help, value) in [
            ("yasmin_place_looks", "Times that counters were read", counts.looks),
            ("yasmin_place_plans", "Times that placement was decided", counts.plans),
            ("yasmin_place_moves", "Functions that were moved", counts.moves),
            ("yasmin_place_failures", "Plans that could not be applied", counts.failures),
            ("yasmin_place_counter_resets", "Counters that ran backwards", counts.resets),
        ] {
            let counter = ConstCounter::new(value);
            counter.encode(out.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let cpu = ConstCounter::new(snapshot.cpu_s);
        let help = "CPU time of the loop itself";
        let kind = cpu.metric_type();
        cpu.encode(out.encode_descriptor("yasmin_place_cpu", help, Some(&Unit::Seconds), kind)?)?;
        let gauge = ConstGauge::new(counts.apply_s);
        let help = "How long the last moves took";
        let kind = gauge.metric_type();
        gauge.encode(out.encode_descriptor(
            "yasmin_place_apply",
            help,
            Some(&Unit::Seconds),
            kind,
        )?)?;
        let kind = ConstGauge::new(0_i64).metric_type();
        let help = "The CPU that a function was given";
        let mut family = out.encode_descriptor("yasmin_place_function_cpu", help, None, kind)?;
        for (function, cpu) in &snapshot.functions {
            let Some(cpu) = cpu else { continue };
            let label = FunctionLabel { function: function.clone() };
            ConstGauge::new(i64::from(*cpu)).encode(family.encode_family(&label)?)?;
        }
        let help = "Bytes a second between two functions, or a function and a card";
        let mut family = out.encode_descriptor("yasmin_place_edge_bytes_rate", help, None, kind)?;
        for (a, b, rate, _) in &snapshot.edges {
            let label = EdgeLabel { a: a.clone(), b: b.clone() };
            ConstGauge::new(*rate).encode(family.encode_family(&label)?)?;
        }
        let help = "Packets a second that are lost there";
        let mut family = out.encode_descriptor("yasmin_place_edge_lost_rate", help, None, kind)?;
        for (a, b, _, lost) in &snapshot.edges {
            let label = EdgeLabel { a: a.clone(), b: b.clone() };
            ConstGauge::new(*lost).encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }
}

pub struct Server {
    latest: Arc<Mutex<Snapshot>>,
    address: String,
}

impl Server {
    /// Answers on a thread of its own until the process ends.
    pub fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let server = tiny_http::Server::http(address)
            .map_err(|error| anyhow!("metrics at {address}: {error}"))?;
        let bound = server.server_addr().to_string();
        let latest = Arc::new(Mutex::new(Snapshot::default()));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Latest(Arc::clone(&latest))));
        std::thread::Builder::new().name("metrics".into()).spawn(move || {
            for request in server.incoming_requests() {
                let response = answer(&registry, request.url());
                let _ = request.respond(response);
            }
        })?;
        Ok(Self { latest, address: bound })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn set(&self, snapshot: Snapshot) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

fn answer(registry: &Registry, url: &str) -> tiny_http::Response<std::io::Cursor<Vec<u8>>> {
    let mut text = String::new();
    if url.split('?').next() != Some("/metrics") {
        return tiny_http::Response::from_string("try /metrics\n").with_status_code(404);
    }
    if encode(&mut text, registry).is_err() {
        return tiny_http::Response::from_string("cannot be encoded\n").with_status_code(500);
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let header = tiny_http::Header::from_bytes("Content-Type", kind);
    let response = tiny_http::Response::from_string(text);
    match header {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}
