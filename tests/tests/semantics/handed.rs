//! Sockets that another program serves than the one that accepted or connected, or the same one under
//! another number: they get rings there, once nothing else names them.
//!
//! Holds: spec/wire.md 6.5, unix(7), execve(2), dup(2), fork(2).

use yasmin_tests::lab::Knobs;
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::script::{Duo, compare_in};

/// Channels come as they do by default, only sooner: with offers at accept nothing is a candidate
/// any more when it is handed on.
pub fn check(scenario: fn(&mut Duo)) {
    let soon = Knobs { promote_messages: Some(4), ..Knobs::default() };
    let moods = [
        ("rings", soon.clone()),
        ("rings, no spinning", soon.clone().spin(0)),
        ("rings, chaos", soon.chaos(100, 11)),
    ];
    compare_in(Net::Loopback, &moods, peer!("script"), scenario);
}

/// A connection whose end at `a` nobody has used, and a program to hand it to.
fn prepare(duo: &mut Duo) {
    duo.a("pair U V");
    duo.a("spawn P");
    duo.connect("C");
    duo.quiet_b("set C nodelay 1");
}

/// One to and fro between `b` and who has it as D: `a`, or what `a` says first. Of a connection that moves less, and
/// as seldom, the channel would be given back.
fn round_trip_with(duo: &mut Duo, who: &str) {
    assert_eq!(duo.quiet_b("sendall C 10000"), "10000");
    assert_eq!(duo.quiet_a(&format!("{who}recvall D 10000")), "10000");
    assert_eq!(duo.quiet_a(&format!("{who}sendall D 7000")), "7000");
    assert_eq!(duo.quiet_b("recvall C 7000"), "7000");
}

fn round_trip(duo: &mut Duo) {
    round_trip_with(duo, "in P ");
}

fn by_ring(duo: &Duo) -> u64 {
    duo.lab.bytes_in_all().ring
}

/// Fails where nothing goes by ring, both ways, within so many round trips.
#[track_caller]
fn prove(duo: &mut Duo) {
    prove_with(duo, "in P ");
}

#[track_caller]
fn prove_with(duo: &mut Duo, who: &str) {
    let proves = duo.lab.proves() && duo.lab.is_calm();
    for _ in 0..400 {
        round_trip_with(duo, who);
        if !proves || duo.carried() {
            return;
        }
    }
    panic!("nothing by ring: {:#?}", duo.lab.status());
}

#[test]
fn passed_on_before_it_was_used() {
    check(|duo| {
        prepare(duo);
        duo.a("give U C");
        duo.a("in P take V D");
        duo.a("close C");
        prove(duo);
        duo.b("send C 300");
        duo.a("in P recvall D 300");
        duo.a("in P close D");
        duo.b("recv C 10");
    });
}

/// What lies unread in the kernel goes with it, and it is served already.
#[test]
fn passed_on_with_bytes_unread() {
    check(|duo| {
        prepare(duo);
        duo.b("send C 300");
        duo.a("awaitunread C 300");
        duo.a("recvall C 100");
        duo.a("send C 100");
        duo.b("recvall C 100");
        duo.a("give U C");
        duo.a("close C");
        duo.a("in P take V D");
        duo.a("in P recvall D 200");
        prove(duo);
        duo.b("close C");
        duo.a("in P recv D 10");
    });
}

/// The end that called connect.
#[test]
fn passed_on_by_who_connected() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("spawn P");
        duo.connect("C");
        duo.quiet_a("set C nodelay 1");
        duo.b("give U C");
        duo.b("close C");
        duo.b("in P take V D");
        let proves = duo.lab.proves() && duo.lab.is_calm();
        let before = by_ring(duo);
        for _ in 0..400 {
            assert_eq!(duo.quiet_a("sendall C 100"), "100");
            assert_eq!(duo.quiet_b("in P recvall D 100"), "100");
            assert_eq!(duo.quiet_b("in P sendall D 70"), "70");
            assert_eq!(duo.quiet_a("recvall C 70"), "70");
        }
        assert!(!proves || by_ring(duo) > before + 10_000, "{:#?}", duo.lab.status());
        duo.b("in P send D 10");
        duo.b("in P close D");
        duo.a("recvall C 20");
    });
}

/// As long as the giver holds it too, it stays TCP: both may use it.
#[test]
fn held_by_both() {
    check(|duo| {
        prepare(duo);
        duo.a("give U C");
        duo.a("in P take V D");
        let before = by_ring(duo);
        for _ in 0..40 {
            round_trip(duo);
            duo.b("send C 50");
            duo.a("recvall C 50");
        }
        assert_eq!(by_ring(duo), before, "a ring that a process without it shares");
        duo.a("close C");
        duo.b("send C 50");
        duo.a("in P recvall D 50");
        duo.b("close C");
        duo.a("in P recv D 10");
    });
}

/// A server that starts a program for a connection.
#[test]
fn inherited_by_a_program() {
    check(|duo| {
        duo.connect("C");
        duo.quiet_b("set C nodelay 1");
        duo.a("dupfd C D 20");
        duo.a("close C");
        duo.a("cloexec D 0");
        duo.a("spawn P");
        duo.a("close D");
        prove(duo);
        duo.b("close C");
        duo.a("in P recv D 10");
    });
}

/// Under its first number it was used already.
#[test]
fn served_under_another_number() {
    check(|duo| {
        duo.connect("C");
        duo.quiet_b("set C nodelay 1");
        duo.b("send C 50");
        duo.a("recvall C 50");
        duo.a("dup C D");
        duo.b("send C 50");
        duo.a("close C");
        duo.a("recvall D 50");
        prove_with(duo, "");
        duo.b("close C");
        duo.a("recv D 10");
    });
}

/// A child that only has it under another number sends by TCP: its parent must not have a ring.
#[test]
fn duplicated_in_a_child() {
    check(|duo| {
        duo.connect("C");
        duo.quiet_b("set C nodelay 1");
        duo.a("fork P");
        duo.a("in P dup C D");
        duo.a("in P close C");
        for _ in 0..5 {
            duo.round_trips("C", 40);
            duo.a("in P sendall D 200");
            duo.b("recvall C 200");
        }
        duo.a("in P exit 0");
        duo.a("reap P");
        duo.a("send C 100");
        duo.b("recvall C 100");
    });
}

/// A child that is killed closes nothing that its parent hears of.
#[test]
fn held_by_a_child_that_was_killed() {
    check(|duo| {
        duo.connect("C");
        duo.quiet_b("set C nodelay 1");
        duo.a("fork P");
        duo.b("send C 50");
        duo.a("in P recvall C 50");
        duo.a("in P send C 60");
        duo.a("kill P");
        duo.a("reap P");
        duo.b("recvall C 60");
        duo.a("dup C D");
        duo.a("close C");
        prove_with(duo, "");
        duo.b("close C");
        duo.a("recv D 10");
    });
}

/// As long as it lives, both may use it.
#[test]
fn held_by_a_child_for_a_while() {
    check(|duo| {
        duo.connect("C");
        duo.quiet_b("set C nodelay 1");
        duo.a("dup C D");
        duo.a("close C");
        duo.a("fork P");
        let before = by_ring(duo);
        for _ in 0..20 {
            round_trip_with(duo, "");
            round_trip(duo);
        }
        assert_eq!(by_ring(duo), before, "a ring that a process without it shares");
        duo.a("kill P");
        duo.a("reap P");
        // Longer than it is left alone after the kernel said that the child holds it.
        std::thread::sleep(std::time::Duration::from_millis(2200));
        prove_with(duo, "");
        duo.b("close C");
        duo.a("recv D 10");
    });
}

/// The kernel goes on telling of a number that was closed, as long as another one names the socket.
#[test]
fn watched_by_a_number_that_is_closed() {
    check(|duo| {
        duo.connect("C");
        duo.quiet_b("set C nodelay 1");
        duo.a("epoll E");
        duo.a("epadd E C in");
        duo.a("dup C D");
        duo.a("close C");
        for _ in 0..20 {
            round_trip_with(duo, "");
        }
        for _ in 0..3 {
            duo.a("async T epwait E 2000");
            duo.a("asleep T");
            duo.b("send C 10");
            duo.a("join T");
            duo.a("recvall D 10");
        }
    });
}
