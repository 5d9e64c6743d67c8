//! Plots as SVG. Fonts, colours and axes are chosen here, once for all of them.

mod axis;
mod bars;
mod dots;
mod lines;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::full_palette::{
    BLUE_600, GREEN_700, GREY_600, ORANGE_700, PURPLE_600, RED_600, TEAL_600,
};

pub use axis::{Axis, Scale, short};
pub use bars::bars;
pub use dots::{Row, dots};
pub use lines::{Chart, Line, lines};
pub use plotters::chart::SeriesLabelPosition as Legend;
pub use plotters::style::RGBColor as Colour;

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What goes by rings, and what it is compared with, have one colour in all plots.
pub const RINGS: Colour = RED_600;
pub const TCP: Colour = BLUE_600;
/// An earlier version of the same.
pub const BEFORE: Colour = ORANGE_700;
const OTHERS: [Colour; 5] = [GREEN_700, ORANGE_700, PURPLE_600, TEAL_600, GREY_600];

const FONT: (&str, u32) = ("sans-serif", 13);
const HEADING: (&str, u32) = ("sans-serif", 16);

#[derive(Debug, thiserror::Error)]
#[error("the plot cannot be drawn: {0}")]
pub struct Error(String);

/// What the drawing library says, whatever its type.
pub fn failed(error: impl std::fmt::Display) -> Error {
    Error(error.to_string())
}

/// The colour of the line or bar at this place of a list.
pub fn colour(at: usize) -> Colour {
    let all = [&[RINGS, TCP], &OTHERS[..]].concat();
    all[at % all.len()]
}

/// Charts beside and below each other, `across` in a row, each of `size` pixels.
pub fn sheet<E: From<Error>>(
    count: usize,
    across: usize,
    size: (u32, u32),
    draw: impl Fn(usize, &Area<'_>) -> Result<(), E>,
) -> Result<String, E> {
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

fn nothing(area: &Area<'_>, title: &str) -> Result<(), Error> {
    let text = format!("{title}: nothing but zeros");
    area.draw_text(&text, &HEADING.into_font().color(&BLACK), (16, 16)).map_err(failed)
}

#[cfg(test)]
mod tests;
