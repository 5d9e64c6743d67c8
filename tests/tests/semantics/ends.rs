//! How a stream ends: FIN, reset, half closes, lingering, exits.
//!
//! Holds: shutdown(2), close(2), socket(7), tcp(7).

use yasmin_tests::script::Duo;

use crate::check;

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

/// What came before the reset is one read, wherever it came by.
#[test]
fn bytes_before_a_reset_are_read_together() {
    check(|duo| {
        for name in ["C", "D", "E", "F", "G", "H", "I", "J"] {
            duo.warm(name);
            for _ in 0..3 {
                duo.a(&format!("send {name} 1"));
            }
            duo.b(&format!("awaitunread {name} 3"));
            duo.b(&format!("send {name} 1"));
            duo.a(&format!("awaitunread {name} 1"));
            duo.a(&format!("close {name}"));
            duo.b(&format!("poll {name} rdhup 1000"));
            duo.b(&format!("recv {name} 3"));
            duo.b(&format!("recv {name} 3"));
        }
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

/// The kernel answers what comes after a close with a reset. Here the peer is gone with its
/// direction offered, and never opened.
#[test]
fn sends_to_a_peer_that_closed() {
    check(|duo| {
        duo.warm("C");
        for nth in 0..10 {
            let name = format!("C{nth}");
            duo.connect(&name);
            duo.a(&format!("send {name} 10"));
            duo.b(&format!("recvall {name} 10"));
            duo.a(&format!("recv {name} 10 dontwait"));
            closed_and_told(duo, &name, nth);
        }
    });
}

/// The time in which nobody asks the kernel is not over since the last bytes by ring.
#[test]
fn sends_after_it_was_told_of_the_end() {
    check(|duo| {
        for nth in 0..20 {
            let name = format!("C{nth}");
            duo.warm(&name);
            duo.b(&format!("send {name} 10"));
            duo.a(&format!("recvall {name} 10"));
            closed_and_told(duo, &name, nth);
        }
    });
}

fn closed_and_told(duo: &mut Duo, name: &str, nth: usize) {
    duo.b(&format!("epoll S{nth}"));
    duo.b(&format!("epadd S{nth} {name} rdhup"));
    duo.a(&format!("close {name}"));
    if nth.is_multiple_of(2) {
        duo.b(&format!("poll {name} rdhup 1000"));
    } else {
        duo.b(&format!("epwait S{nth} 1000"));
    }
    duo.b(&format!("send {name} 150 nosignal"));
    duo.b(&format!("poll {name} - 1000"));
    duo.b(&format!("send {name} 10 nosignal"));
}
