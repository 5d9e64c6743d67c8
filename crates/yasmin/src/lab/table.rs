//! The report as text.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::report::{Outcome, Report};
use yasmin_measure::figure;
use yasmin_measure::table::spread;

const HEADINGS: [&str; 6] = ["", "time", "other figures", "by ring", "sent on interfaces", "path"];

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
        "{}\nmedians of {} rounds, in brackets lowest and highest; bytes of all rounds together\n",
        table.trim_fmt(),
        report.rounds
    )
}

fn row(outcome: &Outcome) -> Vec<String> {
    let interfaces: u64 = outcome.runs.iter().map(|run| run.carried.interface_bytes).sum();
    vec![
        outcome.case.name.clone(),
        time(outcome),
        others(outcome).join(", "),
        outcome.ring_percent().map_or("-".to_owned(), |percent| format!("{percent:.1} %")),
        figure::bytes(interfaces as f64),
        verdict(outcome).to_owned(),
    ]
}

pub fn verdict(outcome: &Outcome) -> &'static str {
    match (&outcome.failure, outcome.proven) {
        (None, true) => "proven",
        (Some(_), _) if outcome.runs.iter().any(|run| run.astray.is_some()) => "NOT PROVEN",
        _ => "FAILED",
    }
}

/// The time of the whole, or of the smallest message.
fn time(outcome: &Outcome) -> String {
    let point = || outcome.points.first().map(|size| &size.latency_ns);
    match (&outcome.seconds, point().filter(|latency| !latency.samples.is_empty())) {
        (Some(seconds), _) => spread(seconds, |seconds| figure::nanoseconds(1e9 * seconds)),
        (None, Some(latency)) => spread(latency, figure::nanoseconds),
        (None, None) => "-".to_owned(),
    }
}

fn others(outcome: &Outcome) -> Vec<String> {
    let mops = outcome.mops.as_ref().map(|mops| format!("{:.1} Mop/s", mops.median));
    let bytes_s = outcome.points.last().filter(|size| size.bytes_s.median > 0.0).map(|size| {
        let len = indicatif::BinaryBytes(size.len_bytes);
        format!("{} at {len}", figure::bytes_s(size.bytes_s.median))
    });
    let messages_s = outcome.points.first().map(|size| size.messages_s.median);
    let messages_s = messages_s.filter(|rate| *rate > 0.0).map(figure::per_second);
    let connections = outcome.connections_s.as_ref();
    let connections_s = connections.map(|rate| figure::per_second(rate.median));
    mops.into_iter().chain(connections_s).chain(bytes_s).chain(messages_s).collect()
}
