//! The report as one HTML page that needs nothing beside it.

use std::fmt::Write;

use super::outcome::{Outcome, Report};
use super::{plot, table};
use crate::figure;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;\
color:#222}table{border-collapse:collapse;width:100%}th,td{padding:.35em .6em;text-align:right;\
border-bottom:1px solid #ddd}th:first-child,td:first-child{text-align:left}\
td.gain{font-weight:bold}td.failed{color:#b00}small{color:#666}pre{background:#f5f5f5;\
padding:.6em;overflow-x:auto}";

pub fn page(report: &Report) -> anyhow::Result<String> {
    let mut page = String::new();
    write!(
        page,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <title>YASMIN: measured</title><style>{STYLE}</style>\
         <h1>Unmodified programs, plain TCP and through shared memory</h1>\
         <p>{}<br>{}; yasmin {}; ends paired by {}.<br>Medians of {} alternating pairs of {} s \
         runs, below them lowest and highest.</p>",
        escape(&report.environment.line()),
        escape(&report.stage),
        report.environment.version,
        escape(&report.proof),
        report.pairs,
        report.seconds
    )?;
    page.push_str(
        "<table><tr><th><th>plain TCP<th>yasmin run<th>times better<th>moved through rings</tr>",
    );
    for outcome in &report.outcomes {
        row(&mut page, outcome)?;
    }
    page.push_str("</table>");
    for outcome in &report.outcomes {
        section(&mut page, outcome)?;
    }
    page.push_str("</html>\n");
    Ok(page)
}

fn row(page: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let cell = |text: String| {
        let (median, ends) = text.split_once(" [").unwrap_or((&text, ""));
        format!("{}<br><small>{}</small>", escape(median), escape(ends.trim_end_matches(']')))
    };
    let unit = outcome.unit;
    write!(
        page,
        "<tr><td>{}<td>{}<td>{}<td class=\"gain\">{}",
        escape(&outcome.name),
        cell(table::spread(&outcome.plain, |value| unit.show(value))),
        cell(table::spread(&outcome.rings, |value| unit.show(value))),
        cell(table::spread(&outcome.gain, table::gain)),
    )?;
    match &outcome.failure {
        Some(failure) => write!(page, "<td class=\"failed\">{}</tr>", escape(failure)),
        None => write!(
            page,
            "<td>{}<br><small>{} by TCP</small></tr>",
            figure::bytes(outcome.ring_bytes as f64),
            figure::bytes(outcome.tcp_bytes as f64)
        ),
    }
}

fn section(page: &mut String, outcome: &Outcome) -> anyhow::Result<()> {
    write!(
        page,
        "<h2>{}</h2><p><small>{}</small></p>",
        escape(&outcome.name),
        table::direction(outcome.unit)
    )?;
    if let Some(svg) = plot::draw(outcome)? {
        page.push_str(&svg);
    }
    write!(page, "<pre>{}</pre>", escape(&outcome.commands.join("\n")))?;
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
