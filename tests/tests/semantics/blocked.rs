//! Calls that wait, and what happens meanwhile: more bytes, room, the end, a reset, the time, signals. In C,
//! for the pieces and the signals.
//!
//! Holds: recv(2), send(2), socket(7), tcp(7), signal(7).

use yasmin_tests::lab::Knobs;

use crate::c::check_as_by_tcp;

#[track_caller]
fn check(name: &str, cases: usize) {
    // Not at once: a connect would wait for the accept of its own thread.
    let usual = Knobs::default;
    let moods = [usual(), usual().spin(0), usual().chaos(100, 3)];
    let lines = check_as_by_tcp(name, &moods);
    assert_eq!(lines.len(), cases, "{lines:#?}");
}

#[test]
fn receives_that_wait() {
    check("receives", 10 * 8 * 2 * 2);
}

#[test]
fn sends_that_wait() {
    check("sends", 9 * 4 * 2 * 2);
}
