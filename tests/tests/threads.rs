//! Threads that get in each other's way, for a bounded time: see `src/bin/threads.rs`.
//!
//! `YASMIN_SOAK=200` makes it so many times longer, `YASMIN_SOAK_SEED=7` begins with that seed.

use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::peer;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[track_caller]
fn run(kind: &str, knobs: Knobs, rounds: u64) {
    let lab = Lab::new(Net::Loopback, knobs);
    let rounds = rounds * setting("YASMIN_SOAK", 1);
    let words = [kind.to_owned(), setting("YASMIN_SOAK_SEED", 1).to_string(), rounds.to_string()];
    let mut process = lab.start(kind, &lab.a, peer!("threads"), &words);
    let done = process.expect("done");
    eprintln!("{kind}: {done}");
    process.finish();
    // Where nobody may be real-time, nothing was done.
    if !done.starts_with("nothing") {
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}

/// Both ends are one process: a call that offers must not wait for the other end.
fn moods() -> [Knobs; 3] {
    let early = Knobs { promote_messages: Some(0), promote_wait_ms: Some(2), ..Knobs::default() };
    [Knobs::default(), early.clone(), early.chaos(100, 3)]
}

#[test]
fn one_thread_closes_what_others_use() {
    for knobs in moods() {
        run("closing", knobs, 400);
    }
}

#[test]
fn a_handler_closes_what_its_thread_uses() {
    for knobs in moods() {
        run("handler", knobs, 50);
    }
}

#[test]
fn real_time_threads_share_a_connection() {
    for knobs in moods() {
        run("realtime", knobs, 20_000);
    }
}
