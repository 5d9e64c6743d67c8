//! Waits in random interleavings, for a bounded time: see `src/bin/soak.rs`.
//!
//! `YASMIN_SOAK=200` makes it so many times longer, and `YASMIN_SOAK_SEED=7` begins with that
//! seed: `make soak`.

use std::path::Path;

use yasmin_tests::lab::{Knobs, Lab, Mode};
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::process::Process;

const CONNECTIONS: u64 = 6;
const BYTES: u64 = 1_000_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Events told of, and those of them that found nothing.
fn counts(peer: &mut Process) -> (u64, u64) {
    let done = peer.expect("done");
    let mut numbers = done.split(' ').map(|word| word.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[track_caller]
fn soak(knobs: &Knobs, seed: u64, waiters: u64, ring_bytes: &mut u64) -> [(u64, u64); 2] {
    let lab = Lab::new(Net::Loopback, knobs.clone());
    let numbers = [CONNECTIONS, seed, BYTES, waiters];
    let [mut one, mut two] = pair(&lab, peer!("soak"), &numbers);
    let found = [counts(&mut one), counts(&mut two)];
    *ring_bytes += lab.bytes_in_all().ring;
    one.finish();
    two.finish();
    found
}

/// Both ends of `program`: one listens, one connects.
fn pair(lab: &Lab, program: &Path, numbers: &[u64]) -> [Process; 2] {
    let words = |first: &[&str]| -> Vec<String> {
        let numbers = numbers.iter().map(u64::to_string);
        first.iter().map(|&word| word.to_owned()).chain(numbers).collect()
    };
    let mut one = lab.start("a", &lab.a, program, &words(&["listen"]));
    let port = one.expect("listening");
    let address = lab.a.v4().to_string();
    let two = lab.start("b", &lab.b, program, &words(&["connect", &address, &port]));
    [one, two]
}

fn moods() -> [(&'static str, Knobs); 4] {
    let busy = Knobs { promote_messages: Some(4), ..Knobs::default() };
    [
        ("a channel at once", Knobs::at_once()),
        ("a channel on the way", busy.clone()),
        ("no spinning", busy.clone().spin(0)),
        ("chaos", busy.chaos(50, 3)),
    ]
}

#[test]
fn no_wake_up_is_lost() {
    let mut ring_bytes = 0;
    let first = setting("YASMIN_SOAK_SEED", 1);
    for seed in first..first + setting("YASMIN_SOAK", 1) * 2 {
        for (mood, knobs) in moods() {
            eprintln!("seed {seed}, {mood}");
            soak(&knobs, seed, 2, &mut ring_bytes);
        }
    }
    eprintln!("{ring_bytes} bytes by ring");
    assert!(Mode::from_env() == Mode::Tcp || ring_bytes > 0, "no bytes by ring");
}

/// One waiter, and nobody else reads: every event finds something, but for the few that the
/// kernel tells of while the ring is drained.
#[test]
fn no_event_storms() {
    let mut ring_bytes = 0;
    for (mood, knobs) in moods() {
        for (events, empty) in soak(&knobs, 5, 1, &mut ring_bytes) {
            eprintln!("{mood}: {events} events, {empty} of them empty");
            assert!(empty <= events / 20 + 5, "{mood}: {empty} of {events} events are empty");
        }
    }
    eprintln!("{ring_bytes} bytes by ring");
    assert!(Mode::from_env() == Mode::Tcp || ring_bytes > 0, "no bytes by ring");
}

/// A FIN comes while the other end reads, and is counted by the kernel like a byte.
#[test]
fn short_streams_end_where_they_end() {
    let mut ring_bytes = 0;
    let numbers = [1000 * setting("YASMIN_SOAK", 1), setting("YASMIN_SOAK_SEED", 1)];
    for knobs in [Knobs::at_once(), Knobs::at_once().chaos(300, 5).spin(0)] {
        let lab = Lab::new(Net::Loopback, knobs);
        let [mut one, mut two] = pair(&lab, peer!("short"), &numbers);
        two.expect("done");
        one.expect("done");
        ring_bytes += lab.bytes_in_all().ring;
        one.finish();
        two.finish();
    }
    eprintln!("{ring_bytes} bytes by ring");
    assert!(Mode::from_env() == Mode::Tcp || ring_bytes > 0, "no bytes by ring");
}
