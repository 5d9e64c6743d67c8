//! Programs that forbid themselves system calls which they do not make, and the library does. In C, for
//! the filter.
//!
//! Holds: seccomp(2).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(how: &str) {
    let moods = [Knobs::default(), Knobs::at_once(), Knobs::at_once().spin(0)];
    check_all_there("sandboxed", &[how], &moods);
}

#[test]
fn by_prctl() {
    check("prctl");
}

#[test]
fn by_its_number() {
    check("seccomp");
}
