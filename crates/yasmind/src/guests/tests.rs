use super::directory::{Guest, Known};
use super::*;
use crate::facts::Numbers;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use yasmin_control::directory::mapped;

const OURS: u32 = 1001;
const THEIRS: u32 = 1002;
const CLIENT: u64 = 1 << 33;

/// A broker that knows one other guest; no vsock needed: its connections are given to it.
fn guests(is_by_hand: bool) -> Guests {
    let guest = Guest { cid: THEIRS, is_by_hand };
    let known = Known {
        guests: HashMap::from([("10.0.2.21".parse().unwrap(), guest)]),
        own_cid: Some(OURS),
    };
    let silent = UnixStream::pair().unwrap().0;
    silent.set_nonblocking(true).unwrap();
    Guests {
        directory: Directory::fixed(known),
        // Never readable, so nothing arrives by itself.
        listener: silent.into(),
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(),
        arrivals: BTreeMap::new(),
        joins: HashMap::new(),
        negatives: HashMap::new(),
        habits: HashMap::new(),
        next: LISTENER,
        next_port: 0,
        diag: Diag::open().unwrap(),
        answers: Vec::new(),
        moved: Vec::new(),
    }
}

fn facts(guests: &Guests, numbers: Option<Numbers>) -> Facts {
    Facts {
        cookie: 1,
        netns: guests.diag.netns,
        local: "10.0.2.20:6379".parse().unwrap(),
        peer: "10.0.2.21:40000".parse().unwrap(),
        is_plain: true,
        bound: false,
        pid_namespace: 1,
        references: None,
        numbers,
        beyond: None,
    }
}

/// The same connection as the other guest sees it, if it is the connector.
fn token(proof: u64) -> Token {
    Token {
        connector: Endpoint { address: mapped([10, 0, 2, 21]), port: 40000 },
        acceptor: Endpoint { address: mapped([10, 0, 2, 20]), port: 6379 },
        proof,
    }
}

/// A vsock connection from guest `cid`; its other end.
fn arrives(guests: &mut Guests, cid: u32) -> UnixStream {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let fd = OwnedFd::from(here);
    guests.next += 1;
    let data = epoll::EventData::new_u64(guests.next);
    epoll::add(&guests.epoll, &fd, data, epoll::EventFlags::IN).unwrap();
    let (raw, since) = ([0; TOKEN_BYTES], Instant::now());
    let arrival = Arrival { fd, cid, since, raw, len_bytes: 0, token: None };
    guests.arrivals.insert(guests.next, arrival);
    there
}

fn accepts(guests: &mut Guests, numbers: Option<Numbers>) {
    let facts = facts(guests, numbers);
    assert!(guests.join(CLIENT, Role::Acceptor, 1000, Instant::now()));
    guests.found(CLIENT, Ok(facts), Instant::now());
}

fn answer(guests: &mut Guests) -> Option<FromBroker> {
    guests.turn(Instant::now());
    let mut answers = guests.answers();
    assert!(answers.len() <= 1);
    let answer = answers.pop()?;
    assert_eq!(answer.client, CLIENT);
    assert_eq!(answer.fd.is_some(), matches!(answer.message, FromBroker::Joined { .. }));
    Some(answer.message)
}

const NO: Option<FromBroker> = Some(FromBroker::Decline { id: 0, reason: Decline::NoGuest });

#[test]
fn an_acceptor_for_whom_nothing_comes_is_told_at_once() {
    let mut guests = guests(true);
    let _other_guests = arrives(&mut guests, 1003);
    accepts(&mut guests, None);
    assert_eq!(answer(&mut guests), NO);
}

#[test]
fn a_token_finds_its_acceptor_before_and_after() {
    for is_first in [true, false] {
        let mut guests = guests(true);
        let mut there = arrives(&mut guests, THEIRS);
        if is_first {
            there.write_all(&token(0).encode()).unwrap();
            assert_eq!(answer(&mut guests), None);
            accepts(&mut guests, None);
        } else {
            accepts(&mut guests, None);
            assert_eq!(answer(&mut guests), None);
            there.write_all(&token(0).encode()[..30]).unwrap();
            assert_eq!(answer(&mut guests), None);
            there.write_all(&token(0).encode()[30..]).unwrap();
        }
        assert_eq!(answer(&mut guests), Some(FromBroker::Joined { proof: 0 }));
        assert_eq!(guests.moved().len(), 1);
        assert!(guests.joins.is_empty() && guests.arrivals.is_empty());
    }
}

#[test]
fn other_tokens_are_not_taken() {
    let mut other_port = token(0);
    other_port.connector.port = 1;
    for (cid, token) in [(1003, token(0)), (THEIRS, other_port)] {
        let mut guests = guests(true);
        let mut there = arrives(&mut guests, cid);
        there.write_all(&token.encode()).unwrap();
        assert_eq!(answer(&mut guests), None);
        accepts(&mut guests, None);
        assert_eq!(answer(&mut guests), NO);
    }
    let mut guests = guests(true);
    arrives(&mut guests, THEIRS).write_all(&[7; TOKEN_BYTES]).unwrap();
    assert_eq!(answer(&mut guests), None);
    assert!(guests.arrivals.is_empty());
}

#[test]
fn a_socket_of_another_namespace_is_nobodys() {
    let mut guests = guests(true);
    let mut there = arrives(&mut guests, THEIRS);
    there.write_all(&token(0).encode()).unwrap();
    assert!(guests.join(CLIENT, Role::Acceptor, 1000, Instant::now()));
    let mut facts = facts(&guests, None);
    facts.netns = facts.netns.map(|netns| netns + 1);
    guests.found(CLIENT, Ok(facts), Instant::now());
    assert_eq!(answer(&mut guests), NO);
}

const NUMBERS: Numbers = Numbers { sent: 500, received: 100 };

/// The proof that `prover` makes who sees the connection, between these guests.
fn proof_of(prover: Role, connector: u32, acceptor: u32) -> u64 {
    let guests = guests(false);
    let facts = facts(&guests, Some(NUMBERS));
    let cids = Some(Cids { connector, acceptor });
    proof::of(&facts, Role::Acceptor, prover, cids, &token(0)).unwrap()
}

#[test]
fn who_only_announces_an_address_proves_nothing() {
    let honest = proof_of(Role::Connector, THEIRS, OURS);
    let relayed = proof_of(Role::Connector, 1003, OURS);
    for (numbers, sent, is_believed) in [
        (Some(NUMBERS), honest, true),
        (Some(NUMBERS), relayed, false),
        (Some(NUMBERS), 0, false),
        (None, honest, false),
    ] {
        let mut guests = guests(false);
        let mut there = arrives(&mut guests, THEIRS);
        there.write_all(&token(sent).encode()).unwrap();
        guests.turn(Instant::now());
        accepts(&mut guests, numbers);
        let told = answer(&mut guests);
        if is_believed {
            let proof = proof_of(Role::Acceptor, THEIRS, OURS);
            assert_eq!(told, Some(FromBroker::Joined { proof }));
        } else {
            assert_eq!(told, NO);
        }
    }
}

/// The connector's side up to TOKEN; the other end of its vsock connection.
fn connects(guests: &mut Guests) -> UnixStream {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let fd = OwnedFd::from(here);
    let data = epoll::EventData::new_u64(CLIENT);
    epoll::add(&guests.epoll, &fd, data, epoll::EventFlags::OUT).unwrap();
    let to = "10.0.2.21:40000".parse().unwrap();
    let way = Way { fd, to, cid: THEIRS, is_by_hand: true, stands: false };
    let until = Instant::now() + Duration::from_secs(600);
    guests.joins.insert(CLIENT, Join { state: JoinState::Prepared(way), until });
    assert!(guests.join(CLIENT, Role::Connector, 1000, Instant::now()));
    let facts = facts(guests, None);
    guests.found(CLIENT, Ok(facts), Instant::now());
    assert_eq!(answer(guests), None);
    there
}

#[test]
fn a_connector_waits_for_ready() {
    let mut guests = guests(true);
    let mut there = connects(&mut guests);
    let mut raw = [0; TOKEN_BYTES];
    there.read_exact(&mut raw).unwrap();
    let told = Token::decode(&raw).unwrap();
    assert_eq!((told.connector.port, told.acceptor.port, told.proof), (6379, 40000, 0));
    there.write_all(&guest::ready(0)).unwrap();
    assert_eq!(answer(&mut guests), Some(FromBroker::Joined { proof: 0 }));
    assert!(!guests.is_negative("10.0.2.21:40000".parse().unwrap(), Instant::now()));
}

#[test]
fn short_connections_stay_on_tcp() {
    let mut guests = guests(true);
    let to = "10.0.2.21:40000".parse().unwrap();
    let now = Instant::now();
    // This machine has no such connection, so each is gone when the next one comes.
    let gone = facts(&guests, None);
    for i in 0..SHORT_IN_A_ROW {
        assert!(!guests.is_short_lived(to, now), "after {i}");
        guests.moves(to, &gone, now);
    }
    assert!(guests.is_short_lived(to, now));
    // Tried once more later.
    assert!(!guests.is_short_lived(to, now + SHORT));
    guests.moves(to, &gone, now + SHORT);
    assert!(guests.is_short_lived(to, now + SHORT));

    // One that lives breaks the row.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let held = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let facts = Facts {
        cookie: rustix::net::sockopt::socket_cookie(&held).unwrap(),
        netns: Diag::open().unwrap().netns,
        local: held.local_addr().unwrap(),
        peer: held.peer_addr().unwrap(),
        is_plain: true,
        bound: false,
        pid_namespace: 1,
        references: None,
        numbers: None,
        beyond: None,
    };
    let held = (facts, held);
    for _ in 0..2 * SHORT_IN_A_ROW {
        guests.moves(to, &held.0, now);
        assert!(!guests.is_short_lived(to, now));
    }
}

#[test]
fn who_does_not_answer_is_left_alone_for_longer_each_time() {
    let mut guests = guests(true);
    let to = "10.0.2.21:40000".parse().unwrap();
    let mut length = Duration::ZERO;
    for _ in 0..10 {
        drop(connects(&mut guests));
        assert_eq!(answer(&mut guests), NO);
        let entry = guests.negatives[&to];
        assert!(entry.length > length || entry.length == NEGATIVE_MAX);
        length = entry.length;
        assert!(guests.is_negative(to, Instant::now()));
        let to = Endpoint { address: mapped([10, 0, 2, 21]), port: 40000 };
        guests.prepare(CLIENT, to, Instant::now());
        assert_eq!(answer(&mut guests), NO);
    }
    // The library gave up: the same.
    guests.negatives.clear();
    let _there = connects(&mut guests);
    guests.disconnected(CLIENT, Instant::now());
    assert!(guests.is_negative(to, Instant::now()));
    // So has the broker, when the time is over.
    guests.negatives.clear();
    let _there = connects(&mut guests);
    guests.expire(Instant::now() + Duration::from_secs(2));
    assert_eq!(answer(&mut guests), NO);
    assert!(guests.is_negative(to, Instant::now()));
}
