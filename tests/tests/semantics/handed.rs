//! Sockets that another program serves than the one that accepted or connected: they get rings
//! there, once no other process holds them.
//!
//! Holds: spec/wire.md 6.5, unix(7), execve(2).

use yasmin_tests::lab::Knobs;
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::script::{Duo, compare_in};

/// Channels come as they do by default, only sooner: with offers at accept nothing is a candidate
/// any more when it is handed on.
fn check(scenario: fn(&mut Duo)) {
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

/// One to and fro between `b` and P, which has it as D.
fn round_trip(duo: &mut Duo) {
    assert_eq!(duo.quiet_b("sendall C 100"), "100");
    assert_eq!(duo.quiet_a("in P recvall D 100"), "100");
    assert_eq!(duo.quiet_a("in P sendall D 70"), "70");
    assert_eq!(duo.quiet_b("recvall C 70"), "70");
}

fn by_ring(duo: &Duo) -> u64 {
    duo.lab.bytes_in_all().ring
}

/// Fails where nothing goes by ring, both ways, within so many round trips.
#[track_caller]
fn prove(duo: &mut Duo) {
    let proves = duo.lab.proves() && duo.lab.is_calm();
    for _ in 0..400 {
        round_trip(duo);
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
