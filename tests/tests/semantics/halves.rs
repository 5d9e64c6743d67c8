//! Connections that are read by one number and written by a copy of it: TcpStream::try_clone of Rust, dup of
//! Ruby and Perl, Cap'n Proto. They get rings under all their numbers. In C, for threads.
//!
//! Holds: dup(2), fork(2), epoll(7).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::{check_all_there, compile};

#[track_caller]
fn check(words: &[&str]) {
    let at_once = || Knobs { promote_wait_ms: Some(20), ..Knobs::at_once() };
    let moods = [Knobs::default(), Knobs::default().spin(0), at_once(), at_once().chaos(100, 3)];
    check_all_there("halves", words, &moods);
}

#[test]
fn used_in_turn() {
    check(&["turns", "2"]);
    check(&["turns", "4"]);
}

/// More numbers than may have a ring: as by TCP.
#[test]
fn used_in_turn_by_many_numbers() {
    let folder = Folder::new();
    let program = compile(&folder, "halves", &["halves.c"], &[]);
    for knobs in [Knobs::default(), Knobs::at_once(), Knobs::at_once().chaos(100, 3)] {
        let lab = Lab::new(Net::Loopback, Knobs { promote_wait_ms: Some(20), ..knobs });
        let mut process = lab.start("halves", &lab.a, &program, &["turns".into(), "6".into()]);
        process.expect("all there");
        process.finish();
    }
}

#[test]
fn by_a_thread_each() {
    check(&["threads"]);
}

#[test]
fn in_one_edge_triggered_set() {
    check(&["set"]);
}

#[test]
fn closed_and_copied_again() {
    check(&["closed"]);
}

/// As long as the child may read or write, too, they stay TCP.
#[test]
fn beside_a_child_that_ends() {
    check(&["child"]);
}
