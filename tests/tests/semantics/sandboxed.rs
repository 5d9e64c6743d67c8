//! Programs that forbid themselves system calls which they do not make, and the library does. In C, for
//! the filter.
//!
//! Holds: seccomp(2).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::{check_all_there, check_as_by_tcp, compile};

#[track_caller]
fn check(how: &str) {
    check_all_there("sandboxed", &[how], &[Knobs::default(), Knobs::at_once()]);
    // Who never watches sleeps between any two bytes: it has a channel, which may carry none of them.
    let folder = Folder::new();
    let program = compile(&folder, "sandboxed", &["sandboxed.c"], &[]);
    let lab = Lab::new(Net::Loopback, Knobs::at_once().spin(0));
    let mut process = lab.start("sandboxed", &lab.a, &program, &[how.to_owned()]);
    assert_eq!(process.next_line().as_deref(), Some("all there"));
    process.finish();
    let channels = lab.status().unwrap().broker.channels_total;
    assert!(!lab.proves() || channels > 0, "no channel");
}

#[test]
fn by_prctl() {
    check("prctl");
}

#[test]
fn by_its_number() {
    check("seccomp");
}

/// Who only asks what the kernel could forbid keeps its rings.
#[test]
fn what_there_is_to_forbid() {
    let folder = Folder::new();
    let program = compile(&folder, "sandboxed", &["sandboxed.c"], &[]);
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let mut process = lab.start("sandboxed", &lab.a, &program, &["asks".to_owned()]);
    assert_eq!(process.next_line().as_deref(), Some("all there"));
    process.finish();
    let bytes = lab.bytes_in_all();
    assert!(bytes.ring > bytes.tcp, "{bytes:?}");
}

/// What is unread when it begins.
#[test]
fn what_is_unread() {
    let moods = [Knobs::default(), Knobs::at_once(), Knobs::at_once().chaos(100, 5)];
    assert_eq!(check_as_by_tcp("sandboxed_unread", &moods).len(), 19 * 8);
}
