//! `yasmin segment`: memory that programs have at one address, made and shown.

pub mod cli;
mod table;

use std::path::Path;

use anyhow::Context;
use cli::{Allow, Create, Ls, Rm, Segment, Status, Verb};
use yasmin_segment::{Broker, Kind};

use crate::broker::{socket, start};
use crate::status::{colour, write_line};

pub fn run(options: &Segment) -> anyhow::Result<()> {
    match &options.verb {
        Verb::Create(options) => create(options),
        Verb::Ls(options) => ls(options),
        Verb::Rm(options) => rm(options),
        Verb::Status(options) => status(options),
        Verb::Allow(options) => allow(options),
    }
}

/// By the same rules as all other commands.
fn find(socket: Option<&Path>) -> anyhow::Result<Broker> {
    // A named one is believed more than a found one is.
    match socket {
        Some(path) => Ok(Broker::at(path)),
        None => Ok(Broker::find()?),
    }
}

fn create(options: &Create) -> anyhow::Result<()> {
    let asked = options.broker.socket.as_deref();
    if !options.no_broker {
        let socket = socket::resolve(asked)?;
        start::ensure(&socket).with_context(|| format!("broker {}", socket.display()))?;
    }
    let broker = find(asked)?;
    let kind = Kind { is_huge: options.huge, ..Kind::default() };
    broker.create(&options.name, options.size, kind)?;
    for &(whom, rights) in &options.allow {
        broker.allow(&options.name, whom, rights)?;
    }
    Ok(())
}

fn ls(options: &Ls) -> anyhow::Result<()> {
    let segments = find(options.broker.socket.as_deref())?.list()?;
    let text = match options.json {
        true => serde_json::to_string_pretty(&segments)?,
        false => table::list(&segments, colour()),
    };
    if text.is_empty() { Ok(()) } else { write_line(&mut std::io::stdout(), &text) }
}

/// Those that can be removed are, whatever the others say.
fn rm(options: &Rm) -> anyhow::Result<()> {
    let broker = find(options.broker.socket.as_deref())?;
    let mut failed = Ok(());
    for name in &options.names {
        if let Err(error) = broker.remove(name)
            && let Err(earlier) = std::mem::replace(&mut failed, Err(error))
        {
            eprintln!("yasmin: {earlier}");
        }
    }
    Ok(failed?)
}

fn status(options: &Status) -> anyhow::Result<()> {
    let segment = find(options.broker.socket.as_deref())?.about(&options.name)?;
    let text = match options.json {
        true => serde_json::to_string_pretty(&segment)?,
        false => table::one(&segment, colour()),
    };
    write_line(&mut std::io::stdout(), &text)
}

fn allow(options: &Allow) -> anyhow::Result<()> {
    let broker = find(options.broker.socket.as_deref())?;
    Ok(broker.allow(&options.name, options.whom, options.rights.into())?)
}
