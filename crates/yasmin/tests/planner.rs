//! `yasmin topology` and the planning verbs of `yasmin place`, as a user sees them.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn yasmin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_yasmin")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = yasmin(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// It fails with one line that has all of `parts`.
#[track_caller]
fn fails(arguments: &[&str], parts: &[&str]) {
    let output = yasmin(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
}

const CHAINS: &str = r#"
[host]
free = ["0-4", "5-10"]

[[chain]]
name = "heavy"
functions = ["1", "4", "3"]
bytes_s = 3e8

[[chain]]
name = "medium"
functions = ["1", "2", "3"]
bytes_s = 2e8

[[chain]]
name = "light"
functions = ["5", "6"]
bytes_s = 1e8
"#;

fn scenario(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn this_machine() {
    let machine = json(&["topology", "--json"]);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let online = yasmin_topology::parse_cpus(&online).unwrap();
    assert_eq!(machine["cpus"].as_array().unwrap().len(), online.len());
    assert!(!machine["nodes"].as_array().unwrap().is_empty());
    assert!(machine["latencies"].is_null());
}

#[test]
fn a_described_machine_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("machine.svg");
    let output =
        yasmin(&["topology", "--synthetic", "node:2 core:4 pu:2", "--svg", svg.to_str().unwrap()]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["16 CPUs on 8 cores, 2 NUMA nodes", "node 1: ", "CPUs 8-15", "assumed"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    assert!(fs::read_to_string(svg).unwrap().contains("node 1"));
}

#[test]
fn latencies_of_this_machine() {
    let machine = json(&["topology", "--json"]);
    let allowed = machine["allowed"].as_array().unwrap();
    let [first, second, ..] = allowed.as_slice() else {
        return eprintln!("skipped: there is one CPU");
    };
    let pair = format!("{first},{second}");
    let measured = json(&["topology", "--measure", "--cpus", &pair, "--json"]);
    let ns = &measured["latencies"]["pairs"][0]["ns"];
    assert!(ns.as_f64().unwrap() > 0.0, "{ns}");
    fails(&["topology", "--measure", "--synthetic", "node:2 pu:2"], &["only this machine"]);
}

#[test]
fn the_golden_plan() {
    let file = scenario(CHAINS);
    let path = file.path().to_str().unwrap();
    let report = json(&["place", "plan", path, "--policy", "chain-first", "--json"]);
    let plan = &report["plans"][0];
    for seat in plan["seats"].as_array().unwrap() {
        let far = ["5", "6"].contains(&seat["function"].as_str().unwrap());
        assert_eq!(seat["node"], u64::from(far), "{seat}");
    }
    let compared = json(&["place", "plan", path, "--compare", "--json"]);
    let hops = |policy: &str| {
        let plans = compared["plans"].as_array().unwrap();
        plans.iter().find(|plan| plan["policy"] == policy).unwrap()["hops"].as_f64().unwrap()
    };
    assert!(hops("adaptive") <= hops("chain-first"));
    assert!(hops("exact") <= hops("adaptive") * 1.000_001);
    assert!(hops("adaptive") < hops("random"));
}

#[test]
fn too_many_functions_share_and_it_is_said() {
    let file = scenario(&CHAINS.replace("0-4", "0-1").replace("5-10", "5-6"));
    let output = yasmin(&["place", "plan", file.path().to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("6 functions for 4 CPUs: 5, 6 share a CPU"), "{text}");
}

#[test]
fn moves_are_named() {
    let file =
        scenario(&format!("{CHAINS}\n[current]\n1 = 5\n4 = 6\n3 = 7\n2 = 8\n5 = 0\n6 = 1\n"));
    let output = yasmin(&["place", "plan", file.path().to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("4 on ") && text.contains("(from 6)"), "{text}");
}

#[test]
fn bad_input_is_one_line_with_line_and_field() {
    let file = scenario(&CHAINS.replace("2e8", "\"some\""));
    fails(&["place", "plan", file.path().to_str().unwrap()], &["line 13", "chain[1].bytes_s"]);
    fails(&["place", "plan", "/nowhere.toml"], &["/nowhere.toml"]);
    let xml = scenario("<topology>\n<object/>\n</topology>");
    let path = xml.path().to_str().unwrap();
    fails(&["topology", "--xml", path], &["line 2", "type"]);
    fails(&["topology", "--synthetic", "node:two"], &["node:two"]);
    let negative = scenario(&CHAINS.replace("2e8", "-1"));
    fails(&["place", "plan", negative.path().to_str().unwrap()], &["medium", "-1"]);
}

#[test]
fn the_experiment_in_short() {
    let folder = tempfile::tempdir().unwrap();
    let plots = folder.path().to_str().unwrap();
    let arguments = ["place", "simulate", "--seconds", "30", "--json", "--plot", plots];
    let report = json(&arguments);
    let outcomes = report["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 2 * 3 * 4);
    assert_eq!(report["published"].as_array().unwrap().len(), 3);
    for name in ["rate", "latency", "spread", "dropped", "time"] {
        assert!(folder.path().join(format!("{name}.svg")).exists(), "{name}");
    }
    assert_eq!(json(&arguments), report, "equal seeds");
}

/// The bars of the project, on a few hosts and without judging time.
#[test]
fn adaptive_is_near_the_best() {
    let report = json(&["place", "evaluate", "--quick", "--hosts", "10", "--json"]);
    let summary = &report["summary"];
    let number = |name: &str| summary[name].as_f64().unwrap();
    assert!(number("proven") >= 3.0, "{summary}");
    assert!(number("gap_proven_mean") <= 1.2, "{summary}");
    assert!(number("gap_proven_worst") <= 3.5, "{summary}");
    assert!(number("over_random") > 1.0, "{summary}");
    assert!(report["times"].as_array().unwrap().iter().all(|one| one["adaptive_s"].is_f64()));
}
