//! epoll sets with what lies in a ring: one-shot, moved, shared over fork, watched by others,
//! changed while somebody sleeps on them.
//!
//! Holds: epoll(7), epoll_ctl(2), spec/wire.md 5.4.

use yasmin_tests::lab::Knobs;
use yasmin_tests::script::Duo;

use crate::c::check_as_by_tcp;
use crate::check;

#[test]
fn one_shot_of_what_lies_in_the_ring() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("epoll E");
        duo.b("epadd E C in+oneshot");
        duo.b("epwait E 1000");
        duo.b("epwait E 30");
        duo.a("send C 100");
        duo.b("epwait E 30");
        duo.b("epadd E C in");
        duo.b("epmod E C in+oneshot");
        duo.b("epwait E 1000");
        duo.b("epwait E 30");
        duo.b("epmod E C in");
        duo.b("epwait E 1000");
        duo.b("epwait E 0");
        duo.b("epmod E C in+oneshot");
        duo.b("epwait E 1000");
        duo.b("epdel E C");
        duo.b("epdel E C");
        duo.b("epadd E C in+oneshot");
        duo.b("epwait E 1000");
        duo.b("recv C 1000");
        duo.b("epmod E C in+oneshot");
        duo.b("epwait E 30");
        duo.a("close C");
        duo.b("epwait E 1000");
        duo.b("epwait E 30");
    });
}

/// The kernel told of it, by the program's own data: room in a ring that opens later is no news.
#[test]
fn one_shot_of_room_is_told_once() {
    check(|duo| {
        for events in ["in+out+oneshot", "out+oneshot"] {
            duo.warm("C");
            duo.b("epoll E");
            duo.b(&format!("epadd E C {events}"));
            duo.b("epwait E 1000");
            duo.round_trips("C", 8);
            duo.b("epwait E 0");
            duo.b(&format!("epmod E C {events}"));
            duo.b("epwait E 1000");
            duo.round_trips("C", 8);
            duo.b("epwait E 0");
            duo.b("close E");
            duo.b("close C");
            duo.a("close C");
        }
    });
}

/// The set has it, though the ring told of it a moment ago and the kernel was not asked since.
#[test]
fn one_shot_that_was_told_is_there_still() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        for events in ["in+oneshot", "in+et+oneshot"] {
            duo.b("epoll E");
            duo.b(&format!("epadd E C {events}"));
            duo.b("epwait E 0 1");
            duo.b("epadd E C pri");
            duo.b("epwait E 0");
            duo.b("epmod E C in");
            duo.b("epwait E 0");
            duo.b("close E");
        }
    });
}

/// Bytes by ring so far.
fn by_ring(duo: &Duo) -> u64 {
    duo.lab.bytes_in_all().ring
}

#[track_caller]
fn assert_more_by_ring(duo: &Duo, before: u64) {
    if duo.lab.proves() && duo.lab.is_calm() {
        assert!(by_ring(duo) > before, "nothing by ring any more: {:#?}", duo.lab.status());
    }
}

/// Programs move what proves busy from a one-shot set to one that they poll.
/// One event tells all: what lies in the ring, and how the connection ended.
#[test]
fn one_shot_of_bytes_and_an_end() {
    check(|duo| {
        for (name, unread) in [("C", true), ("D", false)] {
            duo.warm(name);
            duo.b(&format!("epoll E{name}"));
            duo.a(&format!("send {name} 100"));
            duo.b(&format!("awaitunread {name} 100"));
            if unread {
                duo.b(&format!("send {name} 1"));
                duo.a(&format!("awaitunread {name} 1"));
            }
            duo.a(&format!("close {name}"));
            duo.b(&format!("poll {name} rdhup 1000"));
            for events in ["in+out+rdhup+oneshot", "in+oneshot", "out+oneshot"] {
                duo.b(&format!("epadd E{name} {name} {events}"));
                duo.b(&format!("epwait E{name} 0"));
                duo.b(&format!("epwait E{name} 0"));
                duo.b(&format!("epdel E{name} {name}"));
            }
            duo.b(&format!("drain {name}"));
        }
    });
}

/// The registration belongs to the number that was closed: it goes on telling, and the other
/// number cannot change it.
#[test]
fn a_registration_outlives_its_number() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.round_trips("C", 4);
        duo.b("epmod E C in+rdhup");
        duo.b("dup C D");
        duo.b("close C");
        duo.b("epmod E D in");
        duo.b("epdel E D");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("recv D 100");
        duo.b("epwait E 0");
        duo.b("epadd E D in");
        duo.b("epmod E D in");
        duo.b("epdel E D");
        duo.b("epdel E D");
        duo.a("close C");
        duo.b("epwait E 1000");
        duo.b("close D");
        duo.b("epwait E 0");
    });
}

/// A buffer of one event, which the ring could fill each time.
#[test]
fn one_event_at_a_time() {
    check(|duo| {
        duo.warm("C");
        duo.warm("D");
        duo.b("epoll E");
        duo.b("epadd E C in+out");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.a("close C");
        duo.b("poll C rdhup 1000");
        duo.b("send C 1");
        duo.b("poll C in+out+rdhup 0");
        duo.b("await C 100 in+out+err+hup+rdhup over");
        duo.b("epwait E 0 1");
        duo.b("epmod E C in+out+oneshot");
        duo.b("await C 100 in+out+err+hup+rdhup over");
        duo.b("epwait E 0 1");
        duo.b("epwait E 0 1");
        // Others are told of, too.
        duo.b("epmod E C in");
        duo.b("epadd E D out");
        let told: Vec<String> = (0..2000).map(|_| duo.quiet_b("epwait E 0 1")).collect();
        duo.note(format!("C: {}", told.iter().any(|event| event.starts_with("C:"))));
        duo.note(format!("D: {}", told.iter().any(|event| event.starts_with("D:"))));
    });
}

/// A change that the kernel has not been told of yet, when the descriptor is closed and a child
/// keeps the socket open.
#[test]
fn a_change_before_a_close() {
    check(|duo| {
        for (name, last) in [("C", "epmod E C in"), ("D", "epdel E D")] {
            duo.warm(name);
            if name == "C" {
                duo.b("epoll E");
            }
            duo.b(&format!("epadd E {name} in+out+et"));
            duo.b("fork P");
            duo.b(last);
            duo.b(&format!("close {name}"));
            duo.b("epwait E 0");
            duo.b("in P leave 0");
            duo.b("reap P");
            duo.a(&format!("close {name}"));
        }
    });
}

#[test]
fn watched_by_its_duplicate() {
    check(|duo| {
        for how in ["in", "in+et", "in+out+rdhup"] {
            duo.warm("C");
            duo.a("send C 100");
            duo.b("awaitunread C 100");
            duo.b("dup C D");
            duo.b("epoll E");
            duo.b(&format!("epadd E D {how}"));
            duo.b("epwait E 0");
            duo.b("recv C 100");
            duo.a("send C 100");
            duo.b("awaitunread C 100");
            duo.b("epwait E 0");
            duo.b("close C");
            duo.b("recv D 100");
            duo.b("close D");
            duo.b("epwait E 0");
            duo.b("close E");
            duo.a("close C");
        }
    });
}

#[test]
fn moved_from_a_one_shot_set() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epoll F");
        for _ in 0..3 {
            duo.b("epadd E C in+oneshot");
            duo.a("send C 100");
            duo.b("epwait E 1000");
            duo.b("recv C 100");
            duo.b("epdel E C");
            duo.b("epadd F C in");
            duo.round_trips("C", 8);
            let before = by_ring(duo);
            duo.round_trips("C", 8);
            assert_more_by_ring(duo, before);
            duo.a("send C 100");
            duo.b("poll C in 1000");
            duo.b("epwait F 1000");
            duo.b("epwait E 0");
            duo.b("recv C 100");
            duo.b("epwait F 0");
            duo.b("epdel F C");
        }
    });
}

/// Parent and child wait on the same set.
#[test]
fn a_set_that_a_child_uses() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        // In the ring when the child comes.
        duo.b("fork P");
        duo.b("in P epwait E 1000");
        duo.b("epwait E 1000");
        duo.b("recv C 100");
        duo.b("epwait E 0");
        duo.b("in P epwait E 0");
        for _ in 0..3 {
            duo.round_trips("C", 4);
            duo.b("in P async T epwait E -1");
            duo.b("in P asleep T");
            duo.a("send C 100");
            duo.b("in P join T");
            duo.b("epwait E 1000");
            duo.b("recv C 100");
            duo.b("epmod E C in");
        }
        duo.b("in P exit 0");
        duo.b("reap P");
        duo.a("send C 100");
        duo.b("epwait E 1000");
    });
}

/// The child leaves the set alone, as a background save does: the parent keeps its rings.
#[test]
fn a_set_that_a_child_leaves_alone() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.b("fork P");
        for _ in 0..8 {
            duo.round_trips("C", 2);
            duo.a("send C 100");
            duo.b("poll C in 1000");
            duo.b("epwait E 1000");
            duo.b("recv C 100");
        }
        let before = by_ring(duo);
        duo.round_trips("C", 8);
        assert_more_by_ring(duo, before);
        duo.b("in P exit 0");
        duo.b("reap P");
    });
}

/// The child receives, and so would offer; the parent's set knows nothing of the child's rings.
#[test]
fn a_child_reads_what_the_parent_watches() {
    check(|duo| {
        for made_before in [true, false] {
            let (name, child, set) = if made_before { ("C", "P", "E") } else { ("D", "Q", "F") };
            duo.warm(name);
            if made_before {
                duo.b(&format!("epoll {set}"));
                duo.b(&format!("epadd {set} {name} in"));
            }
            duo.b(&format!("fork {child}"));
            if made_before {
                duo.b(&format!("in {child} close {set}"));
            } else {
                duo.b(&format!("epoll {set}"));
                duo.b(&format!("epadd {set} {name} in"));
            }
            for _ in 0..4 {
                for _ in 0..3 {
                    duo.b(&format!("in {child} recv {name} 10 dontwait"));
                    duo.a(&format!("send {name} 10"));
                    duo.b(&format!("in {child} recv {name} 10"));
                }
                duo.a(&format!("send {name} 10"));
                duo.b(&format!("epwait {set} 1000"));
                duo.b(&format!("in {child} recv {name} 10"));
                duo.b(&format!("async {set}T epwait {set} -1"));
                duo.b(&format!("asleep {set}T"));
                duo.b(&format!("in {child} recv {name} 10 dontwait"));
                duo.a(&format!("send {name} 10"));
                duo.b(&format!("join {set}T"));
                duo.b(&format!("in {child} recv {name} 10"));
            }
            duo.b(&format!("in {child} exit 0"));
            duo.b(&format!("reap {child}"));
        }
    });
}

/// The parent closes the socket and leaves it in its set, which the kernel goes on telling of it
/// while the child has it.
#[test]
fn a_socket_in_a_set_is_left_to_a_child() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.b("recv C 10 dontwait");
        duo.b("fork P");
        duo.b("close C");
        for _ in 0..3 {
            duo.b("in P recv C 10 dontwait");
            duo.a("send C 10");
            duo.b("epwait E 1000");
            duo.b("in P recv C 10");
            duo.b("epwait E 0");
        }
        duo.b("in P exit 0");
        duo.b("reap P");
        duo.b("epwait E 0");
    });
}

/// A set is watched for the first time while bytes lie in a ring.
#[test]
fn watched_with_bytes_in_the_ring() {
    check(|duo| {
        for how in ["poll", "nest"] {
            let (name, set) = (how, format!("E{how}"));
            duo.warm(name);
            duo.b(&format!("epoll {set}"));
            duo.b(&format!("epadd {set} {name} in"));
            duo.a(&format!("send {name} 100"));
            duo.b(&format!("poll {name} in 1000"));
            if how == "poll" {
                duo.b(&format!("poll {set} in 1000"));
            } else {
                duo.b("epoll G");
                duo.b(&format!("epadd G {set} in"));
                duo.b("epwait G 1000");
            }
            duo.b(&format!("epwait {set} 1000"));
            duo.b(&format!("recv {name} 100"));
            duo.b(&format!("poll {set} in 0"));
            duo.a(&format!("send {name} 100"));
            duo.b(&format!("poll {set} in 1000"));
            if how == "nest" {
                duo.b("epwait G 1000");
            }
            duo.b(&format!("epwait {set} 1000"));
            duo.b(&format!("recv {name} 100"));
            duo.b(&format!("epwait {set} 0"));
        }
    });
}

/// Another thread sleeps on the set while it is changed; what is there already wakes it.
#[test]
fn changed_while_a_thread_sleeps_on_it() {
    check(|duo| {
        for how in ["in", "in+et", "in+oneshot"] {
            let name = how;
            duo.warm(name);
            duo.b(&format!("epoll E{how}"));
            // Added with bytes in the ring.
            duo.a(&format!("send {name} 100"));
            duo.b(&format!("poll {name} in 1000"));
            duo.b(&format!("async T epwait E{how} -1"));
            duo.b("asleep T");
            duo.b(&format!("epadd E{how} {name} {how}"));
            duo.b("join T");
            // Armed again with bytes left.
            duo.b(&format!("recv {name} 50"));
            duo.b(&format!("epmod E{how} {name} rdhup"));
            duo.b(&format!("async T epwait E{how} -1"));
            duo.b("asleep T");
            duo.b(&format!("epmod E{how} {name} {how}"));
            duo.b("join T");
            duo.b(&format!("recv {name} 50"));
            // Taken out, and in again.
            duo.b(&format!("epmod E{how} {name} {how}"));
            duo.b(&format!("async T epwait E{how} -1"));
            duo.b("asleep T");
            duo.b(&format!("epdel E{how} {name}"));
            duo.a(&format!("send {name} 100"));
            duo.b(&format!("poll {name} in 1000"));
            duo.b("asleep T");
            duo.b(&format!("epadd E{how} {name} {how}+out"));
            duo.b("join T");
            duo.b(&format!("recv {name} 100"));
        }
    });
}

/// Two threads on one set: a level wakes both or one, and nothing is lost.
#[test]
fn exclusive_and_two_sleepers() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+exclusive");
        duo.b("epmod E C in");
        duo.b("async T epwait E -1");
        duo.b("asleep T");
        duo.a("send C 100");
        duo.b("join T");
        duo.b("epwait E 0");
        duo.b("recv C 100");
        duo.b("epwait E 0");
        duo.b("epdel E C");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("epadd E C in+exclusive+et");
        duo.b("epwait E 1000");
        duo.b("epwait E 30");
        duo.b("recv C 100");
    });
}

/// A reader that stops at a short read, as nginx does: what comes next is a new edge.
#[test]
fn short_reads_on_edges() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+rdhup+et");
        duo.b("epwait E 0");
        for _ in 0..20 {
            duo.a("send C 100");
            duo.b("epwait E 1000");
            // Short: nothing more is read.
            duo.b("recv C 200 dontwait");
            duo.b("epwait E 0");
        }
        duo.a("send C 300");
        duo.b("epwait E 1000");
        duo.b("recv C 200 dontwait");
        duo.b("epwait E 0");
        duo.a("send C 300");
        duo.b("epwait E 1000");
        duo.b("recv C 1000 dontwait");
        duo.b("epwait E 0");
        duo.a("close C");
        duo.b("epwait E 1000");
    });
}

/// A writer that was told that there is no room hears of it when there is, once on an edge.
#[test]
fn room_after_a_full_ring() {
    check(|duo| {
        for how in ["out", "out+et"] {
            duo.warm(how);
            duo.a(&format!("epoll E{how}"));
            duo.quiet_a(&format!("fill {how}"));
            duo.a(&format!("epadd E{how} {how} {how}"));
            duo.a(&format!("epwait E{how} 30"));
            duo.a(&format!("async T epwait E{how} -1"));
            duo.a("asleep T");
            duo.b(&format!("async U drain {how}"));
            duo.a("join T");
            duo.a(&format!("sendall {how} 1000000"));
            duo.a(&format!("close {how}"));
            let drained = duo.quiet_b("join U");
            assert!(drained.ends_with("then eof"), "{drained}");
        }
    });
}

/// A thread closes what another one sleeps on: the sleeper goes on, and the number serves anew.
#[test]
fn closed_under_a_sleeper() {
    check(|duo| {
        for call in ["recv C 100", "epwait E -1"] {
            duo.warm("C");
            duo.b("epoll E");
            duo.b("epadd E C in");
            duo.b(&format!("async T {call}"));
            duo.b("asleep T");
            duo.b("closefd C");
            // The same number, and the library's memory of it, for another connection.
            duo.warm("D");
            duo.a("send C 100");
            if !call.starts_with("epwait") {
                duo.b("join T");
            }
            duo.round_trips("D", 8);
            let before = by_ring(duo);
            duo.round_trips("D", 8);
            assert_more_by_ring(duo, before);
            duo.b("async S recv D 100");
            duo.b("asleep S");
            duo.a("send D 100");
            duo.b("join S");
            if call.starts_with("epwait") {
                duo.b("epadd E D in");
                duo.a("send D 100");
                duo.b("join T");
                duo.b("recv D 100");
            }
            duo.b("close D");
            duo.b("close E");
            duo.a("close C");
            duo.a("close D");
            duo.quiet_b("forget C");
        }
    });
}

/// A child that has the set by fork sees at once what the parent changes, and so does the parent
/// when it is alone again.
#[test]
fn a_forked_child_sees_every_change() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+out");
        duo.b("fork P");
        duo.b("epdel E C");
        duo.b("in P epmod E C out");
        duo.b("epadd E C in");
        duo.b("in P epadd E C in");
        duo.b("in P epmod E C out");
        duo.b("in P epwait E 1000");
        duo.b("in P exit 0");
        duo.b("epwait E 1000");
        duo.b("epmod E C in");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("recvall C 100");
    });
}

/// The next program has the set as this one left it, whether or not it waited since.
#[test]
fn an_exec_takes_every_change_along() {
    check(|duo| change_and_exec(duo, "exec"));
    check(|duo| change_and_exec(duo, "exec plain"));
}

/// What closes on exec does not, and the last change was not followed by a wait.
fn changes_unwaited(duo: &mut Duo) {
    duo.warm("C");
    duo.b("epoll E");
    duo.b("epadd E C out");
    duo.b("epwait E 1000");
    duo.b("epmod E C in");
    duo.b("cloexec C 0");
    duo.b("cloexec E 0");
}

fn change_and_exec(duo: &mut Duo, exec: &str) {
    changes_unwaited(duo);
    duo.b(exec);
    duo.b("epwait E 0");
    duo.a("send C 100");
    duo.b("epwait E 1000");
    duo.b("recvall C 100");
}

/// A set in another one, as Java's virtual threads have them: who sleeps on the outer one is
/// told of what lies in a ring already, too.
#[test]
fn who_sleeps_on_the_outer_set_is_told() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll I");
        duo.b("epoll O");
        duo.b("epadd O I in");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("async T epwait O 5000");
        duo.b("asleep T");
        duo.b("epadd I C in+oneshot");
        duo.b("join T");
        duo.b("epwait I 0");
        duo.b("epwait I 0");
        duo.b("recvall C 100");
        duo.a("send C 100");
        duo.b("epmod I C in+oneshot");
        duo.b("epwait O 1000");
        duo.b("epwait I 1000");
        duo.b("recvall C 100");
    });
}

/// As many storeys as the kernel allows.
#[test]
fn a_set_in_a_set_in_a_set() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll I");
        duo.b("epoll M");
        duo.b("epoll O");
        duo.b("epadd I C in");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("epadd M I in");
        duo.b("epadd O M in");
        duo.b("epwait O 1000");
        duo.b("epwait M 1000");
        duo.b("epwait I 1000");
        duo.b("recvall C 100");
        duo.b("epwait O 0");
        duo.b("epwait M 0");
        duo.a("send C 100");
        duo.b("epwait O 1000");
        duo.b("recvall C 100");
    });
}

/// The outer set's registration is told once, and again when it is armed again.
#[test]
fn an_inner_set_is_told_once() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll I");
        duo.b("epoll O");
        duo.b("epadd I C in");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("epadd O I in+oneshot");
        duo.b("epwait O 1000");
        duo.b("epwait O 0");
        duo.b("epmod O I in+oneshot");
        duo.b("epwait O 1000");
        duo.b("epwait O 0");
        duo.b("epmod O I in");
        duo.b("epwait O 1000");
        duo.b("epwait O 1000");
        duo.b("recvall C 100");
        duo.b("epwait O 0");
        duo.b("epdel O I");
        duo.b("epadd O I in+oneshot");
        duo.a("send C 100");
        duo.b("epwait O 1000");
        duo.b("epwait O 0");
        duo.b("recvall C 100");
    });
}

#[test]
fn who_sleeps_on_a_set_is_told_of_a_new_inner_one() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll I");
        duo.b("epoll O");
        duo.b("epadd I C in");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("async T epwait O 5000");
        duo.b("asleep T");
        duo.b("epadd O I in");
        duo.b("join T");
        duo.b("epwait I 0");
        duo.b("recvall C 100");
        duo.b("epwait I 0");
        duo.b("epwait O 0");
    });
}

/// What a child in borrowed memory does with a number is none of its parent's set's business.
#[test]
fn a_borrower_takes_nothing_out() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+et");
        for how in ["dup2", "close", "closesocket", "closeset", "closerange", "dup2"] {
            // What it closes it would take out of the set, and the unread bytes with it.
            duo.a("send C 100");
            duo.b(&format!("vforked C {how}"));
            duo.b("unread C");
            duo.b("epwait E 1000");
            duo.b("recvall C 100");
            duo.b("recv C 1 dontwait");
            duo.b("send C 100");
            duo.a("recvall C 100");
        }
    });
}

/// So has a program that is started, and it sees what its parent changes later.
#[test]
fn a_started_program_sees_every_change() {
    check(|duo| change_and_start(duo, "spawn P"));
    check(|duo| change_and_start(duo, "spawn P plain"));
    check(|duo| change_and_start(duo, "vspawn P"));
    check(|duo| change_and_start(duo, "vspawn P plain"));
}

fn change_and_start(duo: &mut Duo, start: &str) {
    changes_unwaited(duo);
    duo.b(start);
    duo.b("in P epwait E 0");
    duo.b("epmod E C out");
    duo.b("in P epwait E 0");
    duo.b("epmod E C in");
    duo.b("in P epwait E 0");
    duo.a("send C 100");
    duo.b("epwait E 1000");
    duo.b("in P epwait E 1000");
    duo.b("recvall C 100");
}

/// Programs that ask for room with each message, and only until it is sent.
#[test]
fn room_is_asked_for_now_and_then() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        for _ in 0..20 {
            duo.b("epmod E C in+out");
            duo.b("epwait E 1000");
            duo.b("send C 100");
            duo.b("epwait E 1000");
            duo.b("epmod E C in");
            duo.a("recvall C 100");
            duo.a("send C 100");
            duo.b("epwait E 1000");
            duo.b("recvall C 100");
            duo.b("epwait E 0");
        }
        duo.b("epmod E C in+out");
        duo.quiet_b("fill C");
        duo.b("epwait E 0");
        duo.b("async T epwait E -1");
        duo.b("asleep T");
        duo.a("async U drain C");
        duo.b("join T");
        duo.b("close C");
        let drained = duo.quiet_a("join U");
        assert!(drained.ends_with("then eof"), "{drained}");
    });
}

/// Programs that ask for room alone while they send, and for bytes alone while they wait: the kernel
/// does not hear of each change, and what it tells of more than is asked for nobody is told.
#[test]
fn what_is_not_asked_for_by_now_is_not_told() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        for forms in [["epmod E C out", "epmod E C in"], ["epadd E C out", "epadd E C in"]] {
            let change = |duo: &mut Duo, to: &str| {
                if to.starts_with("epadd") {
                    duo.b("epdel E C");
                }
                duo.b(to);
            };
            for _ in 0..10 {
                change(duo, forms[0]);
                duo.b("epwait E 1000");
                duo.b("send C 100");
                change(duo, forms[1]);
                duo.a("recvall C 100");
                duo.a("send C 100");
                duo.b("epwait E 1000");
                duo.b("recvall C 100");
            }
        }
        // More than a ring holds: the kernel has bytes, too.
        duo.b("epmod E C out");
        duo.quiet_a("fill C");
        for _ in 0..3 {
            duo.b("epwait E 1000");
        }
        for _ in 0..3 {
            duo.b("epmod E C in");
            duo.b("epwait E 1000");
            duo.b("epmod E C hup");
            duo.b("epwait E 0");
        }
        duo.a("close C");
        let drained = duo.quiet_b("drain C");
        assert!(drained.ends_with("then eof"), "{drained}");
    });
}

/// A set in a set, as Java's virtual threads wait since JDK 24: waits on the outer one tell of what
/// lies in rings of the inner one, and these stay in use meanwhile.
#[test]
fn a_wait_on_a_set_of_sets_looks_at_rings() {
    check(|duo| {
        for how in ["in", "in+oneshot"] {
            let (name, inner, outer) = (how, format!("I{how}"), format!("O{how}"));
            duo.connect(name);
            duo.quiet_a(&format!("set {name} nodelay 1"));
            duo.quiet_b(&format!("set {name} nodelay 1"));
            duo.b(&format!("epoll {inner}"));
            duo.b(&format!("epoll {outer}"));
            duo.b(&format!("epadd {inner} {name} in+oneshot"));
            duo.b(&format!("epadd {outer} {inner} {how}"));
            for round in 0..60 {
                // Before the wait, or while it lasts.
                if round % 2 == 0 {
                    duo.a(&format!("send {name} 100"));
                    duo.b(&format!("epwait {outer} 1000"));
                } else {
                    duo.b(&format!("async T epwait {outer} 1000"));
                    duo.a(&format!("send {name} 100"));
                    duo.b("join T");
                }
                duo.b(&format!("epwait {inner} 0"));
                duo.b(&format!("epwait {inner} 0"));
                duo.b(&format!("recvall {name} 100"));
                // Nothing more: that is where directions are offered.
                duo.b(&format!("recv {name} 100 dontwait"));
                duo.b(&format!("epmod {inner} {name} in+oneshot"));
                duo.b(&format!("epwait {inner} 0"));
                duo.b(&format!("epmod {outer} {inner} {how}"));
                duo.b(&format!("epwait {outer} 0"));
                duo.b(&format!("send {name} 100"));
                duo.a(&format!("recvall {name} 100"));
            }
            duo.prove(name);
        }
    });
}

/// The program's buffer has room for one event, and what the kernel tells beyond what is asked for
/// takes it.
#[test]
fn what_is_not_asked_for_hides_nothing() {
    const CONNECTIONS: [&str; 8] = ["A", "B", "C", "D", "F", "G", "H", "I"];
    check(|duo| {
        for name in CONNECTIONS {
            duo.warm(name);
        }
        duo.connect("P");
        for _ in 0..5 {
            duo.b("epoll E");
            for name in CONNECTIONS {
                duo.b(&format!("epadd E {name} in"));
                for _ in 0..3 {
                    duo.a(&format!("send {name} 100"));
                    duo.b("epwait E 1000");
                    duo.b(&format!("recvall {name} 100"));
                }
                duo.b(&format!("epmod E {name} in+out"));
            }
            duo.b("epwait E 0");
            duo.b("epadd E P in");
            duo.a("send P 10");
            duo.b("poll P in 1000");
            for name in CONNECTIONS {
                duo.b(&format!("epmod E {name} in"));
            }
            duo.b("epwait E 0 1");
            duo.b("recvall P 10");
            duo.b("close E");
        }
    });
}

/// A one-shot registration that a ring has told of is spent for the child, too.
#[test]
fn a_forked_child_sees_what_is_spent() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+oneshot");
        duo.b("fork P");
        duo.a("send C 100");
        duo.b("epwait E 1000");
        duo.b("recvall C 50");
        duo.b("in P epwait E 30");
        duo.b("epmod E C in+oneshot");
        duo.b("in P epwait E 1000");
        duo.b("epwait E 30");
        duo.b("recvall C 50");
    });
}

/// One wait tells of what lies in rings in a set and in the sets inside it.
#[test]
fn one_wait_tells_of_both_storeys() {
    check(|duo| {
        duo.warm("C");
        duo.warm("D");
        duo.b("epoll I");
        duo.b("epoll O");
        duo.b("epadd I C in");
        duo.b("epadd O I in");
        duo.b("epadd O D in");
        duo.a("send C 100");
        duo.a("send D 100");
        for name in ["C", "D"] {
            duo.b(&format!("poll {name} in 1000"));
        }
        duo.b("epwait O 0");
        duo.b("epwait O 0 1 2");
        duo.b("recvall C 100");
        duo.b("epwait O 0");
        duo.b("recvall D 100");
        duo.b("epwait O 0");
    });
}

/// Who asks for edges of room alone is not told again because bytes came and were read.
#[test]
fn an_edge_of_room_alone_hears_nothing_of_bytes() {
    check(|duo| {
        duo.warm("C");
        duo.a("epoll E");
        duo.a("epadd E C out+et");
        duo.a("epwait E 0 64");
        for _ in 0..4 {
            duo.a("async T recvall C 30000");
            duo.b("sendall C 30000");
            duo.a("join T");
            duo.a("epwait E 0 64");
        }
        duo.prove_one_way("C");
    });
}

/// A small buffer hides nothing of what it tells: who is told that bytes came is told of room in
/// the same event.
#[test]
fn a_small_buffer_tells_whole_events() {
    check(|duo| {
        for name in ["C", "D"] {
            duo.warm(name);
            // Who sleeps has parked: of room the kernel tells.
            duo.a(&format!("poll {name} in 20"));
        }
        duo.b("epoll E");
        duo.b("epadd E C in+out");
        duo.b("epadd E D out+et");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("epwait E 0 2 2");
        duo.b("epmod E D in+out");
        duo.a("send D 100");
        duo.b("poll D in 1000");
        for _ in 0..4 {
            duo.b("epwait E 0 2 2");
            duo.b("epwait E 0 1 4");
        }
        duo.b("epmod E C in+out+oneshot");
        duo.b("epdel E D");
        duo.b("epwait E 0 1");
        duo.b("epwait E 0 1");
    });
}

/// An error and the end are in it, too, though nobody asks for them.
#[test]
fn a_small_buffer_tells_of_the_end_with_the_bytes() {
    check(|duo| {
        duo.warm("C");
        duo.a("epoll E");
        duo.a("epadd E C in");
        duo.b("send C 1");
        duo.a("awaitunread C 1");
        // Unread there, the close becomes a reset.
        duo.a("send C 1");
        duo.b("awaitunread C 1");
        duo.b("close C");
        duo.a("await C 1 in+out+err+hup+rdhup over");
        duo.a("epwait E 0 1 4");
    });
}

/// Who sleeps on a set of sets is told once of what lies in a ring, by whichever side tells first.
#[test]
fn a_sleeper_on_a_one_shot_inner_set_is_told_once() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll I");
        duo.b("epoll O");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.b("async T epwait O 5000");
        duo.b("asleep T");
        duo.b("epadd I C in");
        duo.b("epadd O I in+oneshot");
        duo.b("join T");
        duo.b("epwait O 0");
        duo.b("epwait I 0");
        duo.b("epmod O I in+oneshot");
        duo.b("epwait O 0");
        duo.b("recvall C 100");
        duo.b("epmod O I in");
        duo.b("epwait O 0");
    });
}

#[test]
fn who_sleeps_three_storeys_up_is_told() {
    check(|duo| {
        duo.warm("C");
        for name in ["I", "M", "O"] {
            duo.b(&format!("epoll {name}"));
        }
        duo.b("epadd M I in+oneshot");
        duo.b("epadd O M in+oneshot");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.b("async T epwait O 5000");
        duo.b("asleep T");
        duo.b("epadd I C in+oneshot");
        duo.b("join T");
        duo.b("epwait I 0");
        duo.b("epwait M 0");
        duo.b("epmod I C in+oneshot");
        duo.b("epmod M I in+oneshot");
        duo.b("poll M in 0");
        duo.b("recvall C 100");
        duo.b("poll I in 0");
        duo.b("poll M in 0");
    });
}

/// An edge in an inner set tells of the end and of the bytes in one event.
#[test]
fn an_edge_in_an_inner_set_is_whole() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll I");
        duo.b("epoll O");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.a("close C");
        duo.b("poll C rdhup 1000");
        duo.b("epadd I C in+rdhup+et");
        duo.b("async T epwait O 5000");
        duo.b("asleep T");
        duo.b("epadd O I in");
        duo.b("join T");
        duo.b("epwait O 0");
        duo.b("epwait I 0");
        duo.b("epwait O 0");
        duo.b("recvall C 100");
    });
}

/// A poll or select of a set sees what lies in rings, and no more once it is read.
#[test]
fn a_polled_set_shows_its_rings() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        for _ in 0..3 {
            duo.a("send C 100");
            duo.b("awaitunread C 100");
            duo.b("poll E in 0");
            duo.b("selectnow E in");
            duo.b("recvall C 60");
            duo.b("poll E in 0");
            duo.b("recvall C 40");
            duo.b("poll E in 0");
        }
        duo.a("send C 100");
        duo.b("poll E in 1000");
        duo.b("epdel E C");
        duo.b("poll E in 0");
        duo.b("epadd E C in");
        duo.b("poll E in 0");
        duo.b("close C");
        duo.b("poll E in 0");
        duo.b("lowest");
    });
}

/// Room is told of in the order in which it was asked for, by whatever way a connection is; what one
/// wait told of keeps its place in the next one.
#[test]
fn room_is_told_in_the_order_in_which_it_was_asked_for() {
    const CONNECTIONS: [&str; 6] = ["A", "B", "C", "D", "F", "G"];
    check(|duo| {
        for name in CONNECTIONS {
            duo.warm(name);
        }
        duo.b("epoll E");
        for name in CONNECTIONS {
            duo.b(&format!("epadd E {name} in"));
        }
        for round in 0..6 {
            let mut order = CONNECTIONS;
            order.rotate_left(round);
            order[round % 3..].reverse();
            duo.b("epwait E 0");
            for name in order {
                duo.b(&format!("epmod E {name} in+out"));
            }
            duo.b("epinorder E 0");
            duo.b("epinorder E 0");
            for name in order {
                duo.b(&format!("epmod E {name} in"));
            }
            // All are parked, and some open again.
            duo.b("epwait E 20");
            for name in &order[..round % 3] {
                duo.round_trips(name, 2);
            }
        }
    });
}

/// What is told once has lost its place: bytes are told of in the order in which they came, though
/// there is room as well.
#[test]
fn an_edge_with_room_keeps_no_place() {
    check(|duo| {
        duo.warm("A");
        duo.warm("B");
        duo.b("epoll E");
        for name in ["A", "B"] {
            duo.b(&format!("epadd E {name} in+out+et"));
        }
        duo.b("epwait E 0");
        for name in ["B", "A"] {
            duo.a(&format!("send {name} 10"));
            duo.b("epwait E 1000");
            duo.b(&format!("recv {name} 100"));
        }
        for _ in 0..4 {
            duo.a("send A 10");
            duo.a("send B 10");
            duo.b("epinorder E 1000");
            duo.b("recv A 100");
            duo.b("recv B 100");
        }
    });
}

/// What tells as long as it lasts keeps the place that the last wait gave it, whatever is sent since,
/// by ring or by TCP, until a wait finds it with nothing to tell.
#[test]
fn bytes_keep_the_place_that_the_last_wait_gave() {
    const CONNECTIONS: [&str; 4] = ["A", "B", "C", "D"];
    check(|duo| {
        for name in CONNECTIONS {
            duo.warm(name);
        }
        // That one is on TCP from here on.
        duo.b("dup C C2");
        duo.b("epoll E");
        for name in CONNECTIONS {
            duo.b(&format!("epadd E {name} in"));
        }
        for round in 0..8 {
            let mut order = CONNECTIONS;
            order.rotate_left(round % 4);
            order[round % 3..].reverse();
            duo.b("epwait E 0");
            for name in order {
                duo.a(&format!("send {name} 10"));
                duo.b("epinorder E 1000");
            }
            for name in CONNECTIONS {
                duo.b(&format!("recv {name} 100"));
            }
            for name in CONNECTIONS {
                duo.a(&format!("send {name} 10"));
            }
            duo.b("epinorder E 1000");
            for name in order {
                duo.b(&format!("recv {name} 100"));
            }
        }
    });
}

/// Bytes come while others are unread, some of them by TCP and some by ring: each time an edge.
#[test]
fn each_arrival_behind_unread_bytes_is_an_edge() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+et");
        for _ in 0..40 {
            for len in [200, 10, 20] {
                duo.a(&format!("send C {len}"));
                duo.b("epwait E 1000");
                duo.b("recv C 5");
                duo.b("epwait E 0");
            }
            duo.b("recv C 1000");
            duo.b("recv C 1000 dontwait");
        }
    });
}

/// The kernel tells of these connections as well, in the place of others.
#[test]
fn one_wait_tells_of_what_the_rings_leave_room_for() {
    check_as_by_tcp("crowded", &[Knobs::default(), Knobs::default().chaos(100, 3)]);
}

/// Also what other processes do: the kernel is asked whenever a ring has something.
#[test]
fn a_wait_tells_of_other_descriptors_in_their_order() {
    check_as_by_tcp("beside", &[Knobs::default(), Knobs::default().chaos(100, 3)]);
}
