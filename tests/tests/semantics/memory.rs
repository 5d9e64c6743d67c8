//! Buffers that are empty, bad, or not what they were: the kernel gives EFAULT and the stream
//! goes on. A part that no byte reaches is not looked at.
//!
//! Holds: readv(2), recv(2), send(2), epoll_wait(2), recvmmsg(2), sendmmsg(2).

use yasmin_tests::lab::Knobs;

use crate::c::check_all_there;
use crate::check;

/// Everything that the last step left is there, and in order.
const GOES_ON: [(&str, &str); 2] = [("send C 100", "recvall C 100"), ("send C 70", "recv C 100")];

fn goes_on(duo: &mut yasmin_tests::script::Duo) {
    for (send, receive) in GOES_ON {
        duo.a(send);
        duo.b(receive);
        duo.b(send);
        duo.a(receive);
    }
}

#[test]
fn empty_parts() {
    check(|duo| {
        duo.warm("C");
        for form in ["writev", "sendmsg"] {
            duo.a(&format!("vec C {form} 0,100,null0,50,0"));
            duo.a(&format!("vec C {form} null0,0"));
            duo.a(&format!("vec C {form} low0,10"));
        }
        for form in ["readv", "recvmsg"] {
            duo.b(&format!("vec C {form} null0,20,0,100,low0,30"));
            duo.b(&format!("vec C {form} 10"));
        }
        // No parts, or only empty ones: nothing to wait for with data there, nor at the end.
        duo.a("send C 10");
        duo.b("poll C in 1000");
        duo.b("vec C readv 0,null0");
        duo.b("vec C recvmsg 0,null0");
        duo.b("vec C readv ,");
        duo.b("recv C 10");
        goes_on(duo);
    });
}

#[test]
fn bad_memory_to_send() {
    check(|duo| {
        duo.warm("C");
        for kind in ["null", "low", "high", "none", "guard", "never", "gone", "bare"] {
            for form in ["send", "write", "writev", "sendmsg"] {
                duo.a(&format!("vec C {form} {kind}100"));
                duo.a(&format!("vec C {form} {kind}5000"));
            }
            for form in ["writev", "sendmsg"] {
                duo.a(&format!("vec C {form} 50,{kind}100"));
                duo.a(&format!("vec C {form} {kind}100,50"));
            }
        }
        duo.b("recv C 10 dontwait");
        goes_on(duo);
    });
}

#[test]
fn bad_memory_to_receive() {
    check(|duo| {
        duo.warm("C");
        for kind in ["null", "low", "high", "none", "ro", "guard", "never", "gone", "bare"] {
            for form in ["recv", "read", "readv", "recvmsg"] {
                duo.a("send C 200");
                duo.b("poll C in 1000");
                duo.b(&format!("vec C {form} {kind}100"));
                duo.b("recv C 200 peek");
                duo.b("recv C 500");
            }
            for form in ["readv", "recvmsg"] {
                duo.a("send C 200");
                duo.b("poll C in 1000");
                duo.b(&format!("vec C {form} 50,{kind}100"));
                duo.b(&format!("vec C {form} {kind}100,50"));
                duo.b("recv C 500");
            }
        }
        goes_on(duo);
    });
}

/// The kernel looks at a part only when bytes go there; at addresses of its own at once.
#[test]
fn bad_parts_that_no_byte_reaches() {
    check(|duo| {
        duo.warm("C");
        for kind in ["null", "low", "none", "ro", "never", "gone"] {
            for form in ["readv", "recvmsg"] {
                duo.a("send C 50");
                duo.b("poll C in 1000");
                duo.b(&format!("vec C {form} 50,{kind}100"));
            }
            duo.b(&format!("vec C recv {kind}100 dontwait"));
        }
        duo.b("vec C recv high100");
        duo.b("vec C readv 50,high100");
        duo.b("vec C recvmsg 50,high0");
        goes_on(duo);
    });
}

#[test]
fn bad_memory_at_the_end() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 20");
        duo.a("shutdown C wr");
        duo.b("poll C rdhup 1000");
        duo.b("vec C recv null100");
        duo.b("recv C 100");
        duo.b("vec C recv null100");
        duo.b("vec C recv high100");
        duo.a("vec C send null100 nosignal");
        duo.a("vec C send high100 nosignal");
    });
}

/// What MSG_TRUNC throws away goes nowhere.
#[test]
fn truncated_bytes_need_no_memory() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 300");
        duo.b("poll C in 1000");
        duo.b("vec C recv null100 trunc");
        duo.b("vec C recv low100 trunc+peek");
        duo.b("vec C recvmsg 50,none50 trunc");
        duo.b("recv C 300");
        goes_on(duo);
    });
}

/// A file that became shorter under its mapping.
#[test]
fn a_mapped_file_that_is_cut() {
    check(|duo| {
        duo.warm("C");
        for form in ["send", "write", "writev", "sendmsg"] {
            duo.a(&format!("vec C {form} file9000"));
        }
        duo.a("vec C writev 100,file9000");
        duo.b("recv C 10 dontwait");
        for form in ["recv", "read", "readv", "recvmsg"] {
            duo.a("send C 9000");
            duo.b("recv C 9000 peek+waitall");
            duo.b(&format!("vec C {form} file9000"));
            duo.b("recvall C 9000");
        }
        goes_on(duo);
    });
}

#[test]
fn lengths_that_are_too_long() {
    check(|duo| {
        duo.warm("C");
        for form in ["send", "write", "writev", "sendmsg"] {
            duo.a(&format!("vec C {form} huge0"));
        }
        for form in ["write", "writev", "sendmsg"] {
            duo.a(&format!("vec C {form} 10,huge0"));
        }
        duo.a("send C 10");
        duo.b("poll C in 1000");
        for form in ["read", "readv", "recvmsg"] {
            duo.b(&format!("vec C {form} huge0"));
        }
        duo.b("recv C 100");
        duo.a("send C 10");
        duo.b("poll C in 1000");
        duo.b("vec C readv 10,huge0");
        duo.b("recv C 100");
        goes_on(duo);
    });
}

#[test]
fn bad_headers() {
    check(|duo| {
        duo.warm("C");
        duo.a("send C 10");
        duo.b("poll C in 1000");
        for kind in ["null", "low", "high", "none", "never", "gone", "bare"] {
            for form in ["sendmsg", "sendmsgparts", "writev"] {
                duo.b(&format!("badheader C {form} {kind}"));
            }
            for form in ["recvmsg", "recvmsgparts", "readv"] {
                duo.b(&format!("badheader C {form} {kind}"));
            }
        }
        duo.b("recv C 100");
        duo.a("recv C 1 dontwait");
        goes_on(duo);
    });
}

/// A buffer for events that ends before the program says so; messages of which the second is bad.
#[test]
fn memory_that_ends_early() {
    let moods = [Knobs::default(), Knobs::at_once(), Knobs::at_once().spin(0)];
    check_all_there("edges", &[], &moods);
}
