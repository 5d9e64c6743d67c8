//! What came out: for each way and size the samples, their median and their spread.

use serde::Serialize;

use super::Latency;
use yasmin_measure::cpus::Pair;
use yasmin_measure::environment::Environment;
use yasmin_measure::spread::Spread;

#[derive(Serialize)]
pub struct Report {
    pub environment: Environment,
    pub pinned_to: Pair,
    pub repetitions: usize,
    pub warnings: Vec<String>,
    /// One-way nanoseconds: medians of repetitions, each the median of its messages.
    pub latency_ns: Vec<Series>,
    /// The 99th percentiles likewise.
    pub latency_p99_ns: Vec<Series>,
    pub bandwidth_bytes_s: Vec<Series>,
}

/// One way's figures, by message size.
#[derive(Serialize)]
pub struct Series {
    pub path: &'static str,
    pub points: Vec<Point>,
}

#[derive(Serialize)]
pub struct Point {
    pub message_bytes: usize,
    #[serde(flatten)]
    pub spread: Spread,
}

impl Report {
    pub fn new(
        environment: Environment,
        pinned_to: Pair,
        repetitions: usize,
        warnings: Vec<String>,
    ) -> Self {
        Self {
            environment,
            pinned_to,
            repetitions,
            warnings,
            latency_ns: Vec::new(),
            latency_p99_ns: Vec::new(),
            bandwidth_bytes_s: Vec::new(),
        }
    }

    pub fn add_latency(&mut self, path: &'static str, message_bytes: usize, latency: Latency) {
        add(&mut self.latency_ns, path, message_bytes, latency.p50_ns);
        add(&mut self.latency_p99_ns, path, message_bytes, latency.p99_ns);
    }

    pub fn add_bandwidth(&mut self, path: &'static str, message_bytes: usize, bytes_s: f64) {
        add(&mut self.bandwidth_bytes_s, path, message_bytes, bytes_s);
    }

    pub fn finish(&mut self) {
        let all = [&mut self.latency_ns, &mut self.latency_p99_ns, &mut self.bandwidth_bytes_s];
        for point in all.into_iter().flatten().flat_map(|series| &mut series.points) {
            point.spread.finish();
        }
    }
}

fn add(all: &mut Vec<Series>, path: &'static str, message_bytes: usize, sample: f64) {
    let at = all.iter().position(|series| series.path == path).unwrap_or_else(|| {
        all.push(Series { path, points: Vec::new() });
        all.len() - 1
    });
    let points = &mut all[at].points;
    match points.iter_mut().find(|point| point.message_bytes == message_bytes) {
        Some(point) => point.spread.add(sample),
        None => points.push(Point { message_bytes, spread: Spread::of(vec![sample]) }),
    }
}

/// The median of `path` at `message_bytes`.
pub fn find(all: &[Series], path: &str, message_bytes: usize) -> Option<f64> {
    let series = all.iter().find(|series| series.path == path)?;
    let point = series.points.iter().find(|point| point.message_bytes == message_bytes)?;
    Some(point.spread.median)
}
