//! What a process may spend on spinning is bounded where the user says so. In C, for the count of
//! its sleeps.
//!
//! Holds: libyasmin(7).

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

use crate::c::compile;

/// Of 4000 waits, how many slept.
#[track_caller]
fn sleeps(share: Option<u32>) -> u32 {
    let folder = Folder::new();
    let program = compile(&folder, "share", &["share.c"], &[]);
    let lab = Lab::new(Net::Loopback, Knobs { spin_share: share, ..Knobs::at_once() });
    let mut process = lab.start("share", &lab.a, &program, &[]);
    let line = process.next_line().unwrap_or_default();
    process.finish();
    // On TCP each of them would.
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
    let sleeps = line.strip_suffix(" of 4000 waits slept").and_then(|count| count.parse().ok());
    sleeps.unwrap_or_else(|| panic!("{line}"))
}

/// The first waits use the share's burst up: at one percent, a millisecond of spinning.
#[test]
fn who_has_used_its_share_up_sleeps() {
    let slept = sleeps(Some(1));
    assert!(slept > 2000, "{slept} of 4000 waits slept with a share of 1 %");
    eprintln!("{} of 4000 slept without a bound", sleeps(None));
}
