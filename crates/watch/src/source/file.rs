//! Anything else: a JSON document from a file or from what a command prints.
//!
//! ```json
//! { "functions": [ { "name": "fw", "pid": 812 }, { "name": "cache", "cgroup": "/cache.scope" },
//!                  { "name": "vm", "domain": "debian" }, { "name": "remote" } ],
//!   "links": [ { "from": "nic:eth0", "to": "fw", "bytes": 81234 },
//!              { "from": "fw", "to": "cache", "rate_bytes_s": 1e6 } ] }
//! ```
//! `bytes` is a counter; `rate_bytes_s` is for who has rates only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde::Deserialize;

use super::{Source, Trouble};
use crate::function::{Counter, Function, Link, LinkEnd, Path, Reading, Target};
use crate::process;

pub enum Origin {
    File(PathBuf),
    /// Run by the shell, each time.
    Command(String),
}

pub struct Told {
    origin: Origin,
    /// Bytes that rates have made so far, by link.
    made: BTreeMap<String, f64>,
    last: Option<Instant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    functions: Vec<Entry>,
    links: Vec<Edge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    pid: Option<u32>,
    cgroup: Option<String>,
    domain: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edge {
    from: String,
    to: String,
    bytes: Option<u64>,
    rate_bytes_s: Option<f64>,
    #[serde(default)]
    dropped: u64,
}

impl Told {
    pub fn new(origin: Origin) -> Self {
        Self { origin, made: BTreeMap::new(), last: None }
    }

    fn text(&self) -> Result<String, Trouble> {
        match &self.origin {
            Origin::File(path) => {
                std::fs::read_to_string(path).map_err(Trouble::failed(path.display()))
            }
            Origin::Command(line) => {
                let output = Command::new("/bin/sh").args(["-c", line]).output();
                let output = output.map_err(Trouble::failed(line))?;
                if !output.status.success() {
                    let said = String::from_utf8_lossy(&output.stderr);
                    let said = said.lines().last().unwrap_or("");
                    return Err(Trouble::Failed(format!("{line}: {}: {said}", output.status)));
                }
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
        }
    }

    fn read_at(&mut self, text: &str, now: Instant) -> Result<Reading, Trouble> {
        let name = match &self.origin {
            Origin::File(path) => path.display().to_string(),
            Origin::Command(line) => line.clone(),
        };
        let mut parser = serde_json::Deserializer::from_str(text);
        // The parser's own message ends with line and column.
        let document: Document =
            serde_path_to_error::deserialize(&mut parser).map_err(|error| {
                let field = error.path().to_string();
                Trouble::Failed(format!("{name}: {field}: {}", error.into_inner()))
            })?;
        let elapsed_s = self.last.replace(now).map_or(0.0, |last| (now - last).as_secs_f64());
        document
            .reading(elapsed_s, &mut self.made)
            .map_err(|error| Trouble::Failed(format!("{name}: {error}")))
    }
}

impl Source for Told {
    fn name(&self) -> &'static str {
        match self.origin {
            Origin::File(_) => "file",
            Origin::Command(_) => "command",
        }
    }

    fn read(&mut self) -> Result<Reading, Trouble> {
        let text = self.text()?;
        self.read_at(&text, Instant::now())
    }
}

impl Document {
    fn reading(self, elapsed_s: f64, made: &mut BTreeMap<String, f64>) -> Result<Reading, String> {
        let (mut functions, mut counted) = (Vec::new(), Vec::new());
        let mut names = BTreeSet::new();
        for (at, entry) in self.functions.into_iter().enumerate() {
            if !names.insert(entry.name.clone()) {
                return Err(format!("functions[{at}].name: {:?} is there twice", entry.name));
            }
            let target = match (entry.pid, entry.cgroup, entry.domain) {
                // A process that has gone between writing and reading is no function any more.
                (Some(pid), None, None) => match process::identify(pid) {
                    Ok(process) => Target::Processes { processes: vec![process] },
                    Err(_) => Target::Fixed,
                },
                (None, Some(path), None) => Target::Cgroup { path },
                (None, None, Some(name)) => Target::Domain { name },
                (None, None, None) => Target::Fixed,
                _ => return Err(format!("functions[{at}]: one of pid, cgroup and domain")),
            };
            functions.push(Function { name: entry.name, target });
        }
        for (at, edge) in self.links.into_iter().enumerate() {
            let end = |field: &str, name: &str| match name.strip_prefix("nic:") {
                Some(card) => Ok(LinkEnd::Nic(card.to_owned())),
                None if names.contains(name) => Ok(LinkEnd::Function(name.to_owned())),
                None => Err(format!("links[{at}].{field}: no function is called {name:?}")),
            };
            let (a, b) = (end("from", &edge.from)?, end("to", &edge.to)?);
            if a == b {
                return Err(format!("links[{at}].to: {:?} is both ends", edge.to));
            }
            let id = format!("{at} {a} {b}");
            // The first bytes of a rate that is told of for the first time are all since the last look.
            let fresh = edge.rate_bytes_s.is_some() && elapsed_s > 0.0 && !made.contains_key(&id);
            let bytes = match (edge.bytes, edge.rate_bytes_s) {
                (Some(bytes), None) => bytes,
                (None, Some(rate)) if rate.is_finite() && rate >= 0.0 => {
                    let sum = made.entry(id.clone()).or_default();
                    *sum += rate * elapsed_s;
                    *sum as u64
                }
                (None, Some(rate)) => {
                    return Err(format!("links[{at}].rate_bytes_s: {rate} is no rate"));
                }
                _ => return Err(format!("links[{at}]: one of bytes and rate_bytes_s")),
            };
            let link = Link { id, a, b, path: Path::Told, origin: "told".to_owned() };
            counted.push((link, Counter { bytes, dropped: edge.dropped, fresh }));
        }
        Ok(Reading::new(functions, counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn told() -> Told {
        Told::new(Origin::File("t.json".into()))
    }

    fn complaint(text: &str) -> String {
        told().read_at(text, Instant::now()).unwrap_err().to_string()
    }

    #[test]
    fn rates_become_counters() {
        let text = r#"{"functions": [{"name": "a"}, {"name": "b"}],
            "links": [{"from": "a", "to": "b", "rate_bytes_s": 1000},
                      {"from": "nic:eth0", "to": "a", "bytes": 7}]}"#;
        let mut told = told();
        let start = Instant::now();
        let bytes = |reading: Reading| -> Vec<u64> {
            reading.counters.iter().map(|counter| counter.bytes).collect()
        };
        assert_eq!(bytes(told.read_at(text, start).unwrap()), [0, 7]);
        let later = start + Duration::from_secs(2);
        assert_eq!(bytes(told.read_at(text, later).unwrap()), [2000, 7]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            (r#"{"functions": [], "links": ["#, "line 1 column"),
            ("{\"functions\": [],\n \"links\": [{\"from\": 3}]}", "links[0].from"),
            ("{\"functions\": [],\n \"links\": [{\"from\": 3}]}", "line 2"),
            (r#"{"functions": [{"nmae": "a"}], "links": []}"#, "nmae"),
            (r#"{"functions": [{"name": "a"}, {"name": "a"}], "links": []}"#, "functions[1].name"),
            (r#"{"functions": [{"name": "a", "pid": 1, "domain": "d"}], "links": []}"#, "one of"),
            (
                r#"{"functions": [{"name": "a"}], "links": [{"from": "a", "to": "x", "bytes": 1}]}"#,
                "links[0].to",
            ),
            (
                r#"{"functions": [{"name": "a"}], "links": [{"from": "nic:e", "to": "a"}]}"#,
                "links[0]",
            ),
        ];
        for (text, words) in cases {
            let line = complaint(text);
            assert!(line.contains(words) && line.starts_with("t.json: "), "{line}");
        }
    }

    #[test]
    fn a_command_that_fails_says_what_it_said() {
        let mut told = Told::new(Origin::Command("echo no luck >&2; exit 3".into()));
        assert!(told.read().unwrap_err().to_string().contains("no luck"));
    }
}
