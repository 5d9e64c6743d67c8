//! Shells that libc starts. In C, for wordexp.
//!
//! Holds: system(3), popen(3), wordexp(3).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[track_caller]
fn check(how: &str) {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().spin(0)];
    check_all_there("shells", &[how], &moods);
}

#[test]
fn by_wordexp() {
    check("wordexp");
}

#[test]
fn by_popen() {
    check("popen");
}

#[test]
fn by_system() {
    check("system");
}
