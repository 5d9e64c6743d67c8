//! What lies unread in a ring when another program gets the connection.
//!
//! Holds: spec/wire.md 6.6, execve(2), unix(7).

use std::path::{Path, PathBuf};

use yasmin_tests::lab::{Folder, Knobs, Lab, Mode};
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::script::Duo;

use crate::c::{check_as_by_tcp, check_as_by_tcp_with, compile_with};
use crate::check;
use crate::programs::goes_on;

/// With rings that hold what most of these tests send: what a ring does not hold goes by TCP as a whole.
fn large_enough() -> Knobs {
    Knobs::at_once().first_class(2)
}

/// For what rings do otherwise than TCP. `None` on plain TCP.
fn on_rings() -> Option<Duo> {
    let lab = Lab::new(Net::Loopback, large_enough().passed_on_for(5));
    (lab.mode != Mode::Tcp).then(|| Duo::new(lab, peer!("script")))
}

/// What lies unread in the ring goes to the next program, which has the library.
#[test]
fn unread_bytes_survive_exec() {
    check(|duo| {
        duo.warm("C");
        duo.b("cloexec C 0");
        duo.a("send C 5000");
        duo.b("recv C 1000");
        duo.b("exec");
        duo.b("unread C");
        duo.b("poll C in 0");
        duo.a("send C 3000");
        duo.b("recv C 1500 peek");
        duo.b("recvall C 4000");
        // Once more, with bytes of both kinds.
        duo.b("exec");
        duo.b("recvall C 3000");
        goes_on(duo, "");
        duo.b("close C");
        duo.a("recv C 10");
    });
}

#[test]
fn unread_bytes_survive_several_execs() {
    check(|duo| {
        duo.warm("C");
        duo.warm("D");
        duo.b("cloexec C 0");
        duo.b("cloexec D 0");
        duo.a("send C 5000");
        duo.a("send D 3000");
        for _ in 0..3 {
            duo.b("exec");
            duo.b("recvall C 100");
        }
        duo.b("exec");
        duo.b("recvall D 3000");
        duo.b("recvall C 4700");
        goes_on(duo, "");
    });
}

/// A program that never reads them closes: the peer gets a reset, as from plain TCP.
#[test]
fn unread_bytes_after_exec_make_a_reset() {
    check(|duo| {
        duo.warm("C");
        duo.b("cloexec C 0");
        duo.a("send C 5000");
        duo.b("exec");
        duo.b("close C");
        duo.a("recv C 10");
    });
}

/// The last bytes and the end of the stream are there before the exec.
#[test]
fn unread_bytes_and_the_end_survive_exec() {
    check(|duo| {
        duo.warm("C");
        duo.b("cloexec C 0");
        duo.a("send C 5000");
        duo.a("shutdown C wr");
        duo.b("exec");
        duo.b("recvall C 5000");
        duo.b("recv C 10");
        duo.b("send C 100");
        duo.a("recvall C 100");
    });
}

/// A spawned program and its parent share what is unread.
fn unread_bytes_are_shared(duo: &mut Duo, start: &str) {
    duo.warm("C");
    duo.b("cloexec C 0");
    duo.a("send C 5000");
    duo.b(start);
    duo.b("in P recvall C 1000");
    duo.b("recvall C 1000");
    duo.b("in P recvall C 1000");
    duo.b("recvall C 1000");
    duo.a("send C 1000");
    duo.b("recvall C 1500");
    duo.b("in P recvall C 500");
    goes_on(duo, "");
    duo.b("close C");
    goes_on(duo, "in P ");
    duo.b("in P exit 0");
    duo.a("recv C 10");
}

#[test]
fn unread_bytes_are_shared_with_a_spawned_program() {
    check(|duo| unread_bytes_are_shared(duo, "spawn P"));
    check(|duo| unread_bytes_are_shared(duo, "vspawn P"));
}

/// The parent goes first; what it left unread is the child's, so nothing is reset.
#[test]
fn unread_bytes_outlive_the_parent() {
    check(|duo| {
        duo.warm("C");
        duo.b("cloexec C 0");
        duo.a("send C 5000");
        duo.b("spawn P");
        duo.b("close C");
        duo.a("recv C 10 dontwait");
        duo.b("in P recvall C 5000");
        goes_on(duo, "in P ");
    });
}

/// Under several numbers, as inetd hands it on.
#[test]
fn unread_bytes_under_several_numbers() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 5000");
        duo.b("cloexec C 1");
        duo.b("dup C D");
        duo.b("dup C E");
        duo.b("exec");
        duo.b("recvall D 1000");
        duo.b("recvall E 1000");
        duo.b("close D");
        duo.b("recvall E 3000");
        duo.a("send C 100");
        duo.b("recvall E 100");
        duo.b("close E");
        duo.a("recv C 10");
    });
}

/// An exec that fails has handed nothing over.
#[test]
fn unread_bytes_after_an_exec_that_fails() {
    check(|duo| {
        for (name, inherited) in [("C", "0"), ("D", "1")] {
            duo.warm(name);
            duo.b(&format!("cloexec {name} {inherited}"));
            duo.a(&format!("send {name} 2000"));
        }
        duo.b("exec missing");
        duo.b("recvall C 1000");
        duo.b("recvall D 1000");
        duo.b("exec missing");
        duo.b("recvall C 1000");
        duo.b("recvall D 1000");
        for name in ["C", "D"] {
            duo.a(&format!("send {name} 100"));
            duo.b(&format!("recvall {name} 100"));
            duo.b(&format!("close {name}"));
            duo.a(&format!("recv {name} 10"));
        }
    });
}

/// What exec closes with bytes unread is a reset.
#[test]
fn unread_bytes_that_exec_closes() {
    check(|duo| {
        duo.warm("C");
        duo.b("cloexec C 1");
        duo.a("send C 2000");
        duo.b("exec");
        duo.a("recv C 10");
    });
}

/// Of processes that share it, the last one that leaves bytes unread resets.
#[test]
fn unread_bytes_that_nobody_reads() {
    check(|duo| {
        for (name, end) in [("C", "exit 0"), ("D", "leave 0")] {
            duo.warm(name);
            duo.a(&format!("send {name} 2000"));
            duo.b(&format!("fork {name}"));
            duo.b(&format!("in {name} recv {name} 100"));
            duo.b(&format!("close {name}"));
            duo.a(&format!("recv {name} 10 dontwait"));
            duo.b(&format!("in {name} {end}"));
            duo.b(&format!("reap {name}"));
            duo.a(&format!("recv {name} 10"));
        }
    });
}

/// The program's own settings are the kernel's when another program gets the socket.
#[test]
fn settings_are_handed_over() {
    check(|duo| {
        for how in ["", "plain"] {
            duo.warm("C");
            duo.b("set C nodelay 0");
            duo.b("cloexec C 0");
            duo.b(&format!("exec {how}"));
            duo.b("get C nodelay");
            duo.b("set C nodelay 1");
            duo.b("get C nodelay");
            duo.b("close C");
        }
    });
}

/// As a server does that starts a program for each connection, when its own close comes late.
#[test]
fn unread_bytes_survive_exec_before_the_parents_close() {
    check(|duo| {
        duo.warm("C");
        duo.b("cloexec C 0");
        duo.b("fork P");
        duo.a("send C 5000");
        duo.b("tell P exec");
        std::thread::sleep(std::time::Duration::from_millis(30));
        duo.b("close C");
        duo.b("hear P");
        duo.b("in P recvall C 5000");
        duo.b("in P send C 10");
        duo.a("recvall C 10");
        duo.b("in P close C");
        duo.a("recv C 10");
    });
}

/// A program without the library finds nothing to read as long as its parent has bytes unread, and
/// then what comes behind them.
#[test]
fn unread_bytes_come_before_a_plain_program_reads_on() {
    let Some(mut duo) = on_rings() else { return };
    duo.warm("C");
    duo.b("cloexec C 0");
    duo.b("fork P");
    // The fork has parked it.
    duo.round_trips("C", 8);
    // No more than the smallest ring holds, or TCP has some already.
    duo.a("send C 900");
    assert_eq!(duo.b("in P exec plain"), "ok");
    duo.a("send C 300");
    duo.a("poll C in 100");
    assert_eq!(duo.b("in P recv C 10 dontwait"), "EAGAIN");
    assert_eq!(duo.b("recvall C 900"), "900");
    assert_eq!(duo.b("in P recvall C 300"), "300");
    duo.a("send C 100");
    assert_eq!(duo.b("recvall C 100"), "100");
    duo.b("in P close C");
    duo.b("close C");
    assert_eq!(duo.a("recv C 10"), "0");
}

/// Without the library a program cannot have what is in the ring: it gets a reset, not a gap.
#[test]
fn unread_bytes_are_never_a_silent_gap() {
    for (start, who, held) in [
        ("exec plain", "", false),
        ("spawn P plain", "in P ", true),
        ("vspawn P plain", "in P ", true),
    ] {
        let Some(mut duo) = on_rings() else { return };
        duo.warm("C");
        duo.b("cloexec C 0");
        duo.a("send C 5000");
        assert_eq!(duo.b(start), "ok");
        if held {
            // They stay with the parent, which may read them or not.
            duo.b("recvall C 1000");
            duo.b("close C");
        }
        assert_eq!(duo.b(&format!("{who}recv C 10")), "ECONNRESET", "{start}");
        assert_eq!(duo.a("recv C 10"), "ECONNRESET", "{start}");
    }
}

/// What the peer sends: into the ring alone, or more than it holds; and once the socket is passed.
const AROUND_THE_PASSING: [(&str, &str); 4] = [
    ("send C 3000", ""),
    ("send C 100000", ""),
    ("send C 3000", "send C 300"),
    ("send C 100000", "send C 300"),
];

/// Nor one that gets it over a Unix socket: nobody claims what was left for it, in the time that the
/// broker is given, and meanwhile TCP has nothing to give.
#[test]
fn unread_bytes_passed_to_a_program_without_the_library() {
    for ((before, after), keeps) in
        AROUND_THE_PASSING.into_iter().flat_map(|sends| [(sends, false), (sends, true)])
    {
        let Some(mut duo) = on_rings() else { return };
        let what = format!("{before}, {after}, keeps: {keeps}");
        duo.b("pair U V");
        duo.b("spawn P plain");
        duo.warm("C");
        duo.a(before);
        duo.b("give U C");
        duo.b("in P take V C");
        if !after.is_empty() {
            duo.a(after);
        }
        if keeps {
            // Longer than anybody may take to claim it: it is still there for the one who keeps.
            duo.a("poll C in 6000");
            duo.b("recvall C 1000");
        }
        duo.b("close C");
        duo.b("in P poll C in 8000");
        assert_eq!(duo.b("in P recv C 10"), "ECONNRESET", "{what}");
        assert_eq!(duo.a("recv C 10"), "ECONNRESET", "{what}");
    }
}

fn bytes_of(send: &str) -> u32 {
    send.rsplit(' ').next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Who keeps what it has passed on reads all of it, and then the other one reads on.
#[test]
fn unread_bytes_passed_on_and_kept() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("spawn P plain");
        duo.b("spawn Q");
        for (before, after) in AROUND_THE_PASSING {
            for other in ["P", "Q"] {
                duo.warm("C");
                duo.a(before);
                duo.b("give U C");
                duo.b(&format!("in {other} take V C"));
                if !after.is_empty() {
                    duo.a(after);
                }
                duo.b("recvall C 2500");
                duo.b(&format!("recvall C {}", bytes_of(before) + bytes_of(after) - 2500));
                duo.a("send C 100");
                duo.b(&format!("in {other} recvall C 100"));
                duo.a("send C 100");
                duo.b("recvall C 100");
                duo.b(&format!("in {other} send C 10"));
                duo.a("recvall C 10");
                duo.b(&format!("in {other} close C"));
                duo.b("close C");
                duo.a("recv C 10");
                duo.a("close C");
            }
        }
    });
}

/// With the library the other one reads all of it.
#[test]
fn unread_bytes_passed_on() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("spawn P");
        for (before, after) in AROUND_THE_PASSING {
            duo.warm("C");
            duo.a(before);
            duo.b("give U C");
            duo.b("close C");
            if !after.is_empty() {
                duo.a(after);
            }
            duo.b("in P take V C");
            duo.b("in P recv C 100 peek");
            duo.b(&format!("in P recvall C {}", bytes_of(before) + bytes_of(after)));
            duo.b("in P send C 10");
            duo.a("recvall C 10");
            duo.b("in P close C");
            duo.a("recv C 10");
            duo.a("close C");
        }
    });
}

/// Of whoever has connected to a Unix socket it is known whether it has the library.
#[test]
fn unread_bytes_passed_over_a_named_socket() {
    for has_library in [true, false] {
        let lab = Lab::new(Net::Loopback, large_enough());
        let (mode, path) = (lab.mode, lab.folder.path().join("socket").display().to_string());
        if mode == Mode::Tcp {
            return;
        }
        let mut duo = Duo::new(lab, peer!("script"));
        duo.b(if has_library { "spawn P" } else { "spawn P plain" });
        duo.b(&format!("unixlisten L {path}"));
        duo.b(&format!("in P unixconnect V {path}"));
        duo.b("unixaccept L U");
        duo.warm("C");
        duo.a("send C 5000");
        duo.b("give U C");
        duo.b("close C");
        duo.b("in P take V C");
        let expected = if has_library { "10" } else { "ECONNRESET" };
        assert_eq!(duo.b("in P recv C 10"), expected, "has_library: {has_library}");
    }
}

/// Who forks has the socket beside the program that its child becomes, and both read what is unread.
#[test]
fn unread_bytes_of_a_parent_and_its_childs_program() {
    check(|duo| {
        duo.warm("C");
        duo.b("cloexec C 0");
        duo.a("send C 5000");
        duo.b("fork P");
        duo.b("in P exec");
        duo.b("in P recv C 1000");
        duo.b("recv C 1000");
        duo.b("in P recv C 1000");
        duo.a("send C 3000");
        duo.b("in P close C");
        duo.b("recv C 5000");
    });
}

/// stdio does not read from a ring: its stream gets what is unread.
#[test]
fn unread_bytes_before_stdio() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 5000");
        duo.b("recv C 10 - fread");
    });
}

/// A connection that other programs get as their standard input, by every way of starting and of reading.
#[test]
fn unread_bytes_of_standard_input() {
    let moods = [Knobs::default(), Knobs::default().chaos(100, 3)];
    for compiler in ["cc", "musl-gcc"] {
        assert_eq!(check_as_by_tcp_with(compiler, "standard_input", &moods).len(), 5 * 12);
    }
}

/// Under numbers that a child gave it, with limits of its own, and by texts without an interpreter.
#[test]
fn unread_bytes_under_numbers_of_a_childs_own() {
    let moods = [Knobs::default(), Knobs::default().chaos(100, 3)];
    assert_eq!(check_as_by_tcp("renumbered", &moods).len(), 5 * 4 * 2 * 2 * 2 + 2 * 2 * 2);
}

/// Passed on over a Unix socket: many at a time, and some that are received only after a while.
#[test]
fn unread_bytes_of_many_that_are_passed_on() {
    let moods = [Knobs::default(), Knobs::default().chaos(100, 3)];
    assert_eq!(check_as_by_tcp("handed_many", &moods).len(), 2 * 3);
}

/// A static program that reads on, by exec (`become`) or posix_spawn (`start`).
#[track_caller]
fn static_program(how: &str, compiler: &str, options: &[&str], has_library: bool) {
    let folder = Folder::new();
    let program = compile_reader(&folder, compiler, options);
    reads_on(how, &program, has_library);
}

/// A static program that receives 8192 bytes from the descriptor whose number it is given.
fn compile_reader(folder: &Folder, compiler: &str, options: &[&str]) -> PathBuf {
    const PROGRAM: &str = r#"
        #include <errno.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/socket.h>
        int main(int count, char **arguments) {
            char bytes[8192];
            puts("begun");
            fflush(stdout);
            ssize_t got = recv(atoi(arguments[1]), bytes, sizeof bytes, MSG_WAITALL);
        #ifdef CANCELS
            if (count > 2)
                pthread_cancel(pthread_self());
        #endif
            return count == 2 && printf("%zd %d\n", got, got < 0 ? errno : 0) < 0;
        }
    "#;
    let (source, program) = (folder.path().join("s.c"), folder.path().join("s"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = std::process::Command::new(compiler);
    command.args(["-static", "-O1", "-pthread", "-o"]).arg(&program).arg(&source).args(options);
    assert!(command.status().is_ok_and(|status| status.success()), "{compiler} -static");
    program
}

#[track_caller]
fn reads_on(how: &str, program: &Path, has_library: bool) {
    for unread in [false, true] {
        let lab = Lab::new(Net::Loopback, large_enough());
        let mode = lab.mode;
        let mut duo = Duo::new(lab, peer!("script"));
        duo.warm("C");
        duo.b("cloexec C 0");
        if unread {
            duo.a("send C 5000");
        }
        // Not before it runs: what is sent before the exec may lie in the ring.
        assert_eq!(duo.b(&format!("{how} {} C", program.display())), "begun");
        let is_reset = unread && mode == Mode::Ring && !has_library;
        if !is_reset {
            duo.a(&format!("send C {}", if unread { 3192 } else { 8192 }));
        }
        let expected = if is_reset { "-1 104" } else { "8192 0" };
        assert_eq!(duo.b.next_line().as_deref(), Some(expected), "{how}, unread: {unread}");
    }
}

/// No environment gives it the library: drained it has all, else a reset.
#[test]
fn a_static_program() {
    static_program("become", "cc", &[], false);
}

/// The library is injected, and has what is unread.
#[test]
fn a_static_program_with_musl() {
    static_program("become", "musl-gcc", &[], true);
}

#[test]
fn a_static_program_with_musl_that_posix_spawn_starts() {
    static_program("start", "musl-gcc", &[], true);
}

/// The library is injected in vain, since the program's calls go past it.
#[test]
fn a_static_program_that_cancels_threads() {
    static_program("become", "musl-gcc", &["-DCANCELS"], false);
}

/// The library is injected into its loader, and sees that another program comes.
#[test]
fn a_static_program_that_another_one_loads() {
    let folder = Folder::new();
    let program = compile_reader(&folder, "musl-gcc", &["-no-pie"]);
    let its_name = format!("-DPROGRAM=\"{}\"", program.display());
    let options = ["-static", "-no-pie", "-Wl,-Ttext-segment=0x10000000", &its_name];
    let loader = compile_with("musl-gcc", &folder, "loads", &["loads.c"], &options);
    reads_on("become", &loader, false);
}
