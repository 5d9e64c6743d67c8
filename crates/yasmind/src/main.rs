//! `yasmind`: pairs the two ends of TCP connections on this machine and hands out channels.
//!
//! One thread serves every process (`event_loop`, `broker`), and nothing that it does can be made
//! to block. What may take its time is done elsewhere (`errands`).
#![deny(unsafe_code)]

mod broker;
mod budget;
mod channel;
mod cli;
mod client;
mod cpu_time;
mod diag;
mod errands;
mod event_loop;
mod facts;
mod guests;
mod host;
mod listener;
mod memory;
mod notify;
mod pairing;
mod proof;
mod rarely;
mod segments;
mod sight;
mod sys;
mod turns;
mod uplink;
mod xenstore;

use anyhow::Context;
use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(args.log_filter())
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    if args.keep_segments {
        return match segments::keep() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let serve = || match &args.host {
        Some(file) => host::run(&args, file),
        None => event_loop::run(&args),
    };
    match outlives_full_files().and_then(|()| serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Where files may have no such size (RLIMIT_FSIZE), making one is an error like others, and not the
/// broker's end.
fn outlives_full_files() -> anyhow::Result<()> {
    signal_hook::flag::register(libc::SIGXFSZ, Arc::default()).context("cannot catch signals")?;
    Ok(())
}
