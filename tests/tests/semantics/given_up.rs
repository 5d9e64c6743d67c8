//! Descriptors that are closed, or replaced, while another thread waits on them. In C, for threads.
//!
//! Holds: close(2), dup2(2).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(words: &[&str]) {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().chaos(100, 3)];
    check_all_there("given_up", words, &moods);
}

#[test]
fn closed_under_a_receive() {
    check(&["close", "recv"]);
}

#[test]
fn closed_under_a_poll() {
    check(&["close", "poll"]);
}

#[test]
fn closed_under_a_select() {
    check(&["close", "select"]);
}

#[test]
fn replaced_under_a_receive() {
    check(&["dup2", "recv"]);
}
