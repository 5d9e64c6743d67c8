//! What the broker knows and how it answers: processes, the ends they offered, channels.
//!
//! Called by the event loop only. It never waits for a process: what cannot be sent at once
//! makes the process `doomed`, and the event loop disconnects it.

mod ends;
mod estates;
mod guests;
mod status;

use self::ends::WAITING;
pub use self::estates::ESTATES;
use crate::budget::Budget;
use crate::channel::{Channel, EndLabel};
use crate::client::{Client, Gone, Received};
use crate::examiner::Examiner;
use crate::facts::Facts;
use crate::guests::Guests;
use crate::memfd;
use crate::memory::Groups;
use crate::pairing::Table;
use crate::proof::Proof;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;
use yasmin_control::{CONTROL_VERSION, FromBroker, Role, ToBroker};

/// What all processes of one user have.
#[derive(Default)]
struct User {
    clients: usize,
    ends: usize,
}

pub struct Limits {
    pub first_class: u8,
    pub max_class: u8,
    pub clients_per_user: usize,
    pub clients_of_root: usize,
}

/// One end of a connection, from its OFFER until its RELEASE.
struct End {
    client: u64,
    /// The process's own name for it.
    id: u64,
    role: Role,
    state: EndState,
}

enum EndState {
    Examined,
    Waiting { facts: Facts, since: Instant },
    Paired { channel: u64, facts: Facts },
}

struct Declined {
    label: EndLabel,
    reason: &'static str,
    since: Instant,
    client: u64,
    id: u64,
}

#[derive(Default)]
pub struct Totals {
    channels: u64,
    pub closed_ring_bytes: u64,
    pub closed_tcp_bytes: u64,
}

pub struct Broker {
    limits: Limits,
    proof: Proof,
    pub examiner: Examiner,
    budget: Budget,
    groups: Groups,
    started: Instant,
    totals: Totals,
    pub channels: BTreeMap<u64, Channel>,
    declined: VecDeque<Declined>,
    clients: HashMap<u64, Client>,
    /// By user; no entry is all zero.
    users: HashMap<u32, User>,
    ends: BTreeMap<u64, End>,
    /// Network namespace and socket cookie of every end that waits or is paired.
    cookies: HashMap<(Option<u64>, u64), u64>,
    table: Table,
    /// Names of clients, ends and channels: never used twice.
    next: u64,
    /// Who asked for the status and has no answer yet, first come first served.
    askers: VecDeque<u64>,
    /// No status is made before: it takes its time when there is much to tell, and all others
    /// wait for it.
    status_after: Instant,
    /// `None`: there are none, or we cannot talk to them.
    guests: Option<Guests>,
    by_vsock: VecDeque<guests::ByVsock>,
    estates: estates::Estates,
    /// To be disconnected by the event loop.
    pub doomed: Vec<u64>,
}

/// Of the broker's time, statuses take one part in so many.
const STATUS_SHARE: u32 = 10;

impl Broker {
    pub fn new(limits: Limits, proof: Proof, examiner: Examiner, budget: Budget) -> Self {
        let now = Instant::now();
        Self {
            limits,
            proof,
            examiner,
            budget,
            groups: Groups::default(),
            started: now,
            askers: VecDeque::new(),
            status_after: now,
            totals: Totals::default(),
            channels: BTreeMap::new(),
            declined: VecDeque::new(),
            clients: HashMap::new(),
            users: HashMap::new(),
            ends: BTreeMap::new(),
            cookies: HashMap::new(),
            table: Table::new(WAITING),
            guests: None,
            by_vsock: VecDeque::new(),
            estates: estates::Estates::default(),
            // The event loop's own tokens, and those of `guests`, are below.
            next: 1 << 32,
            doomed: Vec::new(),
        }
    }

    fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Nobody is connected, and nothing waits for somebody.
    pub fn is_idle(&self) -> bool {
        self.clients.is_empty() && self.estates.is_empty()
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Processes that have said HELLO.
    pub fn processes(&self) -> usize {
        self.clients.values().filter(|client| client.greeted()).count()
    }

    pub fn client(&self, token: u64) -> Option<&Client> {
        self.clients.get(&token)
    }

    pub fn client_mut(&mut self, token: u64) -> Option<&mut Client> {
        self.clients.get_mut(&token)
    }

    /// Takes a new connection, unless its user has too many; gives its token.
    pub fn connected(&mut self, fd: OwnedFd) -> Option<u64> {
        let client = Client::new(fd).ok()?;
        let uid = client.uid;
        let limit = match uid {
            0 => self.limits.clients_of_root,
            _ => self.limits.clients_per_user,
        };
        let count = self.users.get(&uid).map_or(0, |user| user.clients);
        if count >= limit || self.examiner.blocked(uid) {
            tracing::debug!(uid, count, "refused: too many connections, or stuck descriptors");
            self.examiner.close(uid, vec![client.into_fd()]);
            return None;
        }
        self.users.entry(uid).or_default().clients += 1;
        let token = self.name();
        self.clients.insert(token, client);
        Some(token)
    }

    /// Forgets a process and all that it offered.
    pub fn disconnected(&mut self, token: u64) {
        let Some(client) = self.clients.remove(&token) else { return };
        if let Some(guests) = &mut self.guests {
            guests.disconnected(token, Instant::now());
        }
        for &serial in client.ends.values() {
            self.forget_end(serial);
        }
        self.declined.retain(|declined| declined.client != token);
        self.askers.retain(|&asker| asker != token);
        let asked = self.estates.disconnected(token);
        self.examiner.close(client.uid, asked);
        if let Some(user) = self.users.get_mut(&client.uid) {
            user.clients -= 1;
            user.ends -= client.ends.len();
            if user.clients == 0 {
                self.users.remove(&client.uid);
            }
        }
        self.examiner.close(client.uid, vec![client.into_fd()]);
    }

    /// Answers one datagram of a process.
    pub fn received(&mut self, token: u64, received: Received, now: Instant) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        let (uid, greeted) = (client.uid, client.greeted());
        let message = ToBroker::decode(received.bytes());
        let mut fds = received.fds;
        let result = match message {
            Ok(
                ToBroker::Hello { version, .. }
                | ToBroker::Status { version }
                | ToBroker::Prepare { version, .. }
                | ToBroker::Join { version, .. }
                | ToBroker::Leave { version }
                | ToBroker::Claim { version },
            ) if version != CONTROL_VERSION => {
                let _ = client.send(FromBroker::Refused { version: CONTROL_VERSION }, &[]);
                Err(Gone)
            }
            Ok(ToBroker::Hello { comm, .. }) if !greeted => client.greet(&comm),
            // One at a time.
            Ok(ToBroker::Status { .. }) if self.askers.contains(&token) => Err(Gone),
            Ok(ToBroker::Status { .. }) => {
                self.askers.push_back(token);
                self.answer_askers(now);
                Ok(())
            }
            Ok(ToBroker::Prepare { to, .. }) if !greeted => self.prepare(token, to, now),
            Ok(ToBroker::Join { role, wait_ms, .. }) if !greeted => {
                let fd = if fds.len() == 1 { fds.pop() } else { None };
                self.join(token, role, wait_ms, fd, now)
            }
            Ok(ToBroker::Leave { .. }) if !greeted => self.leave(token, std::mem::take(&mut fds)),
            Ok(ToBroker::Claim { .. }) if !greeted => self.claim(token, std::mem::take(&mut fds)),
            Ok(ToBroker::Offer { id, role }) if greeted => {
                let fd = if fds.len() == 1 { fds.pop() } else { None };
                self.offered(token, id, role, fd)
            }
            Ok(ToBroker::Release { id }) if greeted => {
                self.released(token, id);
                Ok(())
            }
            Ok(ToBroker::Grow { id, class }) if greeted => {
                self.grow(token, id, class, now);
                Ok(())
            }
            Ok(message) => {
                tracing::debug!(token, ?message, "out of turn");
                Err(Gone)
            }
            Err(error) => {
                tracing::debug!(token, ?error, "malformed");
                Err(Gone)
            }
        };
        self.examiner.close(uid, fds);
        if result == Err(Gone) {
            self.doomed.push(token);
        }
    }

    /// Answers who asked for the status, as far as there is time for it.
    pub fn answer_askers(&mut self, now: Instant) {
        while now >= self.status_after {
            let Some(token) = self.askers.pop_front() else { return };
            let start = Instant::now();
            if self.answer_status(token, now) == Err(Gone) {
                self.doomed.push(token);
            }
            self.status_after = Instant::now() + start.elapsed() * STATUS_SHARE;
        }
    }

    /// When `answer_askers` has something to do next.
    pub fn next_answer(&self) -> Option<Instant> {
        (!self.askers.is_empty()).then_some(self.status_after)
    }

    fn answer_status(&mut self, token: u64, now: Instant) -> Result<(), Gone> {
        let uid = self.clients.get(&token).ok_or(Gone)?.uid;
        let status = self.status(uid, now);
        let json = serde_json::to_vec(&status).map_err(|_| Gone)?;
        let memfd = memfd::constant("yasmin-status", &json).map_err(|_| Gone)?;
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        client.send(FromBroker::Status { len_bytes: json.len() as u64 }, &[memfd.as_fd()])
    }
}
