//! epoll(7): a set is an open file, and a registration belongs to a number and an open file.
//! Several numbers of one set, several numbers of one socket, and sets that come and go.
//!
//! Holds: epoll(7), dup(2).

use yasmin_tests::netns::{self, Net};
use yasmin_tests::peer;
use yasmin_tests::script::{Duo, compare_on};

use crate::check;

/// `C` has 100 bytes unread at `b`, by ring where there are rings.
fn warm_and_unread(duo: &mut Duo) {
    duo.warm("C");
    duo.a("send C 100");
    duo.b("awaitunread C 100");
}

/// What a program does that makes a set for each wait, and closes it before it reads.
#[test]
fn a_set_for_each_wait() {
    check(|duo| {
        duo.warm("C");
        for turn in 0..20 {
            duo.a("send C 100");
            duo.b("epoll E");
            duo.b("epadd E C in");
            duo.b("epwait E 1000");
            duo.b("close E");
            // The next set may have the memory of the last one.
            duo.b("epoll E");
            duo.b(if turn % 2 == 0 { "epadd E C in" } else { "epadd E C in+et" });
            duo.b("epwait E 1000");
            duo.b("recvall C 100");
            duo.b("close E");
        }
    });
}

/// Also where the set goes while bytes come, and the next one is made before they are read.
#[test]
fn a_set_that_never_waited() {
    check(|duo| {
        duo.warm("C");
        for _ in 0..8 {
            duo.b("epoll E");
            duo.b("epadd E C in");
            duo.a("send C 100");
            duo.b("awaitunread C 100");
            duo.b("close E");
            duo.b("epoll E");
            duo.b("epadd E C in+out");
            duo.b("epwait E 1000");
            duo.b("recvall C 100");
            duo.b("epwait E 0");
            duo.b("close E");
        }
    });
}

/// Registered by one number of the set, waited for by another one.
#[test]
fn two_numbers_of_a_set() {
    for (adds, waits) in [("E", "F"), ("F", "E"), ("F", "F")] {
        let scenario = match (adds, waits) {
            ("E", "F") => |duo: &mut Duo| numbers_of_a_set(duo, "E", "F"),
            ("F", "E") => |duo: &mut Duo| numbers_of_a_set(duo, "F", "E"),
            _ => |duo: &mut Duo| numbers_of_a_set(duo, "F", "F"),
        };
        check(scenario);
    }
}

fn numbers_of_a_set(duo: &mut Duo, adds: &str, waits: &str) {
    warm_and_unread(duo);
    duo.b("epoll E");
    duo.b("dup E F");
    for events in ["in", "in+et", "in+out+rdhup+et"] {
        duo.b(&format!("epadd {adds} C {events}"));
        duo.b(&format!("epwait {waits} 1000"));
        duo.b(&format!("epwait {adds} 0"));
        duo.b(&format!("epdel {adds} C"));
    }
    duo.b(&format!("epadd {adds} C in"));
    duo.b(&format!("epadd {waits} C in"));
    duo.b(&format!("close {adds}"));
    if adds != waits {
        duo.b(&format!("epwait {waits} 1000"));
        duo.b("recvall C 100");
        duo.b(&format!("epwait {waits} 0"));
        duo.a("send C 10");
        duo.b(&format!("epwait {waits} 1000"));
        duo.b(&format!("epmod {waits} C out"));
        duo.b(&format!("epwait {waits} 0"));
    }
}

/// The way that mio and tokio make their sets: rings are used all the same.
#[test]
fn a_duplicated_set_keeps_its_rings() {
    check(|duo| {
        duo.connect("C");
        for end in ["a", "b"] {
            for command in ["nonblock C 1", "epoll E", "dupfd E F 3", "epadd F C in+out+rdhup+et"] {
                if end == "a" {
                    duo.a(command)
                } else {
                    duo.b(command)
                };
            }
        }
        duo.quiet_a("set C nodelay 1");
        duo.quiet_b("set C nodelay 1");
        for _ in 0..40 {
            duo.quiet_b("send C 100");
            duo.quiet_a("epwait E 1000");
            duo.quiet_a("awaitunread C 100");
            duo.a("recv C 200");
            duo.quiet_a("send C 100");
            duo.quiet_b("epwait E 1000");
            duo.quiet_b("awaitunread C 100");
            duo.b("recv C 200");
        }
        duo.prove("C");
    });
}

/// In one set: the first number asks for room alone, the second one for bytes.
#[test]
fn two_numbers_of_a_socket() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C out+et");
        duo.b("epwait E 1000");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.b("dup C D");
        duo.b("epadd E D in");
        duo.b("epwait E 1000");
        duo.b("epmod E C in");
        duo.b("epwait E 1000");
        duo.b("epmod E C out+et");
        duo.b("epwait E 1000");
        duo.b("epdel E C");
        duo.b("epwait E 1000");
        duo.b("recvall D 100");
        duo.b("epwait E 0");
        duo.a("send C 10");
        duo.b("epwait E 1000");
        duo.b("close D");
        duo.b("epwait E 1000");
    });
}

/// In two sets, each with what it asked for.
#[test]
fn one_socket_in_two_sets() {
    check(|duo| {
        warm_and_unread(duo);
        duo.b("epoll E");
        duo.b("epoll F");
        duo.b("dup C D");
        for (first, second) in [("in", "in"), ("out+et", "in"), ("in", "in+et"), ("-", "in")] {
            for other in ["C", "D"] {
                duo.b(&format!("epadd E C {first}"));
                duo.b(&format!("epadd F {other} {second}"));
                duo.b("epwait F 1000");
                duo.b("epwait E 0");
                duo.b("epwait F 0");
                duo.b("epmod E C -");
                duo.b("epwait F 0");
                duo.b("epdel E C");
                duo.b("epwait F 0");
                duo.b(&format!("epdel F {other}"));
            }
        }
    });
}

/// A number that was closed comes back to the same socket: its registration is the program's
/// again.
#[test]
fn a_number_comes_back() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.b("dup C D");
        duo.b("closefd C");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("epmod E C in+out");
        duo.b("dup2 D C");
        duo.b("epadd E C in");
        duo.b("epmod E C in+out");
        duo.b("epwait E 1000");
        duo.b("recvall C 100");
        duo.b("epdel E C");
        duo.b("epwait E 0");
    });
}

/// TCP's part comes late, with ring bytes behind it: these are told of when it has been read.
#[test]
fn ring_bytes_behind_late_tcp_bytes() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        for _ in 0..20 {
            duo.b("epwait E 0");
            duo.a("send C 3000");
            duo.a("send C 2000");
            duo.b("epwait E 1000");
            duo.b("recvall C 1000");
            duo.b("epwait E 1000");
            duo.b("recvall C 2000");
            duo.b("epwait E 1000");
            duo.b("recvall C 1999");
            duo.b("epwait E 1000");
            duo.b("recvall C 1");
            duo.b("epwait E 0");
        }
    });
}

/// A slow wire lets one packet pass at once: TCP looks dry behind it, and what is sent then is in the
/// ring before the others come.
#[test]
fn ring_bytes_that_overtake_tcp_bytes() {
    if !netns::allowed() {
        eprintln!("skipped: namespaces need root");
        return;
    }
    compare_on(Net::Netns, peer!("script"), |duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        if let Err(error) = duo.lab.limit(Some(100_000)) {
            eprintln!("skipped: {error}");
            return;
        }
        for _ in 0..5 {
            duo.b("epwait E 20");
            duo.a("send C 5000");
            let mut left = 5800;
            left -= duo.quiet_b("recv C 5000 dontwait").parse().unwrap_or(0);
            duo.a("send C 800");
            while left > 0 {
                assert_eq!(duo.quiet_b("epwait E 1000"), "C:in", "with {left} bytes to come");
                let room = if left > 900 { 1000 } else { 100 };
                left -= duo.quiet_b(&format!("recv C {room} dontwait")).parse().unwrap_or(0);
            }
        }
    });
}

/// The same in a set that another one watches, which tells of ring bytes once TCP's are read.
#[test]
fn ring_bytes_that_overtake_tcp_bytes_in_a_nested_set() {
    if !netns::allowed() {
        eprintln!("skipped: namespaces need root");
        return;
    }
    compare_on(Net::Netns, peer!("script"), |duo| {
        duo.warm("C");
        if let Err(error) = duo.lab.limit(Some(100_000)) {
            eprintln!("skipped: {error}");
            return;
        }
        for (nth, how) in ["in", "in+et", "in+oneshot"].into_iter().enumerate() {
            duo.b(&format!("epoll I{nth}"));
            duo.b(&format!("epoll O{nth}"));
            duo.b(&format!("epadd O{nth} I{nth} in+oneshot"));
            duo.b("poll C in 20");
            duo.a("send C 5000");
            let mut left: i64 = 5800;
            left -= duo.quiet_b("recv C 4000 dontwait").parse().unwrap_or(0);
            duo.a("send C 800");
            duo.b(&format!("epadd I{nth} C {how}"));
            while left > 800 {
                let part = duo.quiet_b(&format!("recv C {}", left - 800));
                left -= part.parse::<i64>().expect("bytes");
            }
            duo.b("awaitunread C 800");
            duo.b(&format!("epwait O{nth} 0"));
            duo.b(&format!("epwait I{nth} 0"));
            duo.b("recvall C 800");
            duo.b(&format!("epmod O{nth} I{nth} in"));
            duo.b(&format!("epwait O{nth} 0"));
            duo.b(&format!("epdel I{nth} C"));
        }
        duo.prove_one_way("C");
    });
}

/// Pairs X Y and V W, whose ends Y and W are in the set E. `w_by_tcp`: W has two numbers, and so does
/// not offer.
fn two_pairs_in_a_set(duo: &mut Duo, w_by_tcp: bool) {
    duo.b("pairs X Y");
    duo.b("pairs V W");
    if w_by_tcp {
        duo.b("dup W W2");
    }
    duo.b("epoll E");
    duo.b("epadd E Y in");
    duo.b("epadd E W in");
    for name in ["V", "X", "Y"] {
        duo.b(&format!("set {name} nodelay 1"));
    }
}

fn is_told_in_order(duo: &mut Duo) {
    duo.b("causes forth V X W Y E 200");
    duo.b("causes back V X W Y E 200");
    duo.b("caused forth V X W Y E 200");
    duo.b("caused back V X W Y E 200");
    duo.prove_one_way("X");
}

/// Who sends by TCP on one connection and then by ring on another one finds them told of in that
/// order, and the other way about.
#[test]
fn waits_tell_in_the_order_of_the_sender() {
    check(|duo| {
        two_pairs_in_a_set(duo, true);
        is_told_in_order(duo);
    });
}

/// The same with rings on both.
#[test]
fn waits_tell_of_two_rings_in_the_order_of_the_sender() {
    check(|duo| {
        two_pairs_in_a_set(duo, false);
        is_told_in_order(duo);
    });
}

/// A buffer for one event, and bytes by TCP that nobody reads: bytes in a ring that were sent after
/// those have their turn.
#[test]
fn a_small_buffer_tells_of_a_ring_that_follows_tcp() {
    check(|duo| {
        two_pairs_in_a_set(duo, true);
        duo.b("caused forth V X W Y E 20");
        duo.b("send V 100");
        duo.b("poll W in 1000");
        duo.b("send X 100");
        duo.b("poll Y in 1000");
        for _ in 0..4 {
            duo.b("epwait E 1000 1 4");
        }
        duo.prove_one_way("X");
    });
}

/// Bytes in a ring and room on another connection: each wait tells of both.
#[test]
fn one_wait_tells_of_all() {
    check(|duo| {
        duo.b("pairs X Y");
        duo.b("pairs V W");
        duo.b("epoll E");
        duo.b("epadd E Y in");
        duo.b("epadd E V out");
        duo.b("tells X Y E 2000");
        duo.prove_one_way("X");
    });
}
