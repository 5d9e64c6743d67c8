//! Handlers that leave a call by siglongjmp. In C, for the jump.
//!
//! Holds: signal-safety(7), siglongjmp(3).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(words: &[&str]) {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().spin(0), at_once().chaos(5, 3)];
    check_all_there("jumps", words, &moods);
}

#[test]
fn out_of_a_receive() {
    check(&["recv"]);
    check(&["waitall"]);
}

#[test]
fn out_of_a_receive_and_another_thread_goes_on() {
    check(&["recv", "thread"]);
}

#[test]
fn out_of_a_wait() {
    check(&["poll"]);
    check(&["epoll"]);
}

#[test]
fn out_of_a_peek_that_waits() {
    let moods = [Knobs::default(), Knobs::at_once(), Knobs::at_once().spin(0)];
    check_all_there("jumped_peek", &[], &moods);
}
