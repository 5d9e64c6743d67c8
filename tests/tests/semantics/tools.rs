//! Programs that are built or run with tools for finding errors, or with limits: as without the library, and such a tool
//! finds none more.
//!
//! Holds: valgrind(1), dl_iterate_phdr(3), setrlimit(2), ld.so(8).

use std::path::Path;

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::Process;

use crate::c::compile;

/// Runs `words` behind the program: it says `all there`, and nothing else. In the lab that it gives.
#[track_caller]
fn runs(program: &str, words: &[&str]) -> Lab {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let mut command = lab.run_command(Path::new(program));
    let mut process = Process::start(program, command.args(words), &lab.registry);
    process.finish();
    assert_eq!(process.output().trim(), "all there", "{program} {words:?}");
    lab
}

#[track_caller]
fn compiled(folder: &Folder, options: &[&str]) -> String {
    let program = compile(folder, "shells", &["shells.c"], options);
    program.to_str().expect("a name in UTF-8").to_owned()
}

/// Its runtime ends a program in which another library comes first.
#[test]
fn address_sanitizer() {
    let folder = Folder::new();
    runs(&compiled(&folder, &["-fsanitize=address"]), &["popen"]);
}

#[test]
fn thread_sanitizer() {
    let folder = Folder::new();
    runs(&compiled(&folder, &["-fsanitize=thread"]), &["popen"]);
}

/// Static programs, which the library is not for.
#[test]
fn valgrind() {
    let folder = Folder::new();
    let program = compiled(&folder, &[]);
    for tool in ["--tool=memcheck", "--tool=helgrind"] {
        let lab = runs("/usr/bin/valgrind", &["-q", tool, &program, "popen"]);
        assert_eq!(lab.bytes_in_all().ring, 0, "{tool}");
    }
}

/// What is unread could not be handed on (`ulimit -f`).
#[test]
fn files_that_may_not_be_large() {
    let folder = Folder::new();
    let program = compiled(&folder, &[]);
    for limits in ["--fsize=100000:100000", "--fsize=100000:unlimited"] {
        runs("/usr/bin/prlimit", &[limits, &program, "system"]);
    }
}

#[test]
fn a_loader_that_is_called_by_name() {
    let folder = Folder::new();
    let program = compiled(&folder, &[]);
    let lab = runs("/lib64/ld-linux-x86-64.so.2", &[&program, "popen"]);
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
}
