//! TCP connections to other guests of this host, moved to vsock (docs/architecture.md "Guests").
//!
//! ```text
//!  connector's library   connector's broker             acceptor's broker   acceptor's library
//!    PREPARE ────────────▶ connects by vsock ──────────▶ keeps it (arrival)
//!    ◀───────── PREPARED
//!    (TCP: SYN, SYN-ACK, ACK)                              ◀────────────────── JOIN, its socket
//!    JOIN, its socket ───▶ TOKEN ──────────────────────▶ pairs ──────────────▶ vsock socket
//!    ◀── vsock socket ──── ◀─────────────────────────────────────────── READY ──┘
//!    └────────────────────── GO ───────────────────────────────────────────────▶
//! ```
//!
//! All sockets here are non-blocking and wait in an epoll set of their own. Nothing is decided
//! here: the connector's library does by sending GO or not.

mod addresses;
pub mod directory;
mod hosts;
mod proof;
#[cfg(test)]
mod tests;

use crate::diag::Diag;
use crate::facts::Facts;
use crate::sys::vsock;
use directory::{Directory, octets};
use proof::Cids;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use yasmin_control::guest::{
    self, Endpoint, LAST_PRIVILEGED_PORT, READY_BYTES, TOKEN_BYTES, Token,
};
use yasmin_control::{Decline, FromBroker, Role};

/// A guest's CID is this and its Xen domain number (spec/wire.md section 10).
pub const XEN_CID_BASE: u32 = 1000;

/// The vsock connections that one guest may have waiting here.
const ARRIVALS_PER_GUEST: usize = 256;

/// Without a token one is not expected to be for a TCP connection that is accepted now.
const TOKEN_WITHIN: Duration = Duration::from_millis(500);

/// A vsock connection stands by then or never will.
const STANDS_WITHIN: Duration = Duration::from_secs(2);

/// As long as a program's connect takes.
const CONNECTS_WITHIN: Duration = Duration::from_secs(600);

/// Nothing comes of it any more.
const ARRIVAL_LIFE: Duration = Duration::from_secs(10);

/// Whom a connection to did not come about with is left alone, and twice as long each time
/// that it is so again.
const NEGATIVE_FIRST: Duration = Duration::from_secs(1);
const NEGATIVE_MAX: Duration = Duration::from_secs(64);

/// A connection that is gone by then was short: making its rings cost more than they saved.
const SHORT: Duration = Duration::from_secs(1);

/// So many short ones in a row, and the next go by TCP.
const SHORT_IN_A_ROW: u32 = 4;

/// What a library may ask to wait for at most.
const WAIT_MAX: Duration = Duration::from_secs(60);

const LISTENER: u64 = 0;
const BACKLOG: i32 = 128;
const EVENTS_PER_TURN: usize = 64;

/// What to tell a library.
pub struct Answer {
    pub client: u64,
    pub message: FromBroker,
    pub fd: Option<OwnedFd>,
}

/// A vsock connection from another guest's broker.
struct Arrival {
    fd: OwnedFd,
    cid: u32,
    since: Instant,
    raw: [u8; TOKEN_BYTES],
    len_bytes: usize,
    token: Option<Token>,
}

/// What a library wants moved.
struct Join {
    state: JoinState,
    until: Instant,
}

enum JoinState {
    /// PREPARE came; it is answered when the vsock connection stands. Then it waits at the other
    /// broker, which so knows, when the program there accepts, that there is one.
    Preparing(Way),
    /// The program's TCP connection is being made.
    Prepared(Way),
    /// The acceptor's socket, or the connector's, is being looked at.
    Examined(Option<Way>),
    /// Connector: TOKEN is sent as soon as the vsock connection stands.
    Telling { way: Way, facts: Facts },
    /// Connector: READY is waited for.
    Told { way: Way, facts: Facts, token: Token, raw: [u8; READY_BYTES], len_bytes: usize },
    /// Acceptor: an arrival with its token is waited for.
    Waiting { facts: Facts, cid: u32, is_by_hand: bool },
}

/// A connector's way to the other guest.
struct Way {
    fd: OwnedFd,
    to: SocketAddr,
    cid: u32,
    is_by_hand: bool,
    stands: bool,
}

/// An end that goes by vsock, for `yasmin status`.
pub struct Moved {
    pub client: u64,
    pub role: Role,
    pub facts: Facts,
}

/// What became of connections to one address and port.
struct Habit {
    /// The last one that was moved.
    last: Facts,
    since: Instant,
    short_in_a_row: u32,
}

#[derive(Clone, Copy)]
struct Negative {
    until: Instant,
    length: Duration,
}

pub struct Guests {
    directory: Directory,
    listener: OwnedFd,
    epoll: OwnedFd,
    /// By a serial below 2^32; clients' names are above.
    arrivals: BTreeMap<u64, Arrival>,
    joins: HashMap<u64, Join>,
    negatives: HashMap<SocketAddr, Negative>,
    habits: HashMap<SocketAddr, Habit>,
    next: u64,
    next_port: u32,
    /// To ask whether a TCP connection is still there; knows our network namespace.
    pub diag: Diag,
    answers: Vec<Answer>,
    moved: Vec<Moved>,
}

impl Guests {
    pub fn start(directory: Directory) -> anyhow::Result<Self> {
        let listener = vsock::listen(guest::PORT, BACKLOG)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
        Ok(Self {
            directory,
            listener,
            epoll,
            arrivals: BTreeMap::new(),
            joins: HashMap::new(),
            negatives: HashMap::new(),
            habits: HashMap::new(),
            next: LISTENER,
            // Not where a broker before this one may still have connections.
            next_port: std::process::id(),
            diag: Diag::open()?,
            answers: Vec::new(),
            moved: Vec::new(),
        })
    }

    /// What is to be told since the last call.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    pub fn moved(&mut self) -> Vec<Moved> {
        std::mem::take(&mut self.moved)
    }

    fn decline(&mut self, client: u64) {
        self.joins.remove(&client);
        let message = FromBroker::Decline { id: 0, reason: Decline::NoGuest };
        self.answers.push(Answer { client, message, fd: None });
    }

    /// A TCP connection to `to` is about to be made.
    pub fn prepare(&mut self, client: u64, to: Endpoint, now: Instant) {
        let ip = directory::ip(to.address);
        let to = SocketAddr::new(ip, to.port);
        let guest = self.directory.known().guests.get(&ip).copied();
        let Some(guest) = guest.filter(|_| !self.is_negative(to, now)) else {
            return self.decline(client);
        };
        if self.is_short_lived(to, now) {
            self.cache_negative(to, now);
            return self.decline(client);
        }
        let fd = match vsock::connect(guest.cid, guest::PORT, self.ports()) {
            Ok(fd) => fd,
            Err(error) => {
                tracing::debug!(cid = guest.cid, "no vsock connection: {error}");
                self.cache_negative(to, now);
                return self.decline(client);
            }
        };
        let data = epoll::EventData::new_u64(client);
        if epoll::add(&self.epoll, &fd, data, epoll::EventFlags::OUT).is_err() {
            return self.decline(client);
        }
        let way = Way { fd, to, cid: guest.cid, is_by_hand: guest.is_by_hand, stands: false };
        let until = now + STANDS_WITHIN;
        self.joins.insert(client, Join { state: JoinState::Preparing(way), until });
    }

    /// The vsock connection stands, or failed.
    fn prepared(&mut self, client: u64, now: Instant) {
        let Some(JoinState::Preparing(mut way)) = self.take(client) else { return };
        // Until there is something to say it is quiet.
        let data = epoll::EventData::new_u64(client);
        let quiet = epoll::modify(&self.epoll, &way.fd, data, epoll::EventFlags::ET);
        let error = rustix::net::sockopt::socket_error(&way.fd);
        if error != Ok(Ok(())) || quiet.is_err() {
            tracing::debug!(cid = way.cid, ?error, "no vsock connection");
            self.cache_negative(way.to, now);
            return self.decline(client);
        }
        way.stands = true;
        let until = now + CONNECTS_WITHIN;
        self.joins.insert(client, Join { state: JoinState::Prepared(way), until });
        self.answers.push(Answer { client, message: FromBroker::Prepared, fd: None });
    }

    /// Root's ports but our own, from where the last one was found on.
    fn ports(&mut self) -> impl Iterator<Item = u32> + use<> {
        self.next_port = self.next_port.wrapping_add(1);
        let first = self.next_port;
        (0..LAST_PRIVILEGED_PORT)
            .map(move |i| first.wrapping_add(i) % LAST_PRIVILEGED_PORT + 1)
            .filter(|port| *port != guest::PORT)
    }

    /// The program's TCP connection stands; its socket is about to be looked at. False: no.
    pub fn join(&mut self, client: u64, role: Role, wait_ms: u32, now: Instant) -> bool {
        let until = now + Duration::from_millis(wait_ms.into()).min(WAIT_MAX);
        let state = match (role, self.joins.remove(&client).map(|join| join.state)) {
            (Role::Connector, Some(JoinState::Prepared(way))) => JoinState::Examined(Some(way)),
            (Role::Acceptor, None) => JoinState::Examined(None),
            _ => {
                self.decline(client);
                return false;
            }
        };
        self.joins.insert(client, Join { state, until });
        true
    }

    /// What was found out about the socket of `client`'s JOIN.
    pub fn found(&mut self, client: u64, facts: Result<Facts, Decline>, now: Instant) {
        let Some(join) = self.joins.remove(&client) else { return };
        let JoinState::Examined(way) = join.state else { return };
        // Addresses mean what the directory says only in our own namespace.
        let is_ours = |facts: &Facts| facts.netns == self.diag.netns && !facts.bound;
        let Some(facts) = facts.ok().filter(|f| f.netns.is_some() && is_ours(f)) else {
            return self.decline(client);
        };
        let state = match way {
            Some(way) if way.to != facts.peer => return self.decline(client),
            Some(way) => JoinState::Telling { way, facts },
            None => {
                let guest = self.directory.known().guests.get(&facts.peer.ip()).copied();
                let Some(guest) = guest else { return self.decline(client) };
                JoinState::Waiting { facts, cid: guest.cid, is_by_hand: guest.is_by_hand }
            }
        };
        self.joins.insert(client, Join { state, until: join.until });
        match self.joins[&client].state {
            JoinState::Telling { .. } => self.tell(client, now),
            _ => {
                // Its vsock connection was begun before its TCP connection.
                self.take_arrivals(now);
                self.pair(now);
            }
        }
    }

    /// The library is gone, and with it what it wanted.
    pub fn disconnected(&mut self, client: u64, now: Instant) {
        if let Some(JoinState::Preparing(way) | JoinState::Told { way, .. }) = self.take(client) {
            // It waited in vain.
            self.cache_negative(way.to, now);
        }
    }

    /// Goes on with what has happened.
    pub fn turn(&mut self, now: Instant) {
        let mut buffer = [MaybeUninit::uninit(); EVENTS_PER_TURN];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&at_once)) else {
            return;
        };
        for event in events {
            match event.data.u64() {
                LISTENER => self.take_arrivals(now),
                serial if self.arrivals.contains_key(&serial) => self.read_token(serial),
                client => self.go_on(client, now),
            }
        }
        self.pair(now);
    }

    /// Ends what has waited for too long.
    pub fn expire(&mut self, now: Instant) {
        let late: Vec<u64> =
            self.joins.iter().filter(|(_, join)| join.until <= now).map(|(id, _)| *id).collect();
        for client in late {
            if let Some(
                JoinState::Preparing(way)
                | JoinState::Told { way, .. }
                | JoinState::Telling { way, .. },
            ) = self.joins.get(&client).map(|join| &join.state)
            {
                let to = way.to;
                self.cache_negative(to, now);
            }
            self.decline(client);
        }
        self.arrivals.retain(|_, arrival| now < arrival.since + ARRIVAL_LIFE);
        self.pair(now);
    }

    /// When `expire` has something to do next.
    pub fn next_expiry(&self) -> Option<Instant> {
        let joins = self.joins.values().map(|join| join.until);
        let arrivals = self.arrivals.values().flat_map(|arrival| {
            let waits = self.joins.values().any(
                |join| matches!(join.state, JoinState::Waiting { cid, .. } if cid == arrival.cid),
            );
            let until = arrival.since + TOKEN_WITHIN;
            [
                Some(arrival.since + ARRIVAL_LIFE),
                (waits && arrival.token.is_none()).then_some(until),
            ]
        });
        joins.chain(arrivals.flatten()).min()
    }

    fn take_arrivals(&mut self, now: Instant) {
        for _ in 0..EVENTS_PER_TURN {
            let Ok((fd, cid, port)) = vsock::accept(&self.listener) else { return };
            let count = self.arrivals.values().filter(|arrival| arrival.cid == cid).count();
            let is_known = self.directory.known().guests.values().any(|guest| guest.cid == cid);
            if port > LAST_PRIVILEGED_PORT || !is_known || count >= ARRIVALS_PER_GUEST {
                tracing::debug!(cid, port, count, is_known, "not taken");
                continue;
            }
            self.next = self.next % u64::from(u32::MAX) + 1;
            let data = epoll::EventData::new_u64(self.next);
            if epoll::add(&self.epoll, &fd, data, epoll::EventFlags::IN).is_err() {
                continue;
            }
            let raw = [0; TOKEN_BYTES];
            let arrival = Arrival { fd, cid, since: now, raw, len_bytes: 0, token: None };
            self.arrivals.insert(self.next, arrival);
            self.read_token(self.next);
        }
    }

    fn read_token(&mut self, serial: u64) {
        let Some(arrival) = self.arrivals.get_mut(&serial) else { return };
        let result = read_some(&arrival.fd, &mut arrival.raw, &mut arrival.len_bytes);
        let is_kept = match result {
            // More than a token before READY, or the end.
            _ if arrival.token.is_some() => false,
            Ok(false) => true,
            Ok(true) => match Token::decode(&arrival.raw) {
                Ok(token) => {
                    arrival.token = Some(token);
                    true
                }
                Err(error) => {
                    tracing::debug!(cid = arrival.cid, ?error, "not a token");
                    false
                }
            },
            Err(_) => false,
        };
        if !is_kept {
            self.arrivals.remove(&serial);
        }
    }

    /// Gives waiting acceptors the vsock connections that are for them, and declines those for
    /// which none is under way.
    fn pair(&mut self, now: Instant) {
        let waiting: Vec<u64> = self
            .joins
            .iter()
            .filter(|(_, join)| matches!(join.state, JoinState::Waiting { .. }))
            .map(|(client, _)| *client)
            .collect();
        for client in waiting {
            self.pair_one(client, now);
        }
    }

    fn pair_one(&mut self, client: u64, now: Instant) {
        let Some(Join { state: JoinState::Waiting { facts, cid, is_by_hand }, .. }) =
            self.joins.get(&client)
        else {
            return;
        };
        let (connector, acceptor) = (endpoint(facts.peer), endpoint(facts.local));
        let theirs = || self.arrivals.iter().filter(|(_, arrival)| arrival.cid == *cid);
        let found = theirs().find_map(|(serial, arrival)| {
            let token = arrival.token.as_ref()?;
            (token.connector == connector && token.acceptor == acceptor)
                .then_some((*serial, *token))
        });
        let Some((serial, token)) = found else {
            let is_coming = theirs()
                .any(|(_, arrival)| arrival.token.is_none() && now < arrival.since + TOKEN_WITHIN);
            if !is_coming {
                self.decline(client);
            }
            return;
        };
        let own = self.directory.known().own_cid;
        let cids = own.map(|own| Cids { connector: *cid, acceptor: own });
        let prove = |prover| proof::of(facts, Role::Acceptor, prover, cids, &token);
        let is_proven = proof::holds(prove(Role::Connector), token.proof, *is_by_hand);
        let ours = prove(Role::Acceptor).unwrap_or(0);
        let Some(arrival) = self.arrivals.remove(&serial) else { return };
        if !is_proven {
            crate::rarely::warn!(
                cid = arrival.cid,
                peer = %facts.peer,
                "a guest without proof that the TCP connection is its own"
            );
            return self.decline(client);
        }
        if let Some(JoinState::Waiting { facts, .. }) = self.take(client) {
            self.hand_over(client, Role::Acceptor, arrival.fd, facts, ours);
        }
    }

    /// The library gets the vsock connection.
    fn hand_over(&mut self, client: u64, role: Role, fd: OwnedFd, facts: Facts, proof: u64) {
        let _ = epoll::delete(&self.epoll, &fd);
        self.moved.push(Moved { client, role, facts });
        let message = FromBroker::Joined { proof };
        self.answers.push(Answer { client, message, fd: Some(fd) });
    }

    /// Something happened on a connector's vsock connection.
    fn go_on(&mut self, client: u64, now: Instant) {
        match self.joins.get_mut(&client).map(|join| &mut join.state) {
            Some(JoinState::Preparing(_)) => self.prepared(client, now),
            Some(JoinState::Prepared(way) | JoinState::Examined(Some(way))) => {
                way.stands = true;
                // It is heard of again when there is something to say; until then it is quiet.
                let data = epoll::EventData::new_u64(client);
                let _ = epoll::modify(&self.epoll, &way.fd, data, epoll::EventFlags::ET);
            }
            Some(JoinState::Telling { way, .. }) => {
                way.stands = true;
                self.tell(client, now);
            }
            Some(JoinState::Told { .. }) => self.hear(client, now),
            _ => {}
        }
    }

    /// Sends TOKEN, if the vsock connection stands.
    fn tell(&mut self, client: u64, now: Instant) {
        let own = self.directory.known().own_cid;
        let Some(join) = self.joins.remove(&client) else { return };
        let JoinState::Telling { way, facts } = join.state else { return };
        if !way.stands {
            self.joins.insert(client, Join { state: JoinState::Telling { way, facts }, ..join });
            return;
        }
        let cids = own.map(|own| Cids { connector: own, acceptor: way.cid });
        let (connector, acceptor) = (endpoint(facts.local), endpoint(facts.peer));
        let mut token = Token { connector, acceptor, proof: 0 };
        token.proof =
            proof::of(&facts, Role::Connector, Role::Connector, cids, &token).unwrap_or(0);
        // A connection that failed says so here.
        let sent = rustix::net::send(&way.fd, &token.encode(), SendFlags::NOSIGNAL);
        let data = epoll::EventData::new_u64(client);
        let watched = epoll::modify(&self.epoll, &way.fd, data, epoll::EventFlags::IN);
        if sent != Ok(TOKEN_BYTES) || watched.is_err() {
            tracing::debug!(cid = way.cid, ?sent, "no vsock connection");
            self.cache_negative(way.to, now);
            return self.decline(client);
        }
        let raw = [0; READY_BYTES];
        let state = JoinState::Told { way, facts, token, raw, len_bytes: 0 };
        self.joins.insert(client, Join { state, ..join });
    }

    /// Reads READY.
    fn hear(&mut self, client: u64, now: Instant) {
        let own = self.directory.known().own_cid;
        let Some(JoinState::Told { way, facts, token, raw, len_bytes }) =
            self.joins.get_mut(&client).map(|join| &mut join.state)
        else {
            return;
        };
        let to = way.to;
        let got = match read_some(&way.fd, raw, len_bytes) {
            Ok(false) => return,
            Ok(true) => guest::proof_of_ready(raw),
            Err(_) => None,
        };
        let cids = own.map(|own| Cids { connector: own, acceptor: way.cid });
        let expected = proof::of(facts, Role::Connector, Role::Acceptor, cids, token);
        let is_proven = got.is_some_and(|got| proof::holds(expected, got, way.is_by_hand));
        if got.is_some() && !is_proven {
            crate::rarely::warn!(
                cid = way.cid,
                peer = %facts.peer,
                "a guest without proof that the TCP connection is its own"
            );
        }
        if !is_proven {
            self.cache_negative(to, now);
            return self.decline(client);
        }
        if let Some(JoinState::Told { way, facts, .. }) = self.take(client) {
            self.moves(to, &facts, now);
            self.hand_over(client, Role::Connector, way.fd, facts, 0);
        }
    }

    fn take(&mut self, client: u64) -> Option<JoinState> {
        self.joins.remove(&client).map(|join| join.state)
    }

    /// A connection to `to` is moved.
    fn moves(&mut self, to: SocketAddr, facts: &Facts, now: Instant) {
        if self.habits.len() >= 4096 {
            self.habits.retain(|_, habit| now < habit.since + NEGATIVE_MAX);
        }
        let short_in_a_row = self.habits.get(&to).map_or(0, |habit| habit.short_in_a_row);
        self.habits.insert(to, Habit { last: facts.clone(), since: now, short_in_a_row });
    }

    /// Whether connections to `to` end as soon as they are made.
    fn is_short_lived(&mut self, to: SocketAddr, now: Instant) -> bool {
        let Some(habit) = self.habits.get_mut(&to) else { return false };
        if self.diag.holds(&habit.last) {
            habit.short_in_a_row = 0;
        } else if now < habit.since + SHORT {
            habit.short_in_a_row += 1;
        }
        if habit.short_in_a_row < SHORT_IN_A_ROW {
            return false;
        }
        // When the entry has expired, one more that is short is enough.
        habit.short_in_a_row = SHORT_IN_A_ROW - 1;
        true
    }

    fn is_negative(&self, to: SocketAddr, now: Instant) -> bool {
        self.negatives.get(&to).is_some_and(|entry| now < entry.until)
    }

    fn cache_negative(&mut self, to: SocketAddr, now: Instant) {
        // Old ones go when there are many.
        if self.negatives.len() >= 4096 {
            self.negatives.retain(|_, entry| now < entry.until + NEGATIVE_MAX);
        }
        let before = self.negatives.get(&to).filter(|s| now < s.until + NEGATIVE_MAX);
        let length = before.map_or(NEGATIVE_FIRST, |entry| (entry.length * 2).min(NEGATIVE_MAX));
        self.negatives.insert(to, Negative { until: now + length, length });
        self.directory.cache_negative(endpoint(to), length);
    }
}

impl AsFd for Guests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn endpoint(address: SocketAddr) -> Endpoint {
    let ip: IpAddr = address.ip();
    Endpoint { address: octets(ip), port: address.port() }
}

/// Fills `raw` from a stream; true: it is full.
fn read_some(fd: &OwnedFd, raw: &mut [u8], len_bytes: &mut usize) -> io::Result<bool> {
    let mut extra = [0; 1];
    let to = if *len_bytes < raw.len() { &mut raw[*len_bytes..] } else { &mut extra[..] };
    match rustix::net::recv(fd, to, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok((len, _)) => {
            *len_bytes += len;
            Ok(*len_bytes >= raw.len())
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
