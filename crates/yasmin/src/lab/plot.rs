//! Lines against workers or message size, one for each way.

use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::full_palette::{
    BLUE_600, BROWN_500, CYAN_700, GREEN_700, GREY_600, ORANGE_700, PURPLE_500, RED_600,
};

const SIZE: (u32, u32) = (760, 420);
const FONT: (&str, u32) = ("sans-serif", 13);
const HEADING: (&str, u32) = ("sans-serif", 16);
const COLOURS: [RGBColor; 8] =
    [BLUE_600, RED_600, GREEN_700, ORANGE_700, PURPLE_500, CYAN_700, BROWN_500, GREY_600];
/// Room around the values, on a scale of ratios.
const ROOM: f64 = 1.25;

pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

pub struct Chart<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub show_x: fn(f64) -> String,
    pub show_y: fn(f64) -> String,
}

/// Both axes are logarithmic. `None` where there is nothing to draw.
pub fn draw(chart: &Chart<'_>, lines: &[Line]) -> anyhow::Result<Option<String>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let low = points().map(of).fold(f64::INFINITY, f64::min);
        (low, points().map(of).fold(0.0, f64::max))
    };
    let ((x0, x1), (y0, y1)) = (ends(|point| point.0), ends(|point| point.1));
    if !(x0.is_finite() && x0 > 0.0 && y0 > 0.0) {
        return Ok(None);
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut drawn = ChartBuilder::on(&area)
            .caption(chart.title, HEADING)
            .margin(12)
            .margin_right(24)
            .x_label_area_size(36)
            .y_label_area_size(76)
            .build_cartesian_2d(
                (x0 / 1.05..x1 * 1.05).log_scale().base(2.0),
                (y0 / ROOM..y1 * ROOM).log_scale(),
            )
            .map_err(failed)?;
        drawn
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(FONT)
            .x_desc(chart.x)
            .x_label_formatter(&|x| (chart.show_x)(*x))
            .y_label_formatter(&|y| (chart.show_y)(*y))
            .draw()
            .map_err(failed)?;
        for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let style = colour.stroke_width(2);
            drawn
                .draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))
                .map_err(failed)?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        drawn
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(TRANSPARENT)
            .label_font(FONT)
            .draw()
            .map_err(failed)?;
        area.present().map_err(failed)?;
    }
    Ok(Some(svg))
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot cannot be drawn: {error}")
}
