//! Names, socket options and byte counts are the kernel socket's own.
//!
//! Holds: getsockopt(2), socket(7), tcp(7).

use yasmin_tests::lab::Knobs;
use yasmin_tests::process::eventually;

use yasmin_tests::script::Duo;

use crate::c::check_all_there;
use crate::check;

#[test]
fn names_are_the_sockets_own() {
    check(|duo| {
        duo.warm("C");
        let (one, two) = (duo.quiet_a("names C"), duo.quiet_b("names C"));
        let split = |names: &str| {
            names.split_once(' ').map(|(own, peer)| (own.to_owned(), peer.to_owned()))
        };
        let (one, two) = (split(&one).unwrap(), split(&two).unwrap());
        // The listener is an IPv6 socket and the connector an IPv4 one.
        let plain = |name: &str| name.replace("[::ffff:", "").replace("]:", ":");
        assert_eq!((plain(&one.0), plain(&one.1)), (two.1.clone(), two.0));
        assert!(two.1.ends_with(&format!(":{}", duo.port())));
        duo.a("state C");
        duo.b("state C");
        for option in ["type", "domain", "protocol", "listening", "error"] {
            duo.a(&format!("get C {option}"));
            duo.b(&format!("get C {option}"));
            duo.a(&format!("get L {option}"));
        }
    });
}

/// TCP_INFO counts the bytes that a program sent and received, whichever way they went.
#[test]
fn bytes_are_counted() {
    check(|duo| {
        duo.warm("C");
        let counts = |line: String| -> Vec<u64> {
            line.split(' ').map(|count| count.parse().unwrap()).collect()
        };
        // Of the first, once all of it is acknowledged.
        let both = |duo: &mut Duo| {
            let one = eventually(
                "the acknowledgement",
                || Some(counts(duo.quiet_a("counts C"))).filter(|counts| counts[0] >= counts[2]),
                String::new,
            );
            (one, counts(duo.quiet_b("counts C")))
        };
        let (one, two) = both(duo);
        duo.a("send C 3000");
        duo.b("recvall C 1000");
        duo.b("send C 50");
        duo.a("recvall C 50");
        let (one_after, two_after) = both(duo);
        assert_eq!((one_after[1], one_after[2]), (one[1] + 50, one[2] + 3000));
        // What is unread has been received.
        assert_eq!((two_after[1], two_after[2]), (two[1] + 3000, two[2] + 50));
        // Once more when both directions went back to TCP.
        duo.b("recvall C 2000");
        duo.a("set C timestamp 1");
        duo.a("send C 400");
        duo.b("recvall C 400");
        let (one_after, two_after) = both(duo);
        assert_eq!((one_after[2], two_after[1]), (one[2] + 3400, two[1] + 3400));
    });
}

#[test]
fn options_are_the_programs_own() {
    check(|duo| {
        duo.connect("C");
        duo.round_trips("C", 8);
        duo.prove("C");
        let options =
            ["nodelay", "cork", "keepalive", "lowat", "oobinline", "keepidle", "priority"];
        for option in options {
            duo.b(&format!("get C {option}"));
        }
        for (option, value) in [
            ("nodelay", 1),
            ("nodelay", 0),
            ("nodelay", 7),
            ("cork", 1),
            ("cork", 0),
            ("keepalive", 1),
            ("usertimeout", 5000),
            ("oobinline", 1),
            ("priority", 3),
            ("rcvbuf", 50_000),
            ("sndbuf", 50_000),
        ] {
            duo.b(&format!("set C {option} {value}"));
            duo.b(&format!("get C {option}"));
            duo.a("send C 100");
            duo.b("recv C 100");
            duo.b("send C 100");
            duo.a("recv C 100");
            duo.b(&format!("get C {option}"));
        }
    });
}

#[test]
fn nodelay_set_before_connect_is_kept() {
    check(|duo| {
        duo.a("set L nodelay 1");
        duo.connect("C");
        duo.a("get C nodelay");
        duo.b("get C nodelay");
        duo.round_trips("C", 10);
        duo.prove("C");
        duo.a("get C nodelay");
        duo.b("get C nodelay");
        duo.b("dup C D");
        duo.b("set D nodelay 1");
        duo.b("get C nodelay");
    });
}

#[test]
fn cork_holds_back_no_reply() {
    check(|duo| {
        duo.warm("C");
        duo.a("set C cork 1");
        duo.a("send C 100");
        duo.a("send C 200");
        duo.a("set C cork 0");
        duo.b("recvall C 300");
        duo.a("send C 100 more");
        duo.a("send C 100");
        duo.b("recvall C 200");
    });
}

/// As nginx does with tcp_nopush: a cork before every response, and none behind it.
#[test]
fn corked_from_the_start() {
    check(|duo| {
        duo.connect("C");
        for _ in 0..30 {
            duo.b("sendall C 100");
            duo.a("recvall C 100");
            duo.a("set C cork 1");
            duo.a("send C 200 - writev");
            duo.a("send C 3000 - sendfile");
            duo.a("get C cork");
            duo.a("set C cork 0");
            duo.b("recvall C 3200");
        }
        duo.prove("C");
    });
}

/// Some of what the program waits for lies in the ring already, and the rest comes by TCP.
#[test]
fn a_low_water_mark_above_what_is_unread() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.b("set C lowat 150");
        duo.b("get C lowat");
        let waits = |duo: &mut Duo| {
            duo.b("epwait E 0");
            duo.b("poll C in 0");
            duo.b("select C 0");
        };
        waits(duo);
        duo.a("send C 49");
        duo.b("awaitunread C 149");
        waits(duo);
        duo.b("async T poll C in 5000");
        duo.b("asleep T");
        duo.a("send C 1");
        duo.b("join T");
        waits(duo);
        duo.b("recv C 60");
        waits(duo);
        duo.b("async T recv C 1000");
        duo.b("asleep T");
        duo.a("send C 149");
        duo.b("asleep T");
        duo.a("send C 1");
        duo.b("join T");
        duo.b("get C lowat");
        waits(duo);
        duo.a("send C 149");
        duo.b("awaitunread C 149");
        waits(duo);
        duo.b("set C lowat 1");
        waits(duo);
        duo.b("recv C 200");
    });
}

/// A call that finds less than it wants waits, as the kernel does, until as many come anew.
#[test]
fn a_low_water_mark_and_shorter_calls() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.b("set C lowat 150");
        duo.b("recv C 40");
        duo.b("recv C 40 dontwait");
        duo.b("async T recv C 70");
        duo.b("asleep T");
        duo.a("send C 149");
        duo.b("asleep T");
        duo.a("send C 1");
        duo.b("join T");
        duo.b("recv C 200 dontwait");
        duo.a("send C 200");
        duo.b("poll C in 5000");
        duo.b("recv C 200 waitall");
    });
}

#[test]
fn low_water_mark() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C lowat 100");
        duo.b("get C lowat");
        duo.a("send C 60");
        duo.b("poll C in 50");
        duo.a("send C 60");
        duo.b("poll C in 1000");
        duo.b("recv C 1000");
        duo.b("async T recv C 1000");
        duo.b("asleep T");
        duo.a("send C 60");
        duo.b("asleep T");
        duo.a("send C 200");
        duo.b("join T");
    });
}

#[test]
fn counts_of_unread_bytes() {
    check(|duo| {
        duo.warm("C");
        duo.b("unread C");
        duo.a("send C 1000");
        duo.b("poll C in 1000");
        duo.b("unread C");
        duo.b("recv C 300");
        duo.b("unread C");
        duo.a("send C 20000");
        duo.b("recv C 20700 peek+waitall");
        duo.b("unread C");
        duo.b("recvall C 20700");
        duo.b("unread C");
        let unsent: usize = duo.quiet_a("unsent C").parse().unwrap();
        assert!(unsent <= 21_000, "SIOCOUTQ {unsent}");
        duo.a("close C");
        duo.b("poll C in 1000");
        duo.b("unread C");
    });
}

/// TCP_INQ: each receive tells how much is left, in the ring too.
#[test]
fn unread_bytes_are_told_beside_the_bytes() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("poll C in 1000");
        duo.b("set C inq 1");
        duo.b("recv C 400 - control");
        duo.b("recv C 100 - smallcontrol");
        duo.b("recv C 100 - nocontrol");
        duo.b("recv C 1000 - control");
        for _ in 0..3 {
            duo.a("send C 1000");
            duo.b("poll C in 1000");
            duo.b("recv C 300 - control");
            duo.b("recv C 300 peek");
            duo.b("recv C 700 - control");
        }
        duo.b("set C inq 0");
        duo.a("send C 1000");
        duo.b("poll C in 1000");
        duo.b("recv C 300 - control");
        duo.b("recv C 700");
    });
}

/// TCP_INQ counts what lies behind an urgent byte, which FIONREAD does not, and the end as one
/// byte.
#[test]
fn unread_bytes_behind_an_urgent_one_are_told() {
    check(|duo| {
        for name in ["C", "D"] {
            duo.warm(name);
            duo.b(&format!("set {name} inq 1"));
            duo.a(&format!("send {name} 200"));
            duo.a(&format!("urgent {name}"));
            duo.a(&format!("send {name} 100"));
            duo.b(&format!("poll {name} pri 1000"));
            duo.b(&format!("recv {name} 50 - control"));
            if name == "D" {
                duo.b(&format!("recv {name} 1 oob"));
            }
            duo.b(&format!("recv {name} 150 - control"));
            duo.b(&format!("recv {name} 40 - control"));
            duo.a(&format!("close {name}"));
            duo.b(&format!("poll {name} rdhup 1000"));
            duo.b(&format!("recv {name} 20 - control"));
            duo.b(&format!("recv {name} 100 - control"));
            duo.b(&format!("recv {name} 100 - control"));
        }
    });
}

/// Who looks why a busy connection stays on TCP is told.
#[test]
fn an_option_is_the_reason_that_is_shown() {
    check(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        duo.b("socket C v4");
        duo.b("set C timestamp 1");
        assert_eq!(duo.quiet_b(&format!("connect C {ip} {port}")), "ok");
        duo.a("accept L C");
        duo.round_trips("C", 20);
        if duo.lab.proves() {
            let pid = duo.b.pid();
            let status = duo.lab.status().unwrap();
            let reason = status.connections.iter().find_map(|connection| {
                let is_it = connection.ends.iter().any(|end| end.pid == pid);
                connection.reason.clone().filter(|reason| is_it && reason.contains("option"))
            });
            assert!(reason.is_some(), "{status:#?}");
        }
    });
}

/// They go by ring all the same, and the end counts as a byte more: the program must not stop
/// to read in front of it.
#[test]
fn unread_bytes_are_told_on_rings() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C inq 1");
        let before = duo.lab.bytes_in_all().ring;
        for _ in 0..20 {
            duo.a("send C 500");
            duo.b("awaitunread C 500");
            duo.b("recv C 200 - control");
            duo.b("recv C 1000 - control");
            duo.b("send C 100");
            duo.a("recvall C 100");
        }
        if duo.lab.proves() && duo.lab.is_calm() {
            let bytes = duo.lab.bytes_in_all().ring - before;
            assert!(bytes > 2000, "{bytes} by ring: {:#?}", duo.lab.status());
        }
        duo.a("send C 500");
        duo.b("awaitunread C 500");
        duo.a("close C");
        duo.b("poll C rdhup 1000");
        duo.b("recv C 200 - control");
        duo.b("recv C 300 - control");
        duo.b("recv C 300 - control");
    });
}

#[test]
fn times_are_told_beside_the_bytes() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C timestamp 1");
        // The kernel begins to take times when it comes to it.
        let told = eventually(
            "a time beside the bytes",
            || {
                assert_eq!(duo.quiet_a("send C 100"), "100");
                let told = duo.quiet_b("recv C 100 - control");
                told.contains("1/29").then_some(told)
            },
            String::new,
        );
        duo.note(told);
        duo.a("send C 100");
        duo.b("recv C 100");
    });
}

/// A peek may begin behind bytes that it leaves alone: inside the ring, at its end, behind it.
#[test]
fn peeks_from_an_offset() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 3000");
        duo.b("poll C in 1000");
        duo.b("set C peekoff 100");
        for _ in 0..2 {
            duo.b("recv C 500 peek");
            duo.b("get C peekoff");
        }
        duo.b("recv C 200");
        duo.b("get C peekoff");
        duo.b("recv C 100 - splice");
        duo.b("get C peekoff");
        // By TCP, behind the ring's.
        duo.a("send C 2000");
        duo.b("poll C in 1000");
        duo.b("recv C 2500 peek");
        duo.b("recv C 100 peek");
        duo.b("get C peekoff");
        duo.b("async T recv C 5000 peek");
        duo.b("join T");
        duo.b("async T recv C 300 peek");
        duo.b("asleep T");
        duo.a("send C 500");
        duo.b("join T");
        duo.b("get C peekoff");
        duo.b("set C peekoff 2690");
        duo.b("recv C 50 peek");
        duo.b("set C peekoff -1");
        duo.b("recv C 100 peek");
        duo.b("recvall C 5200");
    });
}

/// An option that the kernel refuses changes nothing.
#[test]
fn a_refused_option_leaves_the_ring_alone() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C inq 5");
        duo.b("get C inq");
        duo.b("badcall C setoptionminus");
        duo.b("get C nodelay");
        let carried = |duo: &crate::Duo| duo.lab.bytes_in_all().ring;
        let before = carried(duo);
        duo.round_trips("C", 8);
        let is_more = carried(duo) > before;
        assert!(is_more || !duo.lab.proves() || !duo.lab.is_calm(), "nothing by ring any more");
    });
}

/// TCP_ZEROCOPY_RECEIVE says how much has to be read before there is something to map.
#[test]
fn what_cannot_be_mapped_is_told() {
    check(|duo| {
        duo.warm("C");
        for _ in 0..2 {
            duo.a("send C 1000");
            duo.b("poll C in 1000");
            duo.b("get C zerocopy");
            duo.b("recv C 400");
            duo.b("get C zerocopy");
            duo.b("recv C 4000");
            duo.b("get C zerocopy");
        }
    });
}

/// It waits for 0 bytes (SO_RCVLOWAT), which is as many as one.
#[test]
fn what_a_listener_for_mptcp_accepts_has_a_ring() {
    check_all_there("mptcp_listener", &[], &[Knobs::default(), Knobs::at_once()]);
}
