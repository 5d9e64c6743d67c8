//! A connection that talks seldom gives its channel back, and gets another one once it is busy.
//!
//! Holds: spec/wire.md 6.7.

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::eventually;

use crate::c::{check_all_there, compile};

#[track_caller]
fn check(how: &str) {
    check_all_there("seldom", &[how], &[Knobs::default(), Knobs::default().spin(0)]);
}

#[test]
fn that_waits_in_recv() {
    check("recv");
}

#[test]
fn that_waits_in_poll() {
    check("poll");
}

#[test]
fn that_waits_in_epoll() {
    check("epoll");
}

#[test]
fn that_peeks() {
    check("peek");
}

/// Under both numbers.
#[test]
fn that_sends_by_a_copy() {
    check("copies");
}

#[test]
fn that_does_not_block() {
    check("nonblocking");
}

/// Both ends are, with a reason, until they are closed.
#[test]
fn is_shown_by_status() {
    let folder = Folder::new();
    let program = compile(&folder, "seldom", &["seldom.c"], &[]);
    let lab = Lab::new(Net::Loopback, Knobs::default());
    let words = ["recv".to_owned(), "stops".to_owned()];
    let mut process = lab.start("seldom", &lab.a, &program, &words);
    for (line, count) in [("given back", 2), ("closed", 0)] {
        process.expect(line);
        let shown = || {
            let reasons = lab.status().into_iter().flat_map(|status| status.connections);
            let reasons = reasons.map(|one| one.reason.unwrap_or_default());
            reasons.collect::<Vec<_>>()
        };
        let is_right = || {
            let shown = shown();
            shown.len() == count
                && shown.iter().all(|reason| reason.contains("gave its channel back"))
        };
        if lab.proves() {
            eventually(line, || is_right().then_some(()), || format!("{:?}", shown()));
        }
        process.say("go on");
        if count > 0 {
            process.expect("copied");
            let used_bytes = lab.status().map_or(0, |status| status.broker.memory_used_bytes);
            assert!(!lab.proves() || used_bytes == 3 * 4096, "{used_bytes}, {:?}", lab.status());
            process.say("go on");
        }
    }
    process.expect("all there");
    process.finish();
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
}
