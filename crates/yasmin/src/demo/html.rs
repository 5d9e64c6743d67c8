//! The report as one HTML page that needs nothing beside it.

use std::fmt::Write;

use yasmin_measure::page::{self, escape};
use yasmin_measure::plot::{self, Row};
use yasmin_measure::{figure, table};

use super::outcome::{Outcome, Report};

/// Pixels of the plot of one workload.
const SIZE: (u32, u32) = (640, 130);

pub fn draw(report: &Report) -> anyhow::Result<String> {
    let mut page = String::new();
    write!(
        page,
        "<h1>Unmodified programs, plain TCP and through shared memory</h1>\
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
        "<table><tr><th><th>plain TCP<th>yasmin run<th>times better<th>moved through rings",
    );
    if let Some(before) = &report.before {
        write!(page, "<th>{} before<th>now against before", escape(before))?;
    }
    page.push_str("</tr>");
    for outcome in &report.outcomes {
        row(&mut page, outcome)?;
    }
    page.push_str("</table>");
    for outcome in &report.outcomes {
        section(&mut page, outcome)?;
    }
    Ok(page::draw("YASMIN: measured", &page))
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
        Some(failure) => write!(page, "<td class=\"failed\">{}", escape(failure))?,
        None => write!(
            page,
            "<td>{}<br><small>{} by TCP</small>",
            figure::bytes(outcome.ring_bytes as f64),
            figure::bytes(outcome.tcp_bytes as f64)
        )?,
    }
    if let Some(before) = &outcome.before {
        write!(
            page,
            "<td>{}<td>{}",
            cell(table::spread(&before.rings, |value| unit.show(value))),
            cell(table::spread(&before.gain, table::gain)),
        )?;
    }
    page.push_str("</tr>");
    Ok(())
}

fn section(page: &mut String, outcome: &Outcome) -> anyhow::Result<()> {
    write!(
        page,
        "<h2>{}</h2><p><small>{}</small></p>",
        escape(&outcome.name),
        outcome.unit.direction()
    )?;
    let mut rows = vec![
        Row { name: "yasmin run", samples: &outcome.rings.samples, colour: plot::RINGS },
        Row { name: "plain TCP", samples: &outcome.plain.samples, colour: plot::TCP },
    ];
    if let Some(before) = &outcome.before {
        rows.insert(
            1,
            Row { name: "before", samples: &before.rings.samples, colour: plot::BEFORE },
        );
    }
    if let Some(svg) = plot::dots(SIZE, &rows, |value| outcome.unit.show(value))? {
        page.push_str(&svg);
    }
    write!(page, "<pre>{}</pre>", escape(&outcome.commands.join("\n")))?;
    Ok(())
}
