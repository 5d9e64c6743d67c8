//! What a process may say, and what becomes of one that says something else, or too much.

mod support;

use rustix::fd::AsFd;
use rustix::io::Errno;
use std::fs::File;
use std::time::Duration;
use support::{Broker, tcp_pair, wait_until};
use yasmin_control::guest::Endpoint;
use yasmin_control::{
    CONTROL_VERSION, Decline, FromBroker, MESSAGE_BYTES, Role, Socket, Then, ToBroker,
};

const HELLO: ToBroker = ToBroker::Hello { version: CONTROL_VERSION, comm: [0; 16] };

/// Of a socket that nobody has.
const NONE: Socket = {
    let end = Endpoint { address: [0; 16], port: 0 };
    Socket { number: 1_000_000, cookie: 1, local: end, peer: end }
};
const OFFER: ToBroker = ToBroker::Offer { id: 1, role: Role::Acceptor, holders: 0, socket: NONE };

#[test]
fn another_version_is_refused() {
    let broker = Broker::start(&["--no-bpf"]);
    for message in [
        ToBroker::Hello { version: CONTROL_VERSION + 1, comm: [0; 16] },
        ToBroker::Status { version: CONTROL_VERSION + 1 },
    ] {
        let client = broker.connect();
        client.send(message);
        assert_eq!(client.receive().0, FromBroker::Refused { version: CONTROL_VERSION });
        assert!(client.is_dropped());
    }
}

#[test]
fn malformed_messages_drop_their_sender_alone() {
    let broker = Broker::start(&["--no-bpf"]);
    let bystander = broker.client();
    let hello = HELLO.encode();
    let mut unknown = hello;
    unknown[0] = 99;
    let mut no_role = OFFER.encode();
    no_role[28] = 2;
    let mut no_class = ToBroker::Grow { id: 1, class: 1 }.encode();
    no_class[4] = 99;
    let long = [0; MESSAGE_BYTES + 1];
    for bad in [&b""[..], b"x", &hello[..63], &long, &[0; 4096], &unknown, &no_role, &no_class] {
        for greeted in [false, true] {
            let client = if greeted { broker.client() } else { broker.connect() };
            client.send_raw(bad, &[]).unwrap();
            assert!(client.is_dropped(), "{} bytes", bad.len());
        }
    }
    let (connector, _acceptor) = tcp_pair("127.0.0.1:0");
    bystander.offer(1, Role::Connector, &connector);
    wait_until("the bystander is served", || broker.status().connections.len() == 1);
}

#[test]
fn messages_out_of_turn_drop_their_sender() {
    let broker = Broker::start(&["--no-bpf"]);
    for message in [
        OFFER,
        ToBroker::Keep,
        ToBroker::Release { id: 1, then: Then::Closes },
        ToBroker::Grow { id: 1, class: 1 },
    ] {
        let client = broker.connect();
        client.send(message);
        assert!(client.is_dropped());
    }
    let client = broker.client();
    client.send(HELLO);
    assert!(client.is_dropped());
    let client = broker.client();
    client.send(ToBroker::Count { version: CONTROL_VERSION, number: 0 });
    assert!(client.is_dropped());
    // An id that is used twice.
    let client = broker.client();
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    client.offer(1, Role::Connector, &connector);
    client.offer(1, Role::Acceptor, &acceptor);
    assert!(client.is_dropped());
}

#[test]
fn what_nobody_knows_is_ignored() {
    let broker = Broker::start(&["--no-bpf"]);
    let client = broker.client();
    client.send(ToBroker::Release { id: 77, then: Then::Closes });
    client.send(ToBroker::Grow { id: 77, class: 8 });
    client.send(ToBroker::Status { version: CONTROL_VERSION });
    assert!(matches!(client.receive().0, FromBroker::Status { .. }));
}

/// Whether the kernel refuses them, as from Linux 6.16 on, or the broker hangs up.
#[test]
fn descriptors_are_never_received() {
    let broker = Broker::start(&["--no-bpf"]);
    let before = broker.descriptors();
    let file = File::open("/dev/null").unwrap();
    let many = vec![file.as_fd(); 253];
    for greeted in [false, true] {
        for bytes in [&ToBroker::Release { id: 1, then: Then::Closes }.encode()[..], &[]] {
            let client = if greeted { broker.client() } else { broker.connect() };
            match client.send_raw(bytes, &many) {
                Ok(()) => assert!(client.is_dropped()),
                Err(error) => assert_eq!(error, Errno::PERM),
            }
        }
    }
    wait_until("all closed", || broker.descriptors() <= before);
}

/// Who was asked for a residue's descriptors brings them with KEEP, and with nothing else.
#[test]
fn descriptors_come_with_one_message() {
    let broker = Broker::start(&["--no-bpf"]);
    let before = broker.descriptors();
    let (socket, _peer) = tcp_pair("127.0.0.1:0");
    let named = support::named(&socket);
    let leave = ToBroker::Leave { version: CONTROL_VERSION, socket: named };
    let claim = ToBroker::Claim { version: CONTROL_VERSION, socket: named };
    let file = File::open("/dev/null").unwrap();
    let many = vec![file.as_fd(); 253];
    for message in [claim, leave, ToBroker::Status { version: CONTROL_VERSION }, ToBroker::Keep] {
        let client = broker.connect();
        client.send(leave);
        assert_eq!(client.receive().0, FromBroker::Send);
        client.send_raw(&message.encode(), &many).unwrap();
        if matches!(message, ToBroker::Keep) {
            assert!(matches!(client.receive().0, FromBroker::Decline { .. }));
        }
        assert!(client.is_dropped());
    }
    wait_until("all closed", || broker.descriptors() <= before);
}

/// Where the kernel has refused to pass it on, this close is the last one, and would linger.
fn close_ours(lingering: std::net::TcpStream, is_passed_on: bool) {
    if !is_passed_on {
        rustix::net::sockopt::set_socket_linger(&lingering, None).unwrap();
    }
}

/// One who has sockets closed that linger for an hour, as often as he is let.
#[test]
fn lingering_descriptors_hold_nobody_up() {
    if !support::is_root("lingering_descriptors_hold_nobody_up") {
        return;
    }
    let broker = Broker::start(&[]);
    let before = broker.descriptors();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut hostile, mut peers) = (Vec::new(), Vec::new());
    // Stopped, so that its descriptor is the last and not ours.
    for id in 0..40 {
        let (proof, proofs_peer) = tcp_pair("127.0.0.1:0");
        // Before the next socket, so that it has only this one's connection.
        let process = broker.process_as(65534);
        let lingering = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peers.push((listener.accept().unwrap(), proofs_peer));
        lingering.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &lingering, &[0; 65536]).is_ok() {}
        let hour = Some(Duration::from_secs(3600));
        rustix::net::sockopt::set_socket_linger(&lingering, hour).unwrap();
        let file = File::open("/dev/null").unwrap();
        let client = &process.client;
        if id % 2 == 0 {
            // With a message that takes none.
            let sent = client.send_raw(&OFFER.encode(), &[lingering.as_fd(), file.as_fd()]);
            close_ours(lingering, sent.is_ok());
        } else {
            // Where one is expected, twice.
            let leave =
                ToBroker::Leave { version: CONTROL_VERSION, socket: support::named(&proof) };
            client.send(leave);
            if client.receive().0 != FromBroker::Send {
                close_ours(lingering, false);
            } else {
                broker.signal(rustix::process::Signal::STOP);
                let sent = [(); 2].map(|()| {
                    client.send_raw(&ToBroker::Keep.encode(), &[lingering.as_fd()]).is_ok()
                });
                close_ours(lingering, sent.contains(&true));
                broker.signal(rustix::process::Signal::CONT);
            }
        }
        hostile.push(process);
    }
    drop(hostile);
    let (a, b) = (broker.client(), broker.client());
    for id in 0..10 {
        let (connector, acceptor) = tcp_pair("127.0.0.1:0");
        a.offer(id, Role::Connector, &connector);
        b.offer(id, Role::Acceptor, &acceptor);
        assert_eq!((a.channel().id, b.channel().id), (id, id));
    }
    broker.status();
    drop((a, b));
    // He may have so many, and the broker so many threads.
    assert!(broker.descriptors() <= before + 64);
    drop((peers, listener));
    wait_until("all closed", || broker.descriptors() <= before);
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let broker = Broker::start(&[]);
    let before = broker.descriptors();
    let client = broker.client();
    rustix::io::ioctl_fionbio(&client.fd, true).unwrap();
    // Each is answered with a DECLINE that is never read.
    let mut sent = 0;
    for id in 0..100_000 {
        let offer =
            ToBroker::Offer { id, role: Role::Connector, holders: 0, socket: NONE }.encode();
        if client.send_raw(&offer, &[]).is_err() {
            std::thread::sleep(Duration::from_millis(20));
            if client.send_raw(&offer, &[]).is_err() {
                break;
            }
        }
        sent = id;
    }
    assert!(sent < 10_000, "the flood was taken in");
    // Others are served as ever.
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    b.offer(1, Role::Acceptor, &acceptor);
    assert_eq!((a.channel().id, b.channel().id), (1, 1));
    // And so is this one when it reads.
    let mut declined = 0;
    while declined <= sent {
        assert_eq!(client.declined(), (declined, Decline::NotTcp));
        declined += 1;
    }
    drop((a, b, client));
    wait_until("all closed", || broker.descriptors() <= before);
}
