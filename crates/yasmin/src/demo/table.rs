//! The report as text.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::outcome::{Outcome, Report};
use super::unit::Unit;
use crate::spread::Spread;

const HEADINGS: [&str; 5] = ["", "plain TCP", "yasmin run", "times better", "by ring"];

pub fn draw(report: &Report) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.force_no_tty().set_header(HEADINGS);
    for outcome in &report.outcomes {
        table.add_row(row(outcome));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{}\nmedians of {} alternating pairs of {} s runs, in brackets lowest and highest; \
         ends paired by {}\n",
        table.trim_fmt(),
        report.pairs,
        report.seconds,
        report.proof
    )
}

fn row(outcome: &Outcome) -> Vec<String> {
    let mut row = vec![
        outcome.name.clone(),
        spread(&outcome.plain, |value| outcome.unit.show(value)),
        spread(&outcome.rings, |value| outcome.unit.show(value)),
        spread(&outcome.gain, gain),
    ];
    row.push(match (&outcome.failure, outcome.ring_percent()) {
        (Some(_), _) => "FAILED".to_owned(),
        (None, Some(percent)) => format!("{percent:.2} %"),
        (None, None) => "none".to_owned(),
    });
    row
}

pub fn spread(spread: &Spread, show: impl Fn(f64) -> String) -> String {
    if spread.samples.is_empty() {
        return "-".to_owned();
    }
    format!("{} [{} {}]", show(spread.median), show(spread.min), show(spread.max))
}

pub fn gain(times: f64) -> String {
    if times >= 9.95 { format!("{times:.0}x") } else { format!("{times:.2}x") }
}

/// What a better figure looks like.
pub fn direction(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds | Unit::CpuPercent | Unit::Bytes => "less is better",
        Unit::BitsPerSecond | Unit::PerSecond => "more is better",
    }
}
