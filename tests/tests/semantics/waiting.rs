//! poll and epoll, level- and edge-triggered, one-shot, nested, fair.
//!
//! Holds: poll(2), epoll(7), spec/wire.md 5.4.

use yasmin_tests::lab::Knobs;
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::script::{Duo, compare_in};

use crate::check;

#[test]
fn poll_tells_the_state() {
    check(|duo| {
        duo.warm("C");
        duo.b("poll C in 0");
        duo.b("poll C in 30");
        duo.b("poll C in+out 0");
        duo.b("poll C - 0");
        duo.a("send C 10");
        duo.b("poll C in 1000");
        duo.b("poll C in+out 1000");
        duo.b("poll C out 0");
        duo.b("recv C 4");
        duo.b("poll C in 0");
        duo.b("recv C 100");
        duo.b("poll C in 0");
        duo.a("send C 10");
        duo.a("shutdown C wr");
        duo.b("poll C rdhup 1000");
        duo.b("poll C in+out+rdhup 0");
        duo.b("recv C 100");
        duo.b("poll C in+out+rdhup 0");
        duo.b("shutdown C wr");
        duo.b("poll C - 1000");
        duo.b("poll C in+out+rdhup 0");
        duo.a("poll C - 1000");
        duo.a("poll C in+out+rdhup 0");
        duo.a("poll L in 0");
    });
}

#[test]
fn poll_sleeps_and_wakes() {
    check(|duo| {
        duo.warm("C");
        for _ in 0..3 {
            duo.b("async T poll C in -1");
            duo.b("asleep T");
            duo.a("send C 10");
            duo.b("join T");
            duo.b("recv C 100");
        }
        duo.b("async T poll C in+rdhup -1");
        duo.b("asleep T");
        duo.a("close C");
        duo.b("join T");
    });
}

#[test]
fn epoll_level_triggered() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.b("epwait E 0");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("epwait E 0");
        duo.b("recv C 50");
        duo.b("epwait E 0");
        duo.b("recv C 100");
        duo.b("epwait E 0");
        duo.b("epmod E C in+out");
        duo.b("epwait E 0");
        duo.b("epmod E C rdhup");
        duo.a("send C 100");
        duo.b("epwait E 30");
        duo.b("epmod E C in+rdhup");
        duo.b("epwait E 1000");
        duo.a("close C");
        duo.b("poll C rdhup 1000");
        duo.b("epwait E 1000");
        duo.b("recv C 1000");
        duo.b("epwait E 1000");
        duo.b("epdel E C");
        duo.b("epwait E 0");
    });
}

#[test]
fn epoll_edge_triggered() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+out+rdhup+et");
        duo.b("epwait E 0");
        duo.b("epwait E 0");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("epwait E 30");
        duo.b("recv C 50");
        duo.b("epwait E 30");
        // More data are a new edge, although there was something left.
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("recv C 1000");
        duo.b("recv C 1000 dontwait");
        duo.b("epwait E 30");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.a("shutdown C wr");
        duo.b("epwait E 1000");
        duo.b("recv C 1000");
        duo.b("epwait E 30");
        duo.b("recv C 1000");
    });
}

#[test]
fn epoll_edge_of_what_was_there_before() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("epoll E");
        duo.b("epadd E C in+et");
        duo.b("epwait E 1000");
        duo.b("epwait E 0");
        duo.b("epmod E C in+et");
        duo.b("epwait E 1000");
        duo.b("epwait E 0");
    });
}

#[test]
fn epoll_one_shot() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+oneshot");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("epwait E 30");
        duo.a("send C 100");
        duo.b("epwait E 30");
        duo.b("epmod E C in+oneshot");
        duo.b("epwait E 1000");
        duo.b("epwait E 30");
        duo.b("recv C 1000");
        duo.b("epmod E C in+oneshot");
        duo.b("epwait E 30");
        duo.b("async T epwait E -1");
        duo.b("asleep T");
        duo.a("send C 100");
        duo.b("join T");
    });
}

/// What a one-shot registration has told of stays told until the program arms it, also where a
/// write that does not fit wants room told of.
#[test]
fn a_cut_write_arms_no_one_shot() {
    check(|duo| {
        duo.warm("C");
        // Only a ring of full size cuts a write.
        for _ in 0..8 {
            duo.a("async S sendall C 3000000");
            duo.b("recvall C 3000000");
            duo.a("join S");
        }
        duo.a("nonblock C 1");
        duo.a("epoll E");
        duo.a("epadd E C in+out+et+oneshot");
        duo.a("epwait E 1000");
        // How much fits is not the same.
        while duo.quiet_a("send C 1000000") != "EAGAIN" {}
        duo.a("epwait E 100");
        duo.b("send C 1");
        duo.a("epwait E 100");
    });
}

#[test]
fn epoll_sleeps_and_wakes() {
    for how in ["in", "in+et", "in+rdhup+et", "in+oneshot"] {
        // A scenario captures nothing, so each has its own function.
        match how {
            "in" => check(|duo| epoll_wakes(duo, "in")),
            "in+et" => check(|duo| epoll_wakes(duo, "in+et")),
            "in+rdhup+et" => check(|duo| epoll_wakes(duo, "in+rdhup+et")),
            _ => check(|duo| epoll_wakes(duo, "in+oneshot")),
        }
    }
}

#[track_caller]
fn epoll_wakes(duo: &mut Duo, how: &str) {
    duo.warm("C");
    duo.b("epoll E");
    duo.b(&format!("epadd E C {how}"));
    for _ in 0..3 {
        duo.b("async T epwait E -1");
        duo.b("asleep T");
        duo.a("send C 10");
        duo.b("join T");
        duo.b("recv C 100");
        duo.b("recv C 100 dontwait");
        duo.b(&format!("epmod E C {how}"));
    }
    duo.b("async T epwait E -1");
    duo.b("asleep T");
    duo.a("close C");
    duo.b("join T");
}

#[test]
fn epoll_mistakes() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epmod E C in");
        duo.b("epdel E C");
        duo.b("epadd E C in");
        duo.b("epadd E C in");
        duo.b("epadd E E in");
        duo.b("epwait C 0");
        duo.b("epwait E 0 0");
        duo.b("epdel E C");
        duo.b("epdel E C");
    });
}

#[test]
fn closing_takes_out_of_the_set() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.a("send C 10");
        duo.b("epwait E 1000");
        duo.b("dup C D");
        duo.b("close C");
        // The set holds the open file, not the number.
        duo.b("epwait E 1000");
        duo.b("close D");
        duo.b("epwait E 0");
    });
}

/// Taken out of the set, then closed: the set has nothing more to do with it.
#[test]
fn closed_after_it_was_taken_out_of_the_set() {
    check(|duo| {
        duo.b("epoll E");
        duo.warm("D");
        duo.b("epadd E D in");
        for _ in 0..5 {
            duo.warm("C");
            duo.b("epadd E C in");
            for _ in 0..10 {
                duo.a("send C 100");
                duo.b("poll C in 1000");
                duo.b("epwait E 1000");
                duo.b("recv C 100");
            }
            duo.b("epdel E C");
            duo.b("epwait E 0");
            duo.b("close C");
            duo.a("recv C 100");
            duo.a("close C");
            duo.b("epwait E 20");
            duo.a("send D 100");
            duo.b("poll D in 1000");
            duo.b("epwait E 1000");
            duo.b("recv D 100");
        }
    });
}

#[test]
fn two_sets_and_a_set_in_a_set() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epoll F");
        duo.b("epoll G");
        duo.b("epadd E C in");
        duo.b("epadd F C in+et");
        duo.b("epadd G E in");
        duo.b("async T epwait G -1");
        duo.b("asleep T");
        duo.a("send C 10");
        duo.b("join T");
        duo.b("epwait E 1000");
        duo.b("epwait F 1000");
        duo.b("epwait F 30");
        duo.b("poll E in 1000");
        duo.b("recv C 100");
        duo.b("epwait E 0");
        duo.b("epwait G 0");
        duo.b("poll E in 0");
    });
}

/// A ring that has not grown takes less than TCP's buffers would: the rest goes there, and the
/// program sees no short write.
#[test]
fn a_write_larger_than_a_small_ring() {
    check(|duo| {
        duo.warm("C");
        duo.b("nonblock C 1");
        duo.b("send C 100000");
        duo.a("recvall C 100000");
        duo.round_trips("C", 1);
    });
}

/// What came and was read before the wait is an edge all the same: it tells of what is ready
/// still.
#[test]
fn an_edge_that_is_past() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+out+et");
        duo.b("epwait E 0");
        duo.b("epwait E 0");
        for _ in 0..3 {
            duo.a("send C 10");
            duo.b("poll C in 1000");
            duo.b("recv C 10");
            duo.b("epwait E 0");
            duo.b("epwait E 0");
        }
        duo.b("epmod E C in+et");
        duo.a("send C 10");
        duo.b("poll C in 1000");
        duo.b("recv C 10");
        duo.b("epwait E 0");
    });
}

/// As HAProxy does when a thread takes over another one's connection: for a while the sets of
/// both have it, and each forgets it at its own time.
#[test]
fn taken_over_from_one_set_to_another() {
    let knobs = Knobs { promote_messages: Some(16), ..Knobs::at_once() };
    let moods = [("rings", knobs.clone()), ("rings, no spinning", knobs.spin(0))];
    compare_in(Net::Loopback, &moods, peer!("script"), |duo| {
        duo.connect("C");
        for name in ["E", "F"] {
            duo.b(&format!("epoll {name}"));
            duo.b(&format!("epadd {name} C in"));
        }
        duo.b("epdel E C");
        duo.b("epadd E C in");
        // It gets its channel only now.
        duo.round_trips("C", 30);
        for _ in 0..3 {
            duo.a("send C 10");
            duo.b("epwait F -1");
            duo.b("recv C 100");
        }
        duo.b("epdel E C");
        duo.b("epwait E 0");
        for _ in 0..3 {
            duo.round_trips("C", 3);
            duo.a("send C 10");
            duo.b("epwait F -1");
            duo.b("recv C 100");
        }
        // What `b` receives stays TCP while two sets have it.
        duo.prove_one_way("C");
    });
}

#[test]
fn taken_over_with_a_ring() {
    check(|duo| {
        duo.warm("C");
        for name in ["E", "F"] {
            duo.b(&format!("epoll {name}"));
            duo.b(&format!("epadd {name} C in"));
        }
        duo.b("epdel E C");
        duo.b("epwait E 0");
        for _ in 0..3 {
            duo.round_trips("C", 3);
            duo.a("send C 10");
            duo.b("epwait F -1");
            duo.b("recv C 100");
        }
    });
}

#[test]
fn taken_over_with_bytes_in_the_ring() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epoll F");
        duo.b("epadd E C in");
        duo.a("send C 50");
        duo.b("epwait E -1");
        duo.b("epadd F C in");
        duo.b("epdel E C");
        duo.b("epwait F -1");
        duo.b("recv C 100");
        duo.b("epwait F 0");
    });
}

#[test]
fn many_connections_in_one_set() {
    check(|duo| {
        duo.b("epoll E");
        for nth in 0..20 {
            duo.connect(&format!("C{nth}"));
            duo.round_trips(&format!("C{nth}"), 4);
            duo.prove("them all");
            duo.b(&format!("epadd E C{nth} in"));
        }
        for nth in [3, 7, 19] {
            duo.a(&format!("send C{nth} 10"));
        }
        for nth in [3, 7, 19] {
            duo.b(&format!("poll C{nth} in 1000"));
        }
        duo.b("epwait E 1000");
        duo.b("recv C7 100");
        duo.b("epwait E 1000");
        duo.b("recv C3 100");
        duo.b("recv C19 100");
        duo.b("async T epwait E -1");
        duo.b("asleep T");
        duo.a("send C11 10");
        duo.b("join T");
    });
}

/// The ready list is longer than asked for: nobody may starve.
#[test]
fn epoll_is_fair() {
    check(|duo| {
        duo.b("epoll E");
        for nth in 0..6 {
            duo.connect(&format!("C{nth}"));
            duo.round_trips(&format!("C{nth}"), 4);
            duo.prove("them all");
            duo.b(&format!("epadd E C{nth} in"));
        }
        for nth in 0..6 {
            duo.a(&format!("send C{nth} 10"));
        }
        for nth in 0..6 {
            duo.b(&format!("poll C{nth} in 1000"));
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            seen.insert(duo.quiet_b("epwait E 1000 1"));
        }
        duo.note(format!("seen: {seen:?}"));
    });
}

/// An edge tells of all that is ready: bytes in the ring, and room that only TCP has.
#[test]
fn an_edge_tells_of_reading_and_writing() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+out+et");
        duo.b("epwait E 1000");
        // It sleeps, so what goes to it goes by TCP.
        duo.a("poll C in 20");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("recv C 100");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("recv C 100");
    });
}
