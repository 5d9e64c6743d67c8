//! `yasmin demo`: real programs over plain TCP and through rings, taking turns.
//!
//! ```text
//!   namespace a               namespace b            (one namespace and loopback
//!   server, 198.18.0.1 ===veth=== client, 198.18.0.2  when not root)
//!          \________ rings ________/
//!                    |
//!           a broker of the demo's own
//! ```

pub mod broker;
mod html;
pub mod interrupt;
mod markdown;
pub mod netns;
mod outcome;
pub mod process;
mod stage;
mod table;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use indicatif::ProgressBar;

use crate::cli;
use broker::Broker;
use outcome::{Outcome, Report};
use stage::Stage;
use workload::Workload;
use yasmin_measure::environment::Environment;
use yasmin_measure::pairs;

/// Pairs of runs, and seconds for each run.
struct Plan {
    pairs: usize,
    seconds: u32,
}

const FULL: Plan = Plan { pairs: 5, seconds: 3 };
const QUICK: Plan = Plan { pairs: 2, seconds: 1 };

pub fn run(options: &cli::Demo) -> anyhow::Result<()> {
    let plan = if options.quick { QUICK } else { FULL };
    let pairs = options.pairs.map_or(plan.pairs, usize::from);
    let workloads = chosen(options)?;
    need_programs(&workloads)?;
    fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    interrupt::catch_signals()?;

    let folder = tempfile::Builder::new().prefix("yasmin-demo-").tempdir()?;
    let broker = Broker::start(folder.path())?;
    let before = options.against.as_deref().map(other_version).transpose()?;
    let stage = Stage::set(
        folder.path(),
        broker.socket(),
        before.as_ref().map(|(yasmin, _)| yasmin.clone()),
    )?;
    let environment = Environment::read();
    eprintln!("{}\n{}", environment.line(), stage.describe());

    // Quick is quick for all.
    let pairs_of = |workload: &dyn Workload| {
        if options.quick { pairs } else { workload.pairs(pairs) }
    };
    let ways = stage.ways().len();
    let steps: usize = workloads.iter().map(|workload| ways * pairs_of(workload.as_ref())).sum();
    let progress = ProgressBar::new(steps as u64).with_style(yasmin_measure::progress::style());
    let mut outcomes = Vec::new();
    for workload in &workloads {
        let pairs = pairs_of(workload.as_ref());
        let outcome = compare(workload.as_ref(), &stage, &broker, pairs, plan.seconds, &progress);
        interrupt::check()?;
        outcomes.push(outcome);
    }
    progress.finish_and_clear();

    let report = Report {
        environment,
        stage: stage.describe(),
        proof: broker.proof().unwrap_or_default(),
        pairs,
        seconds: plan.seconds,
        before: before.map(|(_, version)| version),
        outcomes,
    };
    drop(stage);
    drop(broker);
    publish(&report, options)
}

/// Runs one workload, plain and with rings in turn. What fails is part of the outcome.
fn compare(
    workload: &dyn Workload,
    stage: &Stage,
    broker: &Broker,
    count: usize,
    seconds: u32,
    progress: &ProgressBar,
) -> Outcome {
    let mut outcome = Outcome::new(workload);
    for pair in 0..count {
        for how in pairs::turns(stage.ways().len(), pair).map(|turn| stage.ways()[turn]) {
            progress.set_message(format!("{}, {}", workload.name(), how.describe()));
            let before = broker.totals();
            let measured = workload.measure(stage, how, seconds);
            let moved = broker.moved_since(before);
            progress.inc(1);
            if let Err(error) = outcome.take(how, measured, moved) {
                progress.println(format!("{}: {error:#}", workload.name()));
                progress.inc(((count - pair) * stage.ways().len()) as u64);
                return outcome;
            }
        }
    }
    outcome.finish();
    outcome
}

fn publish(report: &Report, options: &cli::Demo) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(report)?;
    let write = |name: &str, text: &str| {
        let path = options.out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("report.json", &json)?;
    write("report.html", &html::draw(report)?)?;
    write("report.md", &markdown::draw(report))?;
    if options.json {
        println!("{json}");
    } else {
        print!("{}", table::draw(report));
    }
    report.moves().for_each(|line| eprintln!("{line}"));
    eprintln!("report: {}", absolute(&options.out.join("report.html")));
    let failures = report.failures();
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    Ok(())
}

pub fn absolute(path: &Path) -> String {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The command of another version, in the folder with its broker and library, and its version.
fn other_version(folder: &Path) -> anyhow::Result<(PathBuf, String)> {
    let yasmin = fs::canonicalize(folder.join("yasmin"))
        .with_context(|| format!("--against {}: no yasmin there", folder.display()))?;
    let output = Command::new(&yasmin)
        .arg("--version")
        .output()
        .with_context(|| format!("{} does not run", yasmin.display()))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || version.is_empty() {
        bail!("{} --version: {}", yasmin.display(), output.status);
    }
    Ok((yasmin, version))
}

/// All, the usual ones, or those that were named.
fn chosen(options: &cli::Demo) -> anyhow::Result<Vec<Box<dyn Workload>>> {
    let mut all = workload::usual();
    if options.all || !options.only.is_empty() {
        all.extend(workload::special());
    }
    for only in &options.only {
        if !all.iter().any(|workload| workload.key() == only) {
            bail!("there is no workload {only}; there are {}", keys(&all));
        }
    }
    all.retain(|workload| {
        options.only.is_empty() || options.only.iter().any(|only| workload.key() == *only)
    });
    Ok(all)
}

fn keys(workloads: &[Box<dyn Workload>]) -> String {
    let keys: Vec<&str> = workloads.iter().map(|workload| workload.key()).collect();
    keys.join(", ")
}

/// Names every missing program at once, with the Debian package that has it.
fn need_programs(workloads: &[Box<dyn Workload>]) -> anyhow::Result<()> {
    let mut missing: Vec<String> = Vec::new();
    for (program, package) in workloads.iter().flat_map(|workload| workload.needs()) {
        if process::find(program).is_none() {
            missing.push(format!("{program} (Debian package {package})"));
        }
    }
    missing.sort();
    missing.dedup();
    if missing.is_empty() { Ok(()) } else { bail!("missing: {}", missing.join(", ")) }
}
