//! Echo servers of many runtimes, over plain TCP and through rings. Run by `make runtimes`.
//!
//! ```text
//! runtimes [--rounds N] [--scale PERCENT] [--json FILE] [NAME...]      a table of all, or of some
//! runtimes drive ADDRESS PORT CONNECTIONS REQUESTS     a peer: the load; drive-redis likewise
//! ```
//!
//! Each round runs a server over plain TCP, as `yasmin run` does, and with a ring from the first
//! byte on, one after the other; the figures are medians of the rounds.

mod drive;
mod report;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match *words.as_slice() {
        ["drive", at, port, count, n] => drive::run(drive::BYTES, at, port, count, n),
        ["drive-redis", at, port, count, n] => drive::run(drive::REDIS, at, port, count, n),
        _ => report::run(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("runtimes: {error}");
            ExitCode::FAILURE
        }
    }
}
