//! Signals that sockets raise, and handlers that use the socket that their thread is using.
//!
//! Holds: socket(7), signal(7).

use crate::check;

#[test]
fn sigpipe_is_raised_as_often_as_tcp_raises_it() {
    check(|duo| {
        duo.warm("C");
        duo.a("count pipe");
        duo.a("shutdown C wr");
        for form in ["send", "write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile"] {
            duo.a(&format!("send C 100 - {form}"));
            duo.a("caught pipe");
        }
        for form in ["send", "sendto", "sendmsg", "sendmmsg"] {
            duo.a(&format!("send C 100 nosignal {form}"));
            duo.a("caught pipe");
        }
        duo.b("drain C");
    });
}

#[test]
fn sigpipe_after_the_peer_has_gone() {
    check(|duo| {
        duo.warm("C");
        duo.a("count pipe");
        duo.b("close C");
        duo.a("poll C rdhup 1000");
        duo.a("send C 100");
        duo.a("poll C - 1000");
        duo.a("caught pipe");
        duo.a("send C 100");
        duo.a("caught pipe");
        duo.a("send C 100 nosignal");
        duo.a("send C 100 - write");
        duo.a("caught pipe");
        duo.a("recv C 100");
    });
}

#[test]
fn sigpipe_reaches_a_sender_that_sleeps() {
    check(|duo| {
        duo.warm("C");
        duo.a("count pipe");
        duo.a("brim C");
        duo.a("async T send C 1000");
        duo.a("asleep T");
        duo.a("shutdown C wr");
        duo.a("join T");
        duo.a("caught pipe");
    });
}

#[test]
fn urgent_data_raises_sigurg() {
    check(|duo| {
        duo.warm("C");
        duo.b("count urg");
        duo.b("own C");
        duo.a("send C 100");
        duo.b("recv C 100");
        duo.b("caught urg");
        duo.a("urgent C");
        duo.b("poll C pri 1000");
        duo.b("caught urg");
        duo.b("recv C 1 oob");
        duo.b("recv C 1 dontwait");
        duo.a("send C 100");
        duo.b("recv C 100");
        duo.b("send C 100");
        duo.a("recv C 100");
    });
}

/// Urgent data in the stream, where the program asked for it there.
#[test]
fn urgent_data_in_line() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C oobinline 1");
        duo.a("send C 100");
        duo.a("urgent C");
        duo.b("poll C pri 1000");
        duo.b("recv C 1 oob");
        duo.b("recv C 500 peek");
        duo.b("recv C 500");
        duo.b("atmark C");
    });
}

/// Rings are given up for good: both ends go on by TCP.
#[test]
fn urgent_data_parks_for_good() {
    check(|duo| {
        duo.warm("C");
        duo.a("urgent C");
        duo.b("poll C pri 1000");
        duo.b("recv C 1 oob");
        duo.round_trips("C", 4);
        let before = duo.lab.bytes_in_all().ring;
        duo.round_trips("C", 16);
        let after = duo.lab.bytes_in_all().ring;
        assert_eq!(before, after, "bytes by ring after urgent data");
    });
}

#[test]
fn a_handler_sends_while_its_thread_sleeps() {
    check(|duo| {
        duo.warm("C");
        duo.b("uses C sends");
        for call in ["recv C 100", "recv C 100 waitall", "recv C 100 peek"] {
            duo.b(&format!("async T {call}"));
            duo.b("asleep T");
            duo.b("nudge T");
            // The mark is not of the pattern: one byte, whatever it is.
            duo.a("recv C 1 trunc");
            duo.a("send C 100");
            duo.b("join T");
        }
        duo.b("did");
        duo.b("recv C 100");
    });
}

#[test]
fn a_handler_sends_while_its_thread_sends() {
    check(|duo| {
        duo.warm("C");
        duo.b("async T tally C");
        duo.a("storm C 30000");
        let marks = duo.quiet_a("did");
        let tally = duo.quiet_b("join T");
        let marks = marks.strip_suffix(" errno 0").unwrap_or(&marks);
        assert_eq!(tally, format!("3000000 and {marks}"));
    });
}

#[test]
fn a_handler_receives_while_its_thread_receives() {
    check(|duo| {
        duo.warm("C");
        duo.b("async T stormread C 3000000");
        duo.a("sendall C 3000000");
        duo.a("close C");
        duo.b("join T");
    });
}

/// A receive timeout takes SA_RESTART's meaning away.
#[test]
fn a_signal_ends_a_receive_with_a_timeout() {
    check(|duo| {
        duo.warm("C");
        duo.b("handler restart");
        duo.b("set C rcvtimeo 60000");
        duo.b("async T recv C 100");
        duo.b("asleep T");
        duo.b("kick T");
        duo.b("join T");
        duo.b("set C sndtimeo 60000");
        duo.b("brim C");
        duo.b("async T send C 100");
        duo.b("asleep T");
        duo.b("kick T");
        duo.b("join T");
    });
}

#[test]
fn signals_and_a_sender_that_sleeps() {
    check(|duo| {
        duo.warm("C");
        duo.b("handler once");
        duo.b("brim C");
        duo.b("async T send C 100");
        duo.b("asleep T");
        duo.b("kick T");
        duo.b("join T");
        duo.b("handler restart");
        duo.b("async T send C 100");
        duo.b("asleep T");
        duo.b("kick T");
        duo.b("asleep T");
        duo.a("async D drain C");
        duo.b("join T");
        duo.b("close C");
        let drained = duo.quiet_a("join D");
        assert!(drained.ends_with("then eof"), "{drained}");
    });
}
