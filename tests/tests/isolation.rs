//! Unrelated connections with the same addresses and ports, at the same time, on one broker.

use std::collections::BTreeSet;

use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::{self, Net, Pair, Site};
use yasmin_tests::peer;
use yasmin_tests::process::Process;
use yasmin_tests::stream::{Config, Role, RxForm, TxForm, WaitForm};

/// Two pairs of namespaces, four peers, one four-tuple; each pair's bytes are its own.
#[test]
fn equal_addresses_are_never_paired_crosswise() {
    if !netns::allowed() {
        eprintln!("skipped: namespaces need root");
        return;
    }
    for knobs in [Knobs::at_once(), Knobs::default()] {
        let lab = Lab::new(Net::Netns, knobs);
        let second = Pair::new().unwrap_or_else(|error| panic!("namespaces: {error}"));
        let [c, d] = second.sites();
        let mut ring_bytes = 0;
        for round in 0..30 {
            ring_bytes += one_round(&lab, &[[&lab.a, &lab.b], [&c, &d]], round);
        }
        eprintln!("{ring_bytes} bytes by ring");
        lab.assert_some_by_ring(ring_bytes);
    }
}

#[track_caller]
fn one_round(lab: &Lab, pairs: &[[&Site; 2]; 2], round: u16) -> u64 {
    let config = |nth: usize| Config {
        address: lab.a.v4(),
        port: 7000 + round,
        local_port: 20_000 + round,
        seed: 1000 * (nth as u64 + 1) + u64::from(round),
        up_bytes: 4 << 20,
        down_bytes: 4 << 20,
        tx: TxForm::Mixed,
        rx: RxForm::Mixed,
        wait: WaitForm::ALL[round as usize % WaitForm::ALL.len()],
        ..Config::default()
    };
    let start = |name: &str, nth: usize, side: usize, role: Role| {
        let words = Config { role, ..config(nth) }.words();
        lab.start(&format!("{name} {nth}"), pairs[nth][side], peer!("stream"), &words)
    };
    let mut peers: Vec<[Process; 2]> = Vec::new();
    let mut listeners = Vec::new();
    for nth in 0..2 {
        let mut listener = start("listener", nth, 0, Role::Listen);
        listener.expect("listening");
        listeners.push(listener);
    }
    // Both connectors at once, so that their offers cross.
    let connectors: Vec<Process> =
        (0..2).map(|nth| start("connector", nth, 1, Role::Connect)).collect();
    for (listener, connector) in listeners.into_iter().zip(connectors) {
        peers.push([listener, connector]);
    }
    for pair in &mut peers {
        for peer in pair {
            peer.expect("done");
        }
    }
    let mut ring_bytes = 0;
    if let Some(status) = lab.status() {
        let allowed: Vec<BTreeSet<u32>> =
            peers.iter().map(|pair| pair.iter().map(Process::pid).collect()).collect();
        for connection in &status.connections {
            let pids: BTreeSet<u32> = connection.ends.iter().map(|end| end.pid).collect();
            assert!(
                allowed.iter().any(|pair| pids.is_subset(pair)),
                "{pids:?} were put together; the pairs are {allowed:?}: {connection:#?}"
            );
            ring_bytes += connection.ends.iter().map(|end| end.sends.ring_bytes).sum::<u64>();
        }
    }
    for peer in peers.iter_mut().flatten() {
        peer.release();
    }
    for peer in peers.iter_mut().flatten() {
        peer.finish();
    }
    ring_bytes
}
