//! Connections of a program that starts others, which inherit them and use none: they get rings again.
//!
//! Holds: system(3), popen(3), posix_spawn(3), vfork(2), fork(2), libyasmin(7).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;

/// The ring ends before the program can see the socket, and comes back once nobody else has it.
#[track_caller]
fn check(way: &str) {
    let moods = [Knobs::default(), Knobs::at_once(), Knobs::default().chaos(100, 4)];
    check_all_there("lent", &[way], &moods);
}

/// Both ends need no more than a connection that is new.
#[test]
fn rings_come_back_to_who_asks_now_and_then() {
    check_all_there("lent", &["spawn", "seldom"], &[Knobs::default()]);
}

#[test]
fn rings_come_back_after_system() {
    check("system");
}

#[test]
fn rings_come_back_after_popen() {
    check("popen");
}

#[test]
fn rings_come_back_after_a_spawned_program() {
    check("spawn");
}

#[test]
fn rings_come_back_after_a_vforked_one() {
    check("vfork");
}

#[test]
fn rings_come_back_after_a_forked_one() {
    check("fork");
}

#[test]
fn rings_come_back_where_a_thread_sleeps_in_recv() {
    check_all_there("lent", &["fork", "blocks"], &[Knobs::default()]);
}

/// No ring as long as it could see one.
#[test]
fn a_program_that_lives_on_keeps_them_away() {
    for way in ["fork", "spawn"] {
        check_all_there("lent", &[way, "stays"], &[Knobs::default()]);
    }
}

#[test]
fn a_program_that_writes_is_heard() {
    for way in ["fork", "spawn"] {
        check_all_there("lent", &[way, "writes"], &[Knobs::default()]);
    }
}
