//! `yasmin segment`, from the command line to a program.

use std::process::{Command, Output};

use yasmin_segment::status::{Grant, Segment};
use yasmin_tests::lab::artefact;
use yasmin_tests::segment::{Host, READ, WRITE};

fn run(host: &Host, words: &str) -> Output {
    let mut command = Command::new(artefact("yasmin"));
    command.arg("segment").args(words.split(' ')).envs(host.environment()).output().unwrap()
}

#[track_caller]
fn tell(host: &Host, words: &str) -> String {
    let output = run(host, words);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && error.is_empty(), "{words}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// One line on standard error, and this exit code.
#[track_caller]
fn is_refused(host: &Host, words: &str, code: i32, said: &str) {
    let output = run(host, words);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words}: {error}");
    assert!(output.stdout.is_empty(), "{words}");
    assert_eq!(error.lines().count(), 1, "{words}: {error}");
    assert!(error.starts_with("yasmin: ") && error.contains(said), "{words}: {error}");
}

#[test]
fn a_segment_from_the_command_line() {
    let mut host = Host::new(&["--no-bpf"]);
    assert_eq!(tell(&host, "ls"), "");
    assert_eq!(tell(&host, "ls --json").trim(), "[]");
    tell(&host, "create table --size 64K --allow everyone:read --allow 1000:write");
    tell(&host, "create other --size 1");
    tell(&host, "allow table 1000 none");
    let mut member = host.member();
    member.tell(&format!("open table {WRITE}"));
    let address = member.tell("attach 0");

    let listed: Vec<Segment> = serde_json::from_str(&tell(&host, "ls --json")).unwrap();
    let names: Vec<&str> = listed.iter().map(|segment| segment.name.as_str()).collect();
    assert_eq!(names, ["other", "table"]);
    let text = tell(&host, "ls");
    assert!(text.contains("table") && text.contains(&format!("0x{address}")), "{text}");
    assert!(!text.contains('\x1b'));
    let table: Segment = serde_json::from_str(&tell(&host, "status table --json")).unwrap();
    let grant = |user, rights: &str| Grant { user, rights: rights.to_owned() };
    assert_eq!(table.rights, [grant(None, "read"), grant(Some(1000), "none")]);
    assert_eq!(table.size_bytes, 64 << 10);
    let pids: Vec<u32> = table.holders.iter().map(|holder| holder.pid).collect();
    assert_eq!(pids, [member.process.pid()]);
    assert!(tell(&host, "status table").contains(&pids[0].to_string()));
    assert!(tell(&host, "status other").contains("nobody has it"));

    is_refused(&host, "create table --size 1", 1, "taken");
    is_refused(&host, "create a/b --size 1", 1, "no name");
    is_refused(&host, "create new --size 1X", 2, "not a number of bytes");
    is_refused(&host, "create new", 2, "--size");
    is_refused(&host, "allow table nobody-of-this-name read", 2, "no user");
    is_refused(&host, "allow table 1 all", 2, "all");
    is_refused(&host, "status gone", 1, "none of this name");
    let output = run(&host, "rm gone table gone2");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 2);
    assert_eq!(tell(&host, "ls").lines().count(), 2, "a heading, and the other");
    member.tell("write 0 1");

    host.broker.kill();
    is_refused(&host, "ls", 1, "no broker listens");
    is_refused(&host, "create new --size 1 --no-broker", 1, "no broker listens");
}

/// As `yasmin run` does: where no broker listens, one is started, and stays for the segment.
#[test]
fn the_first_segment_starts_a_broker() {
    let mut host = Host::new(&["--no-bpf"]);
    host.broker.kill();
    tell(&host, "create table --size 64K");
    let mut member = host.member();
    member.tell(&format!("open table {READ}"));
    member.tell("attach 0");
    let status = yasmin_tests::status::ask(&host.socket()).unwrap();
    tell(&host, "rm table");
    yasmin_tests::sys::kill(status.broker.pid as i32, yasmin_tests::sys::libc::SIGTERM).unwrap();
}
