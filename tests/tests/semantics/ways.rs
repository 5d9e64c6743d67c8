//! Ways to read, write, and set a socket that few programs take: none goes past a ring, and what
//! cannot be seen is found out.
//!
//! Holds: read(2), sendfile(2), splice(2), tcp(7).

use yasmin_tests::lab::{Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::script::{Duo, compare_in};

use crate::c::{check_all_there, check_as_by_tcp};
use crate::{check, check_alone};

const SENDS: [&str; 6] = ["__write", "__send", "pwritev64v2", "aio", "list", "kernelaio"];
const RECEIVES: [&str; 6] = ["__read", "__recv", "preadv64v2", "aio", "list", "kernelaio"];

#[test]
fn other_names_and_asynchronous_sends() {
    check(|duo| {
        for (nth, way) in SENDS.iter().enumerate() {
            let name = format!("C{nth}");
            duo.warm(&name);
            for _ in 0..3 {
                duo.a(&format!("send {name} 100"));
                duo.a(&format!("send {name} 200 - {way}"));
                duo.a(&format!("send {name} 50"));
                duo.b(&format!("recvall {name} 350"));
                duo.b(&format!("send {name} 10"));
                duo.a(&format!("recv {name} 10"));
            }
        }
    });
}

/// Who sees that less was moved than there is, or is room for, may wait for an edge that does not come.
/// Buffers of odd lengths go in 33 pieces.
#[test]
fn many_pieces() {
    check(|duo| {
        duo.warm("C");
        for (send, recv) in [("sendmsg", "recvmsg"), ("writev", "readv")] {
            duo.b("nonblock C 1");
            // By TCP: the receiver sleeps.
            duo.b("poll C in 50");
            duo.a(&format!("send C 3301 - {send}"));
            duo.b("awaitunread C 3301");
            duo.b("recv C 3301 peek recvmsg");
            duo.b(&format!("recv C 3301 - {recv}"));
            // By ring, where there are any, and behind that by TCP.
            duo.round_trips("C", 2);
            duo.a("send C 1000");
            duo.a(&format!("send C 1001 - {send}"));
            duo.b("awaitunread C 2001");
            duo.b("recv C 2001 peek recvmsg");
            duo.b(&format!("recv C 2001 - {recv}"));
            duo.b("nonblock C 0");
            duo.b("async T recv C 999 waitall recvmsg");
            duo.b("asleep T");
            duo.a("send C 333 - writev");
            duo.a("send C 666");
            duo.b("join T");
        }
    });
}

/// What is unread in the ring comes first, whoever reads.
#[test]
fn other_names_and_asynchronous_receives() {
    check(|duo| {
        for (nth, way) in RECEIVES.iter().enumerate() {
            let name = format!("C{nth}");
            duo.warm(&name);
            for _ in 0..3 {
                duo.a(&format!("send {name} 500"));
                duo.b(&format!("recvall {name} 100"));
                duo.b(&format!("recv {name} 100 - {way}"));
                duo.b(&format!("recv {name} 300 waitall"));
                duo.a(&format!("send {name} 100"));
                duo.b(&format!("poll {name} in 1000"));
                duo.b(&format!("recv {name} 1000 - {way}"));
                duo.b(&format!("send {name} 10"));
                duo.a(&format!("recv {name} 10"));
            }
        }
    });
}

/// sendfile takes from a socket where it gives to a pipe.
#[test]
fn into_a_pipe_by_sendfile() {
    check(|duo| {
        duo.warm("C");
        for _ in 0..3 {
            duo.a("send C 500");
            duo.b("recvall C 100");
            duo.b("recv C 200 - sendfile");
            duo.b("recvall C 200");
        }
    });
}

fn lab() -> Option<Lab> {
    let lab = Lab::new(Net::Loopback, Knobs::default());
    lab.proves().then_some(lab)
}

/// What the library does not see, the kernel's counters tell before there is a channel.
#[test]
fn a_program_that_also_goes_past_gets_no_ring() {
    for (odd_send, odd_receive) in [("send", "recv"), ("bare", "recv"), ("send", "bare")] {
        let Some(lab) = lab() else { return };
        let mut duo = Duo::new(lab, peer!("script"));
        duo.connect("C");
        for nth in 0..200 {
            let send = if nth % 7 == 3 { odd_send } else { "send" };
            let receive = if nth % 7 == 3 { odd_receive } else { "recv" };
            assert_eq!(duo.b(&format!("send C 100 - {send}")), "100");
            duo.a("poll C in 1000");
            assert_eq!(duo.a(&format!("recv C 100 - {receive}")), "100");
            assert_eq!(duo.a("sendall C 100"), "100");
            assert_eq!(duo.b("recvall C 100"), "100");
        }
        let is_seen = (odd_send, odd_receive) == ("send", "recv");
        assert_eq!(duo.lab.bytes_in_all().ring > 0, is_seen, "{odd_send} {odd_receive}");
    }
}

/// Where it is found out only afterwards, and nobody can say what went first, the connection ends.
#[test]
fn bytes_that_went_past_an_open_ring_end_the_connection() {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    if !lab.proves() {
        return;
    }
    let mut duo = Duo::new(lab, peer!("script"));
    duo.warm("C");
    assert_eq!(duo.b("send C 100"), "100");
    assert_eq!(duo.b("send C 100 - bare"), "100");
    let ended = (0..100_000).find_map(|_| {
        let sent = duo.b("send C 100 nosignal+dontwait");
        (sent != "100" && sent != "EAGAIN").then_some(sent)
    });
    assert_eq!(ended.as_deref(), Some("ECONNRESET"));
}

/// Also where the end comes before the counters are compared again.
#[test]
fn an_end_soon_after_bytes_that_went_past_is_a_reset() {
    for end in ["shutdown C wr", "close C"] {
        let lab = Lab::new(Net::Loopback, Knobs::at_once());
        if !lab.proves() {
            return;
        }
        let mut duo = Duo::new(lab, peer!("script"));
        duo.warm("C");
        assert_eq!(duo.b("send C 100"), "100");
        assert_eq!(duo.b("send C 100 - bare"), "100");
        duo.quiet_b("send C 100 nosignal");
        duo.quiet_b(end);
        // TCP_CLOSE, and not TCP_CLOSE_WAIT: a reset came, and no FIN.
        assert_eq!(duo.quiet_a("state C"), "7", "{end}");
    }
}

/// Bytes that go past while everything goes by TCP are in their place: only rings are given up.
#[test]
fn bytes_that_went_past_a_parked_ring_are_in_order() {
    check(|duo| {
        duo.connect("C");
        duo.b("send C 100 - bare");
        duo.a("recvall C 100");
        for _ in 0..20 {
            duo.b("send C 100");
            duo.a("recvall C 100");
            duo.a("send C 100");
            duo.b("recvall C 100");
        }
    });
}

/// Calls with bad pointers, on a socket that is none of the library's, on one that may get a
/// channel, and on one that has it.
#[test]
fn bad_pointers() {
    const KINDS: [&str; 6] = ["null", "low", "none", "guard", "high", "unmapped"];
    check_alone(|duo| {
        duo.b("pair U V");
        duo.b("nonblock U 1");
        duo.b("nonblock V 1");
        duo.b("send V 10");
        for kind in KINDS {
            duo.b(&format!("badpointers U {kind}"));
        }
        duo.warm("C");
        // Some of these calls send, and what they send is not of the stream.
        for kind in KINDS {
            duo.b("nonblock C 1");
            duo.a("send C 100");
            duo.b("poll C in 1000");
            duo.b(&format!("badpointers C {kind}"));
            duo.b("recv C 1000");
        }
    });
    let moods = [("a candidate", Knobs::default())];
    compare_in(Net::Loopback, &moods, peer!("script"), |duo| {
        duo.connect("C");
        duo.a("send C 100");
        duo.b("nonblock C 1");
        for kind in KINDS {
            duo.b("poll C in 1000");
            duo.b(&format!("badpointers C {kind}"));
        }
        duo.b("recv C 1000");
    });
}

/// OpenJDK's way to test urgent data: it comes while what was sent before lies in the ring.
#[test]
fn urgent_bytes_behind_unread_ones() {
    check(|duo| {
        for nth in 0..10 {
            let name = format!("C{nth}");
            duo.warm(&name);
            for _ in 0..nth {
                duo.a(&format!("send {name} 10"));
                duo.b(&format!("recv {name} 10"));
            }
            duo.a(&format!("send {name} 5"));
            duo.a(&format!("urgent {name}"));
            duo.a(&format!("send {name} 5"));
            duo.b(&format!("poll {name} pri 1000"));
            duo.b(&format!("recv {name} 1"));
            duo.b(&format!("recv {name} 4"));
            duo.b(&format!("atmark {name}"));
            duo.b(&format!("recv {name} 5 waitall"));
            for _ in 0..4 {
                duo.a(&format!("send {name} 10"));
                duo.b(&format!("recv {name} 10"));
                duo.b(&format!("send {name} 10"));
                duo.a(&format!("recv {name} 10"));
            }
        }
    });
}

/// The kernel begins to note times some while after the first socket asks for them, and ends when
/// the last one is gone: one that stays makes that certain.
fn stamp(duo: &mut Duo) {
    duo.connect("T");
    duo.a("set T timestamp 1");
    for _ in 0..200_000 {
        duo.quiet_b("send T 1");
        duo.quiet_a("poll T in 1000");
        if !duo.quiet_a("recv T 1 - control").ends_with("[]") {
            return;
        }
    }
    panic!("no times");
}

/// Set on the listener or before connect, these are what they are later.
#[test]
fn what_is_set_before_there_is_a_connection() {
    check_alone(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        let options = [
            ("timestamp", 1, 0),
            ("timestampns", 1, 0),
            ("timestamping", 24, 0),
            ("timestampnew", 1, 0),
            ("peekoff", 0, -1),
            ("lowat", 50, 1),
        ];
        stamp(duo);
        for (option, on, off) in options {
            duo.a(&format!("set L {option} {on}"));
            duo.b("socket C v4");
            duo.b(&format!("set C {option} {on}"));
            let connected = duo.quiet_b(&format!("connect C {ip} {port}"));
            duo.note(connected);
            duo.a("accept L C");
            for _ in 0..4 {
                duo.b("send C 100");
                duo.a("poll C in 1000");
                // Where a second look begins, its length tells.
                duo.a("recv C 60 peek+trunc");
                duo.a("recv C 60 peek+trunc");
                duo.a("recv C 200 - control");
                duo.a("send C 100");
                duo.b("poll C in 1000");
                duo.b("recv C 60 peek+trunc");
                duo.b("recv C 200 - control");
            }
            duo.a(&format!("get C {option}"));
            duo.b("close C");
            duo.a("recv C 1");
            duo.a("close C");
            duo.a(&format!("set L {option} {off}"));
        }
    });
}

/// Signals for what comes, asked for before there is a connection, and by either call.
#[test]
fn signals_for_bytes() {
    check_alone(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        duo.b("count io");
        for (nth, how) in ["async", "asyncbyioctl"].iter().enumerate() {
            let (early, late) = (format!("C{nth}"), format!("D{nth}"));
            duo.b(&format!("socket {early} v4"));
            duo.b(&format!("set {early} {how} 1"));
            let connected = duo.quiet_b(&format!("connect {early} {ip} {port}"));
            duo.note(connected);
            duo.a(&format!("accept L {early}"));
            duo.warm(&late);
            duo.b(&format!("set {late} {how} 1"));
            for name in [&early, &late] {
                for _ in 0..3 {
                    let before: u32 = duo.quiet_b("caught io").parse().unwrap();
                    duo.a(&format!("send {name} 100"));
                    duo.b(&format!("poll {name} in 1000"));
                    let after: u32 = duo.quiet_b("caught io").parse().unwrap();
                    duo.note(after > before);
                    duo.b(&format!("recv {name} 200"));
                }
            }
        }
    });
}

/// A Unix socket is never taken for one of TCP, by whichever end it was made.
#[test]
fn passed_over_a_unix_socket_that_was_accepted() {
    check(|duo| {
        let path = duo.lab.folder.path().join("unix").display().to_string();
        duo.b("spawn P");
        duo.b("in P count usr2");
        duo.quiet_b(&format!("in P unixlisten U {path}"));
        duo.quiet_b(&format!("unixconnect V {path}"));
        duo.b("in P unixaccept U W");
        duo.warm("C");
        duo.a("send C 5000");
        duo.b("recvall C 1000");
        duo.b("give V C");
        duo.b("close C");
        duo.b("in P take W C");
        duo.a("send C 700");
        duo.b("in P recvall C 4700");
        duo.b("in P send C 10");
        duo.a("recv C 10");
    });
}

/// Also of the first messages that a new channel's ring would not hold.
#[test]
fn one_receive_takes_one_send() {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().spin(0), at_once().chaos(100, 3)];
    check_all_there("whole", &[], &moods);
}

/// Of several threads and processes, and behind others that are unread.
#[test]
fn what_one_call_sends_comes_in_one_piece() {
    let lines = check_as_by_tcp("torn", &[Knobs::default(), Knobs::default().chaos(100, 3)]);
    assert!(lines.iter().all(|line| line.contains(": 0 ")), "{lines:?}");
}
