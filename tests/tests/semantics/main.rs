//! What calls return at the edges of a connection's life: each scenario runs on plain TCP first
//! and must give the same results, to the errno, on rings.
//!
//! In a warm connection both directions are open, so that what is sent while nobody receives
//! lies in the ring: these are the bytes that the kernel knows nothing of.

mod adopted;
mod alone;
mod attaching;
mod blocked;
mod c;
mod cancel;
mod cloned;
mod copies;
mod deep;
mod differences;
mod direct;
mod ends;
mod faults;
mod flags;
mod footprint;
mod given_up;
mod halves;
mod handed;
mod interrupts;
mod jumps;
mod killed;
mod lent;
mod memory;
mod numbers;
mod options;
mod owed;
mod own_numbers;
mod passing;
mod paths;
mod programs;
mod queued;
mod sandboxed;
mod seldom;
mod sets;
mod setup;
mod share;
mod shared_sets;
mod sharing;
mod shells;
mod signals;
mod spawned;
mod special;
mod spent;
mod starved;
mod strangers;
mod streams;
mod time;
mod tools;
mod unmet;
mod unread;
mod unseen;
mod vforked;
mod waiting;
mod ways;
mod workers;

use yasmin_tests::peer;
use yasmin_tests::script::{Duo, compare, compare_waiting};

#[track_caller]
fn check(scenario: fn(&mut Duo)) {
    compare(peer!("script"), scenario);
}

/// For scenarios in which an end offers while the other one is not there yet: it does not wait
/// for long.
#[track_caller]
fn check_alone(scenario: fn(&mut Duo)) {
    compare_waiting(peer!("script"), 50, scenario);
}
