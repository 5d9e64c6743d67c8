//! What the broker knows and how it answers: processes, the ends they offered, channels.
//!
//! Called by the event loop only. It never waits for a process: what cannot be sent at once
//! makes the process `doomed`, and the event loop disconnects it.

mod ends;
mod guests;
mod residues;
mod segments;
mod status;
mod uplink;

use crate::budget::Budget;
use crate::channel::{Channel, EndLabel};
use crate::client::{Client, Gone, Received};
use crate::errands::{Errands, Found};
use crate::facts::Facts;
use crate::guests::Guests;
use crate::memory::Groups;
use crate::pairing::Table;
use crate::proof::Proof;
use crate::segments::Segments;
use crate::uplink::Uplink;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use yasmin_control::segment::is_request;
use yasmin_control::{CONTROL_VERSION, Decline, FromBroker, Role, Socket, ToBroker};

/// What all processes of one user have.
#[derive(Default)]
struct User {
    clients: usize,
    ends: usize,
}

pub struct Limits {
    pub first_class: u8,
    pub max_class: u8,
    /// No channels between programs of different users.
    pub same_user_only: bool,
    /// Of all users together. One who is not root may have as many as are left for the others.
    pub clients: usize,
    /// The same, for ends.
    pub ends: usize,
    /// The same, for residues that nobody has claimed yet, but for one user, root too, at most a
    /// quarter. Each is two descriptors.
    pub residues: usize,
    /// How long one is kept for who receives it, if it cannot be said that nobody does.
    pub residues_for: Duration,
    /// How long an end that was offered waits for the other one.
    pub offers_for: Duration,
}

/// One end of a connection, from its OFFER until its RELEASE.
struct OfferedEnd {
    client: u64,
    /// The process's own name for it.
    id: u64,
    role: Role,
    state: EndState,
}

enum EndState {
    /// On its way from one state to another.
    Between,
    Waiting {
        facts: Facts,
        since: Instant,
    },
    Paired {
        channel: u64,
        facts: Facts,
    },
}

struct Declined {
    label: EndLabel,
    reason: &'static str,
    since: Instant,
    client: u64,
    id: u64,
}

#[derive(Default)]
struct Totals {
    channels: u64,
    closed: Arc<ClosedBytes>,
}

/// What went over channels that are gone.
#[derive(Default)]
struct ClosedBytes {
    ring: AtomicU64,
    tcp: AtomicU64,
    /// Ends that errands have not counted yet.
    uncounted: AtomicU64,
}

pub struct Broker {
    limits: Limits,
    proof: Proof,
    errands: Errands,
    budget: Budget,
    groups: Groups,
    started: Instant,
    totals: Totals,
    pub channels: BTreeMap<u64, Channel>,
    declined: VecDeque<Declined>,
    clients: HashMap<u64, Client>,
    /// By user; no entry is all zero.
    users: HashMap<u32, User>,
    ends: BTreeMap<u64, OfferedEnd>,
    /// Network namespace and socket cookie of every end that waits or is paired.
    cookies: HashMap<(Option<u64>, u64), u64>,
    table: Table,
    /// Names of clients, ends and channels: never used twice.
    next: u64,
    reports: status::Reports,
    /// `None`: there are none, or we cannot talk to them.
    guests: Option<Guests>,
    /// `None`: this is no guest, or its host has no broker's port for it.
    uplink: Option<Uplink>,
    by_vsock: VecDeque<guests::ByVsock>,
    residues: residues::Residues,
    /// `None` until they are found again.
    segments: Option<Segments>,
    /// Who waits until the segment that he made is kept.
    creators: Vec<u64>,
    /// Who asked of members of segments in other guests, by the numbers of the questions.
    probers: HashMap<u64, u64>,
    /// To be disconnected by the event loop.
    pub doomed: Vec<u64>,
}

impl Broker {
    pub fn new(limits: Limits, proof: Proof, budget: Budget, errands: Errands) -> Self {
        let table = Table::new(limits.ends);
        let residues = residues::Residues::new(limits.residues, limits.residues_for);
        Self {
            limits,
            proof,
            errands,
            budget,
            groups: Groups::default(),
            started: Instant::now(),
            reports: status::Reports::default(),
            totals: Totals::default(),
            channels: BTreeMap::new(),
            declined: VecDeque::new(),
            clients: HashMap::new(),
            users: HashMap::new(),
            ends: BTreeMap::new(),
            cookies: HashMap::new(),
            table,
            guests: None,
            uplink: None,
            by_vsock: VecDeque::new(),
            residues,
            segments: None,
            creators: Vec::new(),
            probers: HashMap::new(),
            // The event loop's own tokens, and those of `guests`, are below.
            next: 1 << 32,
            doomed: Vec::new(),
        }
    }

    fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Nobody is connected, nothing waits for somebody, and there are no segments.
    pub fn is_idle(&self) -> bool {
        let has_segments = self.segments.as_ref().is_some_and(|segments| !segments.is_empty());
        self.clients.is_empty() && self.residues.is_empty() && !has_segments
    }

    /// Whether something is done elsewhere that must not be cut off.
    pub fn has_errands(&self) -> bool {
        !self.errands.are_done()
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
    pub fn connected(&mut self, client: Client) -> Option<u64> {
        let uid = client.uid;
        let of_user = self.users.get(&uid).map_or(0, |user| user.clients);
        let count = of_user + self.errands.unclosed(uid);
        if !has_room(uid, count, self.clients.len(), self.limits.clients) {
            tracing::debug!(uid, count, "refused: too many connections");
            client.close(&self.errands);
            return None;
        }
        self.users.entry(uid).or_default().clients += 1;
        let token = self.name();
        self.clients.insert(token, client);
        Some(token)
    }

    /// Hangs up on a process that was never taken.
    pub fn refused(&self, client: Client) {
        client.close(&self.errands);
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
        self.reports.disconnected(token);
        self.residues.disconnected(token);
        self.probers.retain(|_, prober| *prober != token);
        if let Some(user) = self.users.get_mut(&client.uid) {
            user.clients -= 1;
            user.ends -= client.ends.len();
            if user.clients == 0 {
                self.users.remove(&client.uid);
            }
        }
        client.close(&self.errands);
    }

    /// Answers one datagram of a process.
    pub fn received(&mut self, token: u64, received: Received, now: Instant) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        let (uid, greeted) = (client.uid, client.greeted());
        let message = ToBroker::decode(received.bytes());
        let is_about_segment = !greeted && received.fds.is_empty() && is_request(received.bytes());
        if is_about_segment {
            if self.segment_asked(token, received.bytes()).is_err() {
                self.doomed.push(token);
            }
            return;
        }
        let mut fds = received.fds;
        let result = match message {
            // Descriptors come with one message, and with no other one.
            Ok(message) if !fds.is_empty() && !matches!(message, ToBroker::Keep) => Err(Gone),
            Ok(
                ToBroker::Hello { version, .. }
                | ToBroker::Status { version }
                | ToBroker::Prepare { version, .. }
                | ToBroker::Join { version, .. }
                | ToBroker::Leave { version, .. }
                | ToBroker::Claim { version, .. }
                | ToBroker::Count { version, .. },
            ) if version != CONTROL_VERSION => {
                let _ = client.send(FromBroker::Refused { version: CONTROL_VERSION }, &[]);
                Err(Gone)
            }
            Ok(ToBroker::Hello { comm, .. }) if !greeted => client.greet(&comm),
            Ok(ToBroker::Status { .. }) => self.reports.ask(token, uid),
            Ok(ToBroker::Prepare { to, .. }) if !greeted => self.prepare(token, to, now),
            Ok(ToBroker::Join { role, wait_ms, socket, .. }) if !greeted => {
                self.join(token, role, wait_ms, &socket, now)
            }
            Ok(ToBroker::Leave { socket, .. }) if !greeted => self.leave(token, &socket),
            // Nothing comes behind it.
            Ok(ToBroker::Keep) if !greeted => self.keep(token, &mut fds, now).and(Err(Gone)),
            Ok(ToBroker::Claim { socket, .. }) if !greeted => self.claim(token, &socket),
            Ok(ToBroker::Count { number, .. }) if !greeted => self.count(token, number),
            Ok(ToBroker::Offer { id, role, holders, socket }) if greeted => {
                self.offered(token, id, role, &socket, holders, now)
            }
            Ok(ToBroker::Stays { role, reason, socket }) if greeted => {
                self.stays(token, role, reason, &socket, now);
                Ok(())
            }
            Ok(ToBroker::Release { id, then }) if greeted => {
                self.gives_back(token, id, then, now);
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
        for fd in fds {
            self.errands.close(uid, fd);
        }
        if result == Err(Gone) {
            self.doomed.push(token);
        }
    }

    /// What errands have found goes on. Says whom it wrote to.
    pub fn errands_found(&mut self) -> Vec<u64> {
        let found = self.errands.found().into_iter();
        found
            .filter_map(|(token, found)| match found {
                Found::Residue(memfd) => self.answer_claim(token, memfd),
                Found::Connections(text) => {
                    self.reports.go_on_with(token, &text);
                    None
                }
            })
            .collect()
    }

    fn count(&mut self, token: u64, number: u32) -> Result<(), Gone> {
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        let answer = match self.proof.count(&*client, client.credentials(), number) {
            Ok(references) => FromBroker::Counted { references },
            Err(reason) => FromBroker::Decline { id: 0, reason },
        };
        client.send(answer, &[])
    }

    /// The socket that a process names.
    fn look(&mut self, token: u64, socket: &Socket) -> Result<Facts, Decline> {
        let client = self.clients.get(&token).ok_or(Decline::NoProof)?;
        self.proof.look(client, client.credentials(), socket)
    }
}

/// Whether a user who has `count` of what there is `limit` of, and `used` by all, may have one
/// more. Root may have all; anybody else as many as are left, so that something always is.
pub const fn has_room(uid: u32, count: usize, used: usize, limit: usize) -> bool {
    let left = limit.saturating_sub(used);
    left > 0 && (uid == 0 || count < left)
}

#[cfg(test)]
mod tests {
    use super::has_room;

    #[test]
    fn nobody_can_have_all_but_root() {
        let (mut used, mut of_users) = (0, [0; 4]);
        for (uid, count) in (1..).zip(&mut of_users) {
            while has_room(uid, *count, used, 64) {
                *count += 1;
                used += 1;
            }
        }
        assert_eq!(of_users, [32, 16, 8, 4]);
        assert!(has_room(0, 30, used, 64) && !has_room(0, 30, 64, 64));
    }
}
