//! What another user can do to a program that receives descriptors. In C, for the user.
//!
//! Holds: unix(7), spec/wire.md 6.6.

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::compile;

/// A mark that a stranger made does not have anybody wait for the broker, stopped or not.
#[test]
fn sockets_that_a_stranger_has_marked() {
    check(&[], true);
}

/// Nor does anybody wait for the lock of a stranger's socket: who does cannot even be killed.
#[test]
fn sockets_whose_lock_a_stranger_holds() {
    check(&["lock"], false);
}

#[track_caller]
fn check(how: &[&str], is_frozen: bool) {
    let folder = Folder::new();
    let program = compile(&folder, "strangers", &["strangers.c"], &["-pthread"]);
    let folder = folder.path().display().to_string();
    let words: Vec<_> = [folder].into_iter().chain(how.iter().map(|&word| word.into())).collect();
    let lab = Lab::new(Net::Loopback, Knobs::default());
    let freeze = |on| {
        if let Some(broker) = lab.broker.as_ref().filter(|_| is_frozen) {
            broker.process().freeze(on);
        }
    };
    freeze(true);
    let mut process = lab.start("strangers", &lab.a, &program, &words);
    let line = process.next_line().unwrap_or_default();
    freeze(false);
    process.finish();
    assert!(line == "at once" || line.starts_with("skipped"), "{line}");
}
