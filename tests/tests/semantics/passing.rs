//! Numbers of descriptors: copies, lowest free ones, limits, Unix sockets that carry them.
//!
//! Holds: dup(2), unix(7), getrlimit(2).

use yasmin_tests::lab::Knobs;
use yasmin_tests::script::Duo;

use crate::c::check_all_there;
use crate::check;

#[test]
fn copies_by_fcntl_and_dup3() {
    check(|duo| {
        duo.warm("C");
        duo.warm("D");
        duo.a("send C 100");
        duo.b("dupfd C E 100");
        duo.b("closesonexec E");
        duo.b("recv E 50");
        duo.b("recv C 100");
        duo.a("send D 50");
        // Onto another connection: that one ends, with bytes unread.
        duo.b("dup3 C D");
        duo.a("recv D 10");
        duo.b("closesonexec D");
        duo.b("send D 100");
        duo.b("send E 100");
        duo.a("recvall C 200");
        duo.b("dup2 E E");
        duo.b("close C");
        duo.b("close D");
        duo.a("send C 100");
        duo.b("recvall E 100");
        duo.b("close E");
        duo.a("recv C 100");
    });
}

/// The kernel's table of a process's descriptors is as long as its highest number, and copied at
/// each fork. With limits of a million, numbers of the library's own at the end would be felt.
#[test]
fn the_table_of_descriptors_stays_small() {
    check(|duo| {
        duo.warm("C");
        for peer in [&duo.a, &duo.b] {
            let path = format!("/proc/{}/status", peer.pid());
            let status = std::fs::read_to_string(path).unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
            assert!(size.trim().parse::<u32>().unwrap() <= 1024, "{size}");
        }
    });
}

/// A program that counts on the lowest free number finds it, whatever the library has open.
#[test]
fn the_lowest_number_is_free() {
    check(|duo| {
        duo.b("lowest");
        duo.warm("C");
        duo.b("lowest");
        duo.b("number C");
        duo.warm("D");
        duo.b("close C");
        duo.b("lowest");
        duo.warm("C");
        duo.b("number C");
        duo.b("epoll E");
        duo.b("epadd E C in");
        duo.b("lowest");
    });
}

/// The last number that an fd_set holds, and one that only a larger set does.
/// libuv closes by syscall(2): the number is free for a file, and bytes unread make a reset.
#[test]
fn calls_by_number() {
    check(|duo| {
        for (name, unread) in [("C", true), ("D", false)] {
            duo.warm(name);
            for _ in 0..8 {
                duo.a(&format!("send {name} 100 - writebynumber"));
                duo.b(&format!("recv {name} 60 - readbynumber"));
                duo.b(&format!("recv {name} 40 peek recvfrombynumber"));
                duo.b(&format!("recv {name} 40 - recvfrombynumber"));
                duo.b(&format!("recv {name} 40 dontwait recvfrombynumber"));
                duo.b(&format!("send {name} 100 - writebynumber"));
                duo.a(&format!("recv {name} 100"));
            }
            if unread {
                duo.a(&format!("send {name} 100"));
                duo.b(&format!("awaitunread {name} 100"));
            }
            duo.b(&format!("closebynumber {name}"));
            duo.b("readfile");
            duo.a(&format!("poll {name} rdhup 1000"));
            duo.a(&format!("recv {name} 100"));
            duo.a(&format!("closebynumber {name}"));
            duo.a("readfile");
        }
    });
}

#[test]
fn select_up_to_the_last_number_and_beyond() {
    check(|duo| {
        for least in [1023, 1024, 3000] {
            duo.warm("C");
            duo.b(&format!("dupfd C D {least}"));
            duo.b("close C");
            duo.b("select D 0");
            duo.a("send C 100");
            duo.b("select D 5000");
            duo.b("recv D 100");
            duo.b("select D 0");
            duo.b("send D 100");
            duo.a("recv C 100");
            duo.b("close D");
            duo.a("select C 5000");
            duo.a("close C");
        }
    });
}

/// With hardly a number left, and with none, connections are what they are on plain TCP.
#[test]
fn hardly_any_numbers_left() {
    check(|duo| {
        let (ip, port) = (duo.lab.a.v4(), duo.port().to_owned());
        duo.warm("C");
        let next: u32 = duo.b("lowest").parse().unwrap();
        duo.b(&format!("limit {}", next + 2));
        for name in ["D", "E"] {
            assert_eq!(duo.quiet_b(&format!("connect {name} {ip} {port}")), "ok");
            duo.a(&format!("accept L {name}"));
        }
        let refused = duo.quiet_b(&format!("connect F {ip} {port}"));
        duo.note(format!("none left: {refused}"));
        duo.b("lowest");
        duo.b("dup C G");
        for name in ["C", "D", "E"] {
            duo.b(&format!("send {name} 100"));
            duo.a(&format!("recvall {name} 100"));
            duo.a(&format!("send {name} 100"));
            duo.b(&format!("recvall {name} 100"));
        }
        duo.b("close D");
        duo.a("recv D 10");
        duo.b("lowest");
        duo.b("dup C D");
    });
}

/// The flag belongs to the description: what one copy or process sets, all have.
#[test]
fn nonblocking_is_shared() {
    check(|duo| {
        duo.warm("C");
        duo.b("dup C D");
        duo.b("nonblock D 1");
        duo.b("recv C 10");
        duo.b("fork P");
        duo.b("in P blocks C");
        duo.b("in P nonblock C 0");
        duo.b("blocks C");
        duo.b("in P nonblock D 1");
        duo.b("recv C 10");
        duo.b("in P recv C 10");
        duo.b("nonblock C 0");
        duo.b("in P blocks D");
    });
}

fn passed(duo: &mut Duo, start: &str) {
    duo.warm("C");
    duo.b("pair U V");
    duo.b(start);
    duo.b("give U C");
    duo.b("in P take V D");
    for _ in 0..3 {
        duo.a("send C 300");
        duo.b("in P recvall D 300");
        duo.b("in P send D 100");
        duo.a("recvall C 100");
        duo.a("send C 200");
        duo.b("recvall C 200");
        duo.b("send C 100");
        duo.a("recvall C 100");
    }
    duo.b("close C");
    duo.a("recv C 10 dontwait");
    duo.a("send C 300");
    duo.b("in P recvall D 300");
    duo.b("in P close D");
    duo.a("recv C 10");
}

#[test]
fn passed_over_a_unix_socket() {
    check(|duo| passed(duo, "spawn P"));
    check(|duo| passed(duo, "spawn P plain"));
}

/// To itself: a copy with another number.
#[test]
fn passed_to_the_same_process() {
    check(|duo| {
        duo.warm("C");
        duo.b("pair U V");
        duo.a("send C 300");
        duo.b("give U C");
        duo.b("take V D");
        duo.b("recvall C 300");
        duo.a("send C 100");
        duo.b("recvall D 100");
        duo.b("send D 100");
        duo.b("send C 100");
        duo.a("recvall C 200");
        duo.b("close C");
        duo.a("recv C 10 dontwait");
        duo.b("close D");
        duo.a("recv C 10");
    });
}

/// To a process that was forked off before.
#[test]
fn passed_to_a_forked_process() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("fork P");
        duo.warm("C");
        duo.b("give U C");
        duo.b("close C");
        duo.b("in P take V C");
        for _ in 0..3 {
            duo.a("send C 300");
            duo.b("in P recvall C 300");
            duo.b("in P send C 100");
            duo.a("recvall C 100");
        }
        duo.b("in P close C");
        duo.a("recv C 10");
    });
}

/// A worker that gave up root's rights gets what lies unread, too: from a master that it was forked
/// from, over a pair of the master's or a socket that it listens at.
#[test]
fn root_passes_to_another_user() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("fork P");
        duo.b("in P user 65534");
        duo.warm("C");
        duo.b("in P close U");
        duo.a("send C 300");
        duo.b("awaitunread C 300");
        duo.b("give U C");
        duo.b("close C");
        duo.b("in P take V C");
        duo.b("in P recv C 100");
        duo.a("send C 200");
        duo.b("in P recvall C 400");
        duo.b("in P send C 100");
        duo.a("recvall C 100");
        duo.b("in P close C");
        duo.a("recv C 10");
    });
}

/// What it leaves unread makes its close a reset, as on plain TCP.
#[test]
fn another_user_leaves_it_unread() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("fork P");
        duo.b("in P user 65534");
        duo.warm("C");
        duo.a("send C 300");
        duo.b("awaitunread C 300");
        duo.b("give U C");
        duo.b("close C");
        duo.b("in P take V C");
        duo.b("in P recv C 100");
        duo.b("in P close C");
        duo.a("recv C 10");
    });
}

/// Daemons close every number that there may be; then they go on with new connections.
fn closes_everything(duo: &mut Duo, how: &str) {
    duo.warm("C");
    duo.warm("D");
    let first = duo.b("number C");
    duo.a("send D 100");
    duo.b(&format!("{how} {first}"));
    duo.a("recv C 10");
    duo.a("recv D 10");
    duo.b("recv C 10");
    duo.warm("E");
    duo.b("number E");
    duo.a("send E 100");
    duo.b("recvall E 100");
}

#[test]
fn a_loop_closes_everything() {
    check(|duo| closes_everything(duo, "closeall"));
}

#[test]
fn close_range_closes_everything() {
    check(|duo| closes_everything(duo, "closerange"));
}

#[test]
fn closefrom_closes_everything() {
    check(|duo| closes_everything(duo, "closefrom"));
}

/// daemon(3) by hand: two forks, the parents gone, all closed but one connection.
#[test]
fn a_daemon_keeps_one_connection() {
    check(|duo| {
        duo.warm("C");
        duo.warm("D");
        duo.b("fork P");
        duo.b("in P fork Q");
        duo.b("in P in Q closeall D");
        duo.b("close C");
        duo.b("close D");
        duo.a("recv D 10 dontwait");
        duo.b("in P close D");
        duo.b("in P close C");
        duo.a("recv D 10");
        for _ in 0..5 {
            duo.a("send C 300");
            duo.b("in P in Q recvall C 300");
            duo.b("in P in Q send C 100");
            duo.a("recvall C 100");
        }
        duo.b("in P in Q close C");
        duo.a("recv C 10");
    });
}

/// With bytes unread in the ring: they go with the socket.
#[test]
fn unread_bytes_that_are_passed_on() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("spawn P");
        for ends in [false, true] {
            duo.warm("C");
            duo.b(&format!("set C notsent {}", if ends { 0 } else { 100_000 }));
            duo.a("send C 5000");
            duo.b("recvall C 1000");
            if ends {
                duo.a("shutdown C wr");
            }
            duo.b("give U C");
            duo.b("close C");
            duo.b("in P take V C");
            duo.b("in P get C notsent");
            duo.b("in P unread C");
            duo.b("in P epoll E");
            duo.b("in P epadd E C in+et");
            duo.b("in P epwait E 0");
            duo.b("in P recvall C 4000");
            if ends {
                duo.b("in P recv C 10");
            } else {
                duo.a("send C 10");
                duo.b("in P epwait E 1000");
                duo.b("in P recvall C 10");
            }
            duo.b("in P send C 10");
            duo.a("recvall C 10");
            duo.b("in P close C");
            duo.b("in P close E");
            duo.a("recv C 10");
        }
    });
}

/// Who has passed it on may read on as well, and pass it on again, also to itself.
#[test]
fn several_share_what_is_unread() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("spawn P");
        duo.b("spawn Q");
        duo.warm("C");
        duo.a("send C 9000");
        for _ in 0..3 {
            duo.b("give U C");
        }
        duo.b("in P take V D");
        duo.b("take V D");
        for who in ["", "in P "] {
            duo.b(&format!("{who}recvall D 500"));
            duo.b("recvall C 500");
        }
        duo.b("in Q take V D");
        duo.b("in Q recvall D 1000");
        duo.b("in P give U D");
        duo.b("in P close D");
        duo.b("close C");
        duo.b("recvall D 1000");
        duo.b("close D");
        duo.b("in Q take V E");
        duo.b("in Q recvall E 1000");
        duo.b("in Q close D");
        duo.b("in Q recvall E 4000");
        duo.a("send C 10");
        duo.b("in Q recvall E 10");
        duo.b("in Q close E");
        duo.a("recv C 10");
    });
}

/// With the last holder, unread bytes are a reset; not before.
#[test]
fn what_was_passed_on_is_closed_unread() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("spawn P");
        duo.warm("C");
        duo.a("send C 5000");
        duo.b("give U C");
        duo.b("in P take V D");
        duo.b("in P recvall D 1000");
        duo.b("close C");
        duo.a("poll C rdhup 20");
        duo.b("in P close D");
        duo.a("poll C rdhup 1000");
        duo.a("recv C 10");
    });
}

/// A message that is not sent passes nothing on.
#[test]
fn a_message_that_fails() {
    check(|duo| {
        duo.b("pair U V");
        duo.warm("C");
        duo.a("send C 5000");
        duo.b("close V");
        duo.b("give U C");
        duo.b("give U C");
        duo.b("recvall C 1000");
        duo.b("close U");
        duo.b("pair U V");
        duo.b("spawn P");
        duo.b("give U C");
        duo.b("close C");
        duo.b("in P take V C");
        duo.b("in P recvall C 4000");
        duo.b("in P close C");
        duo.a("recv C 10");
    });
}

/// To a child that had the socket by fork, and closed it.
#[test]
fn to_a_child_that_closed_its_own() {
    /// Before the bytes come, before it is sent, or after it was taken.
    fn pass(duo: &mut Duo, closes: usize) {
        duo.warm("C");
        duo.b("pair U V");
        duo.b("fork P");
        for step in 0..4 {
            if step == closes {
                duo.b("in P close C");
            }
            match step {
                0 => {
                    duo.a("send C 100");
                    duo.b("awaitunread C 100");
                }
                1 => {
                    duo.b("give U C");
                    duo.b("close C");
                }
                2 => drop(duo.b("in P take V G")),
                _ => {}
            }
        }
        duo.b("in P recvall G 100");
        duo.a("send C 100");
        duo.b("in P recvall G 100");
        duo.b("in P send G 100");
        duo.a("recvall C 100");
    }
    check(|duo| pass(duo, 0));
    check(|duo| pass(duo, 1));
    check(|duo| pass(duo, 2));
    check(|duo| pass(duo, 3));
}

/// While another child holds it, by fork.
#[test]
fn past_a_child_that_holds_it() {
    check(|duo| {
        duo.b("pair U V");
        duo.b("fork P");
        duo.warm("C");
        duo.b("fork Q");
        duo.a("send C 100");
        duo.b("awaitunread C 100");
        duo.b("give U C");
        duo.b("close C");
        duo.b("in P take V G");
        duo.a("send C 100");
        duo.b("in P recvall G 200");
        duo.b("in Q close C");
        duo.b("in P send G 100");
        duo.a("recvall C 100");
    });
}

/// By syscall(2), as Go's and libuv's are: what goes along in a message, and numbers that come to name something
/// else, though what they name is no connection.
#[test]
fn by_number() {
    for words in [&["passes"][..], &["passes", "many"], &["closes"], &["copies"]] {
        check_all_there("by_number", words, &[Knobs::default(), Knobs::at_once()]);
    }
}
