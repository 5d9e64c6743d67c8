//! What processes leave for whoever gets a socket of theirs over a Unix socket (spec/wire.md
//! section 6.6).

use super::Broker;
use crate::client::Gone;
use crate::errands::Found;
use crate::sys::memfd;
use crate::sys::page::Page;
use crate::sys::sockopt;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use yasmin_channel::region::{self, Region};
use yasmin_channel::residue::{CHANNEL_AT, SIDE_AT};
use yasmin_channel::side::{FOREIGN, HELD_BACK, Side};
use yasmin_control::{Decline, FromBroker, Socket};
use yasmin_wire::layout::{MAX_CLASS, channel_bytes};

/// How long a residue is kept before it is looked who has the socket. Whoever gets one claims it
/// before the program sees it.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// Descriptors of one user that are not closed yet, before no more are taken.
const UNERRANDS: usize = 64;

/// Connections of one user that may pass us descriptors, with one message each.
const ASKED: usize = 8;

/// Who may have a residue: whoever is equal, and what root leaves any user.
#[derive(Clone, PartialEq, Eq)]
struct Heir {
    uid: u32,
    /// The locks in the side page name processes.
    pid_namespace: u64,
    /// Network namespace and cookie of the socket.
    socket: (Option<u64>, u64),
}

impl Heir {
    /// Whether root left it, for the socket of `other`.
    fn is_roots_for(&self, other: &Self) -> bool {
        *self == Self { uid: 0, ..other.clone() }
    }
}

struct Residue {
    heir: Heir,
    memfd: OwnedFd,
    /// To reset the connection, should the giver let go of it and nobody come: a program without
    /// the library that has the socket would read on behind a gap.
    socket: OwnedFd,
    since: Instant,
    /// When it is looked at next.
    until: Instant,
    /// Of the budget of who left it.
    charged_bytes: u64,
}

/// Claimed by a client, who is answered once the broker's own hold on the socket is gone: a close
/// of the client's would not end the connection before.
struct Claimed {
    /// The user who left it.
    giver: u32,
    left: u64,
}

pub(super) struct Residues {
    /// Of all users together, of one at most a quarter.
    most: usize,
    /// While somebody else has the socket, be it in a message that nobody has read yet.
    kept_for: Duration,
    /// Who was told to send a residue, and for whom it is.
    asked: HashMap<u64, Heir>,
    /// The oldest first.
    kept: VecDeque<Residue>,
    /// By client.
    claimed: HashMap<u64, Claimed>,
}

impl Residues {
    pub fn new(most: usize, kept_for: Duration) -> Self {
        let (asked, kept, claimed) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Self { most, kept_for, asked, kept, claimed }
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.claimed.is_empty()
    }

    pub fn next_expiry(&self) -> Option<Instant> {
        self.kept.front().map(|residue| residue.until)
    }

    pub fn disconnected(&mut self, token: u64) {
        self.asked.remove(&token);
    }

    fn has_room(&self, uid: u32) -> bool {
        let of_user = self.kept.iter().filter(|residue| residue.heir.uid == uid).count();
        super::has_room(uid, of_user, self.kept.len(), self.most) && of_user < self.most / 4
    }
}

impl Broker {
    pub(super) fn leave(&mut self, token: u64, socket: &Socket) -> Result<(), Gone> {
        let heir = self.heir(token, socket);
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        let asked = self.residues.asked.values().filter(|heir| heir.uid == client.uid).count();
        let answer = match heir {
            Ok(_) if asked >= ASKED || self.errands.unclosed(client.uid) >= UNERRANDS => {
                Err(Decline::TooMany)
            }
            heir => heir,
        };
        match answer {
            Ok(heir) => {
                // One at a time.
                if self.residues.asked.insert(token, heir).is_some() {
                    return Err(Gone);
                }
                client.expect_rights()?;
                client.send(FromBroker::Send, &[])
            }
            Err(reason) => client.send(FromBroker::Decline { id: 0, reason }, &[]),
        }
    }

    /// Takes what `Send` asked for.
    pub(super) fn keep(
        &mut self,
        token: u64,
        fds: &mut Vec<OwnedFd>,
        now: Instant,
    ) -> Result<(), Gone> {
        let heir = self.residues.asked.remove(&token).ok_or(Gone)?;
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        let is_one = matches!(&fds[..], [memfd, socket]
            if has_side(memfd)
                && sockopt::cookie(socket).is_ok_and(|cookie| cookie == heir.socket.1));
        let charged_bytes = if is_one { fds.first().map_or(0, memfd::used_bytes) } else { 0 };
        let has_room = self.residues.has_room(client.uid)
            && (!is_one || self.budget.take(client.uid, charged_bytes).is_ok());
        let message = if !has_room {
            FromBroker::Decline { id: 0, reason: Decline::TooMany }
        } else if is_one && let (Some(socket), Some(memfd)) = (fds.pop(), fds.pop()) {
            let until = now + LOOK_AFTER.min(self.residues.kept_for);
            let kept = Residue { heir, memfd, socket, until, since: now, charged_bytes };
            self.residues.kept.push_back(kept);
            FromBroker::Left
        } else {
            FromBroker::Decline { id: 0, reason: Decline::NoResidue }
        };
        client.send(message, &[])
    }

    pub(super) fn claim(&mut self, token: u64, socket: &Socket) -> Result<(), Gone> {
        // One at a time.
        if self.residues.claimed.contains_key(&token) {
            return Err(Gone);
        }
        let heir = self.heir(token, socket);
        let found = heir.as_ref().ok().and_then(|heir| {
            let kept = &mut self.residues.kept;
            let is_heirs = |residue: &Residue| residue.heir == *heir;
            let at = kept.iter().position(is_heirs);
            let at = at.or_else(|| kept.iter().position(|one| one.heir.is_roots_for(heir)))?;
            let found = kept.remove(at)?;
            let left = kept.iter().filter(|residue| residue.heir == found.heir).count() as u64;
            Some((found, left))
        });
        let answer = match (heir, found) {
            (Ok(heir), Some((found, left))) => {
                self.budget.give_back(found.heir.uid, found.charged_bytes);
                // Users share no memory: the giver has it no more.
                let (giver, is_shared) = (found.heir.uid, found.heir.uid == heir.uid);
                self.residues.claimed.insert(token, Claimed { giver, left });
                self.errands.find(giver, token, move || {
                    let memfd = if is_shared { Some(found.memfd) } else { moved(&found.memfd) };
                    if memfd.is_none() {
                        sockopt::reset(&found.socket);
                    }
                    drop(found.socket);
                    Found::Residue(memfd)
                });
                return Ok(());
            }
            (Ok(_), None) => Decline::NoResidue,
            (Err(reason), _) => reason,
        };
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        client.send(FromBroker::Decline { id: 0, reason: answer }, &[])
    }

    /// The socket of a claim is closed: its client gets the residue. Says whom it wrote to.
    pub(super) fn answer_claim(&mut self, token: u64, memfd: Option<OwnedFd>) -> Option<u64> {
        let Claimed { giver, left } = self.residues.claimed.remove(&token)?;
        let sent = self.clients.get_mut(&token).ok_or(Gone).and_then(|client| match &memfd {
            Some(memfd) => client.send(FromBroker::Residue { left }, &[memfd.as_fd()]),
            None => client.send(FromBroker::Decline { id: 0, reason: Decline::NoResidue }, &[]),
        });
        if sent.is_err() {
            if let Some(memfd) = memfd {
                self.errands.touch(giver, move || {
                    is_lost(&memfd);
                });
            }
            self.doomed.push(token);
        }
        Some(token)
    }

    fn heir(&mut self, token: u64, socket: &Socket) -> Result<Heir, Decline> {
        let uid = self.clients.get(&token).ok_or(Decline::NoProof)?.uid;
        let facts = self.look(token, socket)?;
        // Of a process that we cannot see we know too little.
        if facts.pid_namespace == 0 {
            return Err(Decline::NoResidue);
        }
        let socket = (facts.netns, facts.cookie);
        Ok(Heir { uid, pid_namespace: facts.pid_namespace, socket })
    }

    /// Takes back what nobody claimed and nobody can claim any more.
    pub(super) fn expire_residues(&mut self, now: Instant) {
        while self.residues.next_expiry().is_some_and(|until| until <= now) {
            let Some(mut residue) = self.residues.kept.pop_front() else { return };
            let is_young = now.saturating_duration_since(residue.since) < self.residues.kept_for;
            if is_young && self.proof.is_held_elsewhere(&residue.socket) {
                // Behind all others, which are looked at before.
                residue.until = now + LOOK_AFTER.min(self.residues.kept_for);
                self.residues.kept.push_back(residue);
                continue;
            }
            self.budget.give_back(residue.heir.uid, residue.charged_bytes);
            let memfd = residue.memfd;
            self.errands.end(residue.heir.uid, residue.socket, move || is_lost(&memfd));
        }
    }
}

/// Whether it has a side page which can be mapped for good, and is no larger than a residue.
fn has_side(memfd: &OwnedFd) -> bool {
    let fd = memfd.as_raw_fd();
    let max_bytes = CHANNEL_AT + channel_bytes(MAX_CLASS);
    // In this order: a file that is no memfd may answer when its owner likes.
    Region::first(fd, CHANNEL_AT).is_sound()
        && region::file_bytes(fd).is_some_and(|bytes| bytes <= max_bytes)
}

/// A copy of its own for who claims it, whose giver has nothing of it any more: who reads there
/// finds that it was moved. `None`: somebody is reading there now.
fn moved(memfd: &OwnedFd) -> Option<OwnedFd> {
    let order = Ordering::SeqCst;
    let page = Page::map_at(memfd, SIDE_AT).ok()?;
    // Moved, /then/ not locked: who takes the lock from now on sees it.
    page.side().rx.moved.store(1, order);
    if page.side().rx.lock.load(order) != 0 {
        return None;
    }
    let len_bytes = region::file_bytes(memfd.as_raw_fd())?;
    let copy = memfd::sealed(c"yasmin-residue", len_bytes).ok()?;
    let mut piece = vec![0; 64 * 1024];
    let mut at = 0;
    while at < len_bytes {
        let len = rustix::io::pread(memfd, &mut piece, at as u64).ok().filter(|len| *len > 0)?;
        // Most of a ring was never written to.
        if piece[..len].iter().any(|byte| *byte != 0)
            && rustix::io::pwrite(&copy, &piece[..len], at as u64).ok()? != len
        {
            return None;
        }
        at += len;
    }
    let page = Page::map_at(&copy, SIDE_AT).ok()?;
    let Side { tx, rx, .. } = page.side();
    // What processes of the other user did there.
    for word in [&rx.moved, &rx.more_holders, &rx.sleepers, &rx.watcher_pid] {
        word.store(0, order);
    }
    rx.foreign.fetch_and(HELD_BACK, order);
    for word in [&rx.owner_pid, &rx.owner_moves, &tx.kernel_senders] {
        word.store(0, order);
    }
    tx.lock.store(0, order);
    Some(copy)
}

/// Nobody claimed it. What is unread is the giver's affair again, if that one holds the socket
/// still. If not, nobody is left to read it: true.
fn is_lost(memfd: &OwnedFd) -> bool {
    let Ok(page) = Page::map_at(memfd, SIDE_AT) else { return false };
    let (order, rx) = (Ordering::SeqCst, &page.side().rx);
    // Before the count: the holder that sees it go must see this too.
    rx.foreign.fetch_or(FOREIGN, order);
    let is_last = rx.more_holders.fetch_update(order, order, |n| n.checked_sub(1)).is_err();
    is_last && rx.state.unread_bytes() > 0
}
