//! Peeks that wait for more bytes than there are. In C, for vectors and signals.
//!
//! Holds: recv(2), socket(7).

use yasmin_tests::lab::Knobs;

use crate::c::check_as_by_tcp;

#[test]
fn a_peek_waits_for_what_it_asks_for() {
    let moods = [Knobs::default(), Knobs::at_once(), Knobs::at_once().chaos(100, 3)];
    let lines = check_as_by_tcp("peeks", &moods);
    assert_eq!(lines.len(), 50, "{lines:#?}");
}
