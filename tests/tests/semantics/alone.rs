//! Programs that are linked with musl statically: no loader gives them the library, yet all of their calls go by it.
//!
//! Holds: fork(2), exit_group(2), vfork(2), clone(2), execve(2), posix_spawn(3), system(3), mlockall(2), recv(2), send(2).

use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::Process;

use crate::c::{check_all_there_alone, check_all_there_spawned, compile_with};

fn moods() -> [Knobs; 2] {
    [Knobs::at_once(), Knobs::at_once().chaos(100, 7)]
}

#[track_caller]
fn storm(whats: &[&str]) {
    let words = [&["3", "2"], whats].concat();
    check_all_there_alone("storm", &words, &moods());
}

#[test]
fn a_storm_of_copies_and_forks() {
    storm(&["copy", "pass", "fork", "vfork", "replace", "options", "fresh"]);
}

#[test]
fn a_storm_of_programs() {
    storm(&["spawn", "shell", "start", "lend"]);
}

/// libc calls exec in there by itself.
#[test]
fn a_program_that_posix_spawn_starts() {
    check_all_there_spawned("storm", &["3", "2", "copy", "spawn"], &moods());
}

#[test]
fn unread_bytes_that_the_next_program_reads() {
    check_all_there_alone("shells", &["system"], &moods());
}

/// A forked child's end, by exit_group, is seen.
#[test]
fn an_end_with_unread_bytes() {
    check_all_there_alone("exits", &[], &moods());
}

#[test]
fn numbers_that_a_vforked_child_changes() {
    check_all_there_alone("vforked", &["swap"], &moods());
}

#[test]
fn addresses_that_fault() {
    check_all_there_alone("faults", &["blocked"], &moods());
}

/// Each thread has words of this library's.
#[test]
fn memory_that_is_locked() {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let folder = &lab.folder;
    let program = compile_with("musl-gcc", folder, "footprint", &["footprint.c"], &["-static"]);
    let mut command = lab.run_command(&program);
    let mut process = Process::start("footprint", command.arg("locked"), &lab.registry);
    process.expect("added little");
    process.finish();
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
}

/// musl cancels a thread by where it stands. Such a program is as without the library.
#[test]
fn a_program_that_cancels_threads_stays_as_it_is() {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let name = "cancelled_anywhere";
    let program =
        compile_with("musl-gcc", &lab.folder, name, &["cancelled_anywhere.c"], &["-static"]);
    let mut process = Process::start(name, &mut lab.run_command(&program), &lab.registry);
    process.finish();
    let output = process.output();
    assert!(output.contains("all there"), "{output}");
    assert_eq!(output.contains("can cancel threads (pthread_cancel)"), lab.proves(), "{output}");
    assert_eq!(lab.bytes_in_all().ring, 0);
}
