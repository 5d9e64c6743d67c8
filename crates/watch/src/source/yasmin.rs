//! YASMIN's own connections: the broker knows exactly who talks to whom, and both ends count.

use std::collections::HashMap;

use yasmin_control::status::{Connection, Direction, End, Status};

use super::{Source, Trouble};
use crate::function::{Counter, Function, Link, LinkEnd, Path, Process, Reading, Target};
use crate::process;

/// Asks the broker.
pub type Ask = Box<dyn FnMut() -> Result<Status, Trouble> + Send>;

pub struct Yasmin {
    ask: Ask,
    /// Processes that were seen before: /proc is asked once for each.
    known: HashMap<u32, Process>,
    last: Option<std::time::Instant>,
}

impl Yasmin {
    pub fn new(ask: Ask) -> Self {
        Self { ask, known: HashMap::new(), last: None }
    }
}

impl Source for Yasmin {
    fn name(&self) -> &'static str {
        "yasmin"
    }

    fn read(&mut self) -> Result<Reading, Trouble> {
        let status = (self.ask)()?;
        let now = std::time::Instant::now();
        let since_s = self.last.replace(now).map(|last| (now - last).as_secs_f64());
        let known = std::mem::take(&mut self.known);
        let reading = read(&status, since_s, |pid| {
            let process = known.get(&pid).copied().or_else(|| process::identify(pid).ok())?;
            self.known.insert(pid, process);
            Some(process)
        });
        Ok(reading)
    }
}

/// `identify` finds the process behind a number, unless it has gone.
fn read(
    status: &Status,
    since_s: Option<f64>,
    mut identify: impl FnMut(u32) -> Option<Process>,
) -> Reading {
    let (mut functions, mut counted) = (Vec::new(), Vec::new());
    let mut names = HashMap::new();
    for connection in &status.connections {
        let [a, b] = connection.ends.as_slice() else { continue };
        let mut name = |end: &End| {
            let name = names.entry(end.pid).or_insert_with(|| {
                let process = identify(end.pid)?;
                let name = process::label(end.pid, &end.program);
                let target = Target::Processes { processes: vec![process] };
                functions.push(Function { name: name.clone(), target });
                Some(name)
            });
            name.clone()
        };
        let (Some(first), Some(second)) = (name(a), name(b)) else { continue };
        if first == second {
            continue;
        }
        let fresh = since_s.is_some_and(|since_s| connection.age_s < since_s);
        counted.extend(links(connection, [&first, &second], fresh));
    }
    Reading::new(functions, counted)
}

/// Bytes by ring and by TCP apart: the latter are seen by interfaces, too.
fn links(connection: &Connection, names: [&String; 2], fresh: bool) -> [(Link, Counter); 2] {
    let [a, b] = [&connection.ends[0], &connection.ends[1]];
    let sum = |of: fn(&Direction) -> u64| of(&a.sends).saturating_add(of(&b.sends));
    let link = |path: Path, way: &str, bytes: u64| {
        let link = Link {
            id: format!("{} {} {} {} {way}", a.pid, a.local, b.pid, b.local),
            a: LinkEnd::Function(names[0].clone()),
            b: LinkEnd::Function(names[1].clone()),
            path,
            origin: format!("yasmin: {} to {}, {way}", a.local, a.peer),
        };
        (link, Counter { bytes, dropped: 0, fresh })
    };
    [
        link(Path::Memory, "ring", sum(|direction| direction.ring_bytes)),
        link(Path::Tcp, "tcp", sum(|direction| direction.tcp_bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(age_s: f64) -> Status {
        let end = |pid: u32, ring_bytes: u64| {
            serde_json::json!({"program": "p", "pid": pid, "role": "connector",
            "local": format!("10.0.0.{pid}:1"), "peer": "10.0.0.9:1",
            "sends": {"state": "open", "ring_size_bytes": 1, "ring_bytes": ring_bytes,
                      "tcp_bytes": 5, "rate_bytes_s": 0.0, "parked": 0}})
        };
        let connection = |ends: Vec<serde_json::Value>| serde_json::json!({"reason": null, "memory_bytes": 1, "age_s": age_s, "ends": ends});
        serde_json::from_value(serde_json::json!({
            "broker": {"version": "0", "pid": 1, "uptime_s": 1.0, "proof": "bpf", "processes": 2,
                "memory_used_bytes": 0, "memory_limit_bytes": 0, "channels_total": 1,
                "closed_ring_bytes": 0, "closed_tcp_bytes": 0},
            "connections": [
                connection(vec![end(1, 100), end(2, 20)]),
                connection(vec![end(1, 7)]),
                connection(vec![end(3, 9), end(3, 9)]),
                connection(vec![end(1, 1), end(4, 1)]),
            ]
        }))
        .unwrap()
    }

    fn identify(pid: u32) -> Option<Process> {
        (pid != 4).then_some(Process { pid, started: 1 })
    }

    #[test]
    fn both_directions_add_up_and_ring_and_tcp_stay_apart() {
        let reading = read(&status(9.0), Some(1.0), identify);
        let links = &reading.layout.links;
        let counted = links.iter().zip(&reading.counters);
        let bytes: Vec<_> = counted.map(|(link, counter)| (link.path, counter.bytes)).collect();
        assert_eq!(bytes, [(Path::Memory, 120), (Path::Tcp, 10)]);
        assert_eq!(links[0].a, LinkEnd::Function("p[1]".into()));
        assert!(!reading.counters[0].fresh);
    }

    #[test]
    fn half_known_internal_and_vanished_connections_are_no_links() {
        let reading = read(&status(9.0), None, identify);
        assert_eq!(reading.layout.links.len(), 2);
        let functions = &reading.layout.functions;
        let names: Vec<_> = functions.iter().map(|function| &*function.name).collect();
        assert_eq!(names, ["p[1]", "p[2]", "p[3]"]);
    }

    #[test]
    fn what_began_after_the_last_look_counts_from_its_first_byte() {
        let fresh = |since_s| read(&status(0.5), since_s, identify).counters[0].fresh;
        assert!(fresh(Some(1.0)));
        assert!(!fresh(Some(0.2)));
        assert!(!fresh(None));
    }
}
