//! One-shot registrations that were told of tell of nothing until they are armed again. In C, for forks.
//!
//! Holds: epoll_ctl(2), fork(2).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(way: &str) {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().chaos(100, 3)];
    check_all_there("spent", &[way], &moods);
}

#[test]
fn over_a_fork() {
    check("fork");
}

#[test]
fn over_the_start_of_a_program() {
    check("vfork");
}

#[test]
fn in_a_set_that_is_polled() {
    check("poll");
}

#[test]
fn in_a_set_in_a_set() {
    check("nest");
}

#[test]
fn and_armed_again_by_a_child() {
    check("child");
}
