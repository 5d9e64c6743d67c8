//! Queued signals keep their order, whatever the library is doing when they come. In C, for threads.
//!
//! Holds: signal(7).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(way: &str) {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().chaos(100, 3)];
    check_all_there("queued", &[way], &moods);
}

#[test]
fn sent_to_a_thread() {
    check("thread");
}

#[test]
fn sent_to_the_process() {
    check("process");
}

#[test]
fn among_others_whose_handler_sends_and_receives() {
    check("mixed");
}

#[test]
fn ignored_now_and_then() {
    check("ignored");
}
