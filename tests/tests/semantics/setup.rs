//! connect and accept.
//!
//! Holds: connect(2), accept(2).

use crate::{check, check_alone};

#[test]
fn connecting() {
    check_alone(|duo| {
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
    check_alone(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
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

/// The listener's queue is full: the connection stays in progress until there is room.
#[test]
fn a_connection_in_progress() {
    check_alone(|duo| {
        let ip = duo.lab.a.v4();
        let port = duo.quiet_a("listenon M 0 0");
        let first = duo.quiet_b(&format!("connect F {ip} {port}"));
        duo.note(format!("first: {first}"));
        let mut waiting = |what: &str| {
            let result = duo.quiet_b(&format!("connect C {ip} {port}{what}"));
            duo.note(format!("second: {result}"));
        };
        waiting(" nonblock");
        waiting("");
        duo.b("poll C in+out 30");
        duo.b("get C error");
        duo.b("send C 10 nosignal");
        duo.b("recv C 10");
        duo.b("vec C writev 10,20");
        duo.b("unread C");
        duo.b("state C");
        duo.a("accept M F");
        // The SYN comes again after a second.
        duo.b("poll C out 10000");
        duo.b("get C error");
        duo.a("accept M C");
        duo.b("close F");
        duo.a("recv F 10");
        duo.a("close F");
        duo.b("nonblock C 0");
        for _ in 0..10 {
            duo.b("send C 100");
            duo.a("recv C 100");
            duo.a("send C 100");
            duo.b("recv C 100");
        }
        duo.prove_in_time("C");
    });
}

#[test]
fn a_refused_connection() {
    check(|duo| {
        let ip = duo.lab.a.v4();
        // Nobody listens on port 1.
        let begun = duo.quiet_b(&format!("connect X {ip} 1 nonblock"));
        duo.note(format!("port 1: {begun}"));
        duo.b("poll X out 5000");
        duo.b("poll X in+out+rdhup 0");
        duo.b("get X error");
        duo.b("get X error");
        duo.b("send X 10 nosignal");
        duo.b("recv X 10");
    });
}

#[test]
fn accepted_without_blocking() {
    check_alone(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        duo.a("nonblock L 1");
        duo.a("accept L C nonblock");
        duo.a("accept L C");
        let connected = duo.quiet_b(&format!("connect C {ip} {port}"));
        assert_eq!(connected, "ok");
        duo.a("poll L in 5000");
        duo.a("accept L C nonblock");
        duo.a("accept L D nonblock");
        duo.a("recv C 10");
        // The listener's own flag is not the connection's.
        let connected = duo.quiet_b(&format!("connect D {ip} {port}"));
        assert_eq!(connected, "ok");
        duo.a("poll L in 5000");
        duo.a("accept L D");
        duo.b("send D 10");
        duo.a("recv D 10");
        duo.b("close D");
        duo.a("recv D 10");
        duo.a("close D");
        for _ in 0..10 {
            duo.b("send C 100");
            duo.a("poll C in 1000");
            duo.a("recv C 1000");
            duo.a("recv C 1000");
            duo.a("send C 100");
            duo.b("recv C 100");
        }
        duo.a("nonblock C 0");
        duo.prove_in_time("C");
    });
}

/// Two listeners on one port: the kernel says who gets a connection.
#[test]
fn a_group_of_listeners() {
    check_alone(|duo| {
        let ip = duo.lab.a.v4();
        let port = duo.quiet_a("listenon M 0 16");
        assert_eq!(duo.quiet_a(&format!("listenon N {port} 16")), port);
        for listener in ["M", "N"] {
            duo.a(&format!("nonblock {listener} 1"));
        }
        for nth in 0..8 {
            let name = format!("C{nth}");
            assert_eq!(duo.quiet_b(&format!("connect {name} {ip} {port}")), "ok");
            duo.quiet_a("epoll E");
            duo.quiet_a("epadd E M in");
            duo.quiet_a("epadd E N in");
            let ready = duo.quiet_a("epwait E 5000");
            let (listener, _) = ready.split_once(':').unwrap();
            duo.quiet_a("close E");
            assert_eq!(duo.quiet_a(&format!("accept {listener} {name}")), "ok");
            for _ in 0..4 {
                duo.b(&format!("send {name} 100"));
                duo.a(&format!("recv {name} 100"));
                duo.a(&format!("send {name} 100"));
                duo.b(&format!("recv {name} 100"));
            }
        }
        duo.prove_in_time("C0");
        // One of them goes; the rest of the group goes on.
        duo.a("close M");
        assert_eq!(duo.quiet_b(&format!("connect D {ip} {port}")), "ok");
        duo.a("poll N in 5000");
        duo.a("accept N D");
        duo.b("send D 100");
        duo.a("recv D 100");
    });
}
