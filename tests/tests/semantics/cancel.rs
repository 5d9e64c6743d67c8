//! pthread_cancel while a thread is in a call on a connection with a channel: it ends there,
//! its cleanup handlers run, and the connection goes on. In C, as libc's macros are.
//!
//! Holds: pthreads(7).

use std::path::Path;

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::{check_all_there, check_all_there_with_musl, check_as_by_tcp, compile};

/// What `cancel connect` prints.
#[track_caller]
fn play(lab: &Lab, program: &Path) -> Vec<String> {
    let mut listener = lab.start("listener", &lab.a, program, &["listen".to_owned()]);
    let port = listener.expect("port");
    let mut canceller = lab.start("canceller", &lab.b, program, &["connect".to_owned(), port]);
    let mut lines = Vec::new();
    while let Some(line) = canceller.next_line() {
        lines.push(line);
    }
    canceller.finish();
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
    lines
}

#[test]
fn cancelled_threads_end_where_libc_ends_them() {
    let folder = Folder::new();
    let program = compile(&folder, "cancel", &["cancel.c"], &[]);
    let expected = play(&Lab::plain(Net::Loopback), &program);
    let ended = |line: &&String| line.ends_with("cancelled, cleaned up 1, went on 0");
    assert_eq!(expected.iter().filter(ended).count(), 11, "{expected:#?}");
    for knobs in [Knobs::at_once(), Knobs::at_once().spin(0), Knobs::at_once().chaos(100, 3)] {
        let got = play(&Lab::new(Net::Loopback, knobs.clone()), &program);
        assert_eq!(expected, got, "{knobs:?}");
    }
}

/// A thread that is cancelled already does nothing in a call that ends it, and all of a call that
/// does not.
#[test]
fn cancelled_before_the_call() {
    let moods = [Knobs::at_once(), Knobs::at_once().spin(0), Knobs::at_once().chaos(100, 3)];
    let lines = check_as_by_tcp("cancelled_on_entry", &moods);
    let ended = lines.iter().filter(|line| line.contains(": cancelled, ")).count();
    assert!((15..26).contains(&ended), "{lines:#?}");
}

fn at_any_instruction() -> [Knobs; 4] {
    let at_once = Knobs::at_once;
    [Knobs::default(), at_once(), at_once().spin(0), at_once().chaos(100, 3)]
}

#[test]
fn cancelled_at_any_instruction() {
    check_all_there("cancelled_anywhere", &[], &at_any_instruction());
}

/// musl cancels by another signal.
#[test]
fn cancelled_at_any_instruction_of_musl() {
    check_all_there_with_musl("cancelled_anywhere", &[], &at_any_instruction());
}
