//! `yasmin bench`: latency and bandwidth of several ways between two cores, in one run.
//!
//! Everything is measured between two threads, each pinned to a CPU of its own; the ways take
//! turns, so that a slow minute of the machine is slow for all of them.

mod copy;
mod floor;
mod linked;
mod plan;
mod plot;
mod report;
mod ring;
mod sockets;
mod table;

use std::fs;
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;

use crate::cli;
use plan::{Budget, Plan};
use report::Report;
use yasmin_measure::cpus::{self, Pair};
use yasmin_measure::environment::Environment;
use yasmin_measure::pairs;

/// One way to move bytes between two CPUs. `None`: the measure has no meaning for it.
pub trait Subject {
    fn name(&self) -> &'static str;

    /// One-way nanoseconds of messages of `len_bytes`, answered one by one.
    fn latency(&mut self, len_bytes: usize, budget: Budget) -> anyhow::Result<Option<Latency>>;

    /// Bytes a second of messages of `len_bytes`, sent as fast as they are taken.
    fn bandwidth(&mut self, len_bytes: usize, budget: Budget) -> anyhow::Result<Option<f64>>;
}

/// What one repetition says about a way's latency.
#[derive(Clone, Copy)]
pub struct Latency {
    pub p50_ns: f64,
    pub p99_ns: f64,
}

/// What no way between two CPUs passes.
#[derive(Clone, Copy, serde::Serialize)]
pub struct Limits {
    /// From one CPU to the other.
    pub cache_line_ns: f64,
    /// Copied by the sender and, at the same time, by the receiver; messages of `copy_len_bytes`.
    pub two_copies_bytes_s: f64,
    pub copy_len_bytes: usize,
}

/// The best of some tries: what disturbs them is no limit. Takes about a second.
pub fn limits(copy_len_bytes: usize) -> anyhow::Result<Limits> {
    const TRIES: usize = 9;
    let budget = Budget { time: Duration::from_millis(50) };
    let pair = cpus::choose()?;
    let previous = cpus::pin_this_thread(pair.first)?;
    let measured: anyhow::Result<Vec<Limits>> = (0..TRIES)
        .map(|_| {
            let line = floor::Floor::new(pair).latency(1, budget)?;
            let copies = copy::Copy::new(pair).bandwidth(copy_len_bytes, budget)?;
            Ok(Limits {
                cache_line_ns: line.map_or(f64::INFINITY, |latency| latency.p50_ns),
                two_copies_bytes_s: copies.unwrap_or_default(),
                copy_len_bytes,
            })
        })
        .collect();
    cpus::restore_this_thread(&previous)?;
    let best = measured?.into_iter().reduce(|best, other| Limits {
        cache_line_ns: best.cache_line_ns.min(other.cache_line_ns),
        two_copies_bytes_s: best.two_copies_bytes_s.max(other.two_copies_bytes_s),
        copy_len_bytes,
    });
    best.context("no limit was measured")
}

pub fn run(options: &cli::Bench) -> anyhow::Result<()> {
    let plan = if options.quick { Plan::quick() } else { Plan::full() };
    let pair = match options.cpus.as_deref() {
        Some([first, second]) => Pair { first: *first, second: *second },
        _ => cpus::choose()?,
    };
    let mut warnings = cpus::warnings(pair);
    if cfg!(debug_assertions) {
        warnings.push("this is a debug build: its figures mean nothing".to_owned());
    }
    for warning in &warnings {
        eprintln!("yasmin bench: {warning}");
    }
    let previous = cpus::pin_this_thread(pair.first)?;
    let report = measure(&plan, pair, warnings);
    cpus::restore_this_thread(&previous)?;
    let report = report?;

    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", table::draw(&report));
    }
    if let Some(path) = &options.plot {
        let svg = plot::draw(&report)?;
        fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("plot: {}", path.display());
    }
    Ok(())
}

fn measure(plan: &Plan, pair: Pair, warnings: Vec<String>) -> anyhow::Result<Report> {
    let mut subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(floor::Floor::new(pair)),
        Box::new(copy::Copy::new(pair)),
        Box::new(linked::Linked::start("ring", ring::pair()?, pair)?),
        Box::new(linked::Linked::start("unix", sockets::unix()?, pair)?),
        Box::new(linked::Linked::start("tcp", sockets::tcp()?, pair)?),
    ];
    let mut report = Report::new(Environment::read(), pair, plan.repetitions, warnings);
    let steps = plan.repetitions * plan.sizes.len() * subjects.len() * 2;
    let progress = ProgressBar::new(steps as u64).with_style(yasmin_measure::progress::style());
    for repetition in 0..plan.repetitions {
        for &len_bytes in &plan.sizes {
            for at in pairs::turns(subjects.len(), repetition) {
                let subject = &mut subjects[at];
                let name = subject.name();
                progress
                    .set_message(format!("{name} {}", indicatif::BinaryBytes(len_bytes as u64)));
                if let Some(latency) = subject.latency(len_bytes, plan.budget)? {
                    report.add_latency(name, len_bytes, latency);
                }
                progress.inc(1);
                if let Some(bytes_s) = subject.bandwidth(len_bytes, plan.budget)? {
                    report.add_bandwidth(name, len_bytes, bytes_s);
                }
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    report.finish();
    Ok(report)
}
