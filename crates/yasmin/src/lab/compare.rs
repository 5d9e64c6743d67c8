//! `yasmin lab compare`: the figures of two reports side by side.

use std::collections::BTreeMap;

use anyhow::bail;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::cli::Compare;
use super::seen::{Seen, SeenSpread, read};
use yasmin_measure::figure;

/// A time, in nanoseconds, and whether its path was proven.
type Figures = BTreeMap<String, (SeenSpread, bool)>;

pub fn run(options: &Compare) -> anyhow::Result<()> {
    let [old, new] = [&options.old, &options.new].map(|path| read(path));
    let (old, new) = (old?, new?);
    for (name, value) in &old.environment {
        let other = new.environment.get(name);
        if other != Some(value) {
            let other = other.map_or("nothing".to_owned(), ToString::to_string);
            eprintln!("yasmin lab: {name} differs: {value} and {other}");
        }
    }
    let (old, new) = (figures(&old), figures(&new));
    if !old.keys().any(|name| new.contains_key(name)) {
        bail!("the two reports have no measurement in common");
    }
    println!("{}", draw(&old, &new).trim_fmt());
    Ok(())
}

/// Every time in a report by its name, in which sizes are, too.
fn figures(seen: &Seen) -> Figures {
    let mut figures = Figures::new();
    for outcome in &seen.outcomes {
        let name = format!("{} ({})", outcome.name, outcome.arguments.join(" "));
        if let Some(seconds) = outcome.seconds {
            let scaled = SeenSpread {
                median: 1e9 * seconds.median,
                min: 1e9 * seconds.min,
                max: 1e9 * seconds.max,
            };
            figures.insert(name.clone(), (scaled, outcome.proven));
        }
        for size in outcome.points.iter().filter(|size| size.latency_ns.median > 0.0) {
            let name = format!("{}, {}", outcome.name, indicatif::BinaryBytes(size.len_bytes));
            figures.insert(name, (size.latency_ns, outcome.proven));
        }
    }
    figures
}

fn draw(old: &Figures, new: &Figures) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.force_no_tty().set_header(["time", "first", "second", "second / first", ""]);
    for (name, (old, old_proven)) in old {
        let Some((new, new_proven)) = new.get(name) else { continue };
        let verdict = match (old_proven, new_proven) {
            (true, true) => verdict(*old, *new),
            _ => "NOT PROVEN",
        };
        let ratio = format!("{:.2}", new.median / old.median);
        table.add_row([name.clone(), show(*old), show(*new), ratio, verdict.to_owned()]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Samples are few: only what does not overlap is called a difference.
fn verdict(old: SeenSpread, new: SeenSpread) -> &'static str {
    match () {
        () if new.max < old.min => "faster",
        () if new.min > old.max => "slower",
        () => "within spread",
    }
}

fn show(spread: SeenSpread) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(figure::nanoseconds);
    format!("{median} [{min} {max}]")
}

#[cfg(test)]
mod tests {
    use super::super::report::FORMAT;
    use super::*;

    fn report(median: f64, proven: bool) -> Seen {
        let spread = |by: f64| serde_json::json!({"median": by, "min": by * 0.9, "max": by * 1.1});
        serde_json::from_value(serde_json::json!({
            "format": FORMAT,
            "environment": {},
            "outcomes": [
                {"name": "heat/x", "kernel": "heat", "arguments": ["9"], "placement": "native",
                    "model": "mpi", "path": "tcp", "workers": 2, "proven": proven,
                    "seconds": spread(median)},
                {"name": "imb/x", "kernel": "imb", "arguments": [], "placement": "native",
                    "model": "mpi", "path": "tcp", "workers": 2, "proven": true, "points":
                    [{"len_bytes": 8, "latency_ns": spread(1000.0)}]},
            ],
        }))
        .unwrap()
    }

    #[test]
    fn only_what_does_not_overlap_differs() {
        let table = |median, proven| {
            draw(&figures(&report(1.0, true)), &figures(&report(median, proven))).trim_fmt()
        };
        assert!(table(0.5, true).contains("faster"));
        assert!(table(2.0, true).contains("slower"));
        assert!(!table(1.1, true).contains("slower"));
        assert!(table(2.0, false).contains("NOT PROVEN"));
        assert!(table(1.0, true).contains("imb/x, 8 B"));
    }
}
