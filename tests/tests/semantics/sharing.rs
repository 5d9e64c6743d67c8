//! Copies of a descriptor, threads, and forked processes on one socket.
//!
//! Holds: dup(2), fork(2), spec/wire.md 5.4.

use yasmin_tests::lab::Knobs;
use yasmin_tests::netns::Net;
use yasmin_tests::peer;
use yasmin_tests::script::compare_in;

use crate::check;

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

/// A channel comes while a thread is in the kernel on the connection: it must wait for it, as
/// what comes by ring would never wake the thread.
#[test]
fn a_channel_comes_while_a_thread_sleeps() {
    let late = Knobs { promote_messages: Some(4), promote_wait_ms: None, ..Knobs::at_once() };
    let moods = [("rings", late.clone()), ("rings, no spinning", late.spin(0))];
    compare_in(Net::Loopback, &moods, peer!("script"), |duo| {
        duo.connect("C");
        duo.round_trips("C", 1);
        duo.b("async T recv C 100");
        duo.b("asleep T");
        for _ in 0..4 {
            duo.b("send C 10");
            duo.a("recv C 10");
        }
        // Both have offered by now; the answers are read where nobody sleeps.
        for _ in 0..3 {
            duo.a("poll C in 20");
            duo.a("recv C 10 dontwait");
            duo.b("send C 10");
            duo.b("recv C 10 dontwait");
            duo.a("recv C 10");
        }
        duo.a("send C 50");
        duo.b("join T");
        duo.prove_in_time("C");
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

#[test]
fn parent_and_child_at_the_same_time() {
    check(|duo| {
        duo.warm("C");
        duo.b("fork P");
        duo.b("tell P flood C 2000000");
        duo.a("async S soak C 4000000");
        duo.b("flood C 2000000");
        duo.b("hear P");
        duo.a("join S");
        duo.b("tell P soak C 2000000");
        duo.a("async S flood C 4000000");
        duo.b("soak C 2000000");
        duo.b("hear P");
        duo.a("join S");
        duo.b("recv C 10 dontwait");
        duo.a("recv C 10 dontwait");
        duo.b("in P close C");
        duo.b("close C");
        duo.a("recv C 10");
    });
}

/// Processes that were forked before accept from one listener, and each serves what it got.
#[test]
fn a_server_that_forks_beforehand() {
    check(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        duo.a("fork P0");
        duo.a("fork P1");
        duo.a("close L");
        for nth in 0..4 {
            let (child, name) = (nth % 2, format!("C{nth}"));
            // Both at once: the call that offers may wait until the other side offers too.
            duo.b.say(&format!("connect {name} {ip} {port}"));
            duo.a(&format!("in P{child} accept L {name}"));
            assert_eq!(duo.b.next_line().as_deref(), Some("ok"));
            for _ in 0..20 {
                duo.b(&format!("send {name} 1000"));
                duo.a(&format!("in P{child} recvall {name} 1000"));
                duo.a(&format!("in P{child} send {name} 1000"));
                duo.b(&format!("recvall {name} 1000"));
            }
        }
        duo.a("in P0 exit 0");
        duo.a("reap P0");
        duo.b("recv C0 10");
        duo.b("recv C2 10");
        duo.b("recv C1 10 dontwait");
        duo.a("kill P1");
        duo.a("reap P1");
        duo.b("recv C1 10");
        if duo.lab.is_calm() {
            duo.lab.assert_some_by_ring(duo.lab.bytes_in_all().ring);
        }
    });
}
