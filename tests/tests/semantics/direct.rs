//! Programs with libc and Rust's runtime that enter the kernel by instructions of their own, too. In C, for the
//! registers.
//!
//! Holds: syscall(2).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::Process;
use yasmin_tests::status::Bytes;

use crate::c::{check_all_there, check_all_there_alone, compile, compile_with};

#[track_caller]
fn check(how: &str) {
    let at_once = Knobs::at_once;
    check_all_there("direct", &[how], &[Knobs::default(), at_once(), at_once().chaos(100, 7)]);
}

#[test]
fn talk_and_wait() {
    check("talks");
}

#[test]
fn make_children() {
    check("forks");
}

/// The instruction changes three registers, and no others: vectors, masks, flags, the red zone.
#[test]
fn keep_all_registers() {
    check("registers");
}

/// An object that is loaded has its own, too, from its first constructor on. Beside threads that load others.
#[track_caller]
fn check_object(how: &str, runtime: &[&str]) -> Vec<Bytes> {
    let folder = Folder::new();
    let options = [&["-DOBJECT", "-shared", "-fPIC"], runtime].concat();
    let object = compile(&folder, "direct.so", &["direct.c"], &options);
    let program = compile(&folder, "arrives", &["arrives.c"], &[]);
    let words = [object.to_str().expect("a name in UTF-8").to_owned(), how.to_owned()];
    let at_once = Knobs::at_once;
    let play = |knobs: Knobs| {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        let mut process = lab.start("arrives", &lab.a, &program, &words);
        let line = process.next_line();
        process.finish();
        assert_eq!(line.as_deref(), Some("all there"), "{how}, {knobs:?}");
        lab.assert_some_by_ring(lab.bytes_in_all().ring);
        lab.bytes_in_all()
    };
    [Knobs::default(), at_once(), at_once().chaos(100, 9)].map(play).into()
}

#[test]
fn an_object_that_is_loaded_talks() {
    let here = check_object("talks", &[]);
    let past_libc = check_object("talks", &["-DOTHER"]);
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    // Of the two one makes its process plain TCP.
    assert!(!lab.proves() || here[1].ring > 4 * past_libc[1].ring, "{here:?} {past_libc:?}");
}

#[test]
fn an_object_that_is_loaded_makes_children() {
    check_object("forks", &[]);
}

#[test]
fn an_object_that_is_loaded_keeps_all_registers() {
    check_object("registers", &[]);
}

/// Runs the program with this home, behind `words`: its bytes by ring.
#[track_caller]
fn play_behind(words: &[&str], program: &Path, home: &Path) -> (Lab, u64) {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    let words = [words, &[program.to_str().expect("a name in UTF-8"), "registers"]].concat();
    let mut command = lab.run_command(Path::new(words[0]));
    let command = command.args(&words[1..]).env("HOME", home).env_remove("XDG_CACHE_HOME");
    let mut process = Process::start("direct", command, &lab.registry);
    process.finish();
    assert_eq!(process.output().trim(), "all there");
    let ring_bytes = lab.bytes_in_all().ring;
    (lab, ring_bytes)
}

#[track_caller]
fn goes_by_ring(program: &Path, home: &Path) -> bool {
    let (lab, ring_bytes) = play_behind(&["/usr/bin/env"], program, home);
    if lab.proves() { ring_bytes > 0 } else { true }
}

fn cache_in(home: &Path) -> PathBuf {
    home.join(".cache/yasmin")
}

/// The only file there. `None`: the library is not there either.
#[track_caller]
fn surely_kept(home: &Path) -> Option<PathBuf> {
    let file = kept(home);
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    assert_eq!(file.is_some(), lab.proves(), "whether something is kept");
    file
}

/// The only file there, if any.
#[track_caller]
fn kept(home: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(cache_in(home)).into_iter().flatten();
    let files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() <= 1, "{files:?}");
    files.into_iter().next()
}

/// A home with a folder for caches.
fn home_in(folder: &Folder, name: &str) -> PathBuf {
    let home = folder.path().join(name);
    fs::create_dir_all(home.join(".cache")).unwrap();
    home
}

fn words_of(file: &Path) -> Vec<u64> {
    let bytes = fs::read(file).unwrap();
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Writes them with the sum that belongs there, in the last one's place.
fn write_words(file: &Path, words: &[u64]) {
    let (_, words) = words.split_last().unwrap();
    let sum = words.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29)
    });
    let words = words.iter().chain([&sum]).flat_map(|word| word.to_le_bytes());
    fs::write(file, words.collect::<Vec<u8>>()).unwrap();
}

const COUNT_AT: usize = 8;

#[test]
fn another_runtime_by_tcp() {
    let folder = Folder::new();
    let home = home_in(&folder, "home");
    let program = compile(&folder, "other", &["direct.c"], &["-DOTHER"]);
    let (_, ring_bytes) = play_behind(&["/usr/bin/env"], &program, &home);
    assert_eq!(ring_bytes, 0);
    assert_eq!(kept(&home), None);
}

/// Where its instructions are is kept, and believed: as if it could have none, nobody looks again. The words, then.
#[track_caller]
fn believed(program: &Path, home: &Path) -> Option<(PathBuf, Vec<u64>)> {
    assert!(goes_by_ring(program, home));
    let file = surely_kept(home)?;
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&file), mode(&cache_in(home))), (0o600, 0o700));
    let mut words = words_of(&file);
    assert!(words[COUNT_AT] > 10, "{words:x?}");
    assert!(goes_by_ring(program, home));
    assert_eq!(words_of(&file), words);
    words.truncate(COUNT_AT + 2);
    words[COUNT_AT] = u64::MAX;
    write_words(&file, &words);
    assert!(!goes_by_ring(program, home));
    Some((file, words))
}

#[test]
fn are_known_the_second_time() {
    let folder = Folder::new();
    let home = home_in(&folder, "home");
    let program = compile(&folder, "direct", &["direct.c"], &[]);
    let Some((file, mut words)) = believed(&program, &home) else { return };
    // As if somebody had looked, and did not end.
    words[COUNT_AT] = u64::MAX - 1;
    write_words(&file, &words);
    assert!(goes_by_ring(&program, &home));
    // Another program now, of which something else was known.
    words[COUNT_AT] = u64::MAX;
    write_words(&file, &words);
    fs::copy(&program, folder.path().join("copy")).unwrap();
    fs::rename(folder.path().join("copy"), &program).unwrap();
    assert!(goes_by_ring(&program, &home));
}

/// A static program, which gets the library by injection.
#[test]
fn are_known_the_second_time_in_a_static_program() {
    let folder = Folder::new();
    let program = compile_with("musl-gcc", &folder, "alone", &["direct.c"], &["-static"]);
    believed(&program, &home_in(&folder, "home"));
}

/// By its imports it may have Rust's runtime, or another one: nobody looks each time.
#[test]
fn are_found_in_what_may_be_rust_where_they_can_be_kept() {
    let folder = Folder::new();
    let program = compile(&folder, "maybe", &["direct.c"], &["-DMAYBE"]);
    let none = folder.path().join("none");
    fs::create_dir(&none).unwrap();
    let (_, ring_bytes) = play_behind(&["/usr/bin/env"], &program, &none);
    assert_eq!(ring_bytes, 0);
    let home = home_in(&folder, "home");
    assert!(goes_by_ring(&program, &home));
    surely_kept(&home);
}

#[test]
fn keep_all_registers_in_a_static_program() {
    check_all_there_alone("direct", &["registers"], &[Knobs::default(), Knobs::at_once()]);
}

/// The search has a stack of its own (`ulimit -s`).
#[test]
fn are_found_with_little_stack() {
    let folder = Folder::new();
    let none = folder.path().join("none");
    fs::create_dir(&none).unwrap();
    let dynamic = compile(&folder, "direct", &["direct.c"], &[]);
    let alone = compile_with("musl-gcc", &folder, "alone", &["direct.c"], &["-static"]);
    for program in [dynamic, alone] {
        let (lab, ring) = play_behind(&["/usr/bin/prlimit", "--stack=98304"], &program, &none);
        lab.assert_some_by_ring(ring);
    }
}

/// What is kept and cannot be true is not believed, and found anew.
#[test]
fn are_found_where_what_is_kept_is_spoilt() {
    let folder = Folder::new();
    let home = home_in(&folder, "home");
    let program = compile(&folder, "direct", &["direct.c"], &[]);
    assert!(goes_by_ring(&program, &home));
    let Some(file) = surely_kept(&home) else { return };
    let right = fs::read(&file).unwrap();
    let words = words_of(&file);
    let again = |what: &str| {
        assert!(goes_by_ring(&program, &home), "{what}");
        assert_eq!(fs::read(&file).unwrap(), right, "{what}");
    };
    for len in [0, 1, 8, 72, right.len() - 8, right.len() - 1] {
        fs::write(&file, &right[..len]).unwrap();
        again(&format!("{len} bytes of it"));
    }
    fs::write(&file, [&right[..], &[0; 64]].concat()).unwrap();
    again("more than that");
    for word in [0, 1, COUNT_AT - 1, COUNT_AT, COUNT_AT + 1, words.len() - 1] {
        let mut other = words.clone();
        other[word] ^= 1;
        fs::write(&file, other.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
            .unwrap();
        again(&format!("word {word} is another one"));
    }
    // With the right sum: one byte further, without what comes before it, twice, far outside.
    let first = COUNT_AT + 1;
    for (what, change) in [
        ("no instruction", (|word| word + (1 << 16)) as fn(u64) -> u64),
        ("no room", |word| word & !0xffff | 2),
        ("too long", |word| word | 0xff),
        ("too long before it", |word| word | 0xff00),
        ("outside", |word| word | 1 << 62),
    ] {
        let mut other = words.clone();
        other[first] = change(other[first]);
        write_words(&file, &other);
        again(what);
    }
    let mut twice = words.clone();
    twice[first + 1] = twice[first];
    write_words(&file, &twice);
    again("one of them twice");
}

/// Others could have written it, or nothing can be written.
#[test]
fn are_found_where_nothing_can_be_kept() {
    let folder = Folder::new();
    let program = compile(&folder, "direct", &["direct.c"], &[]);
    let none = folder.path().join("none");
    fs::create_dir(&none).unwrap();
    assert!(goes_by_ring(&program, &none));
    assert_eq!(fs::read_dir(&none).unwrap().count(), 0);

    let open = home_in(&folder, "open");
    fs::create_dir(cache_in(&open)).unwrap();
    fs::set_permissions(cache_in(&open), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(goes_by_ring(&program, &open));
    assert_eq!(kept(&open), None);

    let link = home_in(&folder, "link");
    symlink(folder.path(), cache_in(&link)).unwrap();
    let count = || fs::read_dir(folder.path()).unwrap().count();
    let before = count();
    assert!(goes_by_ring(&program, &link));
    assert_eq!(count(), before);

    let small = home_in(&folder, "small");
    let (_, ring_bytes) = play_behind(&["/usr/bin/prlimit", "--fsize=100:100"], &program, &small);
    assert_eq!(ring_bytes, 0);
}
