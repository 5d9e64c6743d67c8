//! A thread or a process that does not go on, in the middle of a call on a connection that others
//! use too: they go on. In C, for the scheduling.
//!
//! Holds: sched(7), pid_namespaces(7), spec/wire.md 5.6.

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::compile;

#[track_caller]
fn check(words: &[&str]) {
    let folder = Folder::new();
    let program = compile(&folder, "starved", &["starved.c"], &[]);
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let moods = [
        Knobs::default(),
        Knobs::at_once(),
        Knobs::at_once().spin(0),
        Knobs::at_once().chaos(5, 3),
    ];
    for knobs in moods {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        let mut process = lab.start("starved", &lab.a, &program, &words);
        let line = process.next_line();
        process.finish();
        if line.as_deref().is_some_and(|line| line.starts_with("skipped")) {
            eprintln!("{line:?}");
            return;
        }
        assert_eq!(line.as_deref(), Some("all there"), "{words:?}, {knobs:?}");
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}

#[test]
fn real_time_threads_on_one_cpu() {
    check(&["realtime"]);
}

#[test]
fn a_sibling_that_sends_is_stopped() {
    check(&["stopped", "150"]);
}

#[test]
fn a_sibling_in_another_pid_namespace_is_not_taken_for_dead() {
    check(&["apart"]);
}

#[test]
fn a_sibling_that_receives_is_stopped() {
    check(&["reader", "150"]);
}

#[test]
fn a_sibling_that_receives_is_frozen() {
    check(&["frozen", "100"]);
}

#[test]
fn a_sibling_that_receives_is_debugged() {
    check(&["debugged", "100"]);
}
