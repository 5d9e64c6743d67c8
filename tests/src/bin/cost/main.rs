//! What the library costs where it does nothing, and what a wait costs where few of many
//! connections are busy. Run by `make cost`; takes a few minutes and wants a silent machine.
//!
//! ```text
//! cost [ROUNDS]                        all of it, as a table, and as JSON in the last line
//! cost calls                           a peer: nanoseconds of each call
//! cost listen | cost drive ADDRESS PORT COUNT      peers: many connections, BUSY of them in use
//! ```
//!
//! Each round measures without the library and with it, one after the other; the figures are
//! medians of the rounds.

mod calls;
mod waits;

use std::collections::BTreeMap;
use std::process::ExitCode;

use yasmin_measure::pairs::turns;
use yasmin_measure::spread::Spread;
use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::Process;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match *words.as_slice() {
        [] => report(5),
        ["calls"] => calls::run(),
        ["listen"] => waits::listen(),
        ["drive", address, port, count] => waits::drive(address, port, count),
        [rounds] => rounds.parse().map_err(std::io::Error::other).and_then(report),
        _ => Err(std::io::Error::other("use: cost [ROUNDS]")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cost: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Samples of one figure, in nanoseconds: without the library, and with it.
#[derive(Default)]
struct Figure {
    plain_ns: Spread,
    library_ns: Spread,
}

fn report(rounds: usize) -> std::io::Result<()> {
    let own = std::env::current_exe()?;
    let mut figures: BTreeMap<String, Figure> = BTreeMap::new();
    let mut ring_percent = f64::NAN;
    for round in 0..rounds {
        for has_library in turns(2, round).map(|turn| turn == 0) {
            let mut note = |name: &str, ns: f64| {
                let figure = figures.entry(name.to_owned()).or_default();
                let samples =
                    if has_library { &mut figure.library_ns } else { &mut figure.plain_ns };
                samples.add(ns);
            };
            let knobs = Knobs::default();
            let lab = || {
                if has_library {
                    Lab::new(Net::Loopback, knobs.clone())
                } else {
                    Lab::plain(Net::Loopback)
                }
            };
            let mut calls_lab = lab();
            // Nobody to give channels: every descriptor stays without one.
            calls_lab.broker = None;
            let mut peer = calls_lab.start("calls", &calls_lab.a, &own, &["calls".to_owned()]);
            each_line(&mut peer, &mut note);
            peer.finish();
            for count in [waits::BUSY, waits::MANY] {
                let lab = lab();
                let mut server = lab.start("server", &lab.a, &own, &["listen".to_owned()]);
                let port = server.expect("listening");
                let arguments = ["drive", &lab.a.v4().to_string(), &port, &count.to_string()]
                    .map(str::to_owned);
                let mut client = lab.start("client", &lab.b, &own, &arguments);
                each_line(&mut client, &mut note);
                let carried = lab.bytes_of(client.pid());
                if has_library {
                    ring_percent =
                        carried.ring as f64 * 100.0 / (carried.ring + carried.tcp).max(1) as f64;
                }
                client.release();
                client.finish();
                server.finish();
            }
        }
    }
    print(&mut figures, ring_percent);
    Ok(())
}

/// Lines of a name, `=` and nanoseconds, until `done`.
fn each_line(peer: &mut Process, note: &mut impl FnMut(&str, f64)) {
    while let Some(line) = peer.next_line() {
        if line == "done" {
            return;
        }
        if let Some((name, ns)) = line.split_once('=')
            && let Ok(ns) = ns.parse()
        {
            note(name, ns);
        }
    }
}

fn print(figures: &mut BTreeMap<String, Figure>, ring_percent: f64) {
    println!("{:40} {:>10} {:>10} {:>10}", "medians, ns", "plain", "library", "more");
    let mut json = serde_json::Map::new();
    for (name, figure) in figures {
        figure.plain_ns.finish();
        figure.library_ns.finish();
        let (plain, library) = (figure.plain_ns.median, figure.library_ns.median);
        println!("{name:40} {plain:10.1} {library:10.1} {:10.1}", library - plain);
        let one = serde_json::json!({
            "plain_ns": figure.plain_ns.samples, "library_ns": figure.library_ns.samples,
            "plain_median_ns": plain, "library_median_ns": library,
        });
        json.insert(name.clone(), one);
    }
    println!("by ring, of the last round's messages: {ring_percent:.1} %");
    println!("{}", serde_json::Value::Object(json));
}
