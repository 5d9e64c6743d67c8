//! epoll sets that a program did not make: it was begun with them, or a message brought them. They tell of what lies
//! in a ring, and nothing goes by ring that they would not tell of.
//!
//! Holds: epoll(7), epoll_ctl(2), execve(2), unix(7).

use yasmin_tests::script::Duo;

use crate::{check, handed};

/// C and the set E in which `b` has it are for the next program.
fn watch(duo: &mut Duo, events: &str) {
    duo.b("epoll E");
    duo.b(&format!("epadd E C {events}"));
    duo.b("cloexec C 0");
    duo.b("cloexec E 0");
}

/// Bytes unread, of which a wait has told or not.
#[test]
fn an_inherited_set_tells_of_unread_bytes() {
    check(|duo| {
        for (nth, events) in ["in", "in+out", "in+rdhup", "in+et", "in+oneshot"].iter().enumerate()
        {
            for is_told in [false, true] {
                let (c, e) = (format!("C{nth}{is_told}"), format!("E{nth}{is_told}"));
                duo.warm(&c);
                duo.b(&format!("epoll {e}"));
                duo.b(&format!("epadd {e} {c} {events}"));
                duo.b(&format!("cloexec {c} 0"));
                duo.b(&format!("cloexec {e} 0"));
                duo.a(&format!("send {c} 100"));
                duo.b(&format!("awaitunread {c} 100"));
                if is_told {
                    duo.b(&format!("epwait {e} 0"));
                }
            }
        }
        duo.b("exec");
        for nth in 0..5 {
            for is_told in [false, true] {
                let (c, e) = (format!("C{nth}{is_told}"), format!("E{nth}{is_told}"));
                for _ in 0..2 {
                    duo.b(&format!("epwait {e} 0"));
                }
                duo.b(&format!("epmod {e} {c} in"));
                duo.b(&format!("epwait {e} 0"));
                duo.b(&format!("recvall {c} 100"));
                duo.b(&format!("epwait {e} 0"));
                duo.a(&format!("send {c} 100"));
                duo.b(&format!("epwait {e} 2000"));
                duo.b(&format!("recvall {c} 100"));
            }
        }
    });
}

/// What its ring told of once is registered still.
#[test]
fn what_is_spent_is_there_after_an_exec() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        watch(duo, "in+oneshot");
        duo.b("epwait E 0");
        duo.b("epwait E 0");
        duo.b("exec");
        duo.b("epadd E C in");
        duo.b("epwait E 0");
        duo.b("epmod E C in");
        duo.b("epwait E 0");
        duo.b("recvall C 100");
        duo.b("epdel E C");
        duo.b("epdel E C");
    });
}

/// Both numbers of a set are one, and its socket has another number by now.
#[test]
fn an_inherited_set_of_two_numbers() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        watch(duo, "in");
        duo.b("dup E F");
        duo.b("dup C D");
        duo.b("cloexec C 1");
        duo.b("exec");
        for set in ["E", "F"] {
            duo.b(&format!("epwait {set} 0"));
        }
        duo.b("close E");
        duo.b("epwait F 0");
        duo.b("recvall D 100");
        duo.b("epwait F 0");
        duo.a("send C 100");
        duo.b("epwait F 2000");
        duo.b("recvall D 100");
    });
}

/// It was never busy before, and would have a ring in the next program otherwise.
#[test]
fn what_an_inherited_set_holds_is_told_in_the_next_program() {
    handed::check(|duo| {
        duo.connect("C");
        duo.quiet_b("set C nodelay 1");
        duo.a("cloexec L 0");
        duo.a("epoll E");
        duo.a("epadd E C in");
        duo.a("cloexec E 0");
        duo.a("exec");
        served(duo, "", "C");
        prove(duo, "", "C");
        // Another one that it accepts, in a set of its own.
        duo.connect("D");
        duo.a("epoll F");
        duo.a("epadd F D in");
        duo.a("epadd E D in");
        served(duo, "", "D");
    });
}

/// `a`, or what it says first, waits for what comes on its set E.
fn served(duo: &mut Duo, who: &str, name: &str) {
    for _ in 0..100 {
        duo.b(&format!("sendall {name} 300"));
        duo.a(&format!("{who}epwait E 5000"));
        duo.a(&format!("{who}recvall {name} 300"));
        duo.a(&format!("{who}sendall {name} 200"));
        duo.b(&format!("recvall {name} 200"));
    }
}

/// What `a`, or what it says first, sends goes by ring at some time: nothing keeps `b` from receiving so.
#[track_caller]
fn prove(duo: &mut Duo, who: &str, name: &str) {
    let proves = duo.lab.proves() && duo.lab.is_calm();
    for _ in 0..400 {
        assert_eq!(duo.quiet_b(&format!("sendall {name} 5000")), "5000");
        assert_eq!(duo.quiet_a(&format!("{who}recvall {name} 5000")), "5000");
        assert_eq!(duo.quiet_a(&format!("{who}sendall {name} 5000")), "5000");
        assert_eq!(duo.quiet_b(&format!("recvall {name} 5000")), "5000");
        if !proves || duo.lab.bytes_in_all().ring > 0 {
            return;
        }
    }
    panic!("nothing by ring: {:#?}", duo.lab.status());
}

/// To `a`'s child.
fn give(duo: &mut Duo, names: [&str; 2]) {
    for name in names {
        duo.a(&format!("give U {name}"));
        duo.a(&format!("in P take V {name}"));
    }
}

/// A set and a socket in it go to another program, the one or the other first.
fn passed(duo: &mut Duo, order: [&str; 2]) {
    duo.a("pair U V");
    duo.a("cloexec V 0");
    duo.a("spawn P");
    duo.connect("C");
    duo.quiet_b("set C nodelay 1");
    duo.a("epoll E");
    duo.a("epadd E C in");
    // In P the number of the connection is another one.
    duo.a("in P epoll X");
    give(duo, order);
    duo.a("close C");
    duo.a("close E");
    served(duo, "in P ", "C");
    // Behind the set it may be in it already.
    if order[0] == "C" {
        prove(duo, "in P ", "C");
    }
}

#[test]
fn what_a_received_set_holds_is_told() {
    handed::check(|duo| passed(duo, ["E", "C"]));
    handed::check(|duo| passed(duo, ["C", "E"]));
}

/// The same with bytes unread in a ring.
fn passed_unread(duo: &mut Duo, order: [&str; 2], events: &str) {
    duo.a("pair U V");
    duo.a("cloexec V 0");
    duo.a("spawn P");
    duo.warm("C");
    duo.a("epoll E");
    duo.a(&format!("epadd E C {events}"));
    duo.a("in P epoll X");
    duo.b("send C 100");
    duo.a("awaitunread C 100");
    give(duo, order);
    duo.a("in P epwait E 0");
    duo.a("close C");
    duo.a("close E");
    duo.a("in P epwait E 0");
    duo.a("in P recvall C 100");
    duo.a("in P epwait E 0");
    duo.b("send C 100");
    duo.a("in P epwait E 5000");
    duo.a("in P recvall C 100");
}

#[test]
fn a_received_set_tells_of_unread_bytes() {
    check(|duo| passed_unread(duo, ["E", "C"], "in"));
    check(|duo| passed_unread(duo, ["C", "E"], "in"));
    check(|duo| passed_unread(duo, ["E", "C"], "in+et"));
    check(|duo| passed_unread(duo, ["C", "E"], "in+et"));
}
