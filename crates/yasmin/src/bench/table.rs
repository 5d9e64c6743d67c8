//! The report as text.

use comfy_table::Table;
use indicatif::BinaryBytes;

use super::report::{Report, Series, find};
use yasmin_measure::{figure, table};

const KIB_64: usize = 64 << 10;

pub fn draw(report: &Report) -> String {
    let (first, second) = (report.pinned_to.first, report.pinned_to.second);
    let mut text = format!(
        "{}\nsides pinned to CPU {first} and CPU {second}; medians of {} repetitions, \
         in brackets lowest and highest\n\nlatency, one way\n{}\nbandwidth\n{}\n",
        report.environment.line(),
        report.repetitions,
        grid(&report.latency_ns, figure::nanoseconds),
        grid(&report.bandwidth_bytes_s, figure::bytes_s),
    );
    for line in ratios(report) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn grid(all: &[Series], show: fn(f64) -> String) -> Table {
    let paths = all.iter().map(|series| series.path);
    let mut sizes: Vec<usize> =
        all.iter().flat_map(|series| &series.points).map(|point| point.message_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let rows = sizes.into_iter().map(|size| {
        let cell = |series: &Series| {
            let point = series.points.iter().find(|point| point.message_bytes == size);
            point.map_or_else(String::new, |point| table::spread(&point.spread, show))
        };
        std::iter::once(BinaryBytes(size as u64).to_string()).chain(all.iter().map(cell)).collect()
    });
    table::draw(std::iter::once("message").chain(paths), 0, rows)
}

/// The comparisons that the ring is judged by.
fn ratios(report: &Report) -> Vec<String> {
    let latency = |path| find(&report.latency_ns, path, 1);
    let bandwidth = |path| find(&report.bandwidth_bytes_s, path, KIB_64);
    let mut lines = Vec::new();
    if let (Some(ring), Some(floor), Some(tcp)) =
        (latency("ring"), latency("cache line"), latency("tcp"))
    {
        lines.push(format!(
            "1 B one way: ring {:.2}x the cache-line floor, {:.0}x below TCP",
            ring / floor,
            tcp / ring
        ));
    }
    if let (Some(ring), Some(limit), Some(tcp)) =
        (bandwidth("ring"), bandwidth("memcpy"), bandwidth("tcp"))
    {
        lines.push(format!(
            "64 KiB stream: ring {:.1}x TCP, {:.0} % of the two-copy limit",
            ring / tcp,
            100.0 * ring / limit
        ));
    }
    lines
}
