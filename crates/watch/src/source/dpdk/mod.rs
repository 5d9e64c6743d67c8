//! DPDK programs, which bypass the kernel and poll: no kernel counter moves and the CPU is
//! always busy, so only they themselves know their traffic. They tell by telemetry.

mod port;
mod telemetry;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::PathBuf;

use serde_json::Value;

use super::{Source, Trouble};
use crate::function::{Counter, Function, Link, LinkEnd, Path, Process, Reading, Target};
use crate::process;
use port::{Joined, is_worker, joined};
use telemetry::{Sockets, Telemetry};

#[derive(Default)]
pub struct Dpdk {
    sockets: Sockets,
    /// Sockets that nobody listens on: left behind by programs that have ended.
    dead: HashSet<PathBuf>,
    programs: HashMap<PathBuf, Program>,
    /// Links that were there at the last reading, and whether there was one.
    seen: Option<Vec<String>>,
}

struct Program {
    telemetry: Telemetry,
    process: Process,
    name: String,
    /// EAL's, to tell what a port is joined to.
    parameters: Vec<String>,
    workers: Vec<u32>,
}

/// A port's counters.
struct Port {
    program: String,
    name: String,
    joined: Joined,
    bytes: u64,
    dropped: u64,
}

impl Dpdk {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Source for Dpdk {
    fn name(&self) -> &'static str {
        "dpdk"
    }

    fn read(&mut self) -> Result<Reading, Trouble> {
        if self.sockets.look() {
            self.dead.clear();
            self.programs.retain(|path, _| self.sockets.paths().contains(path));
        }
        for path in self.sockets.paths() {
            if self.programs.contains_key(path) || self.dead.contains(path) {
                continue;
            }
            match Program::open(path) {
                Ok(program) => drop(self.programs.insert(path.clone(), program)),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    self.dead.insert(path.clone());
                }
                // It is asked again.
                Err(_) => {}
            }
        }
        let mut ports = Vec::new();
        self.programs.retain(|_, program| match program.ports() {
            Ok(found) => {
                ports.extend(found);
                true
            }
            // It has ended, or hangs; it is asked again when its socket answers.
            Err(_) => false,
        });
        if self.programs.is_empty() {
            return Err(Trouble::Absent("no DPDK program with telemetry".into()));
        }
        ports.sort_by(|a, b| (&a.program, &a.name).cmp(&(&b.program, &b.name)));
        let mut programs: Vec<&Program> = self.programs.values().collect();
        programs.sort_by_key(|program| program.process);
        let (mut functions, mut counted) = (Vec::new(), links(&ports));
        for program in programs {
            let bytes = ports.iter().filter(|port| port.program == program.name);
            program.describe(bytes.map(|port| port.bytes).sum(), &mut functions, &mut counted);
        }
        if let Some(seen) = &self.seen {
            for (link, counter) in &mut counted {
                counter.fresh = !seen.contains(&link.id);
            }
        }
        self.seen = Some(counted.iter().map(|(link, _)| link.id.clone()).collect());
        Ok(Reading::new(functions, counted))
    }
}

impl Program {
    fn open(path: &std::path::Path) -> std::io::Result<Self> {
        let mut telemetry = Telemetry::connect(path)?;
        let pid = telemetry.pid;
        let stat = process::stat(pid)?;
        let parameters = telemetry.ask("/eal/params")?;
        let parameters = parameters.as_array().into_iter().flatten();
        let parameters = parameters.filter_map(Value::as_str).map(str::to_owned).collect();
        let mut workers = Vec::new();
        for thread in process::threads(pid)? {
            if process::thread_stat(pid, thread).is_ok_and(|stat| is_worker(&stat.name)) {
                workers.push(thread);
            }
        }
        Ok(Self {
            telemetry,
            process: Process { pid, started: stat.started },
            name: process::label(pid, &stat.name),
            parameters,
            workers,
        })
    }

    fn ports(&mut self) -> std::io::Result<Vec<Port>> {
        let mut ports = Vec::new();
        let listed = self.telemetry.ask("/ethdev/list")?;
        for number in listed.as_array().into_iter().flatten().filter_map(Value::as_u64) {
            let info = self.telemetry.ask(&format!("/ethdev/info,{number}"))?;
            let stats = self.telemetry.ask(&format!("/ethdev/stats,{number}"))?;
            let Some(name) = info["name"].as_str() else { continue };
            let count = |field: &str| stats[field].as_u64().unwrap_or(0);
            let sum = |fields: &[&str]| {
                fields.iter().fold(0_u64, |sum, field| sum.wrapping_add(count(field)))
            };
            ports.push(Port {
                program: self.name.clone(),
                name: name.to_owned(),
                joined: joined(name, &self.parameters),
                bytes: sum(&["ibytes", "obytes"]),
                dropped: sum(&["imissed", "rx_nombuf", "ierrors", "oerrors"]),
            });
        }
        Ok(ports)
    }

    /// A program with one worker is one function, with all its threads: the others sleep. Of
    /// several workers each polls and needs a CPU; they share the program's ports, so what they
    /// carry lies between them.
    fn describe(
        &self,
        bytes: u64,
        functions: &mut Vec<Function>,
        counted: &mut Vec<(Link, Counter)>,
    ) {
        let process = self.process;
        let [first, rest @ ..] = self.workers.as_slice() else {
            let target = Target::Processes { processes: vec![process] };
            return functions.push(Function { name: self.name.clone(), target });
        };
        if rest.is_empty() {
            let target = Target::Processes { processes: vec![process] };
            return functions.push(Function { name: self.name.clone(), target });
        }
        let mut before = self.name.clone();
        let target = Target::Threads { process, threads: vec![*first] };
        functions.push(Function { name: before.clone(), target });
        for (at, worker) in rest.iter().enumerate() {
            let name = format!("{}/{}", self.name, at + 2);
            let target = Target::Threads { process, threads: vec![*worker] };
            functions.push(Function { name: name.clone(), target });
            let link = Link {
                id: format!("{} worker {}", process.pid, at + 2),
                a: LinkEnd::Function(before),
                b: LinkEnd::Function(name.clone()),
                path: Path::Memory,
                origin: "dpdk: workers of one program".into(),
            };
            let bytes = bytes / self.workers.len() as u64;
            counted.push((link, Counter { bytes, ..Counter::default() }));
            before = name;
        }
    }
}

/// Two ports of one memory interface count the same packets: the first's counter is taken.
fn links(ports: &[Port]) -> Vec<(Link, Counter)> {
    let mut links = Vec::new();
    let mut memifs: BTreeMap<_, Vec<&Port>> = BTreeMap::new();
    for port in ports {
        match &port.joined {
            Joined::Memif(memif) => memifs.entry(memif).or_default().push(port),
            Joined::Card(address) => links.push(link(
                port,
                LinkEnd::Nic(address.clone()),
                format!("dpdk: card {address}"),
            )),
            Joined::Nothing => {}
        }
    }
    for (memif, ends) in memifs {
        if let [a, b] = ends.as_slice()
            && a.program != b.program
        {
            let origin = format!("dpdk: memif {} number {}", memif.socket, memif.id);
            let (link, mut counter) = link(a, LinkEnd::Function(b.program.clone()), origin);
            counter.dropped = counter.dropped.wrapping_add(b.dropped);
            links.push((link, counter));
        }
    }
    links
}

fn link(port: &Port, to: LinkEnd, origin: String) -> (Link, Counter) {
    let link = Link {
        id: format!("{} {}", port.program, port.name),
        a: LinkEnd::Function(port.program.clone()),
        b: to,
        path: Path::Memory,
        origin,
    };
    (link, Counter { bytes: port.bytes, dropped: port.dropped, fresh: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::Memif;

    fn port(program: &str, name: &str, id: u32, bytes: u64) -> Port {
        let joined = Joined::Memif(Memif { socket: "/s".into(), id });
        Port { program: program.into(), name: name.into(), joined, bytes, dropped: 1 }
    }

    #[test]
    fn a_memif_with_both_ends_is_one_edge() {
        let ports = [port("a", "m0", 0, 5), port("b", "m0", 0, 5), port("b", "m1", 1, 9)];
        let links = links(&ports);
        assert_eq!(links.len(), 1);
        let (link, counter) = &links[0];
        assert_eq!((counter.bytes, counter.dropped), (5, 2));
        assert_eq!(link.b, LinkEnd::Function("b".into()));
    }
}
