//! Threads that get in each other's way, for a bounded time: see `src/bin/threads.rs`.
//!
//! `YASMIN_SOAK=200` makes it so many times longer, `YASMIN_SOAK_SEED=7` begins with that seed.

use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::peer;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// In all moods. By default a connection may be closed before it gets to its ring.
#[track_caller]
fn run(kind: &str, rounds: u64) {
    let rounds = rounds * setting("YASMIN_SOAK", 1);
    let words = [kind.to_owned(), setting("YASMIN_SOAK_SEED", 1).to_string(), rounds.to_string()];
    let mut ring_bytes = 0;
    for knobs in moods() {
        let lab = Lab::new(Net::Loopback, knobs);
        let mut process = lab.start(kind, &lab.a, peer!("threads"), &words);
        let done = process.expect("done");
        process.finish();
        eprintln!("{kind}: {done}");
        // Where nobody may be real-time, nothing is done.
        if !lab.proves() || done.starts_with("nothing") {
            return;
        }
        ring_bytes += lab.bytes_in_all().ring;
    }
    assert!(ring_bytes > 0, "no bytes by ring");
}

/// Both ends are one process: a call that offers must not wait for the other end.
fn moods() -> [Knobs; 3] {
    let early = Knobs { promote_messages: Some(0), promote_wait_ms: Some(2), ..Knobs::default() };
    [Knobs::default(), early.clone(), early.chaos(100, 3)]
}

#[test]
fn one_thread_closes_what_others_use() {
    run("closing", 400);
}

#[test]
fn a_handler_closes_what_its_thread_uses() {
    run("handler", 50);
}

#[test]
fn real_time_threads_share_a_connection() {
    run("realtime", 20_000);
}
