//! What must come from the kernel alone: zero copy, control data, TLS, data with the SYN, an
//! association that is dissolved.
//!
//! Holds: tcp(7), send(2), connect(2).

use yasmin_tests::script::Duo;

use crate::{check, check_alone};

#[test]
fn zero_copy() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 100 zerocopy");
        duo.b("recv C 100");
        duo.a("errqueue C");
        duo.a("set C zerocopy 1");
        duo.a("get C zerocopy");
        for _ in 0..3 {
            duo.a("send C 30000 zerocopy");
            duo.b("recvall C 30000");
            duo.a("poll C - 1000");
            duo.a("errqueue C");
            duo.a("errqueue C");
            duo.a("poll C out 0");
            duo.a("send C 1000");
            duo.b("recvall C 1000");
            duo.b("send C 100");
            duo.a("recv C 100");
        }
    });
}

#[test]
fn zero_copy_told_by_epoll() {
    check(|duo| {
        duo.warm("C");
        duo.a("set C zerocopy 1");
        duo.a("epoll E");
        duo.a("epadd E C in+et");
        duo.a("epwait E 0");
        duo.b("send C 10");
        duo.a("epwait E 1000");
        duo.a("recv C 10");
        duo.a("send C 30000 zerocopy");
        duo.b("recvall C 30000");
        duo.a("epwait E 1000");
        duo.a("errqueue C");
        duo.b("send C 10");
        duo.a("epwait E 1000");
        duo.a("recv C 10");
    });
}

/// Control data come with the bytes that the kernel delivers.
#[test]
fn bytes_in_the_queue() {
    check(|duo| {
        duo.warm("C");
        duo.b("set C inq 1");
        duo.a("send C 100");
        duo.b("recvcontrol C 60");
        duo.b("recvcontrol C 60");
        duo.a("send C 100");
        duo.a("send C 100");
        duo.b("recv C 150 waitall");
        duo.b("recvcontrol C 100");
        duo.b("set C inq 0");
        duo.a("send C 100");
        duo.b("recvcontrol C 100");
    });
}

#[test]
fn kernel_tls() {
    check(|duo| {
        duo.warm("C");
        // ENOENT where the kernel has none; then the connection stays as it was.
        let there = duo.a("ulp C");
        duo.b("ulp C");
        if there == "ok" {
            duo.a("tlskey C tx");
            duo.b("tlskey C rx");
        }
        for _ in 0..3 {
            duo.a("send C 3000");
            duo.b("recvall C 3000");
            duo.b("send C 100");
            duo.a("recvall C 100");
        }
        if there == "ok" {
            // An alert: the receiver is told what it is.
            duo.a("sendrecord C 10 21");
            duo.b("recvcontrol C 100");
            duo.a("send C 100");
            duo.b("recvcontrol C 100");
        }
    });
}

/// Bytes that came before the keys lie in a ring, and are plain.
#[test]
fn kernel_tls_behind_plain_bytes() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 1000");
        if duo.a("ulp C") != "ok" {
            return;
        }
        duo.b("recvall C 1000");
        duo.b("ulp C");
        duo.a("tlskey C tx");
        duo.b("tlskey C rx");
        duo.a("send C 3000");
        duo.b("recvall C 3000");
    });
}

fn echo(duo: &mut Duo) {
    for _ in 0..10 {
        duo.b("send C 100");
        duo.a("recv C 100");
        duo.a("send C 100");
        duo.b("recv C 100");
    }
}

#[test]
fn data_with_the_syn() {
    check_alone(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        duo.a("set L fastopen 16");
        for _ in 0..3 {
            duo.b("socket C v4");
            let sent = duo.quiet_b(&format!("sendopen C 500 {ip} {port}"));
            duo.note(format!("sent {sent}"));
            duo.a("accept L C");
            duo.a("recvall C 500");
            echo(duo);
            duo.b("close C");
            duo.a("recv C 1");
            duo.a("close C");
        }
    });
}

#[test]
fn connected_by_the_first_send() {
    check_alone(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        duo.a("set L fastopen 16");
        for _ in 0..3 {
            duo.b("socket C v4");
            duo.b("set C fastopenconnect 1");
            let connected = duo.quiet_b(&format!("connect C {ip} {port}"));
            duo.note(format!("connected {connected}"));
            duo.b("send C 500");
            duo.a("accept L C");
            duo.a("recvall C 500");
            echo(duo);
            duo.b("close C");
            duo.a("recv C 1");
            duo.a("close C");
        }
    });
}

/// connect to no family resets; the socket can connect again.
#[test]
fn dissolved_and_connected_again() {
    check_alone(|duo| {
        duo.warm("C");
        duo.a("send C 100");
        duo.b("poll C in 1000");
        duo.b("disconnect C");
        duo.b("recv C 10");
        duo.b("send C 10 nosignal");
        duo.a("poll C in 1000");
        duo.a("recv C 10");
        duo.a("close C");
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        duo.b("renew C");
        let connected = duo.quiet_b(&format!("connect C {ip} {port}"));
        duo.note(format!("connected {connected}"));
        duo.a("accept L C");
        echo(duo);
        duo.b("send C 300");
        duo.b("close C");
        duo.a("drain C");
    });
}
