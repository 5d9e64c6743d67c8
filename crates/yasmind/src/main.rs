//! `yasmind`: pairs the two ends of TCP connections on this machine and hands out channels.
//!
//! One thread serves every process (`event_loop`, `broker`); a second one looks at offered
//! sockets and closes them (`examiner`), because both can be made to block by whoever owns the
//! socket. Nothing a client sends stops the broker from serving the others.
#![deny(unsafe_code)]

mod broker;
mod budget;
mod channel;
mod cli;
mod client;
mod diag;
mod event_loop;
mod examiner;
mod facts;
mod guests;
mod listener;
mod memfd;
mod memory;
mod notify;
mod numbers;
mod pairing;
mod proof;
mod sys;

use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(args.log_filter())
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    match event_loop::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
