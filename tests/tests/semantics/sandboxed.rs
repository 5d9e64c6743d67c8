//! Programs that forbid themselves system calls which they do not make, and the library does. In C, for
//! the filter.
//!
//! Holds: seccomp(2), prctl(2).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::eventually;
use yasmin_tests::status::Bytes;

use crate::c::{check_as_by_tcp, compile};

/// Runs it in the sandbox that it makes once some of its bytes went by ring.
#[track_caller]
fn run(how: &str, knobs: &Knobs) -> Bytes {
    let folder = Folder::new();
    let program = compile(&folder, "sandboxed", &["sandboxed.c"], &[]);
    let lab = Lab::new(Net::Loopback, knobs.clone());
    let mut process = lab.start("sandboxed", &lab.a, &program, &[how.to_owned()]);
    if lab.proves() {
        eventually(
            "bytes by ring",
            || (lab.bytes_in_all().ring > 0).then_some(()),
            || format!("{how}, {knobs:?}: {:#?}", lab.status()),
        );
    }
    process.say("");
    assert_eq!(process.next_line().as_deref(), Some("all there"), "{how}, {knobs:?}");
    process.finish();
    lab.bytes_in_all()
}

#[track_caller]
fn check(how: &str) {
    for knobs in [Knobs::default(), Knobs::at_once(), Knobs::at_once().spin(0)] {
        run(how, &knobs);
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

/// Who only asks what the kernel could forbid keeps its rings.
/// Not calls, but the processor's counter, which is the library's clock.
#[test]
fn the_counter() {
    check("counter");
}

#[test]
fn what_there_is_to_forbid() {
    let bytes = run("asks", &Knobs::at_once());
    assert!(bytes.ring > bytes.tcp, "{bytes:?}");
}

/// What is unread when it begins.
#[test]
fn what_is_unread() {
    let moods = [Knobs::default(), Knobs::at_once(), Knobs::at_once().chaos(100, 5)];
    assert_eq!(check_as_by_tcp("sandboxed_unread", &moods).len(), 19 * 8);
}

/// The system calls that each of the program's calls leads to, by their numbers.
#[track_caller]
fn calls(lab: &Lab, program: &std::path::Path) -> Vec<(String, Vec<String>)> {
    let mut process = lab.start("sandbox_calls", &lab.a, program, &[]);
    let mut calls = Vec::new();
    loop {
        let line = process.next_line();
        let line = line.unwrap_or_else(|| panic!("no more lines: {}", process.output()));
        if line == "all there" {
            break;
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        calls.extend(words.next().map(|name| (name, words.collect())));
    }
    process.finish();
    calls
}

/// In a sandbox the library makes no call that the program does not make: a filter may kill for it.
#[test]
fn nothing_calls_what_the_program_does_not() {
    let folder = Folder::new();
    let options = ["-Wno-unused-result"];
    let program = compile(&folder, "sandbox_calls", &["sandbox_calls.c"], &options);
    let plain = calls(&Lab::plain(Net::Loopback), &program);
    assert!(plain.len() > 50, "{plain:?}");
    // Both ends are of one process: they cannot wait for each other.
    let soon = Knobs { promote_wait_ms: Some(20), ..Knobs::at_once() };
    for knobs in [soon.clone(), soon.spin(0)] {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        for ((name, plain), (_, with)) in plain.iter().zip(calls(&lab, &program)) {
            let is_own = |call: &String| plain.contains(call);
            assert!(with.iter().all(is_own), "{name}: {with:?} where by TCP {plain:?}, {knobs:?}");
        }
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}
