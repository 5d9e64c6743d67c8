//! Latency and bandwidth against message size, one line for each way, both axes logarithmic.

use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::full_palette::{BLUE_600, GREEN_700, GREY_600, ORANGE_700, RED_600};

use super::report::{Report, Series};
use crate::figure;

const SIZE: (u32, u32) = (1100, 480);
const FONT: (&str, u32) = ("sans-serif", 13);
const HEADING: (&str, u32) = ("sans-serif", 16);
const COLOURS: [(&str, RGBColor); 5] = [
    ("cache line", GREY_600),
    ("memcpy", GREEN_700),
    ("ring", RED_600),
    ("unix", ORANGE_700),
    ("tcp", BLUE_600),
];

pub fn draw(report: &Report) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let (left, right) = area.split_horizontally(SIZE.0 / 2);
        let place = SeriesLabelPosition::UpperLeft;
        chart(&left, "latency, one way", &report.latency_ns, figure::nanoseconds, place)?;
        let place = SeriesLabelPosition::LowerRight;
        chart(&right, "bandwidth", &report.bandwidth_bytes_s, figure::bytes_s, place)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot cannot be drawn: {error}")
}

fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    all: &[Series],
    show: fn(f64) -> String,
    legend: SeriesLabelPosition,
) -> anyhow::Result<()> {
    let points = || all.iter().flat_map(|series| &series.points);
    let sizes = points().map(|point| point.message_bytes as f64);
    let (least, most) = ends(sizes).ok_or_else(|| anyhow!("nothing was measured"))?;
    let values = points().map(|point| point.spread.median);
    let (low, high) = ends(values).ok_or_else(|| anyhow!("nothing was measured"))?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, HEADING)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(76)
        .build_cartesian_2d(
            (least..most).log_scale().base(4.0),
            (low / 1.5..high * 1.5).log_scale(),
        )
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(FONT)
        .x_desc("message size")
        .x_label_formatter(&|size| indicatif::BinaryBytes(size.round() as u64).to_string())
        .y_label_formatter(&|value| show(*value))
        .draw()
        .map_err(failed)?;
    for series in all {
        let colour = COLOURS.iter().find(|(path, _)| *path == series.path);
        let style = colour.map_or(BLACK, |(_, colour)| *colour).stroke_width(2);
        let at =
            series.points.iter().map(|point| (point.message_bytes as f64, point.spread.median));
        chart
            .draw_series(LineSeries::new(at, style).point_size(3))
            .map_err(failed)?
            .label(series.path)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.85))
        .border_style(TRANSPARENT)
        .label_font(FONT)
        .draw()
        .map_err(failed)
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}
