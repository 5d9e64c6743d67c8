//! Calls on sockets that go past libc: nobody can tell the library of them, so where there may
//! be any, bytes go by TCP. In C, since this program must have none of its own.
//!
//! Holds: libyasmin(7), io_submit(2).

use std::path::PathBuf;

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::status::Bytes;

use crate::c::compile;

const EACH: u64 = 300;

struct Programs {
    folder: Folder,
}

impl Programs {
    #[track_caller]
    fn new() -> Self {
        let programs = Self { folder: Folder::new() };
        compile(&programs.folder, "own", &["unseen.c", "unseen_waits.c"], &[]);
        compile(&programs.folder, "loads", &["unseen.c"], &["-DUNSEEN_OBJECT"]);
        compile(&programs.folder, "object", &["unseen_waits.c"], &["-shared", "-fPIC"]);
        programs
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exchanges through seen waits, then `EACH` in another way; what went by ring and TCP.
    #[track_caller]
    fn play(&self, knobs: &Knobs, program: &str, seen: u64, how: &str) -> Bytes {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        let echo = self.path("loads");
        let mut listener = lab.start("listener", &lab.a, &echo, &["listen".to_owned()]);
        let port = listener.expect("port");
        let words = ["connect", &port, &seen.to_string(), &EACH.to_string(), how];
        let mut command = lab.command(&lab.b, &self.path(program));
        command.args(words).env("UNSEEN_OBJECT", self.path("object"));
        let mut connector =
            yasmin_tests::process::Process::start("connector", &mut command, &lab.registry);
        let said = connector.next_line();
        let is_well = match said.as_deref() {
            Some("all came") => true,
            Some("refused") => how == "uring",
            _ => false,
        };
        assert!(is_well, "{program}, {how}, {knobs:?}: {said:?}\n{}", connector.output());
        connector.finish();
        listener.finish();
        lab.bytes_in_all()
    }
}

fn all_knobs() -> [Knobs; 3] {
    [Knobs::default(), Knobs::at_once().spin(300), Knobs::at_once().chaos(100, 5)]
}

#[test]
fn a_program_with_calls_of_its_own_stays_on_tcp() {
    let programs = Programs::new();
    for knobs in all_knobs() {
        for how in ["poll", "epoll", "send", "uring"] {
            for seen in [0, EACH] {
                let carried = programs.play(&knobs, "own", seen, how);
                assert_eq!(carried.ring, 0, "{how}, {knobs:?}");
            }
        }
    }
}

#[test]
fn an_object_with_calls_of_its_own_ends_the_rings() {
    let programs = Programs::new();
    for knobs in all_knobs() {
        for how in ["poll", "epoll", "send", "uring"] {
            let carried = programs.play(&knobs, "loads", EACH, how);
            check_ring(&knobs, carried, 4 * EACH);
        }
    }
}

/// What requests name goes by TCP from then on; libaio makes them by libc's syscall, and databases that
/// are linked with it keep their rings.
#[test]
fn an_aio_request_ends_the_ring_of_its_connection() {
    // A number is sent before the first request.
    const BEFORE: u64 = 4;
    let programs = Programs::new();
    for knobs in all_knobs() {
        let carried = programs.play(&knobs, "loads", EACH, "aio");
        check_ring(&knobs, carried, 4 * EACH + BEFORE);
        let ring = programs.play(&knobs, "loads", 0, "aio").ring;
        assert!(ring <= 2 * BEFORE, "{ring} bytes by ring, {knobs:?}");
    }
}

/// Programs that use it for files alone, as databases do, fall back to other calls.
#[test]
fn a_liburing_is_refused() {
    let folder = Folder::new();
    let object = compile(&folder, "liburing.so", &["uring_object.c"], &["-shared", "-fPIC"]);
    // Whoever links with it finds it beside itself.
    let at = ["-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", &object.display().to_string()];
    let program = compile(&folder, "uring", &["uring.c"], &at);
    for knobs in all_knobs() {
        let lab = Lab::new(Net::Loopback, knobs.clone());
        let said = |how: &str| {
            let mut command = lab.command(&lab.a, &program);
            command.arg(how);
            if how == "allowed" {
                command.env("YASMIN_ALLOW_IO_URING", "1");
            }
            let mut process =
                yasmin_tests::process::Process::start("uring", &mut command, &lab.registry);
            let line = process.next_line();
            process.finish();
            line
        };
        if !is_ring() {
            continue;
        }
        assert_eq!(said("refused").as_deref(), Some("all there"), "{knobs:?}");
        let by_ring = lab.bytes_in_all().ring;
        assert!(by_ring > 0, "{knobs:?}");
        assert_eq!(said("allowed").as_deref(), Some("all there"), "{knobs:?}");
        assert_eq!(lab.bytes_in_all().ring, by_ring, "{knobs:?}");
    }
}

/// The programs above have rings where they may.
#[test]
fn the_same_program_without_such_calls_has_rings() {
    let programs = Programs::new();
    for knobs in all_knobs() {
        let carried = programs.play(&knobs, "loads", EACH, "seen");
        assert!(!is_ring() || carried.ring > 0, "{carried:?}, {knobs:?}");
    }
}

/// Its runtime waits by futex calls of its own, with numbers that compilers keep in registers.
#[test]
fn a_program_with_openmp_has_rings() {
    let programs = Programs::new();
    let options = ["-DUNSEEN_OBJECT", "-fopenmp", "-Wl,--no-as-needed", "-lgomp"];
    compile(&programs.folder, "openmp", &["unseen.c"], &options);
    for knobs in all_knobs() {
        let carried = programs.play(&knobs, "openmp", EACH, "seen");
        assert!(!is_ring() || carried.ring > 0, "{carried:?}, {knobs:?}");
    }
}

fn is_ring() -> bool {
    yasmin_tests::lab::Mode::from_env() != yasmin_tests::lab::Mode::Tcp
}

/// Before the change some went by ring, behind it nothing: of either direction's bytes at most
/// those of the seen exchanges.
#[track_caller]
fn check_ring(knobs: &Knobs, carried: Bytes, seen_bytes: u64) {
    assert!(carried.ring <= 2 * seen_bytes, "{carried:?}, {knobs:?}");
    assert!(!is_ring() || carried.ring > 0, "{carried:?}, {knobs:?}");
}
