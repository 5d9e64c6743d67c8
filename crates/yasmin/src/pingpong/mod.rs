//! `yasmin pingpong`, hidden: an echo server and its clients, for what `yasmin demo --all`
//! measures where no program that users have does.
//!
//! Plain blocking sockets of the standard library, so that it is one more unmodified program.

pub mod client;
mod serve;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::cli;
use yasmin_measure::cpus;

pub fn run(options: &cli::PingPong) -> anyhow::Result<()> {
    raise_descriptor_limit()?;
    if !options.cpus.is_empty() {
        cpus::allow_this_thread(&options.cpus)?;
    }
    match &options.role {
        cli::PingPongRole::Serve { address } => serve::run(*address),
        cli::PingPongRole::Hog => hog(),
        cli::PingPongRole::Client(client) => client::run(client),
    }
}

/// Keeps a CPU busy until it is killed.
fn hog() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

fn raise_descriptor_limit() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
