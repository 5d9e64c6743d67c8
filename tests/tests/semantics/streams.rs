//! Connections that libc's streams (stdio) read and write, as numbers of their own and as standard input and output.
//!
//! Holds: fdopen(3), stdin(3), fclose(3), freopen(3), dprintf(3), fwide(3), daemon(3), login_tty(3), execve(2).

use yasmin_tests::lab::{Folder, Knobs};

use crate::c::{
    check_all_there, check_all_there_alone, check_all_there_with, check_all_there_with_musl,
    compile,
};

#[track_caller]
fn check(case: &str) {
    check_all_there("streams", &[case], &[Knobs::at_once()]);
    check_later(case);
}

/// Rings that do not come at accept.
#[track_caller]
fn check_later(case: &str) {
    let moods = [Knobs::default(), Knobs::default().chaos(100, 5)];
    check_all_there("streams", &[case], &moods);
}

/// Each end reads by a stream of the socket's number and writes by one of a copy.
#[test]
fn streams_of_a_socket_and_its_copy() {
    for buffers in ["copies", "lines", "unbuffered"] {
        check(buffers);
    }
}

#[test]
fn one_stream_both_ways() {
    check("one");
}

#[test]
fn streams_of_wide_characters() {
    check("wide");
}

#[test]
fn streams_of_many_bytes() {
    check("bulk");
}

#[test]
fn standard_input_and_output() {
    check("standard");
}

/// What a started program has as standard input and output alone: before it had a ring.
#[test]
fn standard_input_and_output_of_a_started_program() {
    check_later("started");
}

/// dprintf, and what _FORTIFY_SOURCE makes of it.
#[test]
fn texts_without_a_stream() {
    let moods = [Knobs::at_once(), Knobs::default(), Knobs::default().chaos(100, 7)];
    for fortified in ["-D_FORTIFY_SOURCE=0", "-D_FORTIFY_SOURCE=2"] {
        check_all_there_with("streams", &["-U_FORTIFY_SOURCE", fortified], &["formatted"], &moods);
    }
    check_all_there_with_musl("streams", &["formatted"], &moods);
}

/// An object may have functions of its own by these names.
#[test]
fn functions_of_the_same_names() {
    let folder = Folder::new();
    let object = ["-shared", "-fPIC", "-fno-builtin"];
    compile(&folder, "own_names.so", &["own_names_object.c"], &object);
    let at = folder.path().display();
    let options =
        [&format!("-Wl,--no-as-needed,-rpath,{at}"), &format!("-L{at}"), "-l:own_names.so"];
    let moods = [Knobs::at_once(), Knobs::default()];
    check_all_there_with("own_names", &options, &[], &moods);
}

#[test]
fn standard_numbers_of_a_daemon() {
    check("daemon");
}

#[test]
fn streams_that_do_not_wait() {
    check("nonblocking");
}

#[test]
fn one_stream_of_many_threads() {
    check("threads");
}

#[test]
fn a_thread_that_is_cancelled_in_a_stream() {
    let moods = [Knobs::at_once(), Knobs::default(), Knobs::default().chaos(100, 5)];
    check_all_there("cancelled_stream", &[], &moods);
}

/// Where libc is musl, whose streams are others.
#[test]
fn streams_of_musl() {
    for case in ["copies", "one", "wide", "bulk", "standard", "started"] {
        check_all_there_with_musl("streams", &[case], &[Knobs::default()]);
    }
    for case in ["lines", "unbuffered", "daemon", "nonblocking", "threads"] {
        let chaos = Knobs::default().chaos(100, 6);
        check_all_there_with_musl("streams", &[case], &[chaos]);
    }
}

/// Where a program is linked with it.
#[test]
fn streams_without_a_linker() {
    for case in ["copies", "standard", "started"] {
        check_all_there_alone("streams", &[case], &[Knobs::default()]);
    }
}
