//! Timeouts, full buffers and signals.
//!
//! Holds: socket(7), signal(7).

use crate::check;

#[test]
fn receive_timeout() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C rcvtimeo 60");
        duo.b("recv C 10");
        duo.b("recv C 10 - readv");
        duo.b("recv C 10 peek");
        duo.a("send C 20");
        duo.b("recv C 10");
        duo.b("recv C 100");
        duo.b("recv C 100");
        duo.b("set C rcvtimeo 0");
        duo.b("async T recv C 10");
        duo.b("asleep T");
        duo.a("send C 20");
        duo.b("join T");
    });
}

#[test]
fn send_timeout_and_full_buffers() {
    check(|duo| {
        duo.warm("C");
        duo.quiet_a("brim C");
        duo.a("poll C out 30");
        duo.a("send C 100 dontwait");
        duo.a("set C sndtimeo 60");
        duo.a("send C 1000");
        duo.a("set C sndtimeo 0");
        duo.a("async T sendall C 10000000");
        duo.b("async U drain C");
        duo.a("join T");
        duo.a("poll C out 5000");
        duo.a("close C");
        let drained = duo.quiet_b("join U");
        assert!(drained.ends_with("then eof"), "{drained}");
    });
}

#[test]
fn room_wakes_a_poller() {
    check(|duo| {
        duo.warm("C");
        duo.quiet_a("fill C");
        duo.a("async T poll C out -1");
        duo.a("asleep T");
        duo.b("async U drain C");
        duo.a("join T");
        duo.a("close C");
        let drained = duo.quiet_b("join U");
        assert!(drained.ends_with("then eof"), "{drained}");
    });
}

#[test]
fn signals_interrupt() {
    check(|duo| {
        duo.warm("C");
        duo.b("handler once");
        for call in ["recv C 100", "recv C 100 waitall", "poll C in -1"] {
            duo.b(&format!("async T {call}"));
            duo.b("asleep T");
            duo.b("kick T");
            duo.b("join T");
        }
        duo.b("handler restart");
        duo.b("async T recv C 100");
        duo.b("asleep T");
        duo.b("kick T");
        duo.b("asleep T");
        duo.a("send C 50");
        duo.b("join T");
        duo.b("async T poll C in -1");
        duo.b("asleep T");
        duo.b("kick T");
        duo.b("join T");
    });
}

#[test]
fn signals_cut_waitall_short() {
    check(|duo| {
        duo.warm("C");
        duo.b("handler once");
        duo.a("send C 100");
        duo.b("async T recv C 500 waitall");
        duo.b("asleep T");
        duo.b("kick T");
        duo.b("join T");
        duo.a("send C 400");
        duo.b("recvall C 400");
    });
}
