//! What the library relies on the kernel to do, one behaviour a test, without the library. Who
//! wants to know why a rule of `crates/preload` is what it is finds the ground truth here.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::thread;
use std::time::Duration;

use yasmin_tests::sys::libc::{
    ECONNRESET, EEXIST, ENOENT, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN,
    EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP, MSG_DONTWAIT, MSG_OOB, MSG_PEEK, POLLIN, POLLPRI,
    POLLRDHUP, SO_PEEK_OFF, SOL_SOCKET,
};
use yasmin_tests::sys::{self, Fd};

const IN: u32 = EPOLLIN as u32;
const OUT: u32 = EPOLLOUT as u32;
const RDHUP: u32 = EPOLLRDHUP as u32;
const ONESHOT: u32 = EPOLLONESHOT as u32;
const EDGE: u32 = EPOLLET as u32;
const NOTHING: [u32; 0] = [];
/// Longer than anything on loopback takes.
const SOON_MS: i32 = 5000;

/// Both ends of a connection.
fn pair() -> (Fd, Fd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near.into_raw_fd(), far.into_raw_fd())
}

/// The bytes are at the other end.
fn send(fd: Fd, to: Fd, data: &[u8]) {
    let before = sys::unread(to).unwrap();
    assert_eq!(sys::send(fd, data, 0).unwrap(), data.len());
    while sys::unread(to).unwrap() < before + data.len() {
        thread::yield_now();
    }
}

fn set_with(fd: Fd, events: u32) -> Fd {
    let set = sys::epoll_create().unwrap();
    sys::epoll_ctl(set, EPOLL_CTL_ADD, fd, events, 7).unwrap();
    set
}

fn told(set: Fd) -> Vec<u32> {
    sys::epoll_wait(set, 8, 0).unwrap().into_iter().map(|(events, _)| events).collect()
}

fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

/// `epoll_ctl::told_by_token`, `Set::tell_kernel`.
#[test]
fn a_one_shot_that_was_told_stays_in_the_set_disarmed() {
    let (near, far) = pair();
    let set = set_with(near, IN | ONESHOT);
    send(far, near, b"one");
    assert_eq!(told(set), [IN]);
    assert_eq!(told(set), NOTHING);
    send(far, near, b"two");
    assert_eq!(told(set), NOTHING, "more bytes do not arm it");
    let again = sys::epoll_ctl(set, EPOLL_CTL_ADD, near, IN, 7);
    assert_eq!(errno(again), EEXIST);
    sys::epoll_ctl(set, EPOLL_CTL_MOD, near, IN | ONESHOT, 7).unwrap();
    assert_eq!(told(set), [IN], "arming tells of what is there");
}

/// `Set::take_from_kernel`: DEL and not MOD with no events.
#[test]
fn a_registration_without_events_is_told_of_the_end() {
    let (near, far) = pair();
    let set = set_with(near, ONESHOT);
    sys::set_linger(far, Some(0)).unwrap();
    sys::close(far).unwrap();
    let events = sys::epoll_wait(set, 8, SOON_MS).unwrap();
    assert_eq!(events.len(), 1, "errors and hang-ups are told, asked for or not");
}

/// `set::write_cut_short`, and MOD by the program.
#[test]
fn registering_again_tells_an_edge_again() {
    let (near, far) = pair();
    let set = set_with(near, IN | EDGE);
    send(far, near, b"one");
    assert_eq!(told(set), [IN]);
    assert_eq!(told(set), NOTHING);
    sys::epoll_ctl(set, EPOLL_CTL_MOD, near, IN | EDGE, 7).unwrap();
    assert_eq!(told(set), [IN]);
}

/// `epoll_ctl::wake_sleepers`.
#[test]
fn asking_for_room_wakes_who_sleeps_in_the_set() {
    let (near, _far) = pair();
    let set = set_with(near, IN);
    let sleeper = thread::spawn(move || sys::epoll_wait(set, 8, SOON_MS).unwrap());
    thread::sleep(Duration::from_millis(20));
    sys::epoll_ctl(set, EPOLL_CTL_MOD, near, IN | OUT, 8).unwrap();
    assert_eq!(sleeper.join().unwrap(), [(OUT, 8)]);
}

/// `set::registration`: keyed by number and open file.
#[test]
fn a_registration_outlives_its_number() {
    let (near, far) = pair();
    let other = sys::dup(near).unwrap();
    let set = set_with(near, IN);
    sys::close(near).unwrap();
    send(far, other, b"one");
    assert_eq!(told(set), [IN]);
    assert_ne!(errno(sys::epoll_ctl(set, EPOLL_CTL_DEL, near, 0, 0)), 0, "nobody can end it");
    assert_eq!(errno(sys::epoll_ctl(set, EPOLL_CTL_DEL, other, 0, 0)), ENOENT);
    assert_eq!(told(set), [IN]);
}

/// `set::named`.
#[test]
fn a_set_is_its_open_file() {
    let (near, far) = pair();
    let set = sys::epoll_create().unwrap();
    let other = sys::dup(set).unwrap();
    sys::epoll_ctl(set, EPOLL_CTL_ADD, near, IN, 7).unwrap();
    sys::close(set).unwrap();
    send(far, near, b"one");
    assert_eq!(told(other), [IN]);
}

/// `make_foreign(NESTED)`: who watches a set sees what the kernel knows of it.
#[test]
fn a_set_in_a_set_is_readable_when_it_has_something() {
    let (near, far) = pair();
    let inner = set_with(near, IN);
    let outer = set_with(inner, IN);
    assert_eq!(told(outer), NOTHING);
    send(far, near, b"one");
    assert_eq!(told(outer), [IN]);
}

/// `Conn::end_unread`: what is unread in a ring is TCP's unread data.
#[test]
fn closing_over_unread_bytes_is_a_reset() {
    let (near, far) = pair();
    send(near, far, b"unread");
    sys::close(far).unwrap();
    sys::poll_events(near, POLLIN, SOON_MS).unwrap();
    let ended = sys::recv(near, &mut [0; 8], MSG_DONTWAIT);
    assert_eq!(errno(ended), ECONNRESET);
}

/// `receive`: bytes, then the error; it is told once.
#[test]
fn a_reset_is_told_once_and_after_the_bytes_that_came_before() {
    let (near, far) = pair();
    send(far, near, b"bytes");
    sys::set_linger(far, Some(0)).unwrap();
    sys::close(far).unwrap();
    while sys::tcp_state(near).unwrap() == 1 {
        thread::yield_now();
    }
    let mut out = [0; 16];
    assert_eq!(sys::recv(near, &mut out, MSG_DONTWAIT).unwrap(), 5);
    assert_eq!(errno(sys::recv(near, &mut out, MSG_DONTWAIT)), ECONNRESET);
    assert_eq!(sys::recv(near, &mut out, MSG_DONTWAIT).unwrap(), 0);
}

/// `tcp::is_over`, `kernel_may_have_more`.
#[test]
fn an_end_behind_unread_bytes_is_told_beside_them() {
    let (near, far) = pair();
    let set = set_with(near, IN | RDHUP);
    send(far, near, b"bytes");
    assert_eq!(told(set), [IN]);
    sys::close(far).unwrap();
    sys::poll_events(near, POLLRDHUP, SOON_MS).unwrap();
    assert_eq!(told(set), [IN | RDHUP]);
}

/// `receive::peek_from`: the offset is from the first unread byte, and reads move it back.
#[test]
fn a_peek_offset_counts_unread_bytes() {
    let (near, far) = pair();
    sys::set_int(near, SOL_SOCKET, SO_PEEK_OFF, 2).unwrap();
    send(far, near, b"0123456789");
    let mut out = [0; 3];
    sys::recv(near, &mut out, MSG_PEEK).unwrap();
    assert_eq!(&out, b"234");
    assert_eq!(sys::get_int(near, SOL_SOCKET, SO_PEEK_OFF).unwrap(), 5);
    sys::recv(near, &mut out, 0).unwrap();
    assert_eq!(&out, b"012");
    assert_eq!(sys::get_int(near, SOL_SOCKET, SO_PEEK_OFF).unwrap(), 2);
}

/// `tcp::ahead`, FIONREAD: the kernel counts up to the mark, and a read stops there.
#[test]
fn urgent_data_ends_a_read_and_what_is_counted() {
    let (near, far) = pair();
    send(far, near, b"abc");
    assert_eq!(sys::send(far, b"!", MSG_OOB).unwrap(), 1);
    sys::poll_events(near, POLLPRI, SOON_MS).unwrap();
    assert_eq!(sys::send(far, b"def", 0).unwrap(), 3);
    let mut out = [0; 16];
    assert_eq!(sys::recv(near, &mut out, 0).unwrap(), 3);
    assert!(sys::at_mark(near).unwrap());
}

/// `recv`: a call that sleeps in the kernel ends with the connection.
#[test]
fn shutdown_wakes_who_sleeps_in_recv() {
    let (near, _far) = pair();
    let sleeper = thread::spawn(move || sys::recv(near, &mut [0; 8], 0).unwrap());
    thread::sleep(Duration::from_millis(20));
    sys::shutdown(near, 0).unwrap();
    assert_eq!(sleeper.join().unwrap(), 0);
}

/// `Unlocked::Gone`: closing does not end a call that is in the kernel.
#[test]
fn close_does_not_wake_who_sleeps_in_recv() {
    let (near, far) = pair();
    let sleeper = thread::spawn(move || sys::recv(near, &mut [0; 8], 0).unwrap());
    thread::sleep(Duration::from_millis(20));
    sys::close(near).unwrap();
    assert_eq!(sys::send(far, b"late", 0).unwrap(), 4);
    assert_eq!(sleeper.join().unwrap(), 4);
}

/// `spin::watch`: a gap without an involuntary switch is the host's.
#[test]
fn giving_the_cpu_away_is_no_involuntary_switch() {
    // SAFETY: all zero is a valid rusage, which the kernel fills in.
    let switches = || unsafe {
        let mut usage: sys::libc::rusage = std::mem::zeroed();
        sys::libc::getrusage(sys::libc::RUSAGE_THREAD, &raw mut usage);
        (usage.ru_nvcsw, usage.ru_nivcsw)
    };
    let before = switches();
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(2));
    }
    let after = switches();
    assert!(after.0 >= before.0 + 5, "sleeps are voluntary");
}

/// `settings::need_tcp`: whoever set it, and when.
#[test]
fn an_accepted_socket_is_set_as_its_listener_was() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    sys::set_int(listener.as_raw_fd(), SOL_SOCKET, SO_PEEK_OFF, 3).unwrap();
    let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    let inherited = sys::get_int(far.as_raw_fd(), SOL_SOCKET, SO_PEEK_OFF).unwrap();
    assert_eq!(inherited, 3, "an accepted socket is set as its listener was");
}

/// `delayed`: a mark in the last word that the kernel carries of a siginfo, and the order of the carriers.
#[test]
fn queued_signals_keep_their_order_and_every_word_of_their_siginfo() {
    use sys::libc::{SYS_gettid, SYS_rt_tgsigqueueinfo, syscall};
    let number = sys::libc::SIGRTMIN() + 3;
    let codes = [sys::libc::SI_QUEUE, sys::libc::SI_USER, sys::libc::SI_TIMER];
    let infos: Vec<[u64; 16]> = (0..)
        .zip(codes)
        .map(|(at, code)| {
            let mut info = [0; 16];
            info[0] = number as u64;
            info[1] = u64::from(code as u32);
            info[3] = 100 + at;
            info[5] = !at;
            info
        })
        .collect();
    // SAFETY: a signal set, and siginfos of 128 bytes.
    let got: Vec<[u64; 16]> = unsafe {
        let mut set = std::mem::zeroed();
        sys::libc::sigemptyset(&raw mut set);
        sys::libc::sigaddset(&raw mut set, number);
        sys::libc::pthread_sigmask(sys::libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        for info in &infos {
            let thread = syscall(SYS_gettid);
            let ret =
                syscall(SYS_rt_tgsigqueueinfo, std::process::id(), thread, number, info.as_ptr());
            assert_eq!(ret, 0);
        }
        let next = || {
            let mut info = [0u64; 16];
            let soon = sys::libc::timespec { tv_sec: 5, tv_nsec: 0 };
            sys::libc::sigtimedwait(&raw const set, info.as_mut_ptr().cast(), &raw const soon);
            info
        };
        infos.iter().map(|_| next()).collect()
    };
    assert_eq!(got, infos);
}
