//! What several sources say of the same functions, put together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::function::{Function, Layout, Link, LinkEnd, Process, Target};

/// All sources' functions, and links with the place of their counter among those of all sources.
#[derive(Debug, Default)]
pub struct Merged {
    pub functions: Vec<Function>,
    pub links: Vec<(usize, Link)>,
}

/// One layout from those of all sources, each with its source's name. A function that two
/// sources know, by a process that both name, is one function: the wider one, and with its name.
/// A namespace or container in which several functions of another source talk to each other is
/// not one function: its links then are its first one's.
pub fn merge(layouts: &[(&'static str, Arc<Layout>)]) -> Merged {
    let mut functions: Vec<Function> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for function in layouts.iter().flat_map(|(_, layout)| &layout.functions) {
        if seen.insert(&function.name) {
            functions.push(function.clone());
        }
    }
    let names = rename(&functions, layouts);
    let kept = |name: &str| names.get(name).is_none_or(|to| to == name);
    let mut merged = Merged::default();
    merged.functions.extend(functions.into_iter().filter(|one| kept(&one.name)));
    let links = layouts
        .iter()
        .flat_map(|(source, layout)| layout.links.iter().map(move |link| (source, link)));
    for (at, (source, link)) in links.enumerate() {
        let end = |end: &LinkEnd| match end {
            LinkEnd::Function(name) => LinkEnd::Function(names.get(name).unwrap_or(name).clone()),
            other => other.clone(),
        };
        let (a, b) = (end(&link.a), end(&link.b));
        if a != b {
            let (id, path) = (format!("{source} {}", link.id), link.path);
            merged.links.push((at, Link { id, a, b, path, origin: link.origin.clone() }));
        }
    }
    merged
}

/// For each function that is not kept, the one that stands for it.
fn rename(
    functions: &[Function],
    layouts: &[(&'static str, Arc<Layout>)],
) -> HashMap<String, String> {
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
    let links: Vec<(&str, &str)> = layouts
        .iter()
        .flat_map(|(_, layout)| &layout.links)
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
            a: LinkEnd::Function(a.into()),
            b: LinkEnd::Function(b.into()),
            path: Path::Memory,
            origin: String::new(),
        }
    }

    fn read(layouts: Vec<(&'static str, Layout)>) -> (Vec<String>, Vec<String>) {
        let layouts: Vec<_> =
            layouts.into_iter().map(|(source, layout)| (source, Arc::new(layout))).collect();
        let merged = merge(&layouts);
        let names = merged.functions.into_iter().map(|function| function.name).collect();
        let line = |(_, link): (usize, Link)| format!("{}: {} {}", link.id, link.a, link.b);
        (names, merged.links.into_iter().map(line).collect())
    }

    #[test]
    fn a_namespace_stands_for_the_program_in_it() {
        let netns = Layout {
            functions: vec![function("netns:a", &[1, 2]), function("netns:b", &[3])],
            links: vec![link("netns:a", "netns:b")],
        };
        let yasmin = Layout {
            functions: vec![function("nginx[2]", &[2]), function("wrk[3]", &[3])],
            links: vec![link("nginx[2]", "wrk[3]")],
        };
        let (names, links) = read(vec![("netns", netns), ("yasmin", yasmin)]);
        assert_eq!(names, ["netns:a", "netns:b"]);
        assert_eq!(links, ["netns 1: netns:a netns:b", "yasmin 1: netns:a netns:b"]);
    }

    #[test]
    fn programs_that_talk_inside_a_namespace_are_functions_of_their_own() {
        let netns = Layout {
            functions: vec![function("netns:a", &[1, 2]), function("netns:b", &[3])],
            links: vec![link("netns:a", "netns:b")],
        };
        let yasmin = Layout {
            functions: vec![function("haproxy[1]", &[1]), function("nginx[2]", &[2])],
            links: vec![link("haproxy[1]", "nginx[2]")],
        };
        let (names, links) = read(vec![("netns", netns), ("yasmin", yasmin)]);
        assert_eq!(names, ["netns:b", "haproxy[1]", "nginx[2]"]);
        assert_eq!(links[0], "netns 1: haproxy[1] netns:b");
    }
}
