//! connect and accept.

use crate::check;

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
