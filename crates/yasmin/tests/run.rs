//! `yasmin run` as a user sees it: what passes through, and what is told in one line.

mod installed;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use installed::Installed;

#[test]
fn exit_status_passes_through() {
    let yasmin = Installed::new();
    for code in [0, 1, 42, 255] {
        let output = yasmin.run(&["-q", "sh", "-c", &format!("exit {code}")]);
        assert_eq!(output.status.code(), Some(code));
    }
}

#[test]
fn death_by_signal_passes_through() {
    let yasmin = Installed::new();
    for signal in [9, 11, 15] {
        let output = yasmin.run(&["-q", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(output.status.signal(), Some(signal));
    }
}

#[test]
fn the_program_is_the_same_process_and_has_no_child() {
    let yasmin = Installed::new();
    yasmin.put_broker("#!/bin/sh\nexec sleep 3\n");
    let script = "read -r children </proc/$$/task/$$/children; echo $$ [$children]";
    let child =
        yasmin.command("run").args(["-q", "sh", "-c", script]).stdout(Stdio::piped()).spawn();
    let child = child.unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{pid} []\n"));
}

#[test]
fn missing_and_unexecutable_programs_end_as_in_a_shell() {
    let yasmin = Installed::new();
    let plain = yasmin.folder().join("plain");
    fs::write(&plain, "not a program").unwrap();
    for (program, code) in
        [("no-such-program", 127), ("./no/such", 127), (plain.to_str().unwrap(), 126), ("/", 126)]
    {
        let output = yasmin.run(&[program]);
        assert_eq!(output.status.code(), Some(code), "{program}");
        let line = installed::one_line(&output);
        assert!(line.starts_with("yasmin: ") && line.contains(program), "{line}");
    }
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).unwrap();
    // Without "#!" it is the shell's to run, as execvp has it.
    fs::write(&plain, "exit 9").unwrap();
    assert_eq!(yasmin.run(&["-q", plain.to_str().unwrap()]).status.code(), Some(9));
}

#[test]
fn wrong_arguments_are_one_line() {
    let yasmin = Installed::new();
    for arguments in [&["--no-such"][..], &[], &["--spin-us", "many", "true"]] {
        let output = yasmin.run(arguments);
        assert_eq!(output.status.code(), Some(2));
        installed::one_line(&output);
    }
}

#[test]
fn without_a_library_the_program_still_runs() {
    let yasmin = Installed::new();
    fs::remove_file(yasmin.folder().join("libyasmin.so")).unwrap();
    let output = yasmin.run(&["sh", "-c", "exit ${#LD_PRELOAD}"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(installed::one_line(&output).contains("libyasmin.so"));
}

#[test]
fn without_a_broker_the_program_still_runs() {
    let yasmin = Installed::new();
    let output = yasmin.run(&["sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert!(installed::one_line(&output).contains("yasmind"));
    let output = yasmin.run(&["--no-broker", "sh", "-c", "exit 8"]);
    assert_eq!(output.status.code(), Some(8));
    assert!(installed::one_line(&output).contains("no broker listens"));
}

#[test]
fn an_unusable_folder_is_one_line() {
    let yasmin = Installed::new();
    yasmin.put_broker("#!/bin/sh\n");
    fs::write(yasmin.folder().join("file"), "").unwrap();
    let socket = yasmin.folder().join("file/broker.sock");
    let output = yasmin.run(&["--socket", socket.to_str().unwrap(), "true"]);
    assert!(output.status.success());
    assert!(installed::one_line(&output).contains("file"));
}

#[test]
fn a_broker_that_fails_to_start_is_one_line() {
    let yasmin = Installed::new();
    yasmin.put_broker("#!/bin/sh\necho broken >&2; exit 1\n");
    let output = yasmin.run(&["sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(installed::one_line(&output).contains("yasmind.log"));
    let log = fs::read_to_string(yasmin.folder().join("run/yasmind.log")).unwrap();
    assert_eq!(log, "broken\n");
}

#[test]
fn a_broker_of_another_version_is_one_line() {
    let yasmin = Installed::new();
    yasmin.fake_broker(installed::Answer::Refuse { version: 77 });
    let output = yasmin.run(&["sh", "-c", "exit 5"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(installed::one_line(&output).contains("version 77"));
}

#[test]
fn the_program_finds_library_and_broker_in_its_environment() {
    let yasmin = Installed::new();
    yasmin.fake_broker(installed::Answer::Welcome);
    let script = "echo $LD_PRELOAD; echo $YASMIN_SOCKET; echo $YASMIN_SPIN_US $YASMIN_SPIN_SHARE";
    let output = yasmin.run(&["--spin-us", "0", "--spin-share", "30", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let expected = format!(
        "{}\n{}\n0 30\n",
        yasmin.folder().join("libyasmin.so").display(),
        yasmin.socket().display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn static_programs_run_and_are_told() {
    let yasmin = Installed::new();
    let source = yasmin.folder().join("main.c");
    fs::write(&source, "int main(void) { return 6; }").unwrap();
    let program = yasmin.folder().join("static-program");
    let built = std::process::Command::new("cc")
        .arg("-static")
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(built.expect("the tests need a C compiler").success());
    let program = program.to_str().unwrap();
    let output = yasmin.run(&[program]);
    assert_eq!(output.status.code(), Some(6));
    assert!(installed::one_line(&output).contains("statically linked"));
    assert_eq!(String::from_utf8_lossy(&yasmin.run(&["-q", program]).stderr), "");
}

/// Only where the filter can be installed without NO_NEW_PRIVS.
#[test]
fn io_uring_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let yasmin = Installed::new();
    yasmin.fake_broker(installed::Answer::Welcome);
    let script = "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status | tr -d '\\t\\n'";
    let output = yasmin.run(&["sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "NoNewPrivs:0Seccomp:2");
    let output = yasmin.run(&["--allow-io-uring", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "NoNewPrivs:0Seccomp:0");
}
