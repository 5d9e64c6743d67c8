//! epoll sets that several processes use, with bytes unread in a ring: the kernel's list of
//! registrations counts, whoever changed it, and for as long as anybody holds the socket.
//!
//! Holds: epoll(7), epoll_ctl(2).

use yasmin_tests::script::Duo;

use crate::check;

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
