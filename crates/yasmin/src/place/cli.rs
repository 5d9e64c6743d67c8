//! The command line of `yasmin place`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::Broker;

#[derive(Args)]
pub struct Place {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Say where functions should go, and what that gains
    Plan(super::plan::Plan),
    /// Let policies place functions in a model, and compare what that does to packets
    Simulate(super::simulate::Simulate),
    /// Measure the policies: how near the best, how much throughput, how fast
    Evaluate(super::evaluate::Evaluate),
    /// Show who talks to whom, how much, and where that is known from
    Chains(Chains),
    /// Place functions where their traffic says, and keep them there while it stays
    Watch(Watch),
    /// Decide again what a log of `watch` recorded
    Replay(Replay),
    /// Put back what a `watch` that was killed left pinned
    Undo(Undo),
}

#[derive(Args)]
pub struct Sources {
    /// Look only there; by default at all but files and commands
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    #[arg(value_parser = ["yasmin", "netns", "dpdk"])]
    pub source: Vec<String>,
    /// Traffic from a JSON file
    #[arg(long, value_name = "FILE.json")]
    pub traffic_file: Option<PathBuf>,
    /// Traffic from the JSON that a shell command prints
    #[arg(long, value_name = "COMMAND")]
    pub traffic_command: Option<String>,
    /// Chains and functions that are known better than found
    #[arg(long, value_name = "FILE.toml")]
    pub overrides: Option<PathBuf>,
    #[command(flatten)]
    pub broker: Broker,
}

#[derive(Args)]
pub struct Chains {
    #[command(flatten)]
    pub sources: Sources,
    /// Seconds over which traffic is measured
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Decide {
    /// How it is decided where functions go
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// The network card's node, instead of the busiest card's
    #[arg(long, value_name = "NODE")]
    pub nic_node: Option<u32>,
    /// Use all hyper-threads of a core
    #[arg(long)]
    pub smt: bool,
    /// Deviation of an edge's share of the traffic that is noise, in percent
    #[arg(long, value_name = "PERCENT")]
    pub noise: Option<f64>,
}

#[derive(Args)]
pub struct Watch {
    #[command(flatten)]
    pub sources: Sources,
    #[command(flatten)]
    pub decide: Decide,
    /// CPUs that functions may be given, whoever else is pinned there; by default the free ones
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Move only functions whose names begin so
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Decide and say, and move nothing
    #[arg(long)]
    pub dry_run: bool,
    /// A function's memory follows it to its node
    #[arg(long)]
    pub move_memory: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub period: f64,
    /// Stop after so many seconds
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Write down what is seen and done, for `replay`
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Serve Prometheus metrics there, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Lines instead of a live view, in a terminal too
    #[arg(long)]
    pub plain: bool,
    #[command(flatten)]
    pub journal: Journal,
}

#[derive(Args)]
pub struct Journal {
    /// Where it is kept what is to be put back
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

#[derive(Args)]
pub struct Replay {
    pub log: PathBuf,
    #[command(flatten)]
    pub decide: Decide,
    /// As for `watch`
    #[arg(long, value_name = "FILE.toml")]
    pub overrides: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Undo {
    #[command(flatten)]
    pub journal: Journal,
}
