//! Signals that come while a call waits: asleep in the kernel, or watching the rings.
//!
//! Holds: signal(7), sigaction(2).

use yasmin_tests::lab::Knobs;
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::script::{Duo, compare_in};

use crate::c::check_all_there;

/// As elsewhere, and watching for so long that a signal surely comes while the call watches.
#[track_caller]
fn check(scenario: fn(&mut Duo)) {
    let moods = [
        ("rings, a long watch", Knobs::at_once().spin(400_000)),
        ("rings", Knobs::at_once()),
        ("rings, no spinning", Knobs::at_once().spin(0)),
        ("rings, chaos", Knobs::at_once().chaos(100, 11)),
    ];
    compare_in(Net::Loopback, &moods, peer!("script"), scenario);
}

/// Every call that waits for `C`, or for the set `E` that holds it.
const WAITS: [&str; 12] = [
    "recv C 100",
    "recv C 100 waitall",
    "recv C 100 peek",
    "recv C 100 - read",
    "recv C 100 - recvmsg",
    "poll C in -1",
    "ppoll C in -1 nomask",
    "pselect C in -1 nomask",
    "epwait E -1",
    "epwait E 60000",
    "eppwait E -1 nomask",
    "eppwait2 E -1 nomask",
];

/// Each call begins with the direction open, so that it has something to watch.
#[track_caller]
fn begin(duo: &mut Duo, call: &str) {
    duo.round_trips("C", 2);
    duo.b(&format!("async T {call}"));
    duo.b("waiting T");
    duo.b("kick T");
}

#[test]
fn a_handler_ends_a_wait() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.b("handler once");
        for call in WAITS {
            begin(duo, call);
            duo.b("join T");
        }
    });
}

#[test]
fn a_receive_goes_on_after_a_handler_that_restarts() {
    check(|duo| {
        duo.warm("C");
        duo.b("handler restart");
        for call in &WAITS[..5] {
            begin(duo, call);
            duo.b("waiting T");
            duo.b("kick T");
            duo.b("waiting T");
            duo.a("send C 100");
            duo.b("join T");
            if call.contains("peek") {
                duo.b("recv C 100");
            }
        }
    });
}

#[test]
fn no_wait_for_events_goes_on_after_a_handler() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.b("handler restart");
        for call in &WAITS[5..] {
            begin(duo, call);
            duo.b("join T");
        }
    });
}

/// With a timeout on the socket nothing goes on; what was moved before counts.
#[test]
fn timeouts_and_what_came_before() {
    check(|duo| {
        duo.warm("C");
        duo.b("handler restart");
        duo.b("set C rcvtimeo 30000");
        begin(duo, "recv C 100");
        duo.b("join T");
        duo.b("set C rcvtimeo 0");
        duo.round_trips("C", 2);
        duo.a("send C 60");
        duo.b("async T recv C 100 waitall");
        duo.b("waiting T");
        duo.b("kick T");
        duo.b("join T");
        duo.b("handler once");
        duo.round_trips("C", 2);
        duo.a("send C 60");
        duo.b("async T recv C 100 waitall");
        duo.b("waiting T");
        duo.b("kick T");
        duo.b("join T");
    });
}

/// What is there comes before a signal.
#[test]
fn no_signal_no_interruption() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.b("handler once");
        duo.connect("X");
        for call in WAITS {
            // One signal before the call, and one in another thread while it waits.
            duo.b("async S recv C 100 peek");
            duo.b("waiting S");
            duo.b("kick S");
            duo.b("join S");
            duo.b(&format!("async T {call}"));
            duo.b("waiting T");
            duo.b("async S poll X in 60000");
            duo.b("waiting S");
            duo.b("kick S");
            duo.b("join S");
            duo.a("send C 100");
            duo.b("join T");
            if !call.starts_with("recv") || call.contains("peek") {
                duo.b("recv C 100");
            }
        }
    });
}

/// A send that waits for room ends with what it has sent so far, restart or not.
#[test]
fn a_handler_ends_a_send() {
    check(|duo| {
        for how in ["once", "restart"] {
            duo.warm(how);
            duo.a(&format!("handler {how}"));
            duo.a(&format!("async T send {how} 30000000"));
            // It takes a while to make up what to send.
            duo.a("waiting T 200");
            duo.a("kick T");
            let sent: u64 = duo.quiet_a("join T").parse().unwrap_or(0);
            duo.note(format!("sent a part: {}", (1..30_000_000).contains(&sent)));
            duo.a(&format!("close {how}"));
            let drained = duo.quiet_b(&format!("drain {how}"));
            duo.note(format!("all came: {}", drained == format!("{sent} then eof")));
        }
    });
}

/// Signals that are let in for the time of the wait alone.
#[test]
fn masks_hold_for_the_wait() {
    check(|duo| {
        duo.warm("C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.b("handler once");
        for call in ["ppoll C in", "pselect C in", "eppwait E", "eppwait2 E"] {
            // Comes while it waits: blocked in the thread, let in by the mask.
            duo.round_trips("C", 2);
            duo.b(&format!("async T blocked {call} -1 open"));
            duo.b("waiting T");
            duo.b("kick T");
            duo.b("join T");
            // Let in by the thread, blocked by the mask.
            duo.round_trips("C", 2);
            duo.b(&format!("async T {call} -1 usr1"));
            duo.b("waiting T");
            duo.b("kick T");
            duo.b("waiting T");
            duo.a("send C 100");
            duo.b("join T");
            duo.b("recv C 100");
            // Pending before: with something to read it stays so, else it interrupts; a wait
            // that takes no time differs between poll and epoll.
            for timeout in ["-1", "0"] {
                duo.round_trips("C", 2);
                duo.b(&format!("pending {call} {timeout} open"));
                duo.a("send C 100");
                duo.b("poll C in 1000");
                duo.b(&format!("pending {call} {timeout} open"));
                duo.b("recv C 100");
            }
        }
    });
}

#[test]
fn handlers_are_the_programs_own() {
    check(|duo| {
        duo.b("tryhandlers");
    });
}

/// A mask that the thread has anyway changes nothing, and the library watches under it; under another one the kernel
/// tells what may interrupt.
#[test]
fn waits_with_a_mask() {
    let at_once = Knobs::at_once;
    let moods = [Knobs::default(), at_once(), at_once().spin(0), at_once().chaos(100, 3)];
    check_all_there("masks", &[], &moods);
}
