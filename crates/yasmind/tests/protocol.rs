//! What a process may say, and what becomes of one that says something else, or too much.

mod support;

use rustix::fd::AsFd;
use std::fs::File;
use std::time::Duration;
use support::{Broker, tcp_pair, wait_until};
use yasmin_control::{CONTROL_VERSION, Decline, FromBroker, MESSAGE_BYTES, Role, ToBroker};

const HELLO: ToBroker = ToBroker::Hello { version: CONTROL_VERSION, comm: [0; 16] };

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
    let mut no_role = ToBroker::Offer { id: 1, role: Role::Acceptor }.encode();
    no_role[4] = 2;
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
        ToBroker::Offer { id: 1, role: Role::Acceptor },
        ToBroker::Release { id: 1 },
        ToBroker::Grow { id: 1, class: 1 },
    ] {
        let client = broker.connect();
        client.send(message);
        assert!(client.is_dropped());
    }
    let client = broker.client();
    client.send(HELLO);
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
    client.send(ToBroker::Release { id: 77 });
    client.send(ToBroker::Grow { id: 77, class: 8 });
    client.send(ToBroker::Status { version: CONTROL_VERSION });
    assert!(matches!(client.receive().0, FromBroker::Status { .. }));
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let broker = Broker::start(&["--no-bpf"]);
    let before = broker.descriptors();
    let file = File::open("/dev/null").unwrap();
    let many = vec![file.as_fd(); 253];
    let client = broker.client();
    for id in 0..20 {
        client.send_raw(&ToBroker::Release { id }.encode(), &many).unwrap();
        let offer = ToBroker::Offer { id, role: Role::Connector }.encode();
        client.send_raw(&offer, &many).unwrap();
        assert_eq!(client.declined(), (id, Decline::NotTcp));
    }
    client.send_raw(&[], &many).unwrap();
    assert!(client.is_dropped());
    drop(client);
    wait_until("all closed", || broker.descriptors() <= before);
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let broker = Broker::start(&[]);
    let before = broker.descriptors();
    let client = broker.client();
    rustix::io::ioctl_fionbio(&client.fd, true).unwrap();
    let file = File::open("/dev/null").unwrap();
    // Each is answered with a DECLINE that is never read.
    let mut sent = 0;
    for id in 0..100_000 {
        let offer = ToBroker::Offer { id, role: Role::Connector }.encode();
        if client.send_raw(&offer, &[file.as_fd()]).is_err() {
            std::thread::sleep(Duration::from_millis(20));
            if client.send_raw(&offer, &[file.as_fd()]).is_err() {
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

#[test]
fn a_stuck_descriptor_holds_nobody_up() {
    let broker = Broker::start(&[]);
    let hostile = broker.client();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut kept = Vec::new();
    // Stopped, so that its descriptor is the last and not ours.
    broker.signal(rustix::process::Signal::STOP);
    // Closing these lingers for an hour.
    for id in 0..3 {
        let connector = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        kept.push(listener.accept().unwrap());
        connector.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &connector, &[0; 65536]).is_ok() {}
        let hour = Some(Duration::from_secs(3600));
        rustix::net::sockopt::set_socket_linger(&connector, hour).unwrap();
        let file = File::open("/dev/null").unwrap();
        let offer = ToBroker::Offer { id, role: Role::Connector }.encode();
        // The second descriptor makes it close both without a look.
        hostile.send_raw(&offer, &[connector.as_fd(), file.as_fd()]).unwrap();
        drop(connector);
    }
    broker.signal(rustix::process::Signal::CONT);
    let (a, b) = (broker.client(), broker.client());
    for id in 0..10 {
        let (connector, acceptor) = tcp_pair("127.0.0.1:0");
        a.offer(id, Role::Connector, &connector);
        b.offer(id, Role::Acceptor, &acceptor);
        assert_eq!((a.channel().id, b.channel().id), (id, id));
    }
}
