//! What calls return at the edges of a connection's life: each scenario runs on plain TCP first
//! and must give the same results, to the errno, on rings.
//!
//! In a warm connection both directions are open, so that what is sent while nobody receives
//! lies in the ring: these are the bytes that the kernel knows nothing of.

use yasmin_tests::peer;
use yasmin_tests::script::{Duo, compare};

#[track_caller]
fn check(scenario: fn(&mut Duo)) {
    compare(peer!("script"), scenario);
}

// ---- the ends of a stream ----

#[test]
fn eof_comes_after_the_last_byte() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 5000");
        duo.a("close C");
        duo.b("poll C rdhup 1000");
        duo.b("poll C in+out+rdhup 0");
        duo.b("recv C 2000");
        duo.b("recv C 9000");
        duo.b("recv C 9000");
        duo.b("recv C 9000");
        duo.b("state C");
        duo.b("poll C in+rdhup 1000");
    });
}

#[test]
fn eof_without_data() {
    check(|duo| {
        duo.warm("C");
        duo.a("close C");
        duo.b("recv C 10");
        duo.b("recv C 10 dontwait");
        duo.b("send C 10");
        // The kernel answers with a reset.
        duo.b("poll C in 1000");
        duo.b("send C 10 nosignal");
        duo.b("send C 10 nosignal");
        duo.b("recv C 10");
    });
}

#[test]
fn a_sleeping_recv_sees_the_end() {
    check(|duo| {
        duo.warm("C");
        duo.b("async T recvall C 1000");
        duo.b("asleep T");
        duo.a("send C 300");
        duo.a("close C");
        duo.b("join T");
    });
}

#[test]
fn half_close() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 70000");
        duo.a("shutdown C wr");
        duo.a("send C 10 nosignal");
        duo.b("drain C");
        duo.b("state C");
        duo.b("send C 3000");
        duo.a("recvall C 3000");
        duo.b("send C 3000");
        duo.b("shutdown C wr");
        duo.a("drain C");
        duo.a("shutdown C wr");
        duo.a("close C");
        duo.b("close C");
    });
}

#[test]
fn half_close_goes_on_for_long() {
    check(|duo| {
        duo.warm("C");
        duo.a("shutdown C wr");
        duo.a("async T recvall C 3000000");
        duo.b("sendall C 3000000");
        duo.a("join T");
        duo.b("drain C");
        duo.b("close C");
        duo.a("drain C");
    });
}

#[test]
fn shutdown_of_reading() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 500");
        duo.b("shutdown C rd");
        duo.b("poll C in+rdhup 1000");
        duo.b("recv C 200");
        duo.b("recv C 1000");
        duo.b("recv C 1000");
        duo.b("send C 100");
        duo.a("recv C 1000");
    });
}

#[test]
fn shutdown_of_both() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 500");
        duo.a("shutdown C rdwr");
        duo.a("recv C 10");
        duo.a("send C 10 nosignal");
        duo.b("drain C");
        duo.b("close C");
        duo.a("shutdown C wr");
    });
}

#[test]
fn shutdown_wakes_a_sleeper_of_the_same_process() {
    check(|duo| {
        duo.warm("C");
        duo.a("async T recv C 100");
        duo.a("asleep T");
        duo.a("shutdown C rd");
        duo.a("join T");
    });
}

#[test]
fn close_with_unread_data_resets() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("close C");
        duo.a("poll C - 1000");
        duo.a("poll C in+out+rdhup 0");
        duo.a("get C error");
        duo.a("get C error");
        duo.a("recv C 10");
        duo.a("send C 10 nosignal");
    });
}

#[test]
fn close_with_unread_data_resets_the_receiver() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("send C 700");
        duo.b("close C");
        // What came before the reset can still be read.
        duo.a("drain C");
        duo.a("drain C");
        duo.a("send C 10 nosignal");
    });
}

#[test]
fn close_after_part_was_read_resets() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("recv C 999");
        duo.b("close C");
        duo.a("recv C 10");
        duo.a("recv C 10");
    });
}

#[test]
fn close_after_all_was_read_does_not_reset() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("recvall C 1000");
        duo.b("close C");
        duo.a("recv C 10");
        duo.a("get C error");
    });
}

#[test]
fn peeked_bytes_are_unread_bytes() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("recv C 1000 peek");
        duo.b("close C");
        duo.a("recv C 10");
    });
}

/// Some lie in TCP, some in the ring, some in TCP behind them, and then comes a reset.
#[test]
fn bytes_before_a_reset_stay_in_order() {
    check(|duo| {
        for nth in 0..5 {
            let name = format!("C{nth}");
            duo.warm(&name);
            duo.a(&format!("set {name} linger 0"));
            duo.a(&format!("send {name} 1000"));
            duo.quiet_a(&format!("fill {name}"));
            duo.a(&format!("close {name}"));
            // How much TCP had delivered by then differs.
            let drained = duo.quiet_b(&format!("drain {name}"));
            assert!(!drained.contains("WRONG"), "{drained}");
            let (_, end) = drained.split_once(" then ").unwrap_or_default();
            duo.note(format!("then {end}"));
            duo.b(&format!("close {name}"));
        }
    });
}

#[test]
fn linger_zero_resets() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C linger 0");
        duo.b("send C 500");
        duo.b("close C");
        duo.a("poll C in 1000");
        duo.a("drain C");
        duo.a("send C 10 nosignal");
    });
}

#[test]
fn linger_with_time_closes_in_order() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C linger 5");
        duo.b("send C 500");
        duo.b("close C");
        duo.a("drain C");
    });
}

#[test]
fn exit_ends_the_stream() {
    check(|duo| {
        duo.warm("C");
        duo.b("send C 5000");
        duo.end_b("exit 3");
        duo.a("drain C");
    });
}

#[test]
fn exit_with_unread_data_resets() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 5000");
        duo.end_b("exit 0");
        duo.a("poll C - 1000");
        duo.a("poll C in+out 0");
        // The kernel resets only where it knows of unread data: a killed process cannot tell it
        // of the ring's. Both are ends; sending shows the reset at the latest.
        duo.quiet_a("recv C 10");
        duo.quiet_a("send C 10 nosignal");
        duo.quiet_a("poll C in 1000");
        duo.quiet_a("send C 10 nosignal");
        duo.a("send C 10 nosignal");
    });
}

#[test]
fn sigpipe_kills() {
    check(|duo| {
        duo.warm("C");
        duo.a("sigpipe default");
        duo.a("shutdown C wr");
        duo.end_a("send C 10");
        duo.b("drain C");
    });
}

#[test]
fn writes_into_a_closed_connection_end() {
    check(|duo| {
        duo.warm("C");
        duo.b("close C");
        duo.a("async T sendall C 30000000");
        let result = duo.quiet_a("join T");
        let (_, end) = result.split_once(" then ").unwrap_or((&result, "no end"));
        // TCP gives either, by how far the reset got.
        assert!(["EPIPE", "ECONNRESET"].contains(&end), "{result}");
        duo.a("send C 10 nosignal");
    });
}

// ---- flags ----

#[test]
fn peek_leaves_what_it_sees() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("recv C 400 peek");
        duo.b("recv C 4000 peek");
        duo.b("recv C 400");
        duo.b("recv C 4000 peek recvmsg");
        duo.a("send C 1000");
        duo.b("recv C 1600 peek+waitall");
        duo.b("recvall C 1600");
        duo.b("recv C 1 peek+dontwait");
        duo.a("close C");
        duo.b("recv C 1 peek");
    });
}

#[test]
fn peek_sleeps_until_there_is_something() {
    check(|duo| {
        duo.warm("C");
        duo.b("async T recv C 100 peek");
        duo.b("asleep T");
        duo.a("send C 60");
        duo.b("join T");
        duo.b("recv C 100");
    });
}

#[test]
fn waitall_waits_for_all() {
    check(|duo| {
        duo.warm("C");
        duo.b("async T recv C 3000 waitall");
        duo.a("send C 1000");
        duo.b("asleep T");
        duo.a("send C 1500");
        duo.b("asleep T");
        duo.a("send C 1000");
        duo.b("join T");
        duo.b("recv C 1000");
    });
}

#[test]
fn waitall_is_cut_by_the_end() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("async T recv C 3000 waitall");
        duo.b("asleep T");
        duo.a("send C 500");
        duo.a("close C");
        duo.b("join T");
        duo.b("recv C 3000 waitall");
    });
}

#[test]
fn waitall_is_cut_by_a_timeout() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C rcvtimeo 100");
        duo.a("send C 1000");
        duo.b("recv C 3000 waitall");
        duo.b("recv C 3000 waitall");
        duo.b("recv C 3000");
    });
}

#[test]
fn waitall_of_more_than_a_ring() {
    check(|duo| {
        duo.warm("C");
        duo.b("async T recv C 4000000 waitall");
        duo.a("sendall C 4000000");
        duo.b("join T");
    });
}

#[test]
fn dontwait_and_nonblocking() {
    check(|duo| {
        duo.warm("C");
        duo.b("recv C 100 dontwait");
        duo.b("nonblock C 1");
        duo.b("recv C 100");
        duo.b("recv C 100 - read");
        duo.b("recv C 100 - readv");
        duo.b("recv C 100 - recvmsg");
        duo.b("recv C 100 waitall");
        duo.a("send C 60");
        duo.b("poll C in 1000");
        duo.b("recv C 100 waitall");
        duo.b("recv C 100");
        duo.b("nonblock C 0");
        duo.a("send C 60");
        duo.b("recv C 100");
    });
}

#[test]
fn trunc_throws_away() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("recv C 1000 trunc");
        duo.b("recv C 10 dontwait");
    });
}

#[test]
fn nothing_to_send_or_to_receive() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 0");
        duo.a("send C 0 - write");
        duo.b("recv C 0 dontwait");
        duo.b("recv C 10 dontwait");
        duo.a("send C 10");
        duo.b("poll C in 1000");
        duo.b("recv C 0");
        duo.b("recv C 0 - read");
        duo.b("recv C 10");
        duo.a("close C");
        duo.b("poll C in 1000");
        duo.b("recv C 0");
    });
}

#[test]
fn every_form_continues_the_same_stream() {
    check(|duo| {
        duo.warm("C");
        let sends = [
            "send C 3000",
            "send C 3000 - write",
            "send C 3000 - writev",
            "send C 3000 nosignal sendto",
            "send C 3000 - sendtoaddress",
            "send C 3000 - sendmsg",
            "send C 3000 - sendmmsg",
            "send C 3000 - sendfile",
            "send C 3000 - splice",
            "send C 3000 more",
            "send C 3000",
        ];
        for send in sends {
            duo.a(send);
        }
        for form in ["recv", "read", "readv", "recvfrom", "recvmsg", "splice", "recv"] {
            duo.b(&format!("recv C 1000 - {form}"));
        }
        duo.b("recvall C 26000");
        duo.b("recv C 1 dontwait");
    });
}

#[test]
fn splice_takes_what_the_ring_holds_first() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 3000");
        duo.b("recv C 2000 - splice");
        duo.b("recv C 2000 - splice");
        duo.a("send C 3000");
        duo.b("recvall C 3000");
    });
}

#[test]
fn mmsg_at_the_edges() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000 - sendmmsglens");
        duo.b("recv C 600 - recvmmsg");
        duo.b("recv C 600 dontwait recvmmsg");
        duo.b("recv C 600 dontwait recvmmsg");
        duo.a("send C 1000");
        duo.b("recv C 100 peek recvmmsg");
        duo.b("recv C 1000 - recvmmsg");
        duo.a("close C");
        duo.b("recv C 600 - recvmmsg");
        duo.b("recv C 600 dontwait recvmmsg");
    });
}

/// EAGAIN says that there is nothing: programs that wait for edges rely on it.
#[test]
fn eagain_only_when_there_is_nothing() {
    check(|duo| {
        duo.warm("C");
        duo.b("nonblock C 1");
        for _ in 0..20 {
            duo.a("send C 1000");
            duo.b("poll C in 1000");
            duo.b("recv C 300 peek");
            duo.b("recv C 300");
            duo.b("recv C 300");
            duo.b("recv C 300 peek");
            duo.b("recv C 300");
            duo.b("recv C 300");
            duo.b("recv C 300");
        }
    });
}

#[test]
fn urgent_data() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 500");
        duo.a("urgent C");
        duo.a("send C 500");
        duo.b("poll C pri 1000");
        duo.b("recv C 1 oob");
        duo.b("recv C 5000");
        duo.b("atmark C");
        duo.b("recvall C 500");
        duo.b("recv C 1 oob");
    });
}

#[test]
fn bad_arguments() {
    check(|duo| {
        duo.warm("C");
        duo.a("badsend C");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("badrecv C");
        duo.b("recv C 100");
        duo.a("manyparts C 1025");
        duo.a("send C 100");
        duo.b("recv C 100");
        duo.a("dup C D");
        duo.a("closefd D");
        duo.a("send D 10");
        duo.a("recv D 10");
        duo.a("poll D in 0");
        duo.a("get D nodelay");
        duo.a("shutdown D wr");
        duo.a("closefd D");
        duo.a("send C 10");
        duo.b("recv C 10");
    });
}

// ---- time ----

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
        duo.quiet_a("fill C");
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

// ---- poll and epoll ----

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

// ---- names, options, counts ----

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

// ---- setup ----

#[test]
fn connecting() {
    check(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        let mut quiet = |text: String| duo.quiet_b(&text);
        assert_eq!(quiet(format!("connect C {ip} {port} nonblock")), "EINPROGRESS");
        assert_eq!(quiet("poll C out 5000".to_owned()), "out");
        duo.b("get C error");
        let again = duo.quiet_b(&format!("connect C {ip} {port}"));
        duo.note(format!("connected again: {again}"));
        let again = duo.quiet_b(&format!("connect C {ip} {port}"));
        duo.note(format!("and again: {again}"));
        duo.a("poll L in 5000");
        duo.a("accept L C");
        duo.a("nonblock L 1");
        duo.a("accept L D");
        duo.b("recv C 10");
        duo.a("send C 10");
        duo.b("poll C in 5000");
        duo.b("recv C 10");
        duo.a("recv L 10");
        duo.a("send L 10");
        // Nobody listens on port 1.
        let refused = duo.quiet_b(&format!("connect X {ip} 1"));
        duo.note(format!("port 1: {refused}"));
        duo.b("send X 10 nosignal");
        duo.b("recv X 10");
    });
}

/// Data and end are there before the connection is accepted.
#[test]
fn early_data() {
    check(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        duo.lab.set_knobs(yasmin_tests::lab::Knobs::default());
        let result = duo.quiet_b(&format!("connect C {ip} {port}"));
        assert_eq!(result, "ok");
        duo.b("send C 5000");
        duo.b("shutdown C wr");
        duo.a("accept L C");
        duo.a("drain C");
        duo.a("send C 100");
        duo.a("close C");
        duo.b("drain C");
    });
}

// ---- copies, threads, processes ----

#[test]
fn copies_of_a_descriptor() {
    check(|duo| {
        duo.warm("C");
        duo.b("dup C D");
        duo.b("send C 100");
        duo.b("send D 100");
        duo.a("recvall C 200");
        duo.a("send C 300");
        duo.b("recv D 100");
        duo.b("recv C 100");
        duo.b("close C");
        duo.b("recv D 100");
        duo.b("send D 100");
        duo.a("recv C 100");
        duo.a("recv C 100 dontwait");
        duo.b("close D");
        duo.a("recv C 100");
    });
}

#[test]
fn dup2_closes_what_was_there() {
    check(|duo| {
        duo.warm("C");
        duo.warm("D");
        duo.a("send D 50");
        duo.b("dup2 C D");
        duo.a("recv D 100");
        duo.b("send D 100");
        duo.a("recv C 100");
        duo.b("close C");
        duo.b("send D 100");
        duo.a("recv C 100");
        duo.b("close D");
        duo.a("recv C 100");
    });
}

#[test]
fn descriptor_numbers_are_used_again() {
    check(|duo| {
        for _ in 0..10 {
            duo.warm("C");
            duo.a("send C 100");
            duo.b("recv C 100");
            duo.b("close C");
            duo.a("recv C 100");
            duo.a("close C");
        }
    });
}

#[test]
fn threads_send_and_receive_on_one_socket() {
    check(|duo| {
        duo.warm("C");
        duo.a("async S sendall C 20000000");
        duo.a("async R recvall C 20000000");
        duo.b("async S sendall C 20000000");
        duo.b("async R recvall C 20000000");
        for name in ["S", "R"] {
            duo.a(&format!("join {name}"));
            duo.b(&format!("join {name}"));
        }
    });
}

#[test]
fn two_threads_sleep_on_one_socket() {
    check(|duo| {
        duo.warm("C");
        duo.b("async T poll C in -1");
        duo.b("async U poll C in -1");
        duo.b("asleep T");
        duo.b("asleep U");
        duo.a("send C 10");
        duo.b("join T");
        duo.b("join U");
        duo.b("recv C 100");
        duo.b("async T recv C 100 peek");
        duo.b("async U poll C in -1");
        duo.b("asleep T");
        duo.b("asleep U");
        duo.a("send C 10");
        duo.b("join T");
        duo.b("join U");
    });
}

#[test]
fn parent_and_child_take_turns() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 100");
        duo.b("fork P");
        duo.b("in P recv C 50");
        duo.b("recv C 50");
        for _ in 0..5 {
            duo.b("in P send C 100");
            duo.b("send C 100");
            duo.a("recvall C 200");
            duo.a("send C 200");
            duo.b("recvall C 100");
            duo.b("in P recvall C 100");
        }
        duo.b("in P close C");
        duo.b("reap P");
        duo.a("recv C 10 dontwait");
        for _ in 0..5 {
            duo.a("send C 200");
            duo.b("recvall C 200");
            duo.b("send C 200");
            duo.a("recvall C 200");
        }
        duo.b("close C");
        duo.a("recv C 10");
    });
}

#[test]
fn the_child_goes_on_alone() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("fork P");
        duo.b("close C");
        duo.a("recv C 10 dontwait");
        duo.b("in P recvall C 1000");
        for _ in 0..5 {
            duo.a("send C 2000");
            duo.b("in P recvall C 2000");
            duo.b("in P send C 2000");
            duo.a("recvall C 2000");
        }
        duo.b("in P exit 0");
        duo.b("reap P");
        duo.a("recv C 10");
    });
}

#[test]
fn a_child_that_only_exits_ends_nothing() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("fork P");
        duo.b("in P exit 0");
        duo.b("reap P");
        duo.b("recvall C 1000");
        duo.b("send C 1000");
        duo.a("recvall C 1000");
        duo.a("recv C 10 dontwait");
        duo.b("close C");
        duo.a("recv C 10");
    });
}

#[test]
fn a_server_that_forks_for_each_connection() {
    check(|duo| {
        for nth in 0..5 {
            let name = format!("C{nth}");
            duo.connect(&name);
            duo.a(&format!("fork P{nth}"));
            duo.a(&format!("close {name}"));
            for _ in 0..20 {
                duo.b(&format!("send {name} 1000"));
                duo.a(&format!("in P{nth} recvall {name} 1000"));
                duo.a(&format!("in P{nth} send {name} 1000"));
                duo.b(&format!("recvall {name} 1000"));
            }
            duo.b(&format!("close {name}"));
            duo.a(&format!("in P{nth} recv {name} 10"));
            duo.a(&format!("in P{nth} exit 0"));
            duo.a(&format!("reap P{nth}"));
        }
        if duo.lab.is_calm() {
            duo.lab.assert_some_by_ring(duo.lab.bytes_in_all().ring);
        }
    });
}

/// A number that was a connection's now names something else.
#[test]
fn numbers_that_change_their_meaning() {
    check(|duo| {
        duo.warm("C");
        duo.warm("D");
        duo.b("epoll E");
        duo.a("send C 100");
        duo.b("epadd E D in");
        duo.b("dup2 E C");
        duo.a("recv C 10");
        duo.b("epwait C 0");
        duo.a("send D 10");
        duo.b("epwait C 1000");
        duo.b("dup2 D C");
        duo.b("recv C 10");
        duo.b("send C 10");
        duo.a("recv D 10");
    });
}
