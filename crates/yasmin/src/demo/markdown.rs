//! The report as a table for a document.

use std::fmt::Write;

use super::outcome::Report;
use super::table::{headings, row};

pub fn draw(report: &Report) -> String {
    let mut text = format!(
        "Medians of {} alternating pairs of {} s runs, in brackets lowest and highest. {}; {}; ends paired by {}.\n\n",
        report.pairs,
        report.seconds,
        report.environment.line(),
        report.stage,
        report.proof
    );
    let mut line = |cells: Vec<String>| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    let headings: Vec<String> = headings(report).map(str::to_owned).collect();
    let columns = headings.len();
    line(headings);
    line(vec!["---".to_owned(); columns]);
    report.outcomes.iter().for_each(|outcome| line(row(outcome)));
    text
}
