//! The report as one HTML page that needs nothing beside it.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::peers;
use super::published::{DIFFERS, HEAT, IS_C, PRODUCT, Published, SAID};
use super::report::{Outcome, Report, Size};
use super::table;
use super::way::Kernel;
use yasmin_measure::figure;
use yasmin_measure::page::{self, escape};
use yasmin_measure::plot::{Axis, Chart, Legend, Line, Scale, colour, lines, sheet};
use yasmin_measure::spread::Spread;

/// Pixels of one chart.
const SIZE: (u32, u32) = (760, 420);

pub fn page(report: &Report) -> anyhow::Result<String> {
    let mut page = String::new();
    head(&mut page, report)?;
    if report.limits.is_some() {
        compared(&mut page, report)?;
    }
    for name in experiments(report) {
        let all: Vec<&Outcome> =
            report.outcomes.iter().filter(|outcome| outcome.case.experiment == name).collect();
        experiment(&mut page, name, &all)?;
    }
    distance(&mut page, report)?;
    page.push_str("<h2>What the sources also say</h2><ul class=\"published\">");
    SAID.iter().try_for_each(|said| write!(page, "<li>{said}"))?;
    page.push_str("</ul><h2>What differs from the sources, and why</h2><ul>");
    DIFFERS.iter().try_for_each(|differs| write!(page, "<li>{differs}"))?;
    page.push_str("</ul>");
    proofs(&mut page, report)?;
    Ok(page::draw("YASMIN: the lab", &page))
}

fn head(page: &mut String, report: &Report) -> std::fmt::Result {
    write!(
        page,
        "<h1>Which way to parallelise pays, and what each path costs</h1>\
         <p>{}; governor {}; yasmin {}; ends paired by {}.<br>",
        escape(&report.environment.line()),
        escape(&report.governor),
        report.environment.version,
        escape(&report.proof)
    )?;
    for version in &report.versions {
        write!(page, "{}: {}. ", escape(&version.program), escape(&version.version))?;
    }
    write!(
        page,
        "<br>Medians of {} rounds that take turns, below them lowest and highest.</p><ul>",
        report.rounds
    )?;
    for placement in &report.placements {
        write!(page, "<li>{}: {}", escape(&placement.name), escape(&placement.about))?;
    }
    for warning in report.warnings.iter().chain(&report.failures()) {
        write!(page, "<li class=\"failed\">{}", escape(warning))?;
    }
    page.push_str("</ul>");
    Ok(())
}

/// All ways side by side.
fn compared(page: &mut String, report: &Report) -> std::fmt::Result {
    page.push_str(
        "<h2>Ways side by side, and how many times better than plain TCP</h2><table><tr>",
    );
    peers::HEADINGS.iter().try_for_each(|heading| write!(page, "<th>{heading}"))?;
    for row in peers::rows(report) {
        page.push_str("</tr><tr>");
        row.iter().try_for_each(|cell| write!(page, "<td>{}", escape(cell)))?;
    }
    page.push_str("</tr></table>");
    Ok(())
}

/// In the order of the plan.
fn experiments(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for outcome in &report.outcomes {
        if !names.contains(&outcome.case.experiment.as_str()) {
            names.push(&outcome.case.experiment);
        }
    }
    names
}

/// What was published of just this.
fn published(outcome: &Outcome) -> Option<Published> {
    let arguments: Vec<&str> = outcome.case.arguments.iter().map(String::as_str).collect();
    match (outcome.case.kernel, arguments.as_slice()) {
        (Kernel::Product, ["500"]) => Some(PRODUCT),
        (Kernel::Heat, ["500", "500"]) => Some(HEAT),
        (Kernel::Is, ["C"]) => Some(IS_C),
        _ => None,
    }
}

fn experiment(page: &mut String, name: &str, all: &[&Outcome]) -> anyhow::Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    let arguments = escape(&first.case.arguments.join(" "));
    write!(page, "<h2>{name}: {} {arguments}</h2>", first.case.kernel.name())?;
    if all.iter().any(|outcome| outcome.seconds.is_some()) {
        by_workers(page, all, published(first).as_ref())?;
    }
    if all.iter().any(|outcome| !outcome.points.is_empty()) {
        by_size(page, all)?;
    }
    Ok(())
}

/// Tables 1 and 2 of the sources: seconds by workers.
fn by_workers(
    page: &mut String,
    all: &[&Outcome],
    published: Option<&Published>,
) -> anyhow::Result<()> {
    let mut series: Vec<String> = Vec::new();
    for outcome in all {
        if !series.contains(&outcome.case.series()) {
            series.push(outcome.case.series());
        }
    }
    let ours = all.iter().map(|outcome| outcome.case.workers);
    let theirs = published.map_or(&[][..], |table| table.rows).iter().map(|row| row.workers);
    let workers: BTreeSet<u32> = ours.chain(theirs).collect();
    page.push_str("<table><tr><th>seconds, by workers");
    for workers in &workers {
        write!(page, "<th>{workers}")?;
    }
    page.push_str("</tr>");
    let mut drawn = Vec::new();
    for name in &series {
        let of = |workers: u32| {
            all.iter().find(|one| one.case.workers == workers && one.case.series() == *name)
        };
        write!(page, "<tr><td>{}", escape(name))?;
        let mut points = Vec::new();
        for &workers in &workers {
            match of(workers).map(|outcome| (outcome, &outcome.seconds)) {
                Some((outcome, Some(seconds))) => {
                    let class = if outcome.failure.is_some() { "failed" } else { "" };
                    write!(page, "<td class=\"{class}\">{}", cell(seconds, seconds_of))?;
                    points.push((f64::from(workers), seconds.median));
                }
                Some((_, None)) => page.push_str("<td class=\"failed\">failed"),
                None => page.push_str("<td>"),
            }
        }
        page.push_str("</tr>");
        drawn.push((name.clone(), points));
    }
    for (column, name) in published.map_or(&[][..], |table| table.columns).iter().enumerate() {
        write!(page, "<tr class=\"published\"><td>{name}, MPI")?;
        let mut points = Vec::new();
        for &workers in &workers {
            match published.and_then(|table| table.seconds(workers, column)) {
                Some(seconds) => {
                    write!(page, "<td>{seconds:.2}")?;
                    points.push((f64::from(workers), seconds));
                }
                None => page.push_str("<td>"),
            }
        }
        page.push_str("</tr>");
        drawn.push(((*name).to_owned(), points));
    }
    page.push_str("</table>");
    if let Some(published) = published {
        write!(page, "<p class=\"published\">Published: {}, MPI.</p>", published.what)?;
    }
    let axes: [(&str, Written<'_>); 2] = [("workers", &|x| format!("{x:.0}")), ("", &seconds_of)];
    page.push_str(&chart("time", axes, drawn)?);
    Ok(())
}

/// Figure 2 of the sources: latency and bandwidth by message size.
fn by_size(page: &mut String, all: &[&Outcome]) -> anyhow::Result<()> {
    type Of = fn(&Size) -> &Spread;
    type Show = fn(f64) -> String;
    let figures: [(&str, Of, Show); 3] = [
        ("latency", |size| &size.latency_ns, figure::nanoseconds),
        ("bandwidth", |size| &size.bytes_s, figure::bytes_s),
        ("message rate", |size| &size.messages_s, figure::per_second),
    ];
    for (title, of, show) in figures {
        let sizes: BTreeSet<u64> = all
            .iter()
            .flat_map(|outcome| &outcome.points)
            .filter(|size| !of(size).samples.is_empty())
            .map(|size| size.len_bytes)
            .collect();
        if sizes.is_empty() {
            continue;
        }
        let drawn = all
            .iter()
            .map(|outcome| {
                let points = outcome.points.iter();
                let points = points.filter(|size| size.len_bytes > 0 && of(size).median > 0.0);
                let points = points.map(|size| (size.len_bytes as f64, of(size).median));
                (outcome.case.series(), points.collect())
            })
            .collect();
        if sizes.len() > 1 {
            page.push_str(&chart(title, [("message size", &bytes), ("", &show)], drawn)?);
        }
        write!(page, "<details><summary>{title}, figures</summary><table><tr><th>size")?;
        for outcome in all {
            let class = if outcome.failure.is_some() { "failed" } else { "" };
            write!(page, "<th class=\"{class}\">{}", escape(&outcome.case.series()))?;
        }
        for len_bytes in sizes {
            write!(page, "<tr><td>{}", bytes(len_bytes as f64))?;
            for outcome in all {
                let size = outcome.points.iter().find(|size| size.len_bytes == len_bytes);
                let text = size.map_or_else(String::new, |size| cell(of(size), show));
                write!(page, "<td>{text}")?;
            }
        }
        page.push_str("</table></details>");
    }
    Ok(())
}

/// How an axis writes its values.
type Written<'a> = &'a dyn Fn(f64) -> String;

/// Named lines; both axes are by ratios.
fn chart(
    title: &str,
    [x, y]: [(&str, Written<'_>); 2],
    named: Vec<(String, Vec<(f64, f64)>)>,
) -> anyhow::Result<String> {
    let axis = |(name, show), scale| Axis { name, scale, show };
    let chart = Chart {
        title,
        x: axis(x, Scale::Doublings),
        y: axis(y, Scale::Decades),
        legend: Legend::UpperLeft,
    };
    let named = named.into_iter().enumerate();
    let all: Vec<Line> =
        named.map(|(at, (name, points))| Line::new(&name, colour(at), points)).collect();
    sheet(1, 1, SIZE, |_, area| Ok(lines(area, &chart, &all)?))
}

/// The same work on two machines and on one: what the sources ask of guests.
fn distance(page: &mut String, report: &Report) -> std::fmt::Result {
    let one = |name: &str| {
        let placement = report.placements.iter().find(|placement| placement.name == name);
        placement.is_some_and(|placement| placement.machines.len() == 1)
    };
    let mut rows = String::new();
    for far in report.outcomes.iter().filter(|outcome| !one(&outcome.case.placement)) {
        let (far_case, same) = (&far.case, |outcome: &&Outcome| {
            let case = &outcome.case;
            one(&case.placement)
                && case.experiment == far.case.experiment
                && (case.model, case.path, case.workers)
                    == (far.case.model, far.case.path, far.case.workers)
        });
        let near = report.outcomes.iter().find(same);
        let seconds = near.and_then(|near| near.seconds.as_ref()).zip(far.seconds.as_ref());
        if let Some((near, far)) = seconds {
            write!(
                rows,
                "<tr><td>{}<td>{:.2}</tr>",
                escape(&far_case.name),
                far.median / near.median
            )?;
        }
    }
    if !rows.is_empty() {
        write!(
            page,
            "<h2>Two machines against one</h2><table><tr><th><th>times the time on one</tr>{rows}\
             </table>"
        )?;
    }
    Ok(())
}

/// Where the bytes of every measurement went.
fn proofs(page: &mut String, report: &Report) -> std::fmt::Result {
    page.push_str(
        "<h2>Where the bytes went</h2><p>Bytes of all rounds together. Interfaces count what is \
         sent, with headers, and what launchers say to each other.</p><table><tr><th><th>payload\
         <th>interfaces<th>TCP segments<th>rings<th>TCP beside rings<th>CPUs of workers<th>others' \
         CPU<th>steal<th>path</tr>",
    );
    for outcome in &report.outcomes {
        let sum =
            |of: fn(&super::report::Record) -> u64| -> u64 { outcome.runs.iter().map(of).sum() };
        let most =
            |of: fn(&super::report::Record) -> f64| outcome.runs.iter().map(of).fold(0.0, f64::max);
        let class = if outcome.failure.is_some() { "failed" } else { "" };
        let cpus: BTreeSet<&str> = outcome.worker_cpus.iter().map(String::as_str).collect();
        let cpus: Vec<&str> = cpus.into_iter().collect();
        let pinned = if outcome.pinned { ", pinned" } else { ", not pinned" };
        write!(
            page,
            "<tr><td>{}<br><small>{}</small><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}{}<td>{:.0} %\
             <td>{:.0} %<td class=\"{class}\">{}</tr>",
            escape(&outcome.case.name),
            escape(&outcome.command),
            bytes(sum(|run| run.moved_bytes) as f64),
            bytes(sum(|run| run.carried.interface_bytes) as f64),
            sum(|run| run.carried.tcp_segments),
            bytes(sum(|run| run.carried.ring_bytes.unwrap_or_default()) as f64),
            bytes(sum(|run| run.carried.beside_ring_bytes.unwrap_or_default()) as f64),
            escape(&cpus.join(" and ")),
            pinned,
            most(|run| run.besides.others_percent),
            most(|run| run.besides.steal_percent),
            table::verdict(outcome),
        )?;
    }
    page.push_str("</table>");
    Ok(())
}

fn cell(spread: &Spread, show: impl Fn(f64) -> String) -> String {
    if spread.samples.is_empty() {
        return String::new();
    }
    let [median, min, max] = [spread.median, spread.min, spread.max].map(show);
    format!("{median}<br><small>{min} {max}</small>")
}

fn seconds_of(seconds: f64) -> String {
    figure::nanoseconds(1e9 * seconds)
}

fn bytes(count: f64) -> String {
    figure::bytes(count)
}
