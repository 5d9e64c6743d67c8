//! Buffers that fault, and programs that do something with the signals of faults themselves. In
//! C, for the handlers.
//!
//! Holds: recv(2), send(2), sigaction(2).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::compile;

#[track_caller]
fn check(how: &str) {
    let folder = Folder::new();
    let program = compile(&folder, "faults", &["faults.c"], &["-Wno-nonnull"]);
    let moods = [Knobs::default(), Knobs::at_once().spin(300), Knobs::at_once().chaos(20, 3)];
    for knobs in moods {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        let mut process = lab.start("faults", &lab.a, &program, &[how.to_owned()]);
        assert_eq!(process.next_line().as_deref(), Some("all there"), "{how}, {knobs:?}");
        process.finish();
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}

#[test]
fn no_handler() {
    check("none");
}

#[test]
fn a_handler_of_the_programs() {
    check("own");
}

#[test]
fn a_handler_for_one_time() {
    check("once");
}

#[test]
fn a_handler_on_a_stack_of_its_own() {
    check("stack");
}

#[test]
fn a_thread_that_blocks_the_signals() {
    check("blocked");
}

#[test]
fn calls_from_a_handler() {
    check("handler");
}

#[test]
fn calls_from_a_handler_that_masks_the_signals() {
    check("masked");
}

#[test]
fn signals_that_are_ignored() {
    check("ignored");
}

#[test]
fn two_threads_at_once() {
    check("threads");
}
