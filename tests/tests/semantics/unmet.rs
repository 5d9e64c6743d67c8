//! Two ends that cannot have a channel when one of them is busy for the first time get it once they can.
//!
//! Holds: spec/wire.md 6.2.

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::eventually;

use crate::c::compile;

/// The program does as `word` says; none of its connections has a channel for a `reason`, at first.
#[track_caller]
fn gets_one_later(word: &str, reason: &str, knobs: Knobs) {
    let folder = Folder::new();
    let program = compile(&folder, "unmet", &["unmet.c"], &[]);
    let lab = Lab::new(Net::Loopback, knobs);
    let mut process = lab.start("unmet", &lab.a, &program, &[word.to_owned()]);
    process.expect("none yet");
    if lab.proves() {
        let is_shown = || {
            let shown = lab.status().into_iter().flat_map(|status| status.connections);
            shown.filter_map(|one| one.reason).any(|shown| shown.contains(reason)).then_some(())
        };
        eventually("why is told", is_shown, || format!("{:?}", lab.status()));
    }
    process.say("go on");
    process.expect("all there");
    process.finish();
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
}

#[test]
fn where_one_is_busy_first() {
    gets_one_later("small", "no proof", Knobs::default().offers_for(1));
}

#[test]
fn where_the_memory_is_spent() {
    /// A channel of the smallest rings, and the two ends' own pages.
    const ONE_BYTES: u32 = 3 * 4096;
    gets_one_later("full", "memory", Knobs::default().memory_limit(ONE_BYTES));
}
