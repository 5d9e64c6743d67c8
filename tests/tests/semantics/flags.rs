//! Flags of receives and sends, and every form of both on one stream.
//!
//! Holds: recv(2), send(2), recvmmsg(2).

use crate::check;

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

/// Wherever they came by.
#[test]
fn a_peek_sees_all_bytes() {
    check(|duo| {
        duo.warm("C");
        for _ in 0..200 {
            duo.a("send C 1");
            duo.a("send C 1");
            duo.b("awaitunread C 2");
            duo.b("recv C 2 peek");
            duo.b("recv C 2");
            for _ in 0..4 {
                duo.a("send C 10");
            }
            duo.b("awaitunread C 40");
            duo.b("recv C 4000 peek");
            duo.b("recv C 39 peek recvmsg");
            duo.b("recvall C 40");
        }
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

/// More than the ring holds and TCP buffers: it sleeps until the other side reads.
#[test]
fn a_file_that_fits_nowhere() {
    check(|duo| {
        for form in ["sendfile", "sendfilepast"] {
            duo.warm(form);
            duo.a(&format!("async T send {form} 20000000 - {form}"));
            duo.a("asleep T");
            duo.b(&format!("recvall {form} 20000000"));
            duo.a("join T");
        }
    });
}

#[test]
fn splice_takes_what_the_ring_holds_first() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 3000");
        duo.b("recv C 2000 - splice");
        duo.b("recv C 2000 - splice");
        // All that there is at once, as far as the pipe has room.
        duo.warm("D");
        duo.a("send D 16000");
        duo.b("recv D 16000 - splice");
        duo.a("send C 3000");
        duo.b("recvall C 3000");
        // From now on bytes go by TCP, behind what the ring has.
        duo.warm("E");
        duo.a("send E 3000");
        duo.b("set E inq 1");
        duo.a("send E 2000");
        duo.b("poll E in 1000");
        duo.b("recv E 5000 - splice");
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

/// recvmsg tells of MSG_CMSG_CLOEXEC that it was asked for.
#[test]
fn what_was_asked_for_is_told_among_the_flags() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.b("poll C in 1000");
        duo.b("recv C 400 cloexec control");
        duo.b("recv C 400 - control");
        duo.b("recv C 100 cloexec nocontrol");
    });
}

/// recvmmsg tells of an error before the bytes that came before it, but not behind what it took itself.
#[test]
fn mmsg_at_an_error() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        duo.a("set C linger 0");
        duo.a("close C");
        duo.b("poll C in 1000");
        duo.b("recv C 600 - recvmmsg");
        duo.b("recv C 600 - recvmmsg");
        duo.b("recv C 400");
        duo.b("recv C 600 - recvmmsg");
        duo.b("close C");
        duo.warm("D");
        duo.a("send D 300");
        duo.b("poll D in 1000");
        duo.b("send D 100");
        duo.a("close D");
        duo.b("recv D 600 - recvmmsg");
        duo.b("recv D 600 - recvmmsg");
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

/// Only a receive of bytes passes over the mark, and finds the error behind it.
#[test]
fn nothing_is_received_before_an_urgent_byte_and_an_error() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1");
        duo.b("send C 1");
        duo.b("awaitunread C 1");
        duo.a("awaitunread C 1");
        duo.b("urgent C");
        duo.b("close C");
        duo.a("poll C rdhup 1000");
        duo.a("recv C 0");
        duo.a("recv C 1");
        duo.a("recv C 0");
        duo.a("recv C 0 dontwait");
        duo.a("recv C 1");
        duo.a("recv C 0");
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

/// preadv2 and pwritev2 where the stream is.
#[test]
fn reads_and_writes_with_a_place() {
    check(|duo| {
        duo.warm("C");
        for _ in 0..3 {
            duo.a("send C 1000 - pwritev2");
            duo.b("recv C 400 - preadv2");
            duo.b("recv C 400 - preadv2nowait");
            duo.b("recv C 1000 - preadv2");
            duo.b("recv C 10 - preadv2nowait");
            duo.b("send C 500 - pwritev2nowait");
            duo.a("recvall C 500");
        }
        duo.a("send C 100 - pwritev2at");
        duo.b("recv C 100 - preadv2at");
        duo.prove("C");
    });
}

/// A stream closes its number by itself, and a pipe gets it.
#[test]
fn a_number_that_stdio_closed() {
    check(|duo| {
        duo.warm("C");
        duo.warm("D");
        for _ in 0..3 {
            duo.b("send C 100 - fwrite");
            duo.a("recvall C 100");
            duo.a("send D 100");
            duo.b("poll D in 1000");
            duo.b("recv D 100 - splice");
        }
    });
}

/// stdio reads and writes where nobody can stand in front of it.
#[test]
fn stdio_on_a_connection() {
    check(|duo| {
        duo.warm("C");
        duo.b("send C 1000 - fwrite");
        duo.a("recvall C 1000");
        // Reading is not touched by a stream that only writes.
        duo.a("send C 1000");
        duo.b("send C 1000 - fwrite");
        duo.b("recvall C 1000");
        duo.a("recvall C 1000");
        duo.b("async R recv C 3000 - fread");
        duo.b("asleep R");
        duo.a("sendall C 3000");
        duo.b("join R");
        duo.b("send C 100");
        duo.a("recvall C 100");
        duo.b("close C");
        duo.a("recv C 10");
    });
}
