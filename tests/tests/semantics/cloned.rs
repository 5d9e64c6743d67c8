//! Forks by libc's clone. In C, for the stack.
//!
//! Holds: clone(2).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

#[test]
fn children_with_stacks_of_their_own_go_on_with_a_connection() {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().spin(0), at_once().chaos(50, 3)];
    check_all_there("cloned", &[], &moods);
}
