//! Numbers that are one file in one thread and another in the next, or that another process changes. In C, for
//! threads and clone.
//!
//! Holds: clone(2), close(2).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(words: &[&str]) {
    // Connections of a process without rings wait in vain for their channels.
    let at_once = || Knobs { promote_wait_ms: Some(20), ..Knobs::at_once() };
    let moods = [Knobs::default(), at_once(), at_once().chaos(100, 3)];
    check_all_there("own_numbers", words, &moods);
}

#[test]
fn closed_in_a_thread_of_its_own() {
    check(&["thread", "close"]);
}

#[test]
fn another_file_in_a_thread_of_its_own() {
    check(&["thread", "open"]);
}

#[test]
fn all_closed_in_a_thread_of_its_own() {
    check(&["thread", "range"]);
}

#[test]
fn all_closed_by_a_thread_that_leaves() {
    check(&["thread", "close_range"]);
}

#[test]
fn changed_by_a_clone_that_shares_them() {
    check(&["clone", "by_name"]);
}

#[test]
fn changed_by_a_raw_clone_that_shares_them() {
    check(&["clone", "by_number"]);
}
