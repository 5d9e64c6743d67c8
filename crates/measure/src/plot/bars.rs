//! Groups of bars.

use plotters::prelude::*;

use super::{Area, Error, FONT, HEADING, colour, failed, nothing, short};

/// A group of bars for each of `groups`, in each a bar for each of `names`.
pub fn bars(
    area: &Area<'_>,
    title: &str,
    unit: &str,
    groups: &[&str],
    names: &[String],
    value: impl Fn(usize, usize) -> f64,
) -> Result<(), Error> {
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
        let colour = colour(bar);
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
