//! What may be said about segments, and what becomes of one who says something else, or too much.

mod support;

use rustix::fd::AsFd;
use std::fs::File;
use support::{Broker, Client, is_root, wait_until};
use yasmin_control::segment::{Answer, Kind, Name, Refusal, Request, Rights};
use yasmin_control::{CONTROL_VERSION, FromBroker, MESSAGE_BYTES, ToBroker};

const VERSION: u32 = CONTROL_VERSION;

fn create(name: &str, size_bytes: u64) -> Request {
    let name = Name::new(name).unwrap();
    Request::Create { version: VERSION, name, size_bytes, kind: Kind::default() }
}

fn open(name: &str) -> Request {
    let name = Name::new(name).unwrap();
    Request::Open { version: VERSION, name, rights: Rights::Write, sparse: true }
}

fn ask(client: &Client, request: Request) -> Answer {
    client.send_raw(&request.encode(), &[]).unwrap();
    answer(client)
}

fn answer(client: &Client) -> Answer {
    assert!(client.readable(support::PATIENCE), "no answer");
    let mut raw = [0; MESSAGE_BYTES];
    let (len, _) =
        rustix::net::recv(&client.fd, &mut raw[..], rustix::net::RecvFlags::empty()).unwrap();
    Answer::decode(&raw[..len]).unwrap()
}

#[test]
fn nonsense_ends_its_own_connection_and_touches_nothing() {
    let broker = Broker::start(&["--no-bpf"]);
    let good = broker.connect();
    assert_eq!(ask(&good, create("table", 5000)), Answer::Done);
    let valid = open("table").encode();
    // Not the kind's first byte: one bit more is REMOVE.
    for at in 1..MESSAGE_BYTES {
        for value in [1, 0x7f, 0xff] {
            let mut raw = valid;
            raw[at] ^= value;
            let hostile = broker.connect();
            hostile.send_raw(&raw, &[]).unwrap();
            // An answer, or the end; whichever, and nobody else notices.
            assert!(hostile.readable(support::PATIENCE), "byte {at}");
        }
    }
    for len in [0, 1, 4, 63, 65, 200] {
        let raw = [valid.as_slice(), &[0; 200]].concat();
        let hostile = broker.connect();
        hostile.send_raw(&raw[..len], &[]).unwrap();
        assert!(hostile.is_dropped(), "{len} bytes");
    }
    let null = File::open("/dev/null").unwrap();
    let hostile = broker.connect();
    // Since Linux 6.16 the kernel does not even send it.
    if hostile.send_raw(&valid, &[null.as_fd()]).is_ok() {
        assert!(hostile.is_dropped(), "with a descriptor");
    }
    // Not by one who has offered himself as a program with the library.
    let greeted = broker.client();
    greeted.send_raw(&valid, &[]).unwrap();
    assert!(greeted.is_dropped(), "behind HELLO");
    assert!(matches!(ask(&good, open("table")), Answer::Segment { .. }));
}

#[test]
fn another_version_is_refused() {
    let broker = Broker::start(&["--no-bpf"]);
    for version in [0, VERSION - 1, VERSION + 1, u32::MAX] {
        let client = broker.connect();
        let request = Request::List { version, after: None };
        client.send_raw(&request.encode(), &[]).unwrap();
        assert_eq!(client.receive().0, FromBroker::Refused { version: VERSION });
        assert!(client.is_dropped());
    }
}

/// RING is sent so: nothing answers it, and who sends it has no time to wait.
#[test]
fn what_is_asked_before_a_close_is_done() {
    let broker = Broker::start(&["--no-bpf"]);
    let good = broker.connect();
    for round in 0..20 {
        let name = format!("table{round}");
        let hasty = broker.connect();
        hasty.send_raw(&create(&name, 5000).encode(), &[]).unwrap();
        drop(hasty);
        wait_until("it is made", || matches!(ask(&good, open(&name)), Answer::Segment { .. }));
    }
    // One of a guest's own: it has no bells, and whoever rings one is neither answered nor dropped.
    let name = Name::new("table0").unwrap();
    let ring = Request::Ring { version: VERSION, name, bell: 63, domains: 0xff };
    for _ in 0..20 {
        good.send_raw(&ring.encode(), &[]).unwrap();
    }
    assert!(matches!(ask(&good, open("table0")), Answer::Segment { .. }));
}

/// Who asks and never reads is waited for by nobody.
#[test]
fn one_who_does_not_read_holds_nobody_up() {
    let broker = Broker::start(&["--no-bpf"]);
    let good = broker.connect();
    assert_eq!(ask(&good, create("table", 5000)), Answer::Done);
    let hostile = broker.connect();
    rustix::io::ioctl_fionbio(&hostile.fd, true).unwrap();
    let mut sent = 0;
    while sent < 100_000 && hostile.send_raw(&open("table").encode(), &[]).is_ok() {
        sent += 1;
    }
    for _ in 0..100 {
        assert!(matches!(ask(&good, open("table")), Answer::Segment { .. }));
    }
    broker.status();
    let before = broker.descriptors();
    drop(hostile);
    wait_until("what was not read is closed", || broker.descriptors() < before);
}

/// Thousands that are made and removed leave nothing.
#[test]
fn made_and_removed_again_and_again() {
    let broker = Broker::start(&["--no-bpf", "--segments", "16", "--segment-limit", "1M"]);
    let client = broker.connect();
    assert_eq!(ask(&client, create("first", 1)), Answer::Done);
    wait_until("the keeper listens", || broker.socket.with_extension("sock.segments").exists());
    let before = broker.descriptors();
    for _ in 0..1000 {
        assert_eq!(ask(&client, create("table", 500_000)), Answer::Done);
        assert!(matches!(ask(&client, open("table")), Answer::Segment { .. }));
        let name = Name::new("table").unwrap();
        assert_eq!(ask(&client, Request::Remove { version: VERSION, name }), Answer::Done);
    }
    wait_until("nothing is left", || broker.descriptors() <= before + 1);
    for nth in 0..15 {
        let made = ask(&client, create(&format!("s{nth}"), 1));
        let is_full = matches!(made, Answer::Refused(Refusal::TooMany { .. }));
        assert!(made == Answer::Done || is_full && !is_root("limits of root"), "{made:?}");
    }
}

/// An old broker's kinds go on to be what they were.
#[test]
fn both_kinds_of_questions_on_one_connection() {
    let broker = Broker::start(&["--no-bpf"]);
    let client = broker.connect();
    assert_eq!(ask(&client, create("table", 1)), Answer::Done);
    client.send(ToBroker::Status { version: VERSION });
    assert!(client.receive_status().is_some());
    assert!(matches!(ask(&client, open("table")), Answer::Segment { .. }));
}
