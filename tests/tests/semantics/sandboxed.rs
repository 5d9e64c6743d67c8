//! Programs that forbid themselves system calls which they do not make, and the library does. In C, for
//! the filter.
//!
//! Holds: seccomp(2).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::compile;

#[track_caller]
fn check(how: &str) {
    let folder = Folder::new();
    let program = compile(&folder, "sandboxed", &["sandboxed.c"], &[]);
    let moods = [Knobs::default(), Knobs::at_once(), Knobs::at_once().spin(0)];
    for knobs in moods {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        let mut process = lab.start("sandboxed", &lab.a, &program, &[how.to_owned()]);
        let line = process.next_line();
        process.finish();
        assert_eq!(line.as_deref(), Some("all there"), "{how}, {knobs:?}");
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}

#[test]
fn by_prctl() {
    check("prctl");
}

#[test]
fn by_its_number() {
    check("seccomp");
}
