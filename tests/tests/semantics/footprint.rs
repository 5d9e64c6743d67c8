//! Programs whose memory is limited or locked: the library takes little of it, and where it gets
//! none the connections stay with TCP. In C, for the limits.

use std::path::Path;
use std::process::Command;

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

#[track_caller]
fn check(word: &str, has_memory: bool) {
    let folder = Folder::new();
    let program = folder.path().join("footprint");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/footprint.c");
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .status()
        .expect("cc");
    assert!(status.success(), "cc: {status}");
    let knobs = Knobs { promote_wait_ms: Some(50), ..Knobs::at_once() };
    let lab = Lab::new(Net::Loopback, knobs);
    let mut process = lab.start("footprint", &lab.a, &program, &[word.to_owned()]);
    let line = process.next_line();
    process.finish();
    let line = line.unwrap_or_default();
    assert!(line == "added little" || line.starts_with("skipped"), "{word}: {line}");
    if has_memory && !line.starts_with("skipped") {
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}

#[test]
fn limits_that_leave_little_memory() {
    check("limits", false);
}

#[test]
fn memory_that_is_locked() {
    check("locked", true);
}
