//! What two processes get that offer the ends of one connection, and what becomes of it.

mod support;

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_get_seals, fstat};
use rustix::io::Errno;
use std::net::TcpStream;
use std::time::Duration;
use support::{Broker, PATIENCE, tcp_pair, wait_until};
use yasmin_channel::side::{FOR_NOW, GIVEN_BACK};
use yasmin_control::{Decline, Role, Socket, Then, ToBroker};
use yasmin_wire::layout::{CHANNEL_MAGIC, channel_bytes};

/// The two ways to prove; the first where the kernel and our rights allow it.
const PROOFS: [&[&str]; 2] = [&[], &["--no-bpf"]];

fn pair_up(broker: &Broker, connector: &TcpStream, acceptor: &TcpStream) {
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, connector);
    b.offer(2, Role::Acceptor, acceptor);
    let (to_a, to_b) = (a.channel(), b.channel());
    assert_eq!((to_a.id, to_a.role), (1, Role::Connector));
    assert_eq!((to_b.id, to_b.role), (2, Role::Acceptor));
    assert_eq!(fstat(&to_a.channel).unwrap().st_ino, fstat(&to_b.channel).unwrap().st_ino);
    assert_ne!(fstat(&to_a.side).unwrap().st_ino, fstat(&to_b.side).unwrap().st_ino);
}

#[test]
fn two_ends_get_one_channel() {
    for arguments in PROOFS {
        let broker = Broker::start(arguments);
        let (connector, acceptor) = tcp_pair("127.0.0.1:0");
        let (a, b) = (broker.client(), broker.client());
        b.offer(7, Role::Acceptor, &acceptor);
        a.offer(3, Role::Connector, &connector);
        let (to_a, to_b) = (a.channel(), b.channel());

        assert_eq!((to_a.id, to_a.role), (3, Role::Connector));
        assert_eq!((to_b.id, to_b.role), (7, Role::Acceptor));
        assert_eq!(to_a.cookie, rustix::net::sockopt::socket_cookie(&connector).unwrap());
        assert_eq!(to_b.cookie, rustix::net::sockopt::socket_cookie(&acceptor).unwrap());
        assert_eq!((to_a.first_class, to_a.max_class), (0, 9));

        let channel = fstat(&to_a.channel).unwrap();
        assert_eq!(channel.st_ino, fstat(&to_b.channel).unwrap().st_ino);
        assert_eq!(channel.st_size as usize, channel_bytes(9));
        assert_eq!(support::u64_at(&to_a.channel, 0), CHANNEL_MAGIC);
        assert_ne!(fstat(&to_a.side).unwrap().st_ino, fstat(&to_b.side).unwrap().st_ino);
        for memfd in [&to_a.channel, &to_a.side, &to_b.side] {
            let seals = fcntl_get_seals(memfd).unwrap();
            assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
            assert!(!seals.contains(SealFlags::WRITE));
        }
        // Side page: its version, class limit 0.
        let version = u64::from(yasmin_channel::side::SIDE_VERSION);
        assert_eq!(support::u64_at(&to_a.side, 0), version);
        // Who has a mailbox can neither write it nor punch a hole, for which the broker would wait.
        let mailbox = a.mailbox.as_ref().unwrap();
        let seals = fcntl_get_seals(mailbox).unwrap();
        assert!(seals.contains(SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::SEAL));
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(mailbox, hole, 0, 4096), Err(Errno::PERM));
        // WELCOME, CHANNEL; the counter is raised after the message.
        wait_until("mailbox says 2", || a.mail() == 2 && b.mail() == 2);
    }
}

/// A peer that shares memory can stall the other end.
#[test]
fn users_who_do_not_trust_each_other_stay_on_tcp() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: becoming another user needs root");
        return;
    }
    for is_wary in [false, true] {
        let arguments: &[&str] = if is_wary { &["--same-user-only"] } else { &[] };
        let broker = Broker::start(arguments);
        let (connector, acceptor) = tcp_pair("127.0.0.1:0");
        // It has the sockets under the same numbers.
        let (ours, mut theirs) = (broker.client(), broker.process_as(1234));
        theirs.client.greet();
        ours.offer(1, Role::Connector, &connector);
        theirs.client.offer(2, Role::Acceptor, &acceptor);
        if is_wary {
            assert_eq!(ours.declined(), (1, Decline::Policy));
            assert_eq!(theirs.client.declined(), (2, Decline::Policy));
            let (connector, acceptor) = tcp_pair("127.0.0.1:0");
            pair_up(&broker, &connector, &acceptor);
        } else {
            assert_eq!((ours.channel().id, theirs.client.channel().id), (1, 2));
        }
    }
}

#[test]
fn ipv6_and_mapped_addresses_pair() {
    for arguments in PROOFS {
        let broker = Broker::start(arguments);
        let (connector, acceptor) = tcp_pair("[::1]:0");
        pair_up(&broker, &connector, &acceptor);
        // An IPv6 listener that takes IPv4.
        let listener = std::net::TcpListener::bind("[::]:0").unwrap();
        let address = ("127.0.0.1", listener.local_addr().unwrap().port());
        let connector = TcpStream::connect(address).unwrap();
        let (acceptor, _) = listener.accept().unwrap();
        assert!(acceptor.local_addr().unwrap().is_ipv6());
        pair_up(&broker, &connector, &acceptor);
    }
}

#[test]
fn one_process_may_hold_both_ends() {
    let broker = Broker::start(&[]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let client = broker.client();
    client.offer(1, Role::Connector, &connector);
    client.offer(2, Role::Acceptor, &acceptor);
    let mut ids = [client.channel().id, client.channel().id];
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}

#[test]
fn who_is_gone_is_not_paired() {
    for arguments in PROOFS {
        let broker = Broker::start(arguments);
        let (connector, acceptor) = tcp_pair("127.0.0.1:0");
        let (a, b) = (broker.client(), broker.client());
        a.offer(1, Role::Connector, &connector);
        wait_until("the offer waits", || broker.status().connections.len() == 1);
        a.send(ToBroker::Release { id: 1, then: Then::Closes });
        wait_until("the offer is withdrawn", || broker.status().connections.is_empty());
        b.offer(2, Role::Acceptor, &acceptor);
        wait_until("the offer waits", || broker.status().connections.len() == 1);
        // Again, and this time it works: a released end may be offered under a new id.
        a.offer(3, Role::Connector, &connector);
        assert_eq!((a.channel().id, b.channel().id), (3, 2));
    }
}

#[test]
fn same_roles_and_same_sockets_are_not_paired() {
    for arguments in PROOFS {
        let broker = Broker::start(arguments);
        let (connector, acceptor) = tcp_pair("127.0.0.1:0");
        let (a, b) = (broker.client(), broker.client());
        a.offer(1, Role::Connector, &connector);
        wait_until("the offer waits", || broker.status().connections.len() == 1);
        b.offer(2, Role::Connector, &connector);
        assert_eq!(b.declined(), (2, Decline::Taken));
        b.offer(3, Role::Acceptor, &connector);
        assert_eq!(b.declined(), (3, Decline::Taken));
        // A lie about the role.
        b.offer(4, Role::Connector, &acceptor);
        assert!(!a.readable(Duration::from_millis(50)));
        assert!(!b.readable(Duration::from_millis(50)));
    }
}

#[test]
fn what_is_no_connection_is_declined() {
    let broker = Broker::start(&[]);
    let client = broker.client();
    let file = std::fs::File::open("/dev/null").unwrap();
    client.offer(1, Role::Connector, &file);
    assert_eq!(client.declined(), (1, Decline::NotTcp));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    client.offer(2, Role::Acceptor, &listener);
    assert_eq!(client.declined(), (2, Decline::NotTcp));
    // A number that nothing has, and another socket's cookie.
    let (a, b) = tcp_pair("127.0.0.1:0");
    let socket = Socket { number: 1_000_000, ..support::named(&a) };
    client.send(ToBroker::Offer { id: 3, role: Role::Connector, holders: 0, socket });
    assert_eq!(client.declined(), (3, Decline::NotTcp));
    let socket = Socket { cookie: support::named(&b).cookie, ..support::named(&a) };
    client.send(ToBroker::Offer { id: 4, role: Role::Connector, holders: 0, socket });
    assert_eq!(client.declined(), (4, Decline::NotTcp));
}

#[test]
fn killed_processes_free_everything() {
    let broker = Broker::start(&[]);
    let before = broker.descriptors();
    for _ in 0..20 {
        let (connector, acceptor) = tcp_pair("127.0.0.1:0");
        let (a, b) = (broker.client(), broker.client());
        a.offer(1, Role::Connector, &connector);
        b.offer(1, Role::Acceptor, &acceptor);
        a.channel();
        b.channel();
        assert!(broker.status().broker.memory_used_bytes > 0);
        // What the kernel does for a killed process.
        drop((a, b));
        wait_until("the memory is free", || broker.status().broker.memory_used_bytes == 0);
    }
    wait_until("no descriptor is left", || broker.descriptors() <= before);
    let status = broker.status();
    assert_eq!(status.broker.channels_total, 20);
    assert!(status.connections.is_empty());
}

#[test]
fn the_end_that_stays_keeps_its_share() {
    let broker = Broker::start(&[]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    b.offer(1, Role::Acceptor, &acceptor);
    a.channel();
    b.channel();
    let whole = broker.status().broker.memory_used_bytes;
    assert_eq!(whole, 4096 + 2 * 4096);
    a.send(ToBroker::Release { id: 1, then: Then::Closes });
    wait_until("half is free", || broker.status().broker.memory_used_bytes == whole / 2);
    b.send(ToBroker::Release { id: 1, then: Then::Closes });
    wait_until("all is free", || broker.status().broker.memory_used_bytes == 0);
}

fn without_channel(broker: &Broker) -> usize {
    let shown = broker.status().connections;
    shown.iter().filter(|connection| connection.reason.is_some()).count()
}

/// The end that is left is told, unless the other one was closed; and both may have another channel.
#[test]
fn a_channel_that_one_end_gives_back_ends_at_the_other() {
    const FILLS_AND_GONE: u64 = 8;
    for (then, why) in [
        (Then::Closes, 0),
        (Then::IsSeldom, u64::from(GIVEN_BACK)),
        (Then::GoesOn, u64::from(FOR_NOW)),
    ] {
        let broker = Broker::start(&[]);
        let (connector, acceptor) = tcp_pair("127.0.0.1:0");
        let (a, b) = (broker.client(), broker.client());
        a.offer(1, Role::Connector, &connector);
        b.offer(1, Role::Acceptor, &acceptor);
        let (to_a, to_b) = (a.channel(), b.channel());
        let whole = broker.status().broker.memory_used_bytes;
        let gone = |side| support::u64_at(side, FILLS_AND_GONE) >> 32;
        a.send(ToBroker::Release { id: 1, then });
        wait_until("half is free", || broker.status().broker.memory_used_bytes == whole / 2);
        if then != Then::Closes {
            wait_until("it is told", || gone(&to_b.side) == why);
            assert_eq!(without_channel(&broker), 1);
            a.send(ToBroker::Release { id: 1, then: Then::Closes });
            wait_until("it is forgotten", || without_channel(&broker) == 0);
        } else {
            assert_eq!(gone(&to_b.side), 0);
        }
        assert_eq!(gone(&to_a.side), 0);
        b.send(ToBroker::Release { id: 1, then });
        a.offer(2, Role::Connector, &connector);
        b.offer(2, Role::Acceptor, &acceptor);
        let (to_a, to_b) = (a.channel(), b.channel());
        assert_eq!(without_channel(&broker), 0);
        assert_eq!((gone(&to_a.side), gone(&to_b.side)), (0, 0));
    }
}

#[test]
fn rings_grow_while_there_is_memory() {
    let broker =
        Broker::start(&["--memory-limit", "100K", "--user-limit", "100K", "--max-class", "7"]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    b.offer(1, Role::Acceptor, &acceptor);
    let (to_a, _) = (a.channel(), b.channel());
    a.send(ToBroker::Grow { id: 1, class: 4 });
    wait_until("class 4", || support::u64_at(&to_a.side, 0) >> 32 == 4);
    // No smaller, and no larger than the memory allows: class 6 would take 130 KiB and more.
    a.send(ToBroker::Grow { id: 1, class: 1 });
    a.send(ToBroker::Grow { id: 1, class: 9 });
    wait_until("class 5", || support::u64_at(&to_a.side, 0) >> 32 == 5);
    b.send(ToBroker::Release { id: 1, then: Then::Closes });
    a.send(ToBroker::Release { id: 1, then: Then::Closes });
    wait_until("all is free", || broker.status().broker.memory_used_bytes == 0);
}

#[test]
fn without_memory_connections_stay_tcp() {
    let broker = Broker::start(&["--memory-limit", "8K", "--user-limit", "8K"]);
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (a, b) = (broker.client(), broker.client());
    a.offer(1, Role::Connector, &connector);
    b.offer(1, Role::Acceptor, &acceptor);
    assert_eq!(a.declined(), (1, Decline::Memory));
    assert_eq!(b.declined(), (1, Decline::Memory));
    let status = broker.status();
    assert_eq!(status.broker.memory_used_bytes, 0);
    assert_eq!(status.connections.len(), 2);
    assert_eq!(status.connections[0].reason.as_deref(), Some("memory budget spent"));
}

/// Whatever has a socket in its hands, and is stopped, holds back the connection's end.
#[test]
fn a_stopped_broker_holds_no_end_back() {
    for arguments in PROOFS {
        let broker = Broker::start(arguments);
        let client = broker.client();
        let pairs: Vec<_> = (0..50).map(|_| tcp_pair("127.0.0.1:0")).collect();
        broker.signal(rustix::process::Signal::STOP);
        for (id, (connector, mut acceptor)) in (0..).zip(pairs) {
            client.offer(id, Role::Connector, &connector);
            drop(connector);
            assert!(support::readable(&acceptor, PATIENCE), "no FIN");
            assert_eq!(std::io::Read::read(&mut acceptor, &mut [0]).unwrap(), 0);
        }
        broker.signal(rustix::process::Signal::CONT);
        for id in 0..50 {
            assert_eq!(client.declined().0, id);
        }
    }
}

/// What a process says of its own connections is shown, and no more of it than a screenful.
#[test]
fn reasons_of_the_library_are_shown_until_the_connection_is_offered() {
    let broker = Broker::start(&[]);
    let client = broker.client();
    let (connector, acceptor) = tcp_pair("127.0.0.1:0");
    let (role, reason) = (Role::Connector, Decline::Option);
    for _ in 0..100 {
        client.send(ToBroker::Stays { role, reason, socket: support::named(&connector) });
    }
    wait_until("it is shown", || !broker.status().connections.is_empty());
    let shown = broker.status().connections;
    assert!(shown.len() <= 16, "{}", shown.len());
    assert_eq!(shown[0].reason.as_deref(), Some(reason.describe()));
    assert_eq!(shown[0].ends[0].local, connector.local_addr().unwrap().to_string());
    client.offer(1, role, &connector);
    client.offer(2, Role::Acceptor, &acceptor);
    client.channel();
    wait_until("only the channel", || broker.status().connections.len() == 1);
}
