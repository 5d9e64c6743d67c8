//! Other programs that get a connection: by exec, spawn, vfork, or over a Unix socket.
//!
//! `plain`: the other program is without the library, as a static one is.
//!
//! Holds: execve(2), posix_spawn(3), vfork(2), unix(7).

use yasmin_tests::script::Duo;

use crate::check;

/// Both ways, byte for byte, with `who` in front of `b`'s commands.
#[track_caller]
pub fn goes_on(duo: &mut Duo, who: &str) {
    for _ in 0..3 {
        duo.a("send C 1000");
        duo.b(&format!("{who}recvall C 1000"));
        duo.b(&format!("{who}send C 700"));
        duo.a("recvall C 700");
    }
    duo.b(&format!("{who}recv C 10 dontwait"));
    duo.a("recv C 10 dontwait");
}

fn exec_drained(duo: &mut Duo, how: &str) {
    duo.warm("C");
    duo.b("cloexec C 0");
    duo.b(&format!("exec {how}"));
    goes_on(duo, "");
    duo.b("close C");
    duo.a("recv C 10");
}

#[test]
fn exec_with_the_library() {
    check(|duo| exec_drained(duo, ""));
}

#[test]
fn exec_without_the_library() {
    check(|duo| exec_drained(duo, "plain"));
}

/// The acceptor's end this time.
#[test]
fn a_server_that_becomes_another_program() {
    check(|duo| {
        duo.warm("C");
        for how in ["", "plain", ""] {
            duo.a(&format!("exec {how}"));
            for _ in 0..3 {
                duo.b("send C 1000");
                duo.a("recvall C 1000");
                duo.a("send C 700");
                duo.b("recvall C 700");
            }
        }
        duo.a("close C");
        duo.b("recv C 10");
    });
}

/// What was not inherited is closed by the exec, and the peer sees its end.
#[test]
fn exec_closes_what_it_is_told_to() {
    check(|duo| {
        duo.warm("C");
        duo.warm("D");
        duo.b("cloexec C 0");
        duo.b("exec");
        duo.a("recv D 10");
        goes_on(duo, "");
    });
}

fn fork_and_exec(duo: &mut Duo, how: &str) {
    duo.warm("C");
    duo.b("cloexec C 0");
    duo.b("fork P");
    duo.b("close C");
    duo.b(&format!("in P exec {how}"));
    goes_on(duo, "in P ");
    duo.b("in P exit 0");
    duo.b("reap P");
    duo.a("recv C 10");
}

#[test]
fn inetd_style_with_the_library() {
    check(|duo| fork_and_exec(duo, ""));
}

#[test]
fn inetd_style_without_the_library() {
    check(|duo| fork_and_exec(duo, "plain"));
}

/// The other program inherits the connection and does nothing with it; this one goes on.
fn leaks_into_a_child(duo: &mut Duo, start: &str) {
    duo.warm("C");
    duo.b("cloexec C 0");
    duo.a("send C 500");
    duo.b(start);
    duo.b("recvall C 500");
    goes_on(duo, "");
    duo.b("in P exit 0");
    duo.b("reap P");
    goes_on(duo, "");
    duo.b("close C");
    duo.a("recv C 10");
}

#[test]
fn a_spawned_program_that_leaves_it_alone() {
    check(|duo| leaks_into_a_child(duo, "spawn P"));
    check(|duo| leaks_into_a_child(duo, "spawn P plain"));
}

#[test]
fn a_program_after_vfork_that_leaves_it_alone() {
    check(|duo| leaks_into_a_child(duo, "vspawn P"));
    check(|duo| leaks_into_a_child(duo, "vspawn P plain"));
}

/// As CPython's subprocess does: the child shares its parent's memory and closes descriptors.
#[test]
fn a_vfork_child_that_closes_before_exec() {
    check(|duo| {
        duo.warm("C");
        duo.b("cloexec C 0");
        duo.a("send C 500");
        duo.b("vspawn P closing");
        duo.b("recvall C 500");
        duo.b("in P lowest");
        goes_on(duo, "");
        duo.b("in P exit 0");
        duo.b("reap P");
        duo.b("close C");
        duo.a("recv C 10");
    });
}

#[test]
fn a_shell_in_between() {
    check(|duo| {
        duo.warm("C");
        duo.b("cloexec C 0");
        duo.a("send C 500");
        duo.b("system exit 7");
        duo.b("recvall C 500");
        goes_on(duo, "");
    });
}

/// Parent and spawned program use the connection in turns, drained.
fn turns_with_a_spawned_program(duo: &mut Duo, start: &str) {
    duo.warm("C");
    duo.b("cloexec C 0");
    duo.b(start);
    for _ in 0..3 {
        duo.a("send C 300");
        duo.b("in P recvall C 300");
        duo.a("send C 200");
        duo.b("recvall C 200");
        duo.b("in P send C 100");
        duo.a("recvall C 100");
        duo.b("send C 100");
        duo.a("recvall C 100");
    }
    duo.b("close C");
    duo.a("recv C 10 dontwait");
    goes_on(duo, "in P ");
    duo.b("in P exit 0");
    duo.a("recv C 10");
}

#[test]
fn spawned_programs_take_turns() {
    check(|duo| turns_with_a_spawned_program(duo, "spawn P"));
    check(|duo| turns_with_a_spawned_program(duo, "spawn P plain"));
    check(|duo| turns_with_a_spawned_program(duo, "vspawn P"));
}
