//! What other threads do to a descriptor just while its connection gets a ring. In C, for threads.
//!
//! Holds: dup(2), fork(2).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[test]
fn copies_and_forks_while_a_channel_is_attached() {
    check_all_there("attach_races", &[], &[Knobs::default()]);
}
