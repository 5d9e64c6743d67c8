//! A program that is started with a connection of another one's at a number of its own, though the
//! connection closes on exec. In C, for a call that does the exec itself.
//!
//! Holds: posix_spawn(3).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::compile;

/// The starter's connection is a candidate still, or has its ring.
#[test]
fn a_program_gets_a_connection_that_closes_on_exec() {
    let folder = Folder::new();
    let program = compile(&folder, "spawned", &["spawned.c"], &[]);
    let late = Knobs { promote_messages: Some(16), ..Knobs::default() };
    for knobs in [late, Knobs::at_once()] {
        let lab = Lab::new(Net::Loopback, knobs);
        let mut process = lab.start("spawned", &lab.a, &program, &[]);
        assert_eq!(process.next_line().as_deref(), Some("done"), "{}", process.output());
        process.finish();
    }
}
