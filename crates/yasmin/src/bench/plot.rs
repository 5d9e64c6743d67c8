//! Latency and bandwidth against message size, one line for each way, both axes by ratios.

use indicatif::BinaryBytes;
use yasmin_measure::figure;
use yasmin_measure::plot::{self, Axis, Chart, Legend, Line, Scale, lines, sheet};

use super::report::{Report, Series};

/// Pixels of each chart.
const SIZE: (u32, u32) = (550, 480);

pub fn draw(report: &Report) -> Result<String, plot::Error> {
    let size = |bytes: f64| BinaryBytes(bytes.round() as u64).to_string();
    sheet(2, 2, SIZE, |at, area| {
        let (title, series, show, legend): (_, _, fn(f64) -> String, _) = match at {
            0 => ("latency, one way", &report.latency_ns, figure::nanoseconds, Legend::UpperLeft),
            _ => ("bandwidth", &report.bandwidth_bytes_s, figure::bytes_s, Legend::LowerRight),
        };
        let chart = Chart {
            title,
            x: Axis { name: "message size", scale: Scale::Doublings, show: &size },
            y: Axis { name: "", scale: Scale::Decades, show: &show },
            legend,
        };
        lines(area, &chart, &series.iter().enumerate().map(line).collect::<Vec<_>>())
    })
}

fn line((at, series): (usize, &Series)) -> Line {
    let colour = match series.path {
        "ring" => plot::RINGS,
        "tcp" => plot::TCP,
        // The two are taken.
        _ => plot::colour(at + 2),
    };
    let points = series.points.iter();
    let points = points.map(|point| (point.message_bytes as f64, point.spread.median));
    Line::new(series.path, colour, points)
}
