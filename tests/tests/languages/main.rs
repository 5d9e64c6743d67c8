//! Languages' own ways to sockets: an echo server and its client in each, with every byte
//! checked. What is not installed is skipped with a line that says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use yasmin_tests::installed::find_or_say;
use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::{Process, eventually};
use yasmin_tests::status::Bytes;
use yasmin_tests::sys::deny_write_execute;

fn source(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/languages").join(name).display().to_string()
}

/// What an echo of this size carries at least, both ways.
const CARRIED_BYTES: u64 = 1 << 20;

/// The bytes of an echo that is over.
#[track_caller]
fn carried(lab: &Lab) -> Bytes {
    eventually(
        "the bytes of closed connections",
        || Some(lab.bytes_in_all()).filter(|all| all.ring + all.tcp > CARRIED_BYTES),
        || format!("{:?}", lab.bytes_in_all()),
    )
}

/// Server and client by `program`, with the words that both get first and those that come last:
/// by default, with a channel from the first byte, and in the library's moods. Some of it has
/// to go by ring.
#[track_caller]
fn echo(program: &Path, first: &[&str], last: &[&str]) {
    for knobs in [Knobs::default(), Knobs::at_once(), Knobs::at_once().chaos(100, 5)] {
        let lab = Lab::new(Net::Loopback, knobs);
        let words = |middle: &[&str]| -> Vec<String> {
            [first, middle, last].concat().iter().map(|&word| word.to_owned()).collect()
        };
        let mut server = lab.start("server", &lab.a, program, &words(&["listen"]));
        let port = server.expect("port ");
        let at = words(&["connect", &lab.a.v4().to_string(), &port]);
        let mut client = lab.start("client", &lab.b, program, &at);
        client.expect("same");
        client.finish();
        server.terminate();
        if lab.proves() {
            let bytes = carried(&lab);
            eprintln!("{} {last:?}: {bytes:?}", program.display());
            lab.assert_some_by_ring(bytes.ring);
        }
    }
}

#[test]
fn java_blocking_and_nio() {
    let (Some(java), Some(_)) = (find_or_say("java"), find_or_say("javac")) else { return };
    for kind in ["blocking", "nio"] {
        echo(&java, &[&source("Echo.java")], &[kind]);
    }
}

#[test]
fn node() {
    let Some(node) = find_or_say("node") else { return };
    echo(&node, &[&source("echo.js")], &[]);
}

/// libuv sets up io_uring by itself, here because it is asked to. It is refused and falls back.
#[test]
fn io_uring_of_libuv_is_refused() {
    let Some(node) = find_or_say("node") else { return };
    let lab = Lab::new(Net::Loopback, Knobs::default());
    let mut command = lab.command(&lab.a, &node);
    let program = "require('fs').readFile('/proc/self/stat', () => console.log('read'));
        setInterval(() => {}, 1000);";
    command.env("UV_USE_IO_URING", "1").args(["-e", program]);
    let mut process = Process::start("node", &mut command, &lab.registry);
    process.expect("read");
    let rings = fs::read_dir(format!("/proc/{}/fd", process.pid()))
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|to| to.to_string_lossy().contains("io_uring"))
        .count();
    assert!(rings == 0 || !lab.proves(), "io_uring was not refused");
    process.terminate();
}

#[test]
fn perl() {
    let Some(perl) = find_or_say("perl") else { return };
    echo(&perl, &[&source("echo.pl")], &[]);
}

/// Builds a Go program of these sources, with libc or without; `None` where there is no Go, or what it
/// needs to link with libc.
fn go(folder: &Path, sources: &[&str], options: &[&str], with_libc: bool) -> Option<PathBuf> {
    let go = find_or_say("go")?;
    if with_libc {
        find_or_say("gcc")?;
    }
    let binary = folder.join("program");
    let output = Command::new(go)
        .current_dir(folder)
        .args(["build", "-o"])
        .arg(&binary)
        .args(options)
        .args(sources.iter().map(|name| source(name)))
        .env("CGO_ENABLED", if with_libc { "1" } else { "0" })
        .env("GOCACHE", folder.join("cache"))
        .env("GO111MODULE", "off")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(binary)
}

/// Go makes its system calls by itself. Where it is linked with libc, they are diverted.
#[test]
fn go_with_libc() {
    let folder = Folder::new();
    let Some(program) = go(folder.path(), &["echo.go"], &[], true) else { return };
    echo(&program, &[], &[]);
}

/// Linked by the C compiler, as programs with C of their own are, and at any address.
#[test]
fn go_with_c_at_any_address() {
    let folder = Folder::new();
    let options = ["-buildmode=pie", "-ldflags=-s -w"];
    let Some(program) = go(folder.path(), &["echo.go", "cgo.go"], &options, true) else { return };
    echo(&program, &[], &[]);
}

/// With all that Go's runtime does beside.
#[test]
fn go_that_is_busy() {
    let folder = Folder::new();
    let Some(program) = go(folder.path(), &["busy.go"], &[], true) else { return };
    echo(&program, &[], &[]);
}

/// Where its text cannot be changed (systemd's MemoryDenyWriteExecute), it is as it was, and stays TCP.
#[track_caller]
fn text_stays(with_libc: bool) {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let Some(program) = go(lab.folder.path(), &["echo.go"], &[], with_libc) else { return };
    let start = |name: &str, words: &[&str]| {
        let mut command = lab.command(&lab.a, Path::new(ENV));
        command.arg(&program).args(words);
        deny_write_execute(&mut command).then(|| Process::start(name, &mut command, &lab.registry))
    };
    let Some(mut server) = start("server", &["listen"]) else { return };
    let port = server.expect("port ");
    let mut client = start("client", &["connect", &lab.a.v4().to_string(), &port]).unwrap();
    client.expect("same");
    client.finish();
    assert_eq!(lab.bytes_in_all().ring, 0);
    server.terminate();
}

#[test]
fn go_whose_text_stays() {
    text_stays(true);
}

#[test]
fn go_without_libc_whose_text_stays() {
    text_stays(false);
}

/// A program that has the library, and becomes the one that its words name.
const ENV: &str = "/usr/bin/env";

/// A static program has no loader: who becomes it has the library injected.
#[test]
fn go_without_libc() {
    let folder = Folder::new();
    let Some(program) = go(folder.path(), &["echo.go"], &[], false) else { return };
    echo(Path::new(ENV), &[&program.display().to_string()], &[]);
}

#[test]
fn go_without_libc_that_is_busy() {
    let folder = Folder::new();
    let Some(program) = go(folder.path(), &["busy.go"], &["-ldflags=-s -w"], false) else { return };
    echo(Path::new(ENV), &[&program.display().to_string()], &[]);
}

/// Server and client as users start them. The client is over.
#[track_caller]
fn echo_by_the_command(lab: &Lab, program: &Path) -> (Process, Process) {
    let start = |name: &str, words: &[&str]| {
        let mut command = lab.run_command(program);
        Process::start(name, command.args(words), &lab.registry)
    };
    let mut server = start("server", &["listen"]);
    let port = server.expect("port ");
    let mut client = start("client", &["connect", &lab.a.v4().to_string(), &port]);
    client.expect("same");
    client.finish();
    (server, client)
}

/// As users start it.
#[test]
fn go_without_libc_by_the_command() {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let Some(echo) = go(lab.folder.path(), &["echo.go"], &[], false) else { return };
    let (mut server, client) = echo_by_the_command(&lab, &echo);
    assert_eq!(client.output().lines().count(), 1, "told:\n{}", client.output());
    if lab.proves() {
        let bytes = carried(&lab);
        lab.assert_some_by_ring(bytes.ring);
    }
    server.terminate();
}

/// What a program can see of itself and of its children is as it would be without the injection: before an
/// exec that fails, and in the program that it becomes.
#[test]
fn injection_leaves_no_trace() {
    let Some(python) = find_or_say("python3") else { return };
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    if !lab.proves() {
        return;
    }
    let Some(program) = go(lab.folder.path(), &["itself.go"], &[], false) else { return };
    let script = source("becomes.py");
    for thread in ["first", "other"] {
        let mut command = lab.command(&lab.a, &python);
        command.args([&script, thread]).arg(&program);
        let mut process = Process::start(thread, &mut command, &lab.registry);
        process.expect("as it was");
        process.finish();
    }
}

/// os.Exit is no function of libc's either.
#[test]
fn go_that_ends_with_unread_bytes() {
    for with_libc in [true, false] {
        let lab = Lab::new(Net::Loopback, Knobs::at_once());
        let Some(program) = go(lab.folder.path(), &["exits.go"], &[], with_libc) else { return };
        let mut process = Process::start("exits", &mut lab.run_command(&program), &lab.registry);
        process.expect("all there");
        process.finish();
        lab.assert_some_by_ring(carried(&lab).ring);
    }
}

/// Its connections are right, and stay TCP, and the user is told so in one line.
#[track_caller]
fn told_and_plain(sources: &[&str], options: &[&str], told: &str) {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let folder = lab.folder.path();
    let Some(echo) = go(folder, sources, options, true) else { return };
    let (mut server, client) = echo_by_the_command(&lab, &echo);
    if lab.proves() {
        // The other stream of output is read beside: its line may come later than the end.
        eventually(
            "the line that tells the user",
            || client.output().contains(told).then_some(()),
            || client.output(),
        );
        let lines = client.output().lines().count();
        assert_eq!(lines, 2, "more than one line told:\n{}", client.output());
    }
    assert_eq!(lab.bytes_in_all(), Bytes::default());
    server.terminate();
}

/// libc in the program itself makes threads that nobody outside sees.
#[test]
fn go_with_static_libc() {
    let options = ["-tags=netgo,osusergo", "-ldflags=-linkmode external -extldflags -static"];
    told_and_plain(&["echo.go", "cgo.go"], &options, "that is linked with C");
}

/// The dynamic linker loads it and the library, which cannot run so: the one that runs is injected.
#[test]
fn go_without_libc_at_any_address() {
    let folder = Folder::new();
    let Some(program) = go(folder.path(), &["echo.go"], &["-buildmode=pie"], false) else { return };
    echo(Path::new(ENV), &[&program.display().to_string()], &[]);
}
