//! The table.

use std::io::{Error, Result};
use std::path::PathBuf;

use serde_json::{Value, json};
use yasmin_measure::pairs::turns;
use yasmin_measure::spread::Spread;
use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::runtimes::{self, Carried, Runtime};

const WAYS: [&str; 3] = ["plain", "default", "forced"];

struct Options {
    rounds: usize,
    /// Of each runtime's own number of requests, in percent.
    scale: u32,
    json: Option<PathBuf>,
    chosen: Vec<&'static Runtime>,
}

fn options(words: &[&str]) -> Result<Options> {
    let mut out = Options { rounds: 3, scale: 100, json: None, chosen: Vec::new() };
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().ok_or_else(|| Error::other(format!("{word} what?")));
        match word {
            "--rounds" => out.rounds = value()?.parse().map_err(Error::other)?,
            "--scale" => out.scale = value()?.parse().map_err(Error::other)?,
            "--json" => out.json = Some(value()?.into()),
            name => {
                let unknown = || Error::other(format!("{name}: no such runtime"));
                out.chosen.push(runtimes::by_name(name).ok_or_else(unknown)?);
            }
        }
    }
    if out.chosen.is_empty() {
        out.chosen = runtimes::ALL.iter().collect();
    }
    Ok(out)
}

fn lab(way: &str) -> Lab {
    // A server may accept late: the wait for a channel is short.
    let forced = Knobs { promote_messages: Some(0), promote_wait_ms: Some(20), ..Knobs::default() };
    match way {
        "plain" => Lab::plain(Net::Netns),
        "default" => Lab::new(Net::Netns, Knobs::default()),
        _ => Lab::new(Net::Netns, forced),
    }
}

pub fn run(words: &[&str]) -> Result<()> {
    let options = options(words)?;
    let own = std::env::current_exe()?;
    let peers = own.parent().ok_or_else(|| Error::other("no folder"))?;
    let mut all = serde_json::Map::new();
    println!(
        "{:15} {:>9} {:>9} {:>6} {:>6} {:>9} {:>6} {:>6}   by ring to server/client; channels",
        "requests/s", "plain", "default", "times", "ring %", "forced", "times", "ring %",
    );
    for runtime in options.chosen {
        let folder = Folder::new();
        let Some(server) = (runtime.build)(folder.path(), peers) else { continue };
        let requests = runtime.thousands * 10 * options.scale;
        let mut results: [Vec<Carried>; 3] = Default::default();
        for round in 0..options.rounds {
            for at in turns(WAYS.len(), round) {
                let lab = lab(WAYS[at]);
                let carried = runtimes::run(&lab, runtime, &server, &own, requests);
                eprintln!("{} {}: {carried:?}", runtime.name, WAYS[at]);
                results[at].push(carried);
            }
        }
        print_row(runtime, requests, &results);
        let ways = WAYS.iter().zip(&results);
        let of_ways = ways.map(|(way, runs)| {
            let runs = runs.iter().map(|one| as_json(one, requests)).collect();
            ((*way).to_owned(), Value::Array(runs))
        });
        all.insert(runtime.name.to_owned(), Value::Object(of_ways.collect()));
        // After each one: a later one may fail.
        if let Some(path) = &options.json {
            std::fs::write(path, Value::Object(all.clone()).to_string())?;
        }
    }
    if options.json.is_none() {
        println!("{}", Value::Object(all));
    }
    Ok(())
}

/// Bytes of the payload, there and back.
fn payload_bytes(requests: u32) -> u64 {
    u64::from(requests) * 128
}

/// Of what the load carried: its payload, or where a protocol adds to it, what the channels tell.
fn share(one: &Carried, requests: u32) -> f64 {
    let told = one.to_server.iter().sum::<u64>() + one.to_client.iter().sum::<u64>();
    one.ring_percent(told.max(payload_bytes(requests)))
}

fn print_row(runtime: &Runtime, requests: u32, [plain, default, forced]: &[Vec<Carried>; 3]) {
    let median = |runs: &[Carried], of: &dyn Fn(&Carried) -> f64| {
        Spread::of(runs.iter().map(of).collect()).median
    };
    let rate = |runs: &[Carried]| median(runs, &|one| one.requests_per_s);
    let ring = |runs: &[Carried]| median(runs, &|one| share(one, requests));
    let base = rate(plain);
    let percent = |[ring, tcp]: [u64; 2]| ring as f64 * 100.0 / (ring + tcp).max(1) as f64;
    let last = default.last().cloned().unwrap_or_default();
    println!(
        "{:15} {:9.0} {:9.0} {:6.2} {:6.1} {:9.0} {:6.2} {:6.1}   {:.1}/{:.1}; {} {:?}",
        runtime.name,
        base,
        rate(default),
        rate(default) / base,
        ring(default),
        rate(forced),
        rate(forced) / base,
        ring(forced),
        percent(last.to_server),
        percent(last.to_client),
        last.channels,
        last.reasons,
    );
}

fn as_json(one: &Carried, requests: u32) -> Value {
    json!({
        "requests": requests,
        "requests_per_s": one.requests_per_s,
        "ring_percent": share(one, requests),
        "to_server_ring_tcp_bytes": one.to_server,
        "to_client_ring_tcp_bytes": one.to_client,
        "parked_to_server_to_client": one.parked,
        "cpu_us_per_request_server_client":
            one.cpu_ns.map(|ns| ns as f64 / 1000.0 / f64::from(requests.max(1))),
        "channels": one.channels,
        "reasons": one.reasons,
    })
}
