//! What another user can do to a program that receives descriptors. In C, for the user.
//!
//! Holds: unix(7), spec/wire.md 6.6.

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::compile;

/// A mark that a stranger made does not have anybody wait for the broker, stopped or not.
#[test]
fn sockets_that_a_stranger_has_marked() {
    let folder = Folder::new();
    let program = compile(&folder, "strangers", &["strangers.c"], &[]);
    let words = [folder.path().display().to_string()];
    let lab = Lab::new(Net::Loopback, Knobs::default());
    if let Some(broker) = &lab.broker {
        broker.process().freeze(true);
    }
    let mut process = lab.start("strangers", &lab.a, &program, &words);
    let line = process.next_line().unwrap_or_default();
    if let Some(broker) = &lab.broker {
        broker.process().freeze(false);
    }
    process.finish();
    assert!(line == "at once" || line.starts_with("skipped"), "{line}");
}
