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
    /// Put the figures of two reports side by side
    Compare(Compare),
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
