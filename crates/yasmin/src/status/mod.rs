//! `yasmin status`: what the broker knows, for people or as JSON.

mod summary;
mod table;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use yasmin_control::host::HostStatus;
use yasmin_control::status::Status;

use crate::broker::{Client, socket};
use crate::cli;

pub use table::{heading, plain as plain_table};

/// What is known here: by the broker, and on a host of KVM guests by theirs.
#[derive(Serialize)]
struct Known {
    #[serde(flatten)]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostStatus>,
}

const WATCH_EVERY: Duration = Duration::from_secs(1);

pub fn run(options: &cli::Status) -> anyhow::Result<()> {
    let socket = socket::resolve(options.broker.socket.as_deref())?;
    let fetch = || -> anyhow::Result<Known> {
        let status = Client::connect(&socket).and_then(|client| client.status());
        let status = status.with_context(|| format!("broker {}", socket.display()));
        // Who names a socket asks this one only.
        let host = options.broker.socket.is_none().then(crate::host::status_here).flatten();
        match (status, host) {
            (Err(error), None) => Err(error),
            (status, host) => Ok(Known { status: status.ok(), host }),
        }
    };
    if !options.watch {
        let status = fetch()?;
        return print(&mut std::io::stdout(), &status, options.json, false);
    }
    let screen = console::Term::stdout();
    loop {
        let status = fetch()?;
        if screen.is_term() && !options.json {
            screen.clear_screen()?;
        }
        print(&mut std::io::stdout(), &status, options.json, true)?;
        std::thread::sleep(WATCH_EVERY);
    }
}

fn print(out: &mut impl Write, known: &Known, json: bool, watch: bool) -> anyhow::Result<()> {
    let text = match (json, watch) {
        (true, false) => serde_json::to_string_pretty(known)?,
        (true, true) => serde_json::to_string(known)?,
        (false, _) => {
            let own = known.status.iter().map(|status| {
                let table = table::draw(status, colour());
                format!("{}\n{table}", summary::line(status)).trim_end().to_owned()
            });
            let host = known.host.iter().map(|host| crate::host::table::draw(host, colour()));
            own.chain(host).collect::<Vec<_>>().join("\n\n")
        }
    };
    write_line(out, &text)
}

/// A closed pipe (`| head`) ends the command without a word.
pub fn write_line(out: &mut impl Write, text: &str) -> anyhow::Result<()> {
    match writeln!(out, "{}", text.trim_end()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

/// Colours are for terminals, and not for who set NO_COLOR.
pub fn colour() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
