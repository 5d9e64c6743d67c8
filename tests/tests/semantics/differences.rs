//! Differences from plain TCP that random programs found (tests/differential), each as short as
//! it could be made.
//!
//! Holds: recv(2), tcp(7), epoll(7).

use crate::check;

/// The kernel was asked just now, and is not due again.
#[test]
fn an_end_that_comes_between_two_looks() {
    check(|duo| {
        for nth in 0..10 {
            let name = format!("C{nth}");
            duo.warm(&name);
            duo.b(&format!("nonblock {name} 1"));
            for _ in 0..5 {
                duo.b(&format!("recv {name} 100"));
                duo.b(&format!("send {name} 10"));
                duo.a(&format!("recv {name} 10"));
            }
            duo.a(&format!("close {name}"));
            duo.b(&format!("recv {name} 100"));
            duo.b(&format!("close {name}"));
        }
    });
}

/// Nothing to receive, and yet something to tell.
#[test]
fn no_bytes_before_an_urgent_one() {
    check(|duo| {
        duo.warm("C");
        duo.b("urgent C");
        duo.a("poll C pri 1000");
        duo.a("recv C 0 dontwait");
        duo.a("recv C 10 dontwait");
    });
}

/// The error is for the next call, not for the one that found bytes.
#[test]
fn a_reset_behind_unread_bytes() {
    check(|duo| {
        for flags in ["dontwait", "waitall", "peek"] {
            let name = format!("C{flags}");
            duo.warm(&name);
            duo.a(&format!("send {name} 10"));
            duo.b(&format!("send {name} 10"));
            duo.a(&format!("close {name}"));
            duo.b(&format!("poll {name} - 1000"));
            duo.b(&format!("recv {name} 100 {flags}"));
            duo.b(&format!("poll {name} in+out 0"));
            duo.b(&format!("drain {name}"));
            duo.b(&format!("drain {name}"));
        }
    });
}

#[test]
fn waiting_for_all_stops_before_an_urgent_byte() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 400");
        duo.a("urgent C");
        duo.b("poll C pri 1000");
        duo.b("recv C 4000 waitall+dontwait");
        duo.b("poll C in+pri 0");
        duo.b("atmark C");
        duo.b("recv C 1 oob");
    });
}

/// TCP's part ends at the mark, behind what the ring gave.
#[test]
fn waiting_for_all_stops_before_an_urgent_byte_behind_bytes_of_tcp() {
    check(|duo| {
        for (nth, flags) in ["waitall+dontwait", "waitall"].into_iter().enumerate() {
            let name = format!("C{nth}");
            duo.warm(&name);
            duo.a(&format!("send {name} 1"));
            // So long that some bytes go by TCP again.
            std::thread::sleep(std::time::Duration::from_millis(1100));
            duo.a(&format!("send {name} 172"));
            duo.a(&format!("urgent {name}"));
            duo.a(&format!("send {name} 65"));
            duo.b(&format!("awaitunread {name} 173"));
            duo.b(&format!("recv {name} 239 {flags}"));
            duo.b(&format!("recv {name} 65"));
        }
    });
}

/// One place for the event, of which the ring knows one half and the kernel the other.
#[test]
fn one_event_with_both_halves() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in+out");
        duo.a("send C 1");
        duo.b("poll C in 1000");
        duo.b("async T sendall C 300000");
        duo.a("recvall C 300000");
        duo.b("join T");
        duo.b("poll C in+out 1000");
        duo.b("epwait E 0 1");
        duo.b("epwait E 0 1");
    });
}
