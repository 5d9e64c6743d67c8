//! `yasmin place replay`: decides again what a log recorded.

use std::fs::File;
use std::io::BufReader;

use anyhow::Context;
use yasmin_watch::record::Settings;
use yasmin_watch::replay::replay;

use super::{cli, sources};

pub fn run(options: &cli::Replay) -> anyhow::Result<()> {
    let name = options.log.display().to_string();
    let overrides = sources::overrides(options.overrides.as_deref())?;
    let log = File::open(&options.log).with_context(|| name.clone())?;
    let report = replay(BufReader::new(log), overrides, |settings| {
        apply(&options.decide, settings);
    })
    .with_context(|| name.clone())?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    for decision in &report.decisions {
        for line in decision.lines("move") {
            println!("{:9.1} s  {line}", decision.at_s);
        }
        if decision.moves.is_empty() {
            println!("{:9.1} s  no move: {}", decision.at_s, decision.why);
        }
        if let Some(line) = decision.sharing() {
            println!("{:9.1} s  {line}", decision.at_s);
        }
    }
    println!(
        "{}: {} looks in {:.0} s: {} plans with {} moves (recorded: {} plans, {} moves); traffic x \
         distance {:.4e} on average",
        report.policy,
        report.samples,
        report.length_s,
        report.decisions.len(),
        report.moves,
        report.recorded_decisions,
        report.recorded_moves,
        report.mean_cost,
    );
    Ok(())
}

/// What the command line says goes before what is there.
pub fn apply(options: &cli::Decide, settings: &mut Settings) {
    if let Some(policy) = &options.policy {
        settings.policy.clone_from(policy);
    }
    if let Some(node) = options.nic_node {
        settings.nic = Some(yasmin_topology::NodeId(node));
    }
    if let Some(noise) = options.noise {
        settings.sensitivity.noise = noise / 100.0;
    }
    settings.smt |= options.smt;
}
