//! Lines: a value against another, by way.

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::axis::Span;
use super::{Area, Axis, Colour, Error, FONT, HEADING, Legend, Scale, failed, nothing};

pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub colour: Colour,
    /// Pixels drawn and left out by turns; a full line has none.
    pub dash: Option<(u32, u32)>,
}

impl Line {
    /// A full line.
    pub fn new(name: &str, colour: Colour, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.to_owned(), points: points.into_iter().collect(), colour, dash: None }
    }
}

/// What stands around the lines.
pub struct Chart<'a> {
    pub title: &'a str,
    pub x: Axis<'a>,
    pub y: Axis<'a>,
    /// Where the lines' names stand; more than a few stand beside the chart.
    pub legend: Legend,
}

/// Lines of no more points than these show where they were measured.
const DOTTED: usize = 30;
/// Names of more lines than these would cover the lines.
const INSIDE: usize = 6;
/// Pixels for names beside the chart.
const NAMES: u32 = 150;
/// What a scale of ratios shows beyond its values: a quarter.
const ROOM: f64 = 1.25;

pub fn lines(area: &Area<'_>, chart: &Chart<'_>, all: &[Line]) -> Result<(), Error> {
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let values = || all.iter().flat_map(|line| &line.points).map(of);
        (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
    };
    let ((x0, x1), (y0, y1)) = (ends(|point| point.0), ends(|point| point.1));
    if !(x0.is_finite() && y1 > 0.0) {
        return nothing(area, chart.title);
    }
    let (low, high) = match chart.y.scale {
        Scale::Linear => (0.0, 1.08 * y1),
        Scale::Decades | Scale::Doublings => (y0 / ROOM, y1 * ROOM),
    };
    let width = area.dim_in_pixel().0;
    let beside = all.len() > INSIDE;
    let (area, names) =
        area.split_horizontally(width.saturating_sub(if beside { NAMES } else { 0 }));
    let mut drawn = ChartBuilder::on(&area)
        .caption(chart.title, HEADING)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(36)
        .y_label_area_size(76)
        .build_cartesian_2d(Span::new(chart.x.scale, x0, x1), Span::new(chart.y.scale, low, high))
        .map_err(failed)?;
    drawn
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(FONT)
        .x_desc(chart.x.name)
        .y_desc(chart.y.name)
        .x_label_formatter(&|x| (chart.x.show)(*x))
        .y_label_formatter(&|y| (chart.y.show)(*y))
        .draw()
        .map_err(failed)?;
    for line in all {
        let style = line.colour.stroke_width(2);
        let points = || line.points.iter().copied();
        let series = match line.dash {
            None => drawn.draw_series(LineSeries::new(points(), style)),
            Some((on, off)) => drawn.draw_series(DashedLineSeries::new(points(), on, off, style)),
        };
        series.map_err(failed)?.label(&line.name).legend(move |at| sample(line.dash, style, at));
        if line.points.len() <= DOTTED {
            let dots = points().map(|at| Circle::new(at, 3, line.colour.filled()));
            drawn.draw_series(dots).map_err(failed)?;
        }
    }
    if beside {
        return names_of(&names, all);
    }
    drawn
        .configure_series_labels()
        .position(chart.legend.clone())
        .background_style(WHITE.mix(0.85))
        .border_style(TRANSPARENT)
        .label_font(FONT)
        .draw()
        .map_err(failed)
}

/// The lines' names below each other.
fn names_of(area: &Area<'_>, all: &[Line]) -> Result<(), Error> {
    let style = FONT.into_font().color(&BLACK);
    for (row, line) in (0..).zip(all) {
        let y = 44 + 18 * row;
        area.draw(&sample(line.dash, line.colour.stroke_width(2), (0, y + 6))).map_err(failed)?;
        area.draw_text(&line.name, &style, (24, y)).map_err(failed)?;
    }
    Ok(())
}

/// A short piece of a line, before its name.
fn sample<'a>(
    dash: Option<(u32, u32)>,
    style: ShapeStyle,
    (x, y): (i32, i32),
) -> DynElement<'static, SVGBackend<'a>, (i32, i32)> {
    let ends = [(x, y), (x + 18, y)];
    match dash {
        None => PathElement::new(ends, style).into_dyn(),
        Some((on, off)) => DashedPathElement::new(ends, on, off, style).into_dyn(),
    }
}
