//! What the operator knows better than the sources: a TOML file.
//!
//! ```toml
//! [[function]]            # a function that no source finds, or another way to move one
//! name = "vm"
//! domain = "debian"       # or pid = 812, or cgroup = "/machine.slice/a.scope", or fixed = true
//!
//! [[chain]]               # in place of what was found between these functions
//! functions = ["haproxy", "nginx[812]"]
//! entry = "eth0"          # cards; none if left out
//! exit = "eth0"
//! traffic_bytes_s = 1e9   # measured if left out
//!
//! [[ignore]]              # never moved, in no chain
//! function = "sshd"
//! ```
//! A name stands for itself, or for the one function `name[PID]`.

use std::collections::BTreeSet;

use serde::Deserialize;
use toml::Spanned;

use crate::discover::Found;
use crate::function::{Function, LinkEnd, Process, Target};
use crate::process;
use crate::rate::Edge;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overrides {
    #[serde(default)]
    function: Vec<Spanned<Entry>>,
    #[serde(default)]
    chain: Vec<Spanned<Chain>>,
    #[serde(default)]
    ignore: Vec<Ignore>,
    /// From the command line: how names of functions begin that may be moved; empty: all.
    #[serde(skip)]
    only: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    pid: Option<u32>,
    cgroup: Option<String>,
    domain: Option<String>,
    #[serde(default)]
    fixed: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chain {
    functions: Vec<String>,
    entry: Option<String>,
    exit: Option<String>,
    traffic_bytes_s: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ignore {
    function: String,
}

/// What is wrong with the file, with its name, line and field.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Mistake(String);

const SPANNED: &str = ".$__serde_spanned_private_value";

/// On one line.
fn flat(message: &str) -> String {
    message.replace('\n', "; ")
}

impl Overrides {
    pub fn parse(name: &str, text: &str) -> Result<Self, Mistake> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let parser = toml::Deserializer::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            Mistake(format!("{name}: line {}: {}", line(at), flat(error.message())))
        })?;
        let parsed: Self = serde_path_to_error::deserialize(parser).map_err(|error| {
            // Where a value stands is found by way of a field that is not in the file.
            let field = error.path().to_string().replace(SPANNED, "");
            let error = error.into_inner();
            let at = error.span().map_or(0, |span| span.start);
            Mistake(format!("{name}: line {}: {field}: {}", line(at), flat(error.message())))
        })?;
        let wrong = |at: usize, field: String, what: &str| {
            Err(Mistake(format!("{name}: line {}: {field}: {what}", line(at))))
        };
        for (at, entry) in parsed.function.iter().enumerate() {
            let field = |name: &str| format!("function[{at}].{name}");
            let (start, entry) = (entry.span().start, entry.get_ref());
            let given = [entry.pid.is_some(), entry.cgroup.is_some(), entry.domain.is_some()];
            let given = given.into_iter().chain([entry.fixed]).filter(|given| *given).count();
            if entry.name.is_empty() {
                return wrong(start, field("name"), "is empty");
            }
            if given != 1 {
                let what = "needs one of pid, cgroup, domain and fixed";
                return wrong(start, format!("function[{at}]"), what);
            }
            if entry.cgroup.as_ref().is_some_and(|path| !path.starts_with('/')) {
                return wrong(start, field("cgroup"), "has to start with /");
            }
        }
        for (at, chain) in parsed.chain.iter().enumerate() {
            let field = |name: &str| format!("chain[{at}].{name}");
            let (start, chain) = (chain.span().start, chain.get_ref());
            if chain.functions.is_empty() {
                return wrong(start, field("functions"), "is empty");
            }
            let names: BTreeSet<_> = chain.functions.iter().collect();
            if names.len() < chain.functions.len() {
                return wrong(start, field("functions"), "has a function twice");
            }
            if chain.traffic_bytes_s.is_some_and(|rate| !rate.is_finite() || rate < 0.0) {
                return wrong(start, field("traffic_bytes_s"), "is no rate");
            }
        }
        Ok(parsed)
    }

    /// Nothing is moved but functions whose names begin so.
    pub fn only(mut self, beginnings: &[String]) -> Self {
        self.only = beginnings.to_vec();
        self
    }

    /// Who the file's entries mean now: for each its process, where it names one that is there.
    pub fn processes(&self) -> Vec<Option<Process>> {
        let entries = self.function.iter().map(Spanned::get_ref);
        entries.map(|entry| process::identify(entry.pid?).ok()).collect()
    }

    /// Functions of the file are added, and ignored ones cannot be moved. `processes` as
    /// [`Self::processes`] says.
    pub fn apply_to_functions(&self, functions: &mut Vec<Function>, processes: &[Option<Process>]) {
        for (entry, process) in self.function.iter().map(Spanned::get_ref).zip(processes) {
            let target = match (entry.pid, &entry.cgroup, &entry.domain) {
                (Some(_), ..) => match process {
                    Some(process) => Target::Processes { processes: vec![*process] },
                    None => continue,
                },
                (_, Some(path), _) => Target::Cgroup { path: path.clone() },
                (_, _, Some(name)) => Target::Domain { name: name.clone() },
                _ => Target::Fixed,
            };
            match find(functions, &entry.name) {
                Some(at) => functions[at].target = target,
                None => functions.push(Function { name: entry.name.clone(), target }),
            }
        }
        let may = |name: &str| self.only.iter().any(|one| name.starts_with(one.as_str()));
        for function in functions.iter_mut() {
            if !self.only.is_empty() && !may(&function.name) {
                function.target = Target::Fixed;
            }
        }
        for ignore in &self.ignore {
            let hit = |one: &&mut Function| is_called(&one.name, &ignore.function);
            functions.iter_mut().filter(hit).for_each(|one| one.target = Target::Fixed);
        }
    }

    /// The edges that no chain of the file stands for, and the chains of the file. A function
    /// that is not there now is left out of its chain.
    pub fn apply_to_edges(
        &self,
        functions: &[Function],
        edges: &[Edge],
    ) -> (Vec<Edge>, Vec<Found>) {
        let mut left: Vec<Edge> = edges.to_vec();
        let ignored = |end: &LinkEnd| {
            let name = end.function().unwrap_or_default();
            self.ignore.iter().any(|ignore| is_called(name, &ignore.function))
        };
        left.retain(|edge| !ignored(&edge.a) && !ignored(&edge.b));
        let mut chains = Vec::new();
        for chain in self.chain.iter().map(Spanned::get_ref) {
            let present = chain.functions.iter().filter_map(|name| find(functions, name));
            let names: Vec<String> = present.map(|at| functions[at].name.clone()).collect();
            if names.is_empty() {
                continue;
            }
            let mut ends: Vec<LinkEnd> = chain.entry.iter().cloned().map(LinkEnd::Nic).collect();
            ends.extend(names.iter().cloned().map(LinkEnd::Function));
            ends.extend(chain.exit.iter().cloned().map(LinkEnd::Nic));
            let joins = |edge: &Edge, pair: &[LinkEnd]| {
                (edge.a == pair[0] && edge.b == pair[1]) || (edge.a == pair[1] && edge.b == pair[0])
            };
            let measured = ends.windows(2).flat_map(|pair| {
                edges.iter().filter(move |edge| joins(edge, pair)).map(|edge| edge.rate)
            });
            let rate = chain.traffic_bytes_s.unwrap_or_else(|| measured.fold(0.0, f64::max));
            left.retain(|edge| !(ends.contains(&edge.a) && ends.contains(&edge.b)));
            chains.push(Found {
                functions: names,
                entry: chain.entry.clone(),
                exit: chain.exit.clone(),
                rate,
                origins: vec!["the override file".into()],
            });
        }
        (left, chains)
    }
}

/// `name` itself, or the only `name[PID]`.
fn find(functions: &[Function], name: &str) -> Option<usize> {
    if let Some(at) = functions.iter().position(|one| one.name == name) {
        return Some(at);
    }
    let mut alike = (0..functions.len()).filter(|at| is_called(&functions[*at].name, name));
    alike.next().filter(|_| alike.next().is_none())
}

fn is_called(function: &str, name: &str) -> bool {
    function == name
        || function
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('[') && rest.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str) -> Function {
        Function { name: name.into(), target: Target::Fixed }
    }

    fn edge(a: &str, b: &str, rate: f64) -> Edge {
        let (a, b) = (LinkEnd::Function(a.into()), LinkEnd::Function(b.into()));
        Edge { a, b, rate, dropped: 0.0, origins: Vec::new() }
    }

    #[test]
    fn a_chain_of_the_file_takes_the_place_of_what_was_found() {
        let text = "[[chain]]\nfunctions = ['nginx', 'a', 'gone']\nentry = 'eth0'\n\
                    [[ignore]]\nfunction = 'x'\n";
        let overrides = Overrides::parse("o", text).unwrap();
        let functions = ["a", "nginx[7]", "b", "x[9]"].map(function);
        let edges = [edge("a", "nginx[7]", 5.0), edge("a", "b", 3.0), edge("b", "x[9]", 1.0)];
        let (left, chains) = overrides.apply_to_edges(&functions, &edges);
        assert_eq!(left, [edge("a", "b", 3.0)]);
        assert_eq!(chains[0].functions, ["nginx[7]", "a"]);
        assert_eq!((chains[0].rate, chains[0].entry.as_deref()), (5.0, Some("eth0")));
    }

    #[test]
    fn two_of_a_name_are_nobody() {
        assert_eq!(find(&["n[1]", "n[2]"].map(function), "n"), None);
    }

    #[test]
    fn mistakes_have_a_line_and_a_field() {
        let cases = [
            ("[[chain]]\nfunctions = 3\n", "line 2", "chain[0].functions"),
            ("[[chain]]\nfunctions = []\n", "line 1", "chain[0].functions"),
            ("\n[[chain]]\nfunctions = ['a', 'a']\n", "line 2", "twice"),
            ("[[chain]]\nfunctions = ['a']\ntraffic_bytes_s = -1.0\n", "line 1", "traffic_bytes_s"),
            ("[[chain]]\nfunctions = ['a']\nexti = 'e'\n", "line 3", "exti"),
            ("[[function]]\nname = 'a'\n", "line 1", "one of pid"),
            ("[[function]]\nname = 'a'\ncgroup = 'x'\n", "line 1", "function[0].cgroup"),
            ("[[function]\nname = 'a'\n", "line 1", ""),
        ];
        for (text, line, field) in cases {
            let said = Overrides::parse("o.toml", text).unwrap_err().to_string();
            assert!(
                said.starts_with("o.toml: ") && said.contains(line) && said.contains(field),
                "{said}"
            );
            assert!(!said.contains('\n'), "{said}");
        }
    }
}
