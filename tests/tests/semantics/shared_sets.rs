//! epoll sets that several processes or threads use, with bytes unread in a ring: the kernel's list of
//! registrations counts, whoever changed it, and for as long as anybody holds the socket.
//!
//! Holds: epoll(7), epoll_ctl(2).

use yasmin_tests::lab::Knobs;
use yasmin_tests::script::Duo;

use crate::c::check_all_there;
use crate::{check, handed};

/// A server's threads around several sets: level, edge, once, exclusive, in two sets, at two numbers, moved between sets.
#[track_caller]
fn served(words: &[&str]) {
    let moods = [Knobs::default(), Knobs::at_once(), Knobs::at_once().chaos(100, 5)];
    check_all_there("served", &[&["1", "4"], words].concat(), &moods);
}

#[test]
fn a_servers_threads_around_several_sets() {
    served(&[]);
}

#[test]
fn a_servers_threads_among_signals_and_forks() {
    served(&["signals", "forks"]);
}

/// 100 bytes lie unread at `b`, whose set E has the connection, and P has both by fork.
fn prepare(duo: &mut Duo, events: &str) {
    duo.warm("C");
    duo.b("epoll E");
    duo.b(&format!("epadd E C {events}"));
    duo.a("send C 100");
    duo.b("awaitunread C 100");
    duo.b("fork P");
}

#[test]
fn what_another_process_asks_for_is_told_here() {
    check(|duo| {
        prepare(duo, "-");
        duo.b("in P epmod E C in+out");
        duo.b("epwait E 0");
        duo.b("in P epmod E C out");
        duo.b("epwait E 0");
        duo.b("epmod E C in");
        duo.b("in P epwait E 0");
        duo.b("in P epmod E C in+et");
        duo.b("epwait E 0");
        duo.b("epwait E 0");
        duo.b("in P epdel E C");
        duo.b("epwait E 0");
        duo.b("epmod E C in");
        duo.b("epadd E C in");
        duo.b("epwait E 0");
        duo.b("recvall C 100");
        duo.b("epwait E 0");
    });
}

/// Its registration lives as long as the socket, of whose end in the other process nothing is heard.
#[test]
fn a_number_that_was_closed_tells_while_a_child_holds_the_socket() {
    check(|duo| closed(duo, "in", "recv C 50"));
    check(|duo| closed(duo, "in+et", "recv C 50"));
    check(|duo| closed(duo, "in+out", "recvall C 100"));
}

fn closed(duo: &mut Duo, events: &str, child: &str) {
    prepare(duo, events);
    duo.b("close C");
    duo.b("epwait E 0 1");
    duo.b("epwait E 0");
    duo.b(&format!("in P {child}"));
    duo.b("epwait E 0");
    duo.b("in P exit 0");
    duo.b("reap P");
    duo.b("epwait E 30");
}

/// The same where the child is killed: there is nothing to tell of any more.
#[test]
fn a_number_that_was_closed_tells_until_the_child_is_killed() {
    check(|duo| {
        prepare(duo, "in");
        duo.b("close C");
        duo.b("epwait E 0");
        duo.b("kill P");
        duo.b("reap P");
        duo.b("epwait E 30");
        duo.b("epoll F");
        duo.b("epwait E 0");
    });
}

/// The same, of a socket that went over a Unix socket.
#[test]
fn a_number_that_was_closed_tells_of_what_was_passed_on() {
    check(|duo| {
        duo.b("pair X W");
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+et");
        duo.b("fork P");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.b("give X C");
        duo.b("in P take W G");
        duo.b("close C");
        duo.b("in P close C");
        duo.b("epwait E 1000");
        duo.b("epwait E 0");
        duo.b("in P recvall G 100");
        duo.a("send C 50");
        duo.b("epwait E 1000");
        duo.b("in P recvall G 50");
    });
}

/// One that was passed on may be anybody's: the kernel is not told what lies in its rings, but who
/// polls it here is.
#[test]
fn a_set_that_came_back_is_polled() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.b("pair X W");
        duo.b("give X E");
        duo.b("take W F");
        duo.b("poll F in 0");
        duo.b("selectnow F in+out+pri");
        duo.b("poll E in 1000");
        duo.b("recvall C 100");
        duo.b("poll F in 0");
    });
}

/// Bytes to `b`, which waits for them in its set E, once for each, and some back. Of a connection that moves less, and
/// as seldom, the channel would be given back.
fn one_shot_round(duo: &mut Duo) {
    assert_eq!(duo.quiet_b("epmod E C in+oneshot"), "ok");
    assert_eq!(duo.quiet_a("sendall C 10000"), "10000");
    duo.quiet_b("epwait E 5000");
    assert_eq!(duo.quiet_b("recvall C 10000"), "10000");
    assert_eq!(duo.quiet_b("sendall C 7000"), "7000");
    assert_eq!(duo.quiet_a("recvall C 7000"), "7000");
}

/// What others learn of the set, after its bytes went by ring.
fn one_shot_by_ring(duo: &mut Duo) {
    let proves = duo.lab.proves() && duo.lab.is_calm();
    for round in 0.. {
        one_shot_round(duo);
        if !proves || duo.carried() {
            break;
        }
        assert!(round < 400, "nothing by ring: {:#?}", duo.lab.status());
    }
    // The other one knows no tokens.
    duo.b("epmod E C in+oneshot");
    duo.b("fork Q");
    duo.a("send C 100");
    duo.b("in Q epwait E 2000");
    duo.b("epwait E 0");
    duo.b("recvall C 100");
    for (who, other) in [("", "in Q "), ("in Q ", "")] {
        duo.b(&format!("{who}epmod E C in+oneshot"));
        duo.a("send C 100");
        duo.b(&format!("{other}epwait E 2000"));
        duo.b(&format!("{who}epwait E 0"));
        duo.b(&format!("{other}recvall C 100"));
        duo.b(&format!("{other}epmod E C in+out+oneshot"));
        duo.b(&format!("{who}epwait E 2000"));
        duo.b(&format!("{other}epwait E 0"));
    }
    duo.b("epmod E C in+oneshot");
    duo.b("in Q exit 0");
    duo.b("reap Q");
    duo.a("close C");
    duo.b("epwait E 2000");
}

fn prepare_one_shot(duo: &mut Duo) {
    duo.connect("C");
    duo.quiet_a("set C nodelay 1");
    duo.quiet_b("set C nodelay 1");
    duo.b("epadd E C in+oneshot");
}

#[test]
fn one_shot_in_a_set_that_a_child_uses() {
    handed::check(|duo| {
        duo.b("epoll E");
        prepare_one_shot(duo);
        one_shot_by_ring(duo);
    });
}

/// A child that is killed never says that it holds the set no more.
#[test]
fn one_shot_in_a_set_that_a_killed_child_held() {
    handed::check(|duo| {
        duo.b("epoll E");
        duo.b("fork P");
        duo.b("kill P");
        duo.b("reap P");
        prepare_one_shot(duo);
        one_shot_by_ring(duo);
    });
}

/// Nor does a program that got it by exec, and may look at it as long as it has it.
#[test]
fn one_shot_in_a_set_that_another_program_has() {
    handed::check(|duo| {
        duo.b("epoll E");
        duo.b("cloexec E 0");
        duo.b("fork P");
        duo.b("in P exec plain");
        prepare_one_shot(duo);
        for _ in 0..20 {
            one_shot_round(duo);
        }
        duo.b("in P exit 0");
        duo.b("reap P");
        // Longer than until the kernel is asked once more.
        std::thread::sleep(std::time::Duration::from_millis(2200));
        one_shot_by_ring(duo);
    });
}
