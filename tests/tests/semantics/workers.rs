//! Several threads around one epoll set, and others that change it. In C, for threads.
//!
//! Holds: epoll_wait(2), epoll_ctl(2), epoll(7).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(how: &str) {
    let at_once = || Knobs { promote_wait_ms: Some(20), ..Knobs::at_once() };
    for (seed, knobs) in [Knobs::default(), at_once(), at_once().chaos(100, 3)].iter().enumerate() {
        check_all_there("workers", &[&seed.to_string(), "2", how], std::slice::from_ref(knobs));
    }
}

#[test]
fn level_triggered() {
    check("level");
}

#[test]
fn edge_triggered() {
    check("edge");
}

#[test]
fn one_shot() {
    check("oneshot");
}

#[test]
fn edge_triggered_one_shot() {
    check("both");
}

#[test]
fn of_all_kinds_in_one_set() {
    check("mixed");
}
