//! The command line of `yasmin host`.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args)]
pub struct Host {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Show the guests, and which of them share memory
    Status(Status),
    /// Take all memory from a guest, or what two guests share; connections go on by TCP. With a
    /// command: what moves the guest then
    Leave(Leave),
    /// Let a guest, or a pair, that has left have memory again
    Join(Join),
}

#[derive(Args)]
pub struct Desk {
    /// The socket of the broker of KVM guests [default: /run/yasmin/host.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

#[derive(Args)]
pub struct Status {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub desk: Desk,
}

#[derive(Args)]
pub struct Leave {
    /// A guest as the file of yasmind --host names it, or two for what they share
    #[arg(required = true, num_args = 1..=2, value_name = "GUEST")]
    pub guests: Vec<String>,
    /// How long to wait until the memory has gone
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=600))]
    pub within: u32,
    #[command(flatten)]
    pub desk: Desk,
    /// Run this when the memory has gone, as what moves the guest; if it fails, the guest joins again
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct Join {
    /// As in leave
    #[arg(required = true, num_args = 1..=2, value_name = "GUEST")]
    pub guests: Vec<String>,
    #[command(flatten)]
    pub desk: Desk,
}
