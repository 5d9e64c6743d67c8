//! What other threads do to a connection while it gets a ring, and afterwards. In C, for threads.
//!
//! Holds: dup(2), fork(2), shutdown(2), unix(7), vfork(2).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::{check_all_there, compile};

#[test]
fn copies_and_forks_while_a_channel_is_attached() {
    check_all_there("attach_races", &[], &[Knobs::default()]);
}

/// An end that has been shut down stays TCP, and no bytes went past the library for that.
#[test]
fn an_end_while_a_channel_is_attached_has_no_false_reason() {
    let folder = Folder::new();
    let program = compile(&folder, "ended_early", &["ended_early.c"], &[]);
    let lab = Lab::new(Net::Loopback, Knobs::default());
    let mut process = lab.start("ended_early", &lab.a, &program, &[]);
    assert_eq!(process.next_line().as_deref(), Some("all there"));
    let status = lab.status().unwrap();
    assert!(!lab.proves() || status.broker.channels_total > 0, "{status:#?}");
    let is_false = |reason: &String| reason.contains("past");
    let told =
        status.connections.iter().filter_map(|one| one.reason.as_ref()).find(|one| is_false(one));
    assert_eq!(told, None, "{status:#?}");
    process.say("");
    process.finish();
}

#[track_caller]
fn storm(whats: &[&str]) {
    let at_once = || Knobs { promote_wait_ms: Some(20), ..Knobs::at_once() };
    for (seed, knobs) in [Knobs::default(), at_once(), at_once().chaos(100, 3)].iter().enumerate() {
        let seed = seed.to_string();
        let words: Vec<_> = [seed.as_str(), "4"].iter().chain(whats).copied().collect();
        check_all_there("storm", &words, std::slice::from_ref(knobs));
    }
}

/// Processes pass both ends of connections to each other, all the time.
#[test]
fn rounds_of_passing() {
    let at_once = || Knobs { promote_wait_ms: Some(20), ..Knobs::at_once() };
    for knobs in [Knobs::default(), at_once(), at_once().chaos(100, 3)] {
        check_all_there("rounds", &["1", "4"], &[knobs]);
    }
}

#[test]
fn a_storm_of_passing() {
    storm(&["pass"]);
}

#[test]
fn a_storm_of_copies() {
    storm(&["copy", "replace", "options"]);
}

#[test]
fn a_storm_of_forks() {
    storm(&["fork", "vfork", "options"]);
}

#[test]
fn a_storm_of_all() {
    storm(&["copy", "pass", "fork", "vfork", "replace", "options", "fresh"]);
}

#[test]
fn a_storm_of_programs_that_are_spawned() {
    storm(&["spawn", "shell"]);
}

#[test]
fn a_storm_of_programs_by_vfork() {
    storm(&["lend", "copy"]);
}

#[test]
fn a_storm_of_programs_by_fork() {
    storm(&["start", "pass"]);
}

/// A call that waits, and has something already, goes on by TCP.
#[test]
fn calls_are_whole_while_others_fork_and_start_programs() {
    let at_once = || Knobs { promote_wait_ms: Some(20), ..Knobs::at_once() };
    for how in ["fork", "vfork", "spawn", "dup"] {
        check_all_there(
            "unbroken",
            &[how],
            &[Knobs::default(), at_once(), at_once().chaos(100, 3)],
        );
    }
}
