//! Samples as dots on an axis of equal ratios, a row for each way.

use plotters::prelude::*;

use super::axis::Span;
use super::{Area, Colour, Error, FONT, Scale, failed, sheet};

const DOT: i32 = 5;
/// What the axis shows beyond the samples.
const ROOM: f64 = 1.6;

pub struct Row<'a> {
    pub name: &'a str,
    pub samples: &'a [f64],
    pub colour: Colour,
}

/// A plot of `size` pixels; the first row is the lowest. `None` where there are no samples, or one
/// is not above zero.
pub fn dots(
    size: (u32, u32),
    rows: &[Row<'_>],
    show: impl Fn(f64) -> String,
) -> Result<Option<String>, Error> {
    let values = || rows.iter().flat_map(|row| row.samples).copied();
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0, f64::max);
    if !(low.is_finite() && low > 0.0) {
        return Ok(None);
    }
    let ends = Span::new(Scale::Decades, low / ROOM, high * ROOM);
    sheet(1, 1, size, |_, area| draw(area, rows, ends, &show)).map(Some)
}

fn draw(
    area: &Area<'_>,
    rows: &[Row<'_>],
    ends: Span,
    show: &dyn Fn(f64) -> String,
) -> Result<(), Error> {
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_right(30)
        .x_label_area_size(28)
        .y_label_area_size(80)
        .build_cartesian_2d(ends, -0.5..rows.len() as f64 - 0.5)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(FONT)
        .y_labels(2 * rows.len())
        .y_label_formatter(&|at: &f64| name(*at, rows))
        .x_label_formatter(&|value| show(*value))
        .draw()
        .map_err(failed)?;
    for (at, row) in rows.iter().enumerate() {
        let style = row.colour.mix(0.5).filled();
        let dots = row.samples.iter().map(|value| Circle::new((*value, at as f64), DOT, style));
        chart.draw_series(dots).map_err(failed)?;
    }
    Ok(())
}

/// Of the row at a mark of the axis; marks between rows have none.
fn name(mark: f64, rows: &[Row<'_>]) -> String {
    let at = mark.round();
    let row = if (mark - at).abs() < 0.1 && at >= 0.0 { rows.get(at as usize) } else { None };
    row.map_or_else(String::new, |row| row.name.to_owned())
}
