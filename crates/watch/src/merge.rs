//! What several sources say of the same functions, put together.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::function::{End, Function, Link, Process, Reading, Target};

/// One reading from those of all sources, each with its source's name. A function that two
/// sources know, by a process that both name, is one function: the wider one, and with its name.
/// A namespace or container in which several functions of another source talk to each other is
/// not one function: its links then are its first one's.
pub fn merge(readings: Vec<(&'static str, Reading)>) -> Reading {
    let mut functions: Vec<Function> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for function in readings.iter().flat_map(|(_, reading)| &reading.functions) {
        if seen.insert(&function.name) {
            functions.push(function.clone());
        }
    }
    let names = rename(&functions, &readings);
    let kept = |name: &str| names.get(name).is_none_or(|to| to == name);
    let mut merged = Reading::default();
    merged.functions.extend(functions.into_iter().filter(|one| kept(&one.name)));
    for (source, reading) in readings {
        for link in reading.links {
            let end = |end: &End| match end {
                End::Function(name) => End::Function(names.get(name).unwrap_or(name).clone()),
                other => other.clone(),
            };
            let (a, b) = (end(&link.a), end(&link.b));
            if a != b {
                merged.links.push(Link { id: format!("{source} {}", link.id), a, b, ..link });
            }
        }
    }
    merged
}

/// For each function that is not kept, the one that stands for it.
fn rename(functions: &[Function], readings: &[(&'static str, Reading)]) -> HashMap<String, String> {
    let mut owners: BTreeMap<Process, Vec<usize>> = BTreeMap::new();
    for (at, function) in functions.iter().enumerate() {
        // Several workers of one process are functions on purpose.
        if matches!(function.target, Target::Threads { .. }) {
            continue;
        }
        for process in function.processes() {
            owners.entry(*process).or_default().push(at);
        }
    }
    // Wide functions and those that lie within them.
    let mut within: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for owners in owners.values() {
        let size = |at: &usize| functions[*at].processes().len();
        let Some(wide) = owners.iter().copied().max_by_key(|at| (size(at), usize::MAX - at)) else {
            continue;
        };
        for &narrow in owners.iter().filter(|at| **at != wide) {
            let inside = within.entry(wide).or_default();
            if !inside.contains(&narrow) {
                inside.push(narrow);
            }
        }
    }
    let links: Vec<(&str, &str)> = readings
        .iter()
        .flat_map(|(_, reading)| &reading.links)
        .filter_map(|link| Some((link.a.function()?, link.b.function()?)))
        .collect();
    let mut names = HashMap::new();
    for threads in functions.iter().filter(|one| matches!(one.target, Target::Threads { .. })) {
        let wide = threads.processes().first().and_then(|process| owners.get(process));
        for at in wide.into_iter().flatten() {
            names.entry(functions[*at].name.clone()).or_insert_with(|| threads.name.clone());
        }
    }
    for (wide, inside) in within {
        let is_inside = |name: &str| inside.iter().any(|at| functions[*at].name == name);
        let splits = links.iter().any(|(a, b)| is_inside(a) && is_inside(b));
        if splits {
            names.insert(functions[wide].name.clone(), functions[inside[0]].name.clone());
        } else {
            for at in inside {
                names.insert(functions[at].name.clone(), functions[wide].name.clone());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::Path;

    fn function(name: &str, pids: &[u32]) -> Function {
        let processes = pids.iter().map(|pid| Process { pid: *pid, started: 1 }).collect();
        Function { name: name.into(), target: Target::Processes { processes } }
    }

    fn link(a: &str, b: &str) -> Link {
        Link {
            id: "1".into(),
            a: End::Function(a.into()),
            b: End::Function(b.into()),
            path: Path::Memory,
            origin: String::new(),
            bytes: 0,
            dropped: 0,
            fresh: false,
        }
    }

    fn read(readings: Vec<(&'static str, Reading)>) -> (Vec<String>, Vec<String>) {
        let merged = merge(readings);
        let names = merged.functions.into_iter().map(|function| function.name).collect();
        let line = |link: Link| format!("{}: {} {}", link.id, link.a, link.b);
        (names, merged.links.into_iter().map(line).collect())
    }

    #[test]
    fn a_namespace_stands_for_the_program_in_it() {
        let netns = Reading {
            functions: vec![function("netns:a", &[1, 2]), function("netns:b", &[3])],
            links: vec![link("netns:a", "netns:b")],
        };
        let yasmin = Reading {
            functions: vec![function("nginx[2]", &[2]), function("wrk[3]", &[3])],
            links: vec![link("nginx[2]", "wrk[3]")],
        };
        let (names, links) = read(vec![("netns", netns), ("yasmin", yasmin)]);
        assert_eq!(names, ["netns:a", "netns:b"]);
        assert_eq!(links, ["netns 1: netns:a netns:b", "yasmin 1: netns:a netns:b"]);
    }

    #[test]
    fn programs_that_talk_inside_a_namespace_are_functions_of_their_own() {
        let netns = Reading {
            functions: vec![function("netns:a", &[1, 2]), function("netns:b", &[3])],
            links: vec![link("netns:a", "netns:b")],
        };
        let yasmin = Reading {
            functions: vec![function("haproxy[1]", &[1]), function("nginx[2]", &[2])],
            links: vec![link("haproxy[1]", "nginx[2]")],
        };
        let (names, links) = read(vec![("netns", netns), ("yasmin", yasmin)]);
        assert_eq!(names, ["netns:b", "haproxy[1]", "nginx[2]"]);
        assert_eq!(links[0], "netns 1: haproxy[1] netns:b");
    }
}
