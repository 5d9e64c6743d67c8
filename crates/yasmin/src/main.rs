//! `yasmin`: runs programs with the library, shows what the broker knows, measures.
//!
//! Only edges live here. What a connection does is decided by the library and the broker.
#![deny(unsafe_code)]

mod bench;
mod broker;
mod cli;
mod demo;
mod exit;
mod host;
mod install;
mod lab;
mod oshrun;
mod pingpong;
mod place;
mod run;
mod segment;
mod signals;
mod status;
mod topology;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let result = match cli.command {
        cli::Command::Run(options) => return run::run(&options),
        cli::Command::Status(options) => status::run(&options),
        cli::Command::Host(options) => return host::run(&options),
        cli::Command::Bench(options) => bench::run(&options),
        cli::Command::Demo(options) => demo::run(&options),
        cli::Command::Lab(options) => lab::run(&options),
        cli::Command::Place(options) => place::run(&options),
        cli::Command::Topology(options) => topology::run(&options),
        cli::Command::Segment(options) => segment::run(&options),
        cli::Command::Oshrun(options) => return oshrun::run(&options),
        cli::Command::Completions(options) => cli::print_completions(&options),
        cli::Command::PingPong(options) => pingpong::run(&options),
        cli::Command::StartBroker { yasmind, socket } => broker::start::detach(&yasmind, &socket),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("yasmin: {error:#}");
            ExitCode::FAILURE
        }
    }
}
