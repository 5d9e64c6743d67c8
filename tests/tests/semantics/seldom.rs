//! A connection that talks seldom gives its channel back, and gets another one once it is busy.
//!
//! Holds: spec/wire.md 6.7.

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(how: &str) {
    check_all_there("seldom", &[how], &[Knobs::default(), Knobs::default().spin(0)]);
}

#[test]
fn that_waits_in_recv() {
    check("recv");
}

#[test]
fn that_waits_in_poll() {
    check("poll");
}

#[test]
fn that_waits_in_epoll() {
    check("epoll");
}

#[test]
fn that_peeks() {
    check("peek");
}

#[test]
fn that_does_not_block() {
    check("nonblocking");
}
