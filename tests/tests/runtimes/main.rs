//! Echo servers of today's runtimes under a short load of many connections, every byte checked.
//! What is not installed is skipped with a line that says so.

use std::path::Path;

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::runtimes::{self, Carried};

const REQUESTS: u32 = 20_000;
/// Each way.
const PAYLOAD_BYTES: u64 = REQUESTS as u64 * 64;

/// How often a load is run at most: how much of it goes by ring depends on who else wants the
/// CPUs, and on a virtual machine's host.
const ROUNDS: u32 = 8;

/// Runs the load by default, and with a ring from the first byte on. Of what it carries so many
/// percent have to go by ring each way, by default; 0: some bytes.
#[track_caller]
fn check(name: &str, percent: u64) {
    let runtime = runtimes::by_name(name).expect(name);
    let folder = Folder::new();
    let peers = peer!("tokio-echo").parent().unwrap_or_else(|| Path::new("."));
    let Some(server) = (runtime.build)(folder.path(), peers) else { return };
    let load = |knobs: &Knobs| {
        let lab = Lab::new(Net::Netns, knobs.clone());
        let carried = runtimes::run(&lab, runtime, &server, peer!("runtimes"), REQUESTS);
        eprintln!("{name}: {carried:?}");
        (lab, carried)
    };
    let ring_bytes = |carried: &Carried| carried.to_server[0] + carried.to_client[0];
    let fewest = |carried: &Carried| carried.to_server[0].min(carried.to_client[0]);
    let forced = Knobs { promote_messages: Some(0), promote_wait_ms: Some(20), ..Knobs::default() };
    let (lab, carried) = load(&forced);
    lab.assert_some_by_ring(ring_bytes(&carried));
    for round in 1.. {
        let (lab, carried) = load(&Knobs::default());
        let is_much = fewest(&carried) * 100 >= PAYLOAD_BYTES * percent;
        if !lab.proves() || ring_bytes(&carried) > 0 && is_much {
            return;
        }
        assert!(round < ROUNDS, "{name}: too few of {PAYLOAD_BYTES} bytes by ring: {carried:?}");
    }
}

/// A good part, in percent.
const MUCH: u64 = 30;

#[test]
fn tokio_with_one_thread() {
    check("tokio-current", MUCH);
}

#[test]
fn tokio_with_two_workers() {
    check("tokio-multi", MUCH);
}

/// One thread sleeps in the set while others read.
#[test]
fn the_shape_of_dotnet() {
    check("engine", 0);
}

#[test]
fn asio_with_four_threads() {
    check("asio-4", MUCH);
}

/// One-shot registrations, and a thread that waits while others read.
#[test]
fn java_asynchronous_channels() {
    check("java-nio2", MUCH);
}

#[test]
fn java_selector() {
    check("java-selector", MUCH);
}

#[test]
fn erlang() {
    // Its poller sleeps where two schedulers and the client take both CPUs.
    check("erlang-passive", 10);
}

/// Its system calls are its own, and are diverted.
#[test]
fn go() {
    check("go", MUCH);
}

#[test]
fn static_go() {
    check("go-static", MUCH);
}
