//! The figures of `make vm-bench` as SVG: `vm-figures FOLDER` reads results.json there.

use std::error::Error;
use std::path::{Path, PathBuf};

use serde_json::Value;
use yasmin_measure::plot::{self, Axis, Chart, Legend, Line, Scale, lines, sheet, short};

const SIZE: (u32, u32) = (720, 460);
/// Paths between guests, and how each is drawn.
const PATHS: [(&str, usize); 3] = [("yasmin", 0), ("netfront", 1), ("libvchan", 3)];
/// Small rings are dotted; the largest is a full line. By KiB.
const DASHES: [(u32, (u32, u32)); 3] = [(4, (2, 4)), (16, (5, 4)), (64, (11, 4))];

/// One figure: what of results.json it shows, and how.
struct Figure {
    key: &'static str,
    file: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    show: fn(f64) -> String,
    scales: (Scale, Scale),
    legend: Legend,
}

const FIGURES: [Figure; 4] = [
    Figure {
        key: "latency_us",
        file: "figure4-latency",
        title: "Round trip between two guests",
        x: "message",
        y: "us, virtual time",
        show: bytes,
        scales: (Scale::Doublings, Scale::Decades),
        legend: Legend::LowerRight,
    },
    Figure {
        key: "gbit_s",
        file: "figure5-throughput",
        title: "Throughput between two guests",
        x: "bytes in a call",
        y: "Gbit/s, virtual time",
        show: bytes,
        scales: (Scale::Doublings, Scale::Decades),
        legend: Legend::UpperLeft,
    },
    Figure {
        key: "ring_gbit_s",
        file: "figure6-rings",
        title: "Throughput by ring, 64 KiB a call",
        x: "ring each way",
        y: "Gbit/s, virtual time",
        show: kibibytes,
        scales: (Scale::Doublings, Scale::Decades),
        legend: Legend::LowerRight,
    },
    Figure {
        key: "pairs_gbit_s",
        file: "figure7-pairs",
        title: "Pairs of guests at once, one emulated CPU for all",
        x: "pairs",
        y: "Gbit/s of all, virtual time",
        show: whole,
        scales: (Scale::Linear, Scale::Linear),
        legend: Legend::MiddleRight,
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).map(PathBuf::from).ok_or("usage: vm-figures FOLDER")?;
    let path = folder.join("results.json");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("{}: {error}; run make vm-bench first", path.display()))?;
    let results: Value = serde_json::from_str(&text)?;
    for figure in FIGURES {
        // `--only` may have left it out.
        if let Some(rows) = results.get(figure.key) {
            draw(&figure, rows, &folder)?;
        }
    }
    println!("plots: {}/figure*.svg", folder.display());
    Ok(())
}

fn draw(figure: &Figure, rows: &Value, folder: &Path) -> Result<(), Box<dyn Error>> {
    let rows = rows.as_object().ok_or_else(|| format!("{} is no object", figure.key))?;
    let mut all = Vec::new();
    for (name, row) in rows {
        all.push(line(name, row).ok_or_else(|| format!("{}, {name}: {row}", figure.key))?);
    }
    // Path by path, the largest ring first.
    all.sort_by_key(|(order, _)| *order);
    let all: Vec<Line> = all.into_iter().map(|(_, line)| line).collect();
    let chart = Chart {
        title: figure.title,
        x: Axis { name: figure.x, scale: figure.scales.0, show: &figure.show },
        y: Axis { name: figure.y, scale: figure.scales.1, show: &short },
        legend: figure.legend.clone(),
    };
    let svg = sheet(1, 1, SIZE, |_, area| lines(area, &chart, &all))?;
    let path = folder.join(figure.file).with_extension("svg");
    Ok(std::fs::write(&path, svg).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// A path's line and its place: `name` is `PATH` or `PATH RING KiB`, `row` has a value for each x.
fn line(name: &str, row: &Value) -> Option<((usize, u32), Line)> {
    let mut words = name.split(' ');
    let path = words.next()?;
    let order = PATHS.iter().position(|(known, _)| *known == path)?;
    let ring_kib: u32 = words.next().map_or(Ok(0), str::parse).ok()?;
    let mut points = Vec::new();
    for (x, value) in row.as_object()? {
        points.push((x.parse::<f64>().ok()?, value.as_f64()?));
    }
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut line = Line::new(name, plot::colour(PATHS[order].1), points);
    line.dash = DASHES.iter().find(|(kib, _)| *kib == ring_kib).map(|(_, dash)| *dash);
    Some(((order, u32::MAX - ring_kib), line))
}

fn bytes(value: f64) -> String {
    let units = [(1024.0 * 1024.0, "MiB"), (1024.0, "KiB")];
    match units.into_iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{:.0} {name}", value / unit),
        None => format!("{value:.0} B"),
    }
}

fn kibibytes(value: f64) -> String {
    bytes(1024.0 * value)
}

/// Half a pair is none.
fn whole(value: f64) -> String {
    if value.fract().abs() < 0.01 { format!("{value:.0}") } else { String::new() }
}
