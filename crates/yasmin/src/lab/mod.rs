//! `yasmin lab`: which way to parallelise pays, and what each path costs.
//!
//! Kernels (`lab/kernels`) run serial, in OpenMP, MPI and OpenSHMEM, on placements that are data, by paths
//! that take turns; each run is checked by the kernel itself, and its path is proven by those who
//! carried the bytes. A figure whose bytes went another way is marked, and fails the whole.

mod advise;
pub mod cli;
mod compare;
mod counters;
mod html;
mod kernels;
mod launch;
mod load;
mod output;
mod peers;
mod placement;
mod plan;
mod proof;
mod published;
mod report;
mod rings;
mod seen;
mod site;
mod sockmap;
mod table;
mod team;
mod versions;
mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use indicatif::ProgressBar;

use crate::demo::process::NoEnd;
use crate::demo::{absolute, interrupt};
use cli::{Action, Common, Lab, Measure};
use launch::Bench;
use placement::Placement;
use plan::{Case, Plan};
use report::{Outcome, Report};
use rings::{Offers, Rings};
use site::Site;
use sockmap::Sockmap;
use yasmin_measure::environment::Environment;

pub fn run(options: &Lab) -> anyhow::Result<()> {
    match &options.action {
        Some(Action::Peers(options)) => peers::run(options),
        Some(Action::Advise(options)) => advise::run(options),
        Some(Action::Compare(compare)) => compare::run(compare),
        None => measure(&options.measure),
    }
}

fn measure(options: &Measure) -> anyhow::Result<()> {
    let more = options.placements.as_deref().map(read).transpose()?;
    let placements =
        placement::read(more.as_deref()).with_context(|| named(&options.placements))?;
    let text = options.plan.as_deref().map(read).transpose()?;
    let built_in = if options.quick { plan::QUICK } else { plan::FULL };
    let text = text.as_deref().unwrap_or(built_in);
    let mut plan = Plan::parse(text).with_context(|| named(&options.plan))?;
    if !options.on.is_empty() {
        plan.place(&options.on);
    }
    let cases = plan.cases(&placements).with_context(|| named(&options.plan))?;
    let rounds = options.common.rounds.unwrap_or(plan.rounds);
    let study = Study { placements, cases, rounds, offers: Offers::AtOnce };
    let Some(study) = study.chosen(&options.common)? else { return Ok(()) };
    let report = study.run(&options.common)?;
    publish(&report, &table::draw(&report), &options.common)
}

/// What is measured, and how.
struct Study {
    placements: BTreeMap<String, Placement>,
    cases: Vec<Case>,
    rounds: u16,
    offers: Offers,
}

impl Study {
    /// What the user chose of it; `None` if only its names were asked for.
    fn chosen(mut self, options: &Common) -> anyhow::Result<Option<Self>> {
        self.cases = plan::choose(self.cases, &options.only)?;
        if options.list {
            self.cases.iter().for_each(|case| println!("{}", case.name));
            return Ok(None);
        }
        Ok(Some(self))
    }

    fn run(self, options: &Common) -> anyhow::Result<Report> {
        let Self { placements, mut cases, rounds, offers } = self;
        if !rustix::process::geteuid().is_root() {
            bail!("network namespaces, whose counters prove the paths, need root");
        }
        fs::create_dir_all(&options.out)
            .with_context(|| format!("cannot make {}", options.out.display()))?;
        interrupt::catch_signals()?;

        let folder = tempfile::Builder::new().prefix("yasmin-lab-").tempdir()?;
        let chosen: Vec<Placement> = used(&placements, &cases).cloned().collect();
        let programs = kernels::build(&cases, &chosen, folder.path())?;
        let mut warnings = Vec::new();
        let mut sockmap = None;
        if cases.iter().any(|case| case.path == way::Path::Sockmap) {
            match Sockmap::load(&programs) {
                Ok(loaded) => sockmap = Some(loaded),
                Err(error) => {
                    warnings.push(format!("sockmap is left out: {error:#}"));
                    cases.retain(|case| case.path != way::Path::Sockmap);
                }
            }
        }
        let rings = Rings::find(options.socket.as_deref(), folder.path(), offers)?;
        let mut sites = BTreeMap::new();
        for placement in chosen {
            let own = folder.path().join(&placement.name);
            let site = Site::set(&placement, &own)
                .with_context(|| format!("placement {} cannot be made", placement.name))?;
            let files: BTreeSet<PathBuf> = cases
                .iter()
                .filter(|case| case.placement == placement.name)
                .map(|case| programs.join(case.kernel.program(case.model)))
                .collect();
            site.bring(&files.into_iter().collect::<Vec<_>>())?;
            sites.insert(placement.name, site);
        }
        let bench = Bench::new(folder.path(), programs, sites, rings, sockmap)?;
        let environment = Environment::read();
        eprintln!("{}", environment.line());
        let outcomes = take_turns(&bench, cases, rounds);
        bench.sites.values().for_each(|site| site.clear(folder.path()));
        let outcomes = outcomes?;
        let mut report = Report {
            format: report::FORMAT,
            environment,
            governor: load::governor(),
            versions: versions::of(&outcomes),
            proof: bench.rings.proof(),
            rounds,
            placements: used_by(&placements, &outcomes),
            warnings,
            limits: None,
            outcomes,
        };
        report.warn();
        Ok(report)
    }
}

/// All cases of an experiment take turns: each once in a round, every second round backwards, so
/// that none is always first. Interrupted, it returns what was measured until then.
fn take_turns(bench: &Bench, cases: Vec<Case>, rounds: u16) -> anyhow::Result<Vec<Outcome>> {
    let cpus = yasmin_measure::cpus::allowed()?.len();
    let steps = cases.len() * usize::from(rounds);
    let progress = ProgressBar::new(steps as u64).with_style(yasmin_measure::progress::style());
    let describe = |case: Case| {
        let command = bench.describe(&case);
        Outcome::new(case, command)
    };
    let mut outcomes: Vec<Outcome> = cases.into_iter().map(describe).collect();
    'all: for experiment in outcomes.chunk_by_mut(|a, b| a.case.experiment == b.case.experiment) {
        for round in 0..rounds {
            for at in 0..experiment.len() {
                let at = if round % 2 == 0 { at } else { experiment.len() - 1 - at };
                let outcome = &mut experiment[at];
                progress.set_message(outcome.case.name.clone());
                progress.inc(1);
                if outcome.failure.is_some() {
                    continue;
                }
                measure_once(bench, outcome, cpus);
                if interrupt::check().is_err() {
                    // Of the run that was ended just now.
                    outcome.failure = None;
                    break 'all;
                }
                if let Some(failure) = &outcome.failure {
                    progress.println(format!("{}: {failure}", outcome.case.name));
                }
            }
        }
    }
    progress.finish_and_clear();
    if interrupt::check().is_err() {
        outcomes.retain(|outcome| !outcome.runs.is_empty() || outcome.failure.is_some());
        if outcomes.is_empty() {
            bail!("interrupted before anything was measured");
        }
    }
    outcomes.iter_mut().for_each(Outcome::finish);
    Ok(outcomes)
}

/// One run. What does not end is repeated, and counted: MPICH 4.0 over TCP sometimes stays in
/// MPI_Finalize for ever where CPUs are crowded, with or without the library.
fn measure_once(bench: &Bench, outcome: &mut Outcome, cpus: usize) {
    const TRIES: usize = 3;
    for nth in 1..=TRIES {
        match bench.run(&outcome.case) {
            Ok(run) => return outcome.take(run, cpus),
            Err(error) if error.is::<NoEnd>() && nth < TRIES => outcome.hung += 1,
            Err(error) => {
                outcome.failure = Some(format!("{error:#}"));
                return;
            }
        }
    }
}

/// `table`: what is printed of it.
fn publish(report: &Report, table: &str, options: &Common) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(report)?;
    let write = |name: &str, text: &str| {
        let path = options.out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("report.json", &json)?;
    write("report.html", &html::page(report)?)?;
    if options.json {
        println!("{json}");
    } else {
        print!("{table}");
    }
    for warning in &report.warnings {
        eprintln!("yasmin lab: {warning}");
    }
    eprintln!("report: {}", absolute(&options.out.join("report.html")));
    interrupt::check()?;
    let failures = report.failures();
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    Ok(())
}

fn used<'a>(
    placements: &'a BTreeMap<String, Placement>,
    cases: &'a [Case],
) -> impl Iterator<Item = &'a Placement> {
    placements
        .values()
        .filter(|placement| cases.iter().any(|case| case.placement == placement.name))
}

fn used_by(placements: &BTreeMap<String, Placement>, outcomes: &[Outcome]) -> Vec<Placement> {
    let cases: Vec<Case> = outcomes.iter().map(|outcome| outcome.case.clone()).collect();
    used(placements, &cases).cloned().collect()
}

/// What an error is about: a file of the user's, or the lab's own.
fn named(file: &Option<std::path::PathBuf>) -> String {
    file.as_ref().map_or("the built-in file".to_owned(), |path| path.display().to_string())
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
