//! Scenarios as texts, before any of them runs: each command has the words that the peer wants,
//! and each file names what it holds the library to, a section of spec/wire.md or a manual page.

use std::fs;
use std::path::{Path, PathBuf};

use yasmin_tests::script::grammar;

/// Methods of `Duo` and of the stage of `differential` that take a command.
const TAKERS: [&str; 6] = [".a(", ".b(", ".quiet_a(", ".quiet_b(", ".end_a(", ".end_b("];
/// A command that is put together elsewhere.
const MADE: &str = "{}";

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The string that begins a call's arguments, as it is written, or `MADE`.
fn literal(arguments: &str) -> &str {
    let text = arguments.trim_start();
    let text = text.strip_prefix('&').unwrap_or(text);
    let text = text.strip_prefix("format!(").unwrap_or(text).trim_start();
    let text = text.strip_prefix('"').and_then(|text| text.split('"').next());
    text.unwrap_or(MADE)
}

/// Commands of a source, with their lines.
fn commands(source: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for taker in TAKERS {
        for (at, _) in source.match_indices(taker) {
            let line = 1 + source[..at].matches('\n').count();
            found.push((line, literal(&source[at + taker.len()..])));
        }
    }
    found.sort_unstable();
    found
}

fn faults(name: &str, source: &str) -> Vec<String> {
    let wrong = |(line, command): (usize, &str)| {
        // A string that goes on in the next line.
        let command = command.replace("\\\n", " ");
        let expected = grammar::check(&command).err()?;
        Some(format!("{name}:{line}: {command}: {expected}"))
    };
    commands(source).into_iter().filter_map(wrong).collect()
}

#[test]
fn every_command_has_the_words_that_the_peer_wants() {
    let mut all = Vec::new();
    let mut count = 0;
    for path in sources(&tests().join("semantics")) {
        let source = fs::read_to_string(&path).unwrap();
        count += commands(&source).iter().filter(|(_, command)| *command != MADE).count();
        all.extend(faults(&path.display().to_string(), &source));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
    // As many as there were, or the search finds none.
    assert!(count > 1500, "{count} commands");
}

#[test]
fn a_typo_is_told_with_its_line() {
    let source =
        "fn x() {\n    duo.a(\"send C 10\");\n    duo.quiet_b(&format!(\"rcev C {len}\"));\n}";
    let found = faults("here.rs", source);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("here.rs:3: rcev C {len}: no command `rcev`"), "{}", found[0]);
}

/// What a file's head says behind `Holds:`, to the end of its sentence.
fn rules(source: &str) -> Vec<String> {
    let head = source.lines().map_while(|line| line.strip_prefix("//!"));
    let head = head.map(str::trim).collect::<Vec<_>>().join(" ");
    let Some((_, rules)) = head.split_once("Holds: ") else { return Vec::new() };
    let rules = rules.split_once(". ").map_or(rules.trim_end_matches('.'), |(rules, _)| rules);
    rules.split(", ").map(str::to_owned).collect()
}

/// Whether there is such a section, or such a manual page: `spec/wire.md 5.4`, `epoll(7)`.
fn exists(rule: &str, headings: &[&str], pages: &[&str]) -> bool {
    if let Some(section) = rule.strip_prefix("spec/wire.md ") {
        let section = section.trim_end_matches('.');
        return headings.iter().any(|heading| {
            let number = heading.trim_start_matches('#').trim().split(' ').next().unwrap_or("");
            number.trim_end_matches('.') == section
        });
    }
    pages.contains(&rule)
}

#[test]
fn every_scenario_file_names_what_it_holds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let spec = fs::read_to_string(root.join("spec/wire.md")).unwrap();
    let headings: Vec<&str> = spec.lines().filter(|line| line.starts_with('#')).collect();
    let mut faults = Vec::new();
    for path in sources(&tests().join("semantics")) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The harness of the others.
        if ["main.rs", "c.rs"].contains(&&*name) {
            continue;
        }
        let rules = rules(&fs::read_to_string(&path).unwrap());
        if rules.is_empty() {
            faults.push(format!("{name}: its head names no rule: `//! Holds: recv(2).`"));
        }
        for rule in rules.iter().filter(|rule| !exists(rule, &headings, &PAGES)) {
            faults.push(format!("{name}: there is no `{rule}` in spec/wire.md, nor such a page"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Manual pages that scenarios hold the library to: it must do as the kernel and libc do.
const PAGES: [&str; 61] = [
    "accept(2)",
    "chroot(2)",
    "clone(2)",
    "close(2)",
    "connect(2)",
    "daemon(3)",
    "dl_iterate_phdr(3)",
    "dlopen(3)",
    "dlsym(3)",
    "dprintf(3)",
    "dup(2)",
    "dup2(2)",
    "epoll(7)",
    "epoll_ctl(2)",
    "epoll_wait(2)",
    "execve(2)",
    "exit_group(2)",
    "fclose(3)",
    "fdopen(3)",
    "fork(2)",
    "freopen(3)",
    "fwide(3)",
    "getrlimit(2)",
    "getsockopt(2)",
    "io_submit(2)",
    "ld.so(8)",
    "libyasmin(7)",
    "login_tty(3)",
    "mlockall(2)",
    "pid_namespaces(7)",
    "poll(2)",
    "popen(3)",
    "posix_spawn(3)",
    "prctl(2)",
    "pthreads(7)",
    "read(2)",
    "readv(2)",
    "recv(2)",
    "recvmmsg(2)",
    "sched(7)",
    "seccomp(2)",
    "select(2)",
    "send(2)",
    "sendfile(2)",
    "sendmmsg(2)",
    "setrlimit(2)",
    "shutdown(2)",
    "sigaction(2)",
    "siglongjmp(3)",
    "signal(7)",
    "signal-safety(7)",
    "socket(7)",
    "splice(2)",
    "stdin(3)",
    "syscall(2)",
    "system(3)",
    "tcp(7)",
    "unix(7)",
    "valgrind(1)",
    "vfork(2)",
    "wordexp(3)",
];
