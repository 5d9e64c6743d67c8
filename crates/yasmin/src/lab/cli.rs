//! The command line of `yasmin lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Lab {
    #[command(subcommand)]
    pub action: Option<Action>,
    #[command(flatten)]
    pub measure: Measure,
}

#[derive(Subcommand)]
pub enum Action {
    /// Measure how unmodified programs reach each other: TCP, rings, Unix sockets, a BPF sockmap
    Peers(Common),
    /// Say from a report which way to parallelise a given job pays here
    Advise(Advise),
    /// Put the figures of two reports side by side
    Compare(Compare),
}

#[derive(Args)]
pub struct Advise {
    /// Threads, ranks or PEs of the job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: u32,
    /// What one worker alone computes in a step
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub compute_ms: f64,
    /// Size of a message
    #[arg(long, value_name = "BYTES")]
    pub message_bytes: u64,
    /// Messages that each worker sends in a step, and waits for
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub messages: u32,
    /// The lab's report with the figures
    #[arg(long, value_name = "FILE.json", default_value = "yasmin-lab/report.json")]
    pub report: PathBuf,
    /// Print the advice as JSON
    #[arg(long)]
    pub json: bool,
}

fn milliseconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && value < 1e9 => Ok(value),
        _ => Err(format!("{text} is no time: give milliseconds, as in 2.5")),
    }
}

#[derive(Args)]
pub struct Compare {
    /// A report.json
    pub old: PathBuf,
    /// Another
    pub new: PathBuf,
}

#[derive(Args)]
pub struct Measure {
    #[command(flatten)]
    pub common: Common,
    /// Small sizes: some minutes
    #[arg(long)]
    pub quick: bool,
    /// All experiments on these placements, not on the plan's
    #[arg(long, value_name = "PLACEMENT", value_delimiter = ',')]
    pub on: Vec<String>,
    /// Experiments from this file, not the built-in ones
    #[arg(long, value_name = "FILE.toml", conflicts_with = "quick")]
    pub plan: Option<PathBuf>,
    /// Placements from this file too
    #[arg(long, value_name = "FILE.toml")]
    pub placements: Option<PathBuf>,
}

#[derive(Args)]
pub struct Common {
    /// Where report.html and report.json go
    #[arg(long, value_name = "DIR", default_value = "yasmin-lab")]
    pub out: PathBuf,
    /// How often each measurement is taken, in turns
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,
    /// Only measurements with these words in their names, as in heat/rings,is/openmp; see --list
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Print the names of all measurements and do nothing
    #[arg(long)]
    pub list: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Use the broker that listens there, not one of the lab's own
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}
