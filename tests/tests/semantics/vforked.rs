//! Children that borrow their parent's memory, and have numbers of their own. In C, for vfork.
//!
//! Holds: vfork(2), dup2(2), execve(2).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(way: &str) {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().chaos(100, 3)];
    check_all_there("vforked", &[way], &moods);
}

#[test]
fn one_connection_at_the_number_of_another() {
    check("onto");
}

#[test]
fn each_at_the_number_of_the_other() {
    check("swap");
}

#[test]
fn one_at_a_number_that_was_closed() {
    check("lowest");
}

#[test]
fn a_file_at_the_number_of_a_connection() {
    check("null");
}
