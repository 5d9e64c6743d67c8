//! How jobs end, and what `oshrun` says and gives then.

use std::process::Command;

use yasmin_tests::process::{Process, eventually};
use yasmin_tests::sys::libc::{SIGKILL, SIGTERM, SIGUSR1};

use crate::lab::{Lab, command};

/// Ended with this code, and said this in a line.
#[track_caller]
fn ends(lab: &Lab, how: &str, code: i32, said: &str) {
    let mut run = lab.run(3, "ends.c", &[how], &[]);
    let status = run.wait();
    let output = run.output();
    assert_eq!(status.code(), Some(code), "{how}: {output}");
    assert!(output.contains(said), "{how}: {output}");
    lab.nothing_left();
}

#[test]
fn a_pe_that_fails_ends_all() {
    let lab = Lab::new();
    lab.compile("ends.c", &[]);
    ends(&lab, "code", 7, "oshrun: PE 1 ended with exit code 7: all others end");
    ends(&lab, "kill", 128 + SIGKILL, "oshrun: PE 1 was killed, signal: 9 (SIGKILL)");
    ends(&lab, "before", 9, "oshrun: PE 0 ended with exit code 9");
    ends(&lab, "local", 1, "PE 1: shmem_long_p: 8 bytes at ");
    ends(&lab, "pe", 1, "PE 1: shmem_long_p: there is no PE 3, but 0 to 2");
    ends(&lab, "behind", 1, "are not symmetric");
    ends(&lab, "twice", 1, "PE 1: shmem_init twice");
    // All by the word of one; nobody failed.
    let mut run = lab.run(3, "ends.c", &["global"], &[]);
    assert_eq!(run.wait().code(), Some(42));
    assert_eq!(run.output(), "");
    ends(&lab, "global0", 0, "");
}

/// The process ids that the PEs have told.
pub fn pids(run: &mut Process, count: usize) -> Vec<u32> {
    let told = (0..count).map(|_| run.expect("PE "));
    told.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[track_caller]
pub fn gone(pids: &[u32]) {
    let is_there = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    eventually(
        "no processes",
        || (!pids.iter().any(is_there)).then_some(()),
        || format!("{pids:?}"),
    );
}

#[test]
fn signals_are_the_programs() {
    let lab = Lab::new();
    lab.compile("ends.c", &[]);
    for signal in [SIGTERM, SIGUSR1, SIGKILL] {
        let mut run = lab.run(3, "ends.c", &["pid"], &[]);
        let pids = pids(&mut run, 3);
        run.signal(signal);
        // Nobody forwards what kills oshrun itself; the kernel ends its PEs.
        let code = (signal != SIGKILL).then_some(128 + signal);
        assert_eq!(run.wait().code(), code, "{}", run.output());
        gone(&pids);
        lab.nothing_left();
    }
}

#[test]
fn command_lines() {
    let lab = Lab::new();
    lab.compile("profile.c", &[]);
    let oshrun = |words: &[&str]| {
        let mut oshrun = command(lab.tool("oshrun"));
        oshrun.args(words).env("YASMIN_SOCKET", lab.host.socket()).output().unwrap()
    };
    let missing = oshrun(&["-n", "2", "/no/such/program"]);
    assert_eq!(missing.status.code(), Some(127));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.starts_with("oshrun: /no/such/program cannot be started"), "{said}");
    for words in [&["-n", "0", "true"][..], &["-n", "x", "true"], &["-n", "2"]] {
        assert_eq!(oshrun(words).status.code(), Some(2), "{words:?}");
    }
    let program = lab.program("profile.c").display().to_string();
    let program = program.as_str();
    for words in [&["-np", "3", program][..], &[program]] {
        assert_eq!(oshrun(words).status.code(), Some(0), "{words:?}");
    }
    // Programs that know nothing of it run, too.
    let echoed = oshrun(&["-n", "2", "echo", "-n", "x"]);
    assert_eq!(echoed.stdout, b"xx");
    let shown = command(lab.tool("oshcc")).arg("-show").output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("-lyasmin-shmem"));
    let version = [("SHMEM_VERSION", "1"), ("SHMEM_INFO", "1"), ("SHMEM_DEBUG", "1")];
    let said = lab.run(2, "profile.c", &[], &version).run();
    assert!(said.contains("OpenSHMEM 1.5") && said.contains("SHMEM_SYMMETRIC_SIZE=67108864"));
}

#[test]
fn without_a_broker_oshrun_starts_one_and_a_single_program_says_what_to_do() {
    let lab = Lab::new();
    lab.compile("profile.c", &[]);
    let socket = lab.host.folder.path().join("none").join("broker.sock");
    let start = |command: &mut Command| {
        command.env("YASMIN_SOCKET", &socket);
        Process::start("alone", command, &lab.host.registry)
    };
    let program = lab.program("profile.c");
    let mut alone = start(&mut command(&program));
    assert_eq!(alone.wait().code(), Some(1));
    assert!(alone.output().contains("no broker listens"), "{}", alone.output());
    assert!(alone.output().contains("oshrun starts a broker"), "{}", alone.output());
    start(command(lab.tool("oshrun")).args(["-n", "2"]).arg(&program)).finish();
    // Now there is one.
    start(&mut command(&program)).finish();
}
