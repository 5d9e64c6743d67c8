//! Handlers that leave a call by siglongjmp. In C, for the jump.
//!
//! Holds: signal-safety(7), siglongjmp(3).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::compile;

#[track_caller]
fn check(words: &[&str]) {
    let folder = Folder::new();
    let program = compile(&folder, "jumps", &["jumps.c"], &[]);
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let moods = [
        Knobs::default(),
        Knobs::at_once(),
        Knobs::at_once().spin(0),
        Knobs::at_once().chaos(5, 3),
    ];
    for knobs in moods {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        let mut process = lab.start("jumps", &lab.a, &program, &words);
        let line = process.next_line();
        process.finish();
        assert_eq!(line.as_deref(), Some("all there"), "{words:?}, {knobs:?}");
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
    }
}

#[test]
fn out_of_a_receive() {
    check(&["recv"]);
    check(&["waitall"]);
}

#[test]
fn out_of_a_receive_and_another_thread_goes_on() {
    check(&["recv", "thread"]);
}

#[test]
fn out_of_a_wait() {
    check(&["poll"]);
    check(&["epoll"]);
}
