//! The report as text.

use comfy_table::ContentArrangement;

use super::outcome::{Outcome, Report};
use yasmin_measure::table::{self, gain, spread};

const HEADINGS: [&str; 5] = ["", "plain TCP", "yasmin run", "times better", "by ring"];
/// With another version to compare with.
const BEFORE: [&str; 2] = ["before", "now against before"];

pub fn headings(report: &Report) -> impl Iterator<Item = &'static str> {
    let more = if report.before.is_some() { BEFORE.as_slice() } else { &[] };
    HEADINGS.into_iter().chain(more.iter().copied())
}

pub fn draw(report: &Report) -> String {
    let mut table = table::draw(headings(report), 1, report.outcomes.iter().map(row));
    table.set_content_arrangement(ContentArrangement::Dynamic).force_no_tty();
    format!(
        "{}\nmedians of {} alternating pairs of {} s runs, in brackets lowest and highest; \
         ends paired by {}\n",
        table.trim_fmt(),
        report.pairs,
        report.seconds,
        report.proof
    )
}

/// As `headings`.
pub fn row(outcome: &Outcome) -> Vec<String> {
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
    if let Some(before) = &outcome.before {
        row.push(spread(&before.rings, |value| outcome.unit.show(value)));
        row.push(spread(&before.gain, gain));
    }
    row
}
