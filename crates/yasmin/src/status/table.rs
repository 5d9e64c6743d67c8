//! The connections as a table: one row for each end, with the direction on which it sends.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use indicatif::BinaryBytes;
use yasmin_control::status::{Connection, End, Status};

const HEADINGS: [&str; 9] =
    ["PROGRAM", "PID", "LOCAL", "PEER", "SENDS", "BY RING", "BY TCP", "RATE", "PARKED"];
/// From here on columns are numbers.
const FIRST_NUMBER: usize = 5;

/// Nothing when there are no connections.
pub fn draw(status: &Status, colour: bool) -> String {
    if status.connections.is_empty() {
        return String::new();
    }
    let mut table = plain(colour);
    let mut headings: Vec<Cell> = HEADINGS.map(heading).into();
    let with_reasons = status.connections.iter().any(|connection| connection.reason.is_some());
    if with_reasons {
        headings.push(heading("NO RING BECAUSE"));
    }
    table.set_header(headings);
    for connection in &status.connections {
        for end in &connection.ends {
            table.add_row(row(connection, end));
        }
    }
    for column in table.column_iter_mut().skip(FIRST_NUMBER).take(HEADINGS.len() - FIRST_NUMBER) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// A table without lines.
pub fn plain(colour: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !colour {
        table.force_no_tty();
    } else {
        table.enforce_styling();
    }
    table
}

pub fn heading(text: &str) -> Cell {
    Cell::new(text).add_attribute(Attribute::Bold)
}

fn row(connection: &Connection, end: &End) -> Vec<Cell> {
    let sends = &end.sends;
    let state = match sends.state.as_str() {
        "open" => Cell::new("open").fg(Color::Green),
        "offered" => Cell::new("offered").fg(Color::Yellow),
        other => Cell::new(other),
    };
    vec![
        Cell::new(&end.program),
        Cell::new(end.pid),
        Cell::new(&end.local),
        Cell::new(&end.peer),
        state,
        Cell::new(BinaryBytes(sends.ring_bytes)),
        Cell::new(BinaryBytes(sends.tcp_bytes)),
        Cell::new(format!("{}/s", BinaryBytes(rate(sends.rate_bytes_s)))),
        Cell::new(sends.parked),
        Cell::new(connection.reason.as_deref().unwrap_or_default()),
    ]
}

/// Rounded; a broker that sends NaN or a negative rate means none.
fn rate(bytes_s: f64) -> u64 {
    bytes_s.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use yasmin_control::status::{Broker, Direction};

    fn status(reason: Option<&str>) -> Status {
        let end = |role: &str, state: &str| End {
            program: "redis-server".into(),
            pid: 42,
            role: role.into(),
            local: "10.0.0.1:6379".into(),
            peer: "[fd00::2]:40000".into(),
            sends: Direction {
                state: state.into(),
                ring_bytes: 3 << 30,
                rate_bytes_s: f64::NAN,
                ..Direction::default()
            },
        };
        Status {
            broker: Broker {
                version: "0.1.0".into(),
                pid: 1,
                uptime_s: 61.0,
                proof: "bpf".into(),
                processes: 1,
                memory_used_bytes: 0,
                memory_limit_bytes: 1 << 28,
                channels_total: 1,
                closed_ring_bytes: 0,
                closed_tcp_bytes: 0,
            },
            connections: vec![Connection {
                ends: vec![end("connector", "open"), end("acceptor", "parked")],
                reason: reason.map(str::to_owned),
                memory_bytes: 0,
                age_s: 1.0,
            }],
        }
    }

    #[test]
    fn a_row_for_each_end() {
        let text = draw(&status(None), false);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("3.00 GiB") && text.contains("open") && text.contains("0 B/s"));
        assert!(!text.contains("BECAUSE") && !text.contains('\x1b'));
        assert!(draw(&status(Some("policy")), false).contains("policy"));
        assert!(draw(&status(None), true).contains('\x1b'));
    }

    #[test]
    fn an_idle_broker_has_no_table() {
        let mut idle = status(None);
        idle.connections.clear();
        assert_eq!(draw(&idle, true), "");
    }
}
