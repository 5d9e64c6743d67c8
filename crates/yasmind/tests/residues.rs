//! What is left for whoever gets a socket, who may have it, and what becomes of the rest.

mod support;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{Read, Write};
use std::mem::offset_of;
use support::{Broker, Client, is_root, named, tcp_pair, wait_until};
use yasmin_channel::residue::{CHANNEL_AT, SIDE_AT};
use yasmin_channel::side::{Rx, Side};
use yasmin_control::{CONTROL_VERSION, Decline, FromBroker, ToBroker};

/// All zero: nothing unread, and no holder but the first.
fn residue(len_bytes: usize, seals: SealFlags) -> OwnedFd {
    let memfd = memfd_create("residue", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memfd, len_bytes as u64).unwrap();
    fcntl_add_seals(&memfd, seals).unwrap();
    memfd
}

fn sealed() -> OwnedFd {
    residue(CHANNEL_AT, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

fn ask(client: &Client, message: ToBroker) -> (FromBroker, Vec<OwnedFd>) {
    client.send(message);
    client.receive()
}

/// With `fds` in the residue's place.
fn leave(client: &Client, socket: impl AsFd, fds: &[&dyn AsFd]) -> FromBroker {
    let leave = ToBroker::Leave { version: CONTROL_VERSION, socket: named(&socket) };
    match ask(client, leave).0 {
        FromBroker::Send => {
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).chain([socket.as_fd()]).collect();
            client.send_raw(&ToBroker::Keep.encode(), &fds).unwrap();
            client.receive().0
        }
        other => other,
    }
}

fn claim(client: &Client, socket: impl AsFd) -> (FromBroker, Vec<OwnedFd>) {
    ask(client, ToBroker::Claim { version: CONTROL_VERSION, socket: named(socket) })
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
        let answer = leave(&broker.connect(), &socket, &[&memfd]);
        assert_eq!(answer, FromBroker::Left);
    }
    let none = refused(Decline::NoResidue);
    assert_eq!(claim(&broker.connect(), &peer).0, none);
    if is_root("claims of another user") {
        let process = broker.process_as(1000);
        assert_eq!(claim(&process.client, &socket).0, refused(Decline::NoProof));
    }
    // Also when the peer has closed: what is unread is worth as much.
    drop(peer);
    for left in [1, 0] {
        let (answer, fds) = claim(&broker.connect(), &socket);
        assert_eq!((answer, fds.len()), (FromBroker::Residue { left }, 1));
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(&fds[0]), inode(&memfd));
    }
    assert_eq!(claim(&broker.connect(), &socket).0, none);
}

/// Who has claimed a residue closes the socket as if the broker had never had it.
#[test]
fn the_socket_is_released() {
    let broker = Broker::start(&["--no-bpf"]);
    let memfd = sealed();
    for _ in 0..200 {
        let (socket, mut peer) = tcp_pair("127.0.0.1:0");
        let (leaver, claimer) = (broker.connect(), broker.connect());
        assert_eq!(leave(&leaver, &socket, &[&memfd]), FromBroker::Left);
        assert_eq!(claim(&claimer, &socket).0, FromBroker::Residue { left: 0 });
        drop(socket);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn what_is_no_residue_is_declined() {
    let broker = Broker::start(&["--no-bpf"]);
    let before = broker.descriptors();
    let (socket, _peer) = tcp_pair("127.0.0.1:0");
    let short = residue(CHANNEL_AT - 1, SealFlags::SHRINK | SealFlags::GROW);
    let open = residue(CHANNEL_AT, SealFlags::GROW);
    let file = std::fs::File::open("/dev/null").unwrap();
    let memfd = sealed();
    let (not_tcp, none) = (refused(Decline::NotTcp), refused(Decline::NoResidue));
    let cases: [&[&dyn AsFd]; 6] =
        [&[], &[&short], &[&open], &[&file], &[&socket], &[&memfd, &memfd]];
    for fds in cases {
        assert_eq!(leave(&broker.connect(), &socket, fds), none);
    }
    assert_eq!(leave(&broker.connect(), &file, &[&memfd]), not_tcp);
    assert_eq!(claim(&broker.connect(), &file).0, not_tcp);
    let socket = named(&socket);
    let (leave, claim) = (
        ToBroker::Leave { version: CONTROL_VERSION, socket },
        ToBroker::Claim { version: CONTROL_VERSION, socket },
    );
    for message in [leave, claim] {
        let client = broker.client();
        client.send(message);
        assert!(client.is_dropped(), "{message:?} after HELLO");
    }
    // KEEP that nobody asked for, and two at a time.
    let client = broker.connect();
    client.send(ToBroker::Keep);
    assert!(client.is_dropped());
    let client = broker.connect();
    for _ in 0..2 {
        client.send(leave);
    }
    while let Some((message, _)) = client.try_receive() {
        assert_eq!(message, FromBroker::Send);
    }
    drop(client);
    wait_until("nothing is kept", || broker.descriptors() <= before);
}

#[test]
fn a_user_has_so_many() {
    // Few, so that none is given up meanwhile.
    const DESCRIPTORS: u64 = 1024;
    let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let broker = Broker::start(&["--no-bpf"]);
    let (socket, _peer) = tcp_pair("127.0.0.1:0");
    let memfd = sealed();
    let leaves = || leave(&broker.connect(), &socket, &[&memfd]);
    // A quarter of what an eighth of its descriptors holds, each being two.
    for _ in 0..DESCRIPTORS / 8 / 2 / 4 {
        // So fast the broker may still have connections to close.
        wait_until("it is taken", || leaves() == FromBroker::Left);
    }
    assert_eq!(leaves(), refused(Decline::TooMany));
}

/// They are charged to who leaves them, and no more once they are claimed.
#[test]
fn a_users_memory_holds_so_many() {
    let broker = Broker::start(&["--no-bpf", "--memory-limit", "64K"]);
    let (socket, _peer) = tcp_pair("127.0.0.1:0");
    let memfd = sealed();
    rustix::io::pwrite(&memfd, &[1; CHANNEL_AT], 0).unwrap();
    let leaves = || leave(&broker.connect(), &socket, &[&memfd]);
    for _ in 0..2 {
        for _ in 0..(64 << 10) / CHANNEL_AT {
            wait_until("it is taken", || leaves() == FromBroker::Left);
        }
        assert_eq!(leaves(), refused(Decline::TooMany));
        while claim(&broker.connect(), &socket).0 != refused(Decline::NoResidue) {}
    }
}

/// As in a message that nobody has read yet: it is claimed when somebody does.
#[test]
fn what_somebody_else_has_is_kept() {
    if !is_root("what_somebody_else_has_is_kept") {
        return;
    }
    let broker = Broker::start(&[]);
    let (socket, _peer) = tcp_pair("127.0.0.1:0");
    let (alone, _other_peer) = tcp_pair("127.0.0.1:0");
    let (memfd, of_nobody) = (sealed(), sealed());
    assert_eq!(leave(&broker.connect(), &socket, &[&memfd]), FromBroker::Left);
    assert_eq!(leave(&broker.connect(), &alone, &[&of_nobody]), FromBroker::Left);
    drop(alone);
    // Left later, and so looked at later.
    wait_until("what nobody has is given up", || word(&of_nobody, offset_of!(Rx, foreign)) == 1);
    assert_eq!(word(&memfd, offset_of!(Rx, foreign)), 0);
    assert_eq!(claim(&broker.connect(), &socket).0, FromBroker::Residue { left: 0 });
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
        assert_eq!(leave(&broker.connect(), &socket, &[&memfd]), FromBroker::Left);
        wait_until("it is taken back", || word(&memfd, offset_of!(Rx, foreign)) == 1);
        assert_eq!(word(&memfd, offset_of!(Rx, more_holders)), 0);
        assert_eq!(claim(&broker.connect(), &socket).0, refused(Decline::NoResidue));
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
    assert_eq!(leave(&broker.connect(), &socket, &[&memfd]), FromBroker::Left);
    assert!(broker.child.wait().unwrap().success());
    assert_eq!(word(&memfd, offset_of!(Rx, foreign)), 1);
}
