//! Where traffic is looked for, and what the operator knows better.

use std::path::Path;

use anyhow::Context;
use yasmin_watch::overrides::Overrides;
use yasmin_watch::source::file::{Origin, Told};
use yasmin_watch::source::{Source, Trouble, dpdk::Dpdk, netns::Netns, yasmin::Yasmin};

use super::cli;
use crate::broker::client::{Client, Trouble as BrokerTrouble};
use crate::broker::socket;

pub fn open(options: &cli::Sources) -> anyhow::Result<Vec<Box<dyn Source + Send>>> {
    let told = options.traffic_file.is_some() || options.traffic_command.is_some();
    // Who names a file means the file.
    let all = options.source.is_empty() && !told;
    let wanted = |name: &str| all || options.source.iter().any(|one| one == name);
    let mut sources: Vec<Box<dyn Source + Send>> = Vec::new();
    if wanted("netns") {
        sources.push(Box::new(Netns::new()));
    }
    if wanted("dpdk") {
        sources.push(Box::new(Dpdk::new()));
    }
    if wanted("yasmin") {
        sources.push(Box::new(broker(options)?));
    }
    if let Some(path) = &options.traffic_file {
        sources.push(Box::new(Told::new(Origin::File(path.clone()))));
    }
    if let Some(line) = &options.traffic_command {
        sources.push(Box::new(Told::new(Origin::Command(line.clone()))));
    }
    Ok(sources)
}

/// A connection to the broker is kept, and made anew when the broker was started again.
fn broker(options: &cli::Sources) -> anyhow::Result<Yasmin> {
    let socket = socket::resolve(options.broker.socket.as_deref())?;
    let mut client: Option<Client> = None;
    Ok(Yasmin::new(Box::new(move || {
        let trouble = |trouble: BrokerTrouble| {
            let what = format!("broker {}: {trouble}", socket.display());
            match trouble {
                BrokerTrouble::Nobody => Trouble::Absent(what),
                _ => Trouble::Failed(what),
            }
        };
        if let Some(status) = client.take().and_then(|kept| Some((kept.status().ok()?, kept))) {
            client = Some(status.1);
            return Ok(status.0);
        }
        let fresh = Client::connect(&socket).map_err(trouble)?;
        let status = fresh.status().map_err(trouble)?;
        client = Some(fresh);
        Ok(status)
    })))
}

pub fn overrides(path: Option<&Path>) -> anyhow::Result<Overrides> {
    let Some(path) = path else { return Ok(Overrides::default()) };
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(Overrides::parse(&path.display().to_string(), &text)?)
}
