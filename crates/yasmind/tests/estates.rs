//! What is left for whoever gets a socket, who may have it, and what becomes of the rest.

mod support;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io::{Read, Write};
use std::mem::offset_of;
use support::{Broker, Client, is_root, tcp_pair, wait_until};
use yasmin_channel::estate::{CHANNEL_AT, SIDE_AT};
use yasmin_channel::side::{Rx, Side};
use yasmin_control::{CONTROL_VERSION, Decline, FromBroker, ToBroker};

const LEAVE: ToBroker = ToBroker::Leave { version: CONTROL_VERSION };
const CLAIM: ToBroker = ToBroker::Claim { version: CONTROL_VERSION };

/// All zero: nothing unread, and no holder but the first.
fn estate(len_bytes: usize, seals: SealFlags) -> OwnedFd {
    let memfd = memfd_create("estate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memfd, len_bytes as u64).unwrap();
    fcntl_add_seals(&memfd, seals).unwrap();
    memfd
}

fn sealed() -> OwnedFd {
    estate(CHANNEL_AT, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

fn ask(client: &Client, message: ToBroker, fds: &[&dyn AsFd]) -> (FromBroker, Vec<OwnedFd>) {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    client.send_raw(&message.encode(), &fds).unwrap();
    client.receive()
}

fn refused(reason: Decline) -> FromBroker {
    FromBroker::Decline { id: 0, reason }
}

fn word(memfd: &OwnedFd, in_rx: usize) -> u64 {
    let at = SIDE_AT + offset_of!(Side, rx) + in_rx;
    support::u64_at(memfd, (at & !7) as u64) >> (8 * (at % 8)) & 0xffff_ffff
}

#[test]
fn only_the_same_user_with_the_same_socket_gets_it() {
    let broker = Broker::start(&["--no-bpf"]);
    let (socket, peer) = tcp_pair("127.0.0.1:0");
    let memfd = sealed();
    for _ in 0..2 {
        let answer = ask(&broker.connect(), LEAVE, &[&socket, &memfd]).0;
        assert_eq!(answer, FromBroker::Left);
    }
    let none = refused(Decline::NoEstate);
    assert_eq!(ask(&broker.connect(), CLAIM, &[&peer]).0, none);
    if is_root("claims of another user") {
        assert_eq!(ask(&broker.connect_as(1000), CLAIM, &[&socket]).0, none);
    }
    // Also when the peer has closed: what is unread is worth as much.
    drop(peer);
    for left in [1, 0] {
        let (answer, fds) = ask(&broker.connect(), CLAIM, &[&socket]);
        assert_eq!((answer, fds.len()), (FromBroker::Estate { left }, 1));
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(&fds[0]), inode(&memfd));
    }
    assert_eq!(ask(&broker.connect(), CLAIM, &[&socket]).0, none);
}

/// Who has claimed an estate closes the socket as if the broker had never had it.
#[test]
fn the_socket_is_released_before_the_answer() {
    let broker = Broker::start(&["--no-bpf"]);
    let memfd = sealed();
    for _ in 0..200 {
        let (socket, mut peer) = tcp_pair("127.0.0.1:0");
        let (leaver, claimer) = (broker.connect(), broker.connect());
        assert_eq!(ask(&leaver, LEAVE, &[&socket, &memfd]).0, FromBroker::Left);
        assert_eq!(ask(&claimer, CLAIM, &[&socket]).0, FromBroker::Estate { left: 0 });
        drop(socket);
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn what_is_no_estate_is_declined() {
    let broker = Broker::start(&["--no-bpf"]);
    let before = broker.descriptors();
    let (socket, _peer) = tcp_pair("127.0.0.1:0");
    let short = estate(CHANNEL_AT - 1, SealFlags::SHRINK | SealFlags::GROW);
    let open = estate(CHANNEL_AT, SealFlags::GROW);
    let file = std::fs::File::open("/dev/null").unwrap();
    let (not_tcp, none) = (refused(Decline::NotTcp), refused(Decline::NoEstate));
    let cases: [(&[&dyn AsFd], FromBroker); 7] = [
        (&[], not_tcp),
        (&[&socket], not_tcp),
        (&[&socket, &short, &short], not_tcp),
        (&[&file, &open], not_tcp),
        (&[&socket, &short], none),
        (&[&socket, &open], none),
        (&[&socket, &file], none),
    ];
    for (fds, answer) in cases {
        assert_eq!(ask(&broker.connect(), LEAVE, fds).0, answer);
    }
    assert_eq!(ask(&broker.connect(), CLAIM, &[]).0, not_tcp);
    assert_eq!(ask(&broker.connect(), CLAIM, &[&file]).0, not_tcp);
    for message in [LEAVE, CLAIM] {
        let client = broker.client();
        client.send(message);
        assert!(client.is_dropped(), "{message:?} after HELLO");
        // Two at a time: the second one is out of turn, or the first was answered before.
        let client = broker.connect();
        for _ in 0..2 {
            let _ = client.send_raw(&message.encode(), &[socket.as_fd()]);
        }
    }
    wait_until("nothing is kept", || broker.descriptors() <= before);
}

#[test]
fn a_user_has_so_many() {
    let broker = Broker::start(&["--no-bpf"]);
    let (socket, _peer) = tcp_pair("127.0.0.1:0");
    let memfd = sealed();
    let answers: Vec<_> =
        (0..65).map(|_| ask(&broker.connect(), LEAVE, &[&socket, &memfd]).0).collect();
    assert_eq!(answers[..64], [FromBroker::Left; 64]);
    assert_eq!(answers[64], refused(Decline::TooMany));
}

/// The first was left by a process that still has the socket, the second by one that has not;
/// neither has anything unread, so neither connection is reset.
#[test]
fn what_nobody_claims_is_taken_back() {
    let broker = Broker::start(&["--no-bpf"]);
    let before = broker.descriptors();
    for more_holders in [1u32, 0] {
        let (mut socket, mut peer) = tcp_pair("127.0.0.1:0");
        let memfd = sealed();
        let at = SIDE_AT + offset_of!(Side, rx) + offset_of!(Rx, more_holders);
        rustix::io::pwrite(&memfd, &more_holders.to_ne_bytes(), at as u64).unwrap();
        assert_eq!(ask(&broker.connect(), LEAVE, &[&socket, &memfd]).0, FromBroker::Left);
        wait_until("it is taken back", || word(&memfd, offset_of!(Rx, foreign)) == 1);
        assert_eq!(word(&memfd, offset_of!(Rx, more_holders)), 0);
        assert_eq!(ask(&broker.connect(), CLAIM, &[&socket]).0, refused(Decline::NoEstate));
        peer.write_all(b"x").unwrap();
        socket.read_exact(&mut [0]).unwrap();
        wait_until("nothing is kept", || broker.descriptors() <= before);
        drop(socket);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn the_broker_stays_for_it() {
    let mut broker = Broker::start(&["--no-bpf", "--exit-when-idle", "1"]);
    let (socket, _peer) = tcp_pair("127.0.0.1:0");
    let memfd = sealed();
    assert_eq!(ask(&broker.connect(), LEAVE, &[&socket, &memfd]).0, FromBroker::Left);
    assert!(broker.child.wait().unwrap().success());
    assert_eq!(word(&memfd, offset_of!(Rx, foreign)), 1);
}
