//! `yasmin topology`: the machine, and how long a cache line takes between its CPUs.

mod picture;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use comfy_table::Table;
use indicatif::{BinaryBytes, ProgressBar};
use serde::Serialize;
use yasmin_topology::{CpuId, Effort, Latencies, Machine, NodeId, Origin, format_cpus, parse_cpus};

use yasmin_measure::{figure, table};

/// Which machine is meant.
#[derive(Args, Clone)]
pub struct Source {
    /// A machine described in hwloc's XML, instead of this one; - is standard input
    #[arg(long, value_name = "FILE")]
    pub xml: Option<PathBuf>,
    /// A machine in hwloc's synthetic form, such as "node:2 core:8 pu:2"
    #[arg(long, value_name = "DESCRIPTION", conflicts_with = "xml")]
    pub synthetic: Option<String>,
}

#[derive(Args)]
pub struct Topology {
    #[command(flatten)]
    pub source: Source,
    /// Measure how long a cache line takes between every two CPUs
    #[arg(long)]
    pub measure: bool,
    /// Only between these CPUs
    #[arg(long, value_name = "LIST", requires = "measure")]
    pub cpus: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the machine, with latencies if they were measured
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    machine: &'a Machine,
    /// CPUs that functions can be given.
    free: Vec<CpuId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latencies: Option<&'a Latencies>,
}

impl Source {
    pub fn given(&self) -> bool {
        self.xml.is_some() || self.synthetic.is_some()
    }

    pub fn machine(&self) -> anyhow::Result<Machine> {
        if let Some(path) = &self.xml {
            let text = read(path).with_context(|| format!("cannot read {}", path.display()))?;
            return Machine::from_hwloc_xml(&text).with_context(|| path.display().to_string());
        }
        match &self.synthetic {
            Some(description) => Ok(Machine::from_synthetic(description)?),
            None => Ok(Machine::discover()?),
        }
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(path)
}

pub fn run(options: &Topology) -> anyhow::Result<()> {
    let machine = options.source.machine()?;
    let latencies = if options.measure { Some(measure(&machine, options)?) } else { None };
    if options.json {
        let free = machine.free().into_iter().collect();
        let report = Report { machine: &machine, free, latencies: latencies.as_ref() };
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", text(&machine));
        if let Some(latencies) = &latencies {
            print!("{}", latency_text(&machine, latencies));
        }
    }
    if let Some(path) = &options.svg {
        let svg = picture::draw(&machine, latencies.as_ref())?;
        fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("picture: {}", path.display());
    }
    Ok(())
}

fn measure(machine: &Machine, options: &Topology) -> anyhow::Result<Latencies> {
    if machine.origin != Origin::ThisMachine {
        bail!("only this machine can be measured, not a described one");
    }
    let mut cpus: Vec<CpuId> = machine.allowed.iter().copied().collect();
    if let Some(list) = &options.cpus {
        let wanted = parse_cpus(list)?;
        if let Some(cpu) = wanted.iter().find(|cpu| !machine.allowed.contains(cpu)) {
            bail!("--cpus: CPU {cpu} is not there, or may not be used");
        }
        cpus = wanted.into_iter().collect();
    }
    let effort = Effort::default();
    let pairs = cpus.len() * cpus.len().saturating_sub(1) / 2;
    let progress = ProgressBar::new(pairs as u64 * u64::from(effort.passes))
        .with_style(yasmin_measure::progress::style())
        .with_message("pairs of CPUs");
    let latencies = Latencies::measure(&cpus, effort, || progress.inc(1))?;
    progress.finish_and_clear();
    Ok(latencies)
}

fn text(machine: &Machine) -> String {
    let cores = machine.cpus.iter().map(|cpu| cpu.core);
    let cores = cores.collect::<std::collections::BTreeSet<u32>>().len();
    let mut text = format!(
        "{} CPUs on {cores} cores, {} NUMA nodes\n",
        machine.cpus.len(),
        machine.nodes.len()
    );
    for node in &machine.nodes {
        let memory = BinaryBytes(node.memory_bytes);
        text += &format!("node {}: {memory}, CPUs {}\n", node.id, format_cpus(&node.cpus));
    }
    if let Some(cpu) = machine.cpus.first() {
        let caches = cpu.caches.iter().map(|at| {
            let cache = &machine.caches[*at];
            let shared = format_cpus(&cache.cpus);
            format!("L{} {} (CPUs {shared})", cache.level, BinaryBytes(cache.size_bytes))
        });
        text += &format!("caches of CPU {}: {}\n", cpu.id, caches.collect::<Vec<_>>().join(", "));
    }
    let known = if machine.distances.known { "" } else { " (assumed: the machine has no table)" };
    text += &format!("distances{known}\n{}\n", distances(machine));
    for nic in &machine.nics {
        let node = nic.node.map_or("unknown".to_owned(), |node| node.to_string());
        let pci = nic.pci.as_deref().unwrap_or("no PCI device");
        text += &format!("card {}: node {node}, {pci}\n", nic.name);
    }
    let free = machine.free();
    text += &format!("free CPUs: {}", format_cpus(&free));
    let count = machine.allowed.len();
    let not_allowed = machine.cpus.len() - count;
    let facts = [
        (not_allowed, "not allowed"),
        (machine.isolated.len(), "isolated"),
        (machine.pinned.len(), "that others are pinned to"),
    ];
    for (count, fact) in facts.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("; {count} {fact}");
    }
    text + "\n"
}

fn distances(machine: &Machine) -> Table {
    let ids = machine.nodes.iter().map(|node| node.id.to_string());
    let rows = machine.nodes.iter().zip(&machine.distances.table).map(|(node, row)| {
        let values = row.iter().map(u64::to_string);
        std::iter::once(node.id.to_string()).chain(values).collect()
    });
    table::draw(std::iter::once("node".to_owned()).chain(ids), 0, rows)
}

fn latency_text(machine: &Machine, latencies: &Latencies) -> String {
    let mut text = String::from("a cache line, one way, medians\n");
    for ((one, other), ns) in latencies.between_nodes(machine) {
        let where_to = if one == other {
            format!("within node {one}")
        } else {
            format!("between nodes {one} and {other}")
        };
        text += &format!("  {where_to}: {}\n", figure::nanoseconds(ns));
    }
    let siblings = latencies.pairs.iter().filter(|pair| {
        machine.cpu(pair.first).is_some_and(|cpu| cpu.siblings.contains(&pair.second))
    });
    let siblings: Vec<f64> = siblings.map(|pair| pair.ns).collect();
    if !siblings.is_empty() {
        let mean = siblings.iter().sum::<f64>() / siblings.len() as f64;
        text +=
            &format!("  between siblings of a core, on average: {}\n", figure::nanoseconds(mean));
    }
    let (median, worst) = latencies.repeatability();
    text += &format!(
        "  passes over a pair are {:.0} % apart, at worst {:.0} %\n",
        100.0 * median,
        100.0 * worst
    );
    text
}

/// The node's colour in pictures: the same for a node everywhere.
pub fn shade(node: NodeId) -> plotters::style::RGBColor {
    use plotters::style::full_palette as colour;
    const SHADES: [plotters::style::RGBColor; 8] = [
        colour::BLUE_100,
        colour::GREEN_100,
        colour::ORANGE_100,
        colour::PURPLE_100,
        colour::TEAL_100,
        colour::RED_100,
        colour::BROWN_100,
        colour::LIME_100,
    ];
    SHADES[node.0 as usize % SHADES.len()]
}
