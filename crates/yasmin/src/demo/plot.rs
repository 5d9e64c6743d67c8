//! A workload's samples as dots on a logarithmic axis, one row for each way.

use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::full_palette::{BLUE_600, RED_600};

use super::outcome::Outcome;
use super::unit::Unit;

const SIZE: (u32, u32) = (640, 130);
const FONT: (&str, u32) = ("sans-serif", 12);
const DOT: i32 = 5;

/// `None` where there is nothing to draw.
pub fn draw(outcome: &Outcome) -> anyhow::Result<Option<String>> {
    let rows = [("yasmin run", &outcome.rings, RED_600), ("plain TCP", &outcome.plain, BLUE_600)];
    let values = || rows.iter().flat_map(|(_, spread, _)| spread.samples.iter().copied());
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0, f64::max);
    if !(low.is_finite() && low > 0.0) {
        return Ok(None);
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .margin_right(30)
            .x_label_area_size(28)
            .y_label_area_size(80)
            .build_cartesian_2d((low / 1.6..high * 1.6).log_scale(), -0.5..1.5)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(FONT)
            .y_labels(3)
            .y_label_formatter(&|row: &f64| {
                let at = row.round();
                if (row - at).abs() > 0.1 {
                    String::new()
                } else {
                    name(at, &rows.map(|row| row.0))
                }
            })
            .x_label_formatter(&|value| tick(*value, outcome.unit))
            .draw()
            .map_err(failed)?;
        for (row, (_, spread, colour)) in rows.iter().enumerate() {
            let dots = spread
                .samples
                .iter()
                .map(|value| Circle::new((*value, row as f64), DOT, colour.mix(0.5).filled()));
            chart.draw_series(dots).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(Some(svg))
}

/// Where every tick had its label they would overlap: 1, 2, 5 and their decades have one.
fn tick(value: f64, unit: Unit) -> String {
    let mantissa = value / 10f64.powf(value.log10().floor());
    let has_label = [1.0, 2.0, 5.0, 10.0].iter().any(|round| (mantissa - round).abs() < 0.01);
    if has_label { unit.show(value) } else { String::new() }
}

fn name(row: f64, names: &[&str; 2]) -> String {
    names.get(row as usize).filter(|_| row >= 0.0).copied().unwrap_or_default().to_owned()
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot cannot be drawn: {error}")
}
