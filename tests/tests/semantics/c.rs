//! Programs in C, for what only C can do: compiled for the test that runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;

/// Compiles `sources` of this folder to a program or object `name` in `folder`.
#[track_caller]
pub fn compile(folder: &Folder, name: &str, sources: &[&str], options: &[&str]) -> PathBuf {
    compile_with("cc", folder, name, sources, options)
}

#[track_caller]
pub fn compile_with(
    compiler: &str,
    folder: &Folder,
    name: &str,
    sources: &[&str],
    options: &[&str],
) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics");
    let output = folder.path().join(name);
    let status = Command::new(compiler)
        .args(["-O2", "-Wall", "-Werror", "-pthread"])
        .args(options)
        .arg("-o")
        .arg(&output)
        .args(sources.iter().map(|source| here.join(source)))
        .status()
        .expect(compiler);
    assert!(status.success(), "{compiler}: {status}");
    output
}

/// Runs the C program NAME.c in each mood: it says `all there`, and some of its bytes went by ring.
#[track_caller]
pub fn check_all_there(name: &str, words: &[&str], moods: &[Knobs]) {
    check_all_there_with(name, &[], words, moods);
}

/// The same, with `options` for the compiler.
#[track_caller]
pub fn check_all_there_with(name: &str, options: &[&str], words: &[&str], moods: &[Knobs]) {
    let folder = Folder::new();
    let program = compile(&folder, name, &[&format!("{name}.c")], options);
    check_program(name, &program, words, moods);
}

/// The same, of a program that is linked with musl statically. As from a shell: who starts it has the library.
#[track_caller]
pub fn check_all_there_alone(name: &str, words: &[&str], moods: &[Knobs]) {
    let folder = Folder::new();
    let program = compile_with("musl-gcc", &folder, name, &[&format!("{name}.c")], &["-static"]);
    let words = [&[program.to_str().expect("a name in UTF-8")], words].concat();
    check_program(name, Path::new("/usr/bin/env"), &words, moods);
}

/// The same, as a program starts another one that begins it within libc.
#[track_caller]
pub fn check_all_there_spawned(name: &str, words: &[&str], moods: &[Knobs]) {
    const STARTS: &str = "import os, sys\n\
        child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)\n\
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))";
    let folder = Folder::new();
    let program = compile_with("musl-gcc", &folder, name, &[&format!("{name}.c")], &["-static"]);
    let own = ["-c", STARTS, program.to_str().expect("a name in UTF-8")];
    check_program(name, Path::new("/usr/bin/python3"), &[&own, words].concat(), moods);
}

/// The same, of a program that uses musl.
#[track_caller]
pub fn check_all_there_with_musl(name: &str, words: &[&str], moods: &[Knobs]) {
    let folder = Folder::new();
    let program = compile_with("musl-gcc", &folder, name, &[&format!("{name}.c")], &[]);
    check_program(name, &program, words, moods);
}

/// Plays a test in a lab of its own, and asserts that some of its bytes went by ring. On a machine whose CPUs
/// others want nobody watches, and nothing may be offered: where nothing went by ring it is played again.
#[track_caller]
pub fn by_ring<T>(knobs: &Knobs, play: impl Fn(&Lab) -> T) -> T {
    const AGAIN: usize = 4;
    let mut turn = 0;
    loop {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        let result = play(&lab);
        let ring = lab.bytes_in_all().ring;
        if ring > 0 || !lab.proves() || turn == AGAIN {
            lab.assert_some_by_ring(ring);
            return result;
        }
        turn += 1;
    }
}

#[track_caller]
fn check_program(name: &str, program: &Path, words: &[&str], moods: &[Knobs]) {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    for knobs in moods {
        by_ring(knobs, |lab| {
            let mut process = lab.start(name, &lab.a, program, &words);
            let line = process.next_line();
            process.finish();
            assert_eq!(line.as_deref(), Some("all there"), "{words:?}, {knobs:?}");
        });
    }
}

/// Runs the C program NAME.c by TCP and in each mood: it prints the same lines, and some of its bytes
/// went by ring. Gives the lines. On a busy machine TCP itself does not always do the same: where lines
/// differ, both run again, twice at most, and each line has to be one that TCP gave.
#[track_caller]
pub fn check_as_by_tcp(name: &str, moods: &[Knobs]) -> Vec<String> {
    check_as_by_tcp_with("cc", name, moods)
}

/// The same, with `musl-gcc` for the compiler or another one.
#[track_caller]
pub fn check_as_by_tcp_with(compiler: &str, name: &str, moods: &[Knobs]) -> Vec<String> {
    const AGAIN: usize = 2;
    let folder = Folder::new();
    let program = compile_with(compiler, &folder, name, &[&format!("{name}.c")], &[]);
    let play = |lab: &Lab| -> Vec<String> {
        let mut process = lab.start(name, &lab.a, &program, &[]);
        let lines = std::iter::from_fn(|| process.next_line()).collect();
        process.finish();
        lines
    };
    let by_tcp = || play(&Lab::plain(Net::Loopback));
    let mut known = vec![by_tcp()];
    for knobs in moods {
        for turn in 0..=AGAIN {
            let got = by_ring(knobs, play);
            assert_eq!(known[0].len(), got.len(), "{knobs:?}");
            let is_known = |at: usize| known.iter().any(|lines| lines[at] == got[at]);
            let differ = (0..got.len()).filter(|&at| !is_known(at));
            let differ: Vec<_> = differ.map(|at| (&known[0][at], &got[at])).collect();
            if differ.is_empty() {
                break;
            }
            assert!(turn < AGAIN, "by TCP, and with {knobs:?}: {differ:#?}");
            known.push(by_tcp());
        }
    }
    known.swap_remove(0)
}
