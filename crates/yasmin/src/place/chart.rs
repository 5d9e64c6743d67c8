//! Charts of lines and of bars, as SVG.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::full_palette::{
    BLUE_600, GREEN_700, GREY_600, ORANGE_700, PURPLE_600, RED_600, TEAL_600,
};

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const FONT: (&str, u32) = ("sans-serif", 13);
const HEADING: (&str, u32) = ("sans-serif", 16);
const COLOURS: [RGBColor; 7] =
    [RED_600, BLUE_600, GREEN_700, ORANGE_700, PURPLE_600, TEAL_600, GREY_600];

pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// What the axes are called, and whether values are shown on a scale of powers.
pub struct Axes<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub log_x: bool,
    pub log_y: bool,
}

/// Charts beside and below each other, `across` in a row.
pub fn sheet(
    count: usize,
    across: usize,
    size: (u32, u32),
    draw: impl Fn(usize, &Area<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let rows = count.div_ceil(across).max(1);
    let mut svg = String::new();
    {
        let whole = (size.0 * across as u32, size.1 * rows as u32);
        let area = SVGBackend::with_string(&mut svg, whole).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        for (at, part) in area.split_evenly((rows, across)).iter().enumerate().take(count) {
            draw(at, part)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot cannot be drawn: {error}")
}

pub fn lines(area: &Area<'_>, axes: &Axes<'_>, all: &[Line]) -> anyhow::Result<()> {
    let points = || all.iter().flat_map(|line| line.points.iter().copied());
    let lowest = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let highest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let (x0, x1) = (lowest(&mut points().map(|p| p.0)), highest(&mut points().map(|p| p.0)));
    let (y0, y1) = (lowest(&mut points().map(|p| p.1)), highest(&mut points().map(|p| p.1)));
    if !(x0.is_finite() && y1 > 0.0) {
        return nothing(area, axes.title);
    }
    // Scales of powers are drawn as the powers themselves.
    let fold = |log: bool, value: f64| if log { value.max(1e-12).log10() } else { value };
    let unfold = |log: bool, value: f64| if log { 10f64.powf(value) } else { value };
    let floor = if axes.log_y { fold(true, y0) - 0.1 } else { 0.0 };
    let ceiling = if axes.log_y { fold(true, y1) + 0.1 } else { 1.08 * y1 };
    let mut chart = ChartBuilder::on(area)
        .caption(axes.title, HEADING)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(fold(axes.log_x, x0)..fold(axes.log_x, x1), floor..ceiling)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(FONT)
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&|x| short(unfold(axes.log_x, *x)))
        .y_label_formatter(&|y| short(unfold(axes.log_y, *y)))
        .draw()
        .map_err(failed)?;
    for (at, line) in all.iter().enumerate() {
        let style = COLOURS[at % COLOURS.len()].stroke_width(2);
        let points = line.points.iter().map(|(x, y)| (fold(axes.log_x, *x), fold(axes.log_y, *y)));
        chart
            .draw_series(LineSeries::new(points, style))
            .map_err(failed)?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(TRANSPARENT)
        .label_font(FONT)
        .draw()
        .map_err(failed)
}

/// A group of bars for each of `groups`, in each a bar for each of `names`.
pub fn bars(
    area: &Area<'_>,
    title: &str,
    unit: &str,
    groups: &[&str],
    names: &[String],
    value: impl Fn(usize, usize) -> f64,
) -> anyhow::Result<()> {
    let all = (0..groups.len()).flat_map(|group| (0..names.len()).map(move |bar| (group, bar)));
    let most = all.clone().map(|(group, bar)| value(group, bar)).fold(0.0, f64::max);
    if most <= 0.0 {
        return nothing(area, title);
    }
    let mut chart = ChartBuilder::on(area)
        .caption(title, HEADING)
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..1.25 * most)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .label_style(FONT)
        .y_desc(unit)
        .y_label_formatter(&|y| short(*y))
        .draw()
        .map_err(failed)?;
    let width = 0.8 / names.len().max(1) as f64;
    for (bar, name) in names.iter().enumerate() {
        let colour = COLOURS[bar % COLOURS.len()];
        let rectangles = (0..groups.len()).map(|group| {
            let left = group as f64 + 0.1 + bar as f64 * width;
            let ends = [(left, 0.0), (left + 0.92 * width, value(group, bar))];
            Rectangle::new(ends, colour.filled())
        });
        chart
            .draw_series(rectangles)
            .map_err(failed)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    let style = FONT.into_font();
    let names_below = groups.iter().enumerate().map(|(group, name)| {
        EmptyElement::at((group as f64 + 0.5, 0.0))
            + Text::new((*name).to_owned(), (-30, 6), style.clone())
    });
    chart.draw_series(names_below).map_err(failed)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(TRANSPARENT)
        .label_font(FONT)
        .draw()
        .map_err(failed)
}

fn nothing(area: &Area<'_>, title: &str) -> anyhow::Result<()> {
    let text = format!("{title}: nothing but zeros");
    area.draw_text(&text, &HEADING.into_font().color(&BLACK), (16, 16)).map_err(failed)
}

fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.0e}"),
    }
}
