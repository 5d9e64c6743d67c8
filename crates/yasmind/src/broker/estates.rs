//! What processes leave for whoever gets a socket of theirs over a Unix socket (spec/wire.md
//! section 6.6).

use super::Broker;
use crate::client::Gone;
use crate::facts::Facts;
use crate::sys::page::Page;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use yasmin_channel::estate::{CHANNEL_AT, SIDE_AT};
use yasmin_channel::side::Side;
use yasmin_control::{Decline, FromBroker};

/// In place of an end's serial: the socket of a LEAVE or a CLAIM.
pub(super) const ESTATE: u64 = 1;
/// The same: a socket that was kept, and is no more.
pub(super) const RELEASED: u64 = 2;

/// How long an estate is kept. Whoever gets a socket claims it before the program sees it.
const KEPT: Duration = Duration::from_secs(5);

/// Estates of one user, and of all together; each is two descriptors.
const PER_USER: usize = 64;
pub const ESTATES: usize = 256;

enum Asked {
    /// Until the socket has been examined.
    Leave {
        memfd: OwnedFd,
        socket: OwnedFd,
    },
    Claim,
    /// Until the socket that was kept is closed: a close by the one who claims it must be the
    /// last.
    Given {
        memfd: OwnedFd,
        left: u64,
    },
}

/// Who may have an estate.
#[derive(PartialEq, Eq)]
struct Heir {
    uid: u32,
    /// The locks in the side page name processes.
    pid_namespace: PathBuf,
    /// Network namespace and cookie of the socket.
    socket: (Option<u64>, u64),
}

struct Estate {
    heir: Heir,
    memfd: OwnedFd,
    /// To be reset, should nobody claim it.
    socket: OwnedFd,
    until: Instant,
}

#[derive(Default)]
pub(super) struct Estates {
    asked: HashMap<u64, Asked>,
    /// The oldest first.
    kept: VecDeque<Estate>,
}

impl Estates {
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub fn next_expiry(&self) -> Option<Instant> {
        self.kept.front().map(|estate| estate.until)
    }

    /// What a process had asked to be kept.
    pub fn disconnected(&mut self, token: u64) -> Vec<OwnedFd> {
        match self.asked.remove(&token) {
            Some(Asked::Leave { memfd, socket }) => vec![memfd, socket],
            Some(Asked::Given { memfd, .. }) => {
                // The socket is gone with the one who claimed it, but for others who share it.
                let _ = Page::map_at(&memfd, SIDE_AT as u64).map(|page| is_lost(page.side()));
                vec![memfd]
            }
            Some(Asked::Claim) | None => Vec::new(),
        }
    }

    fn has_room(&self, uid: u32) -> bool {
        self.kept.len() < ESTATES
            && self.kept.iter().filter(|estate| estate.heir.uid == uid).count() < PER_USER
    }
}

impl Broker {
    pub(super) fn leave(&mut self, token: u64, fds: Vec<OwnedFd>) -> Result<(), Gone> {
        match <[OwnedFd; 2]>::try_from(fds) {
            // One is examined and closed, the other kept.
            Ok([socket, memfd]) => match socket.try_clone() {
                Ok(kept) => self.ask(token, socket, Asked::Leave { memfd, socket: kept }),
                Err(_) => self.refuse(token, vec![socket, memfd]),
            },
            Err(fds) => self.refuse(token, fds),
        }
    }

    pub(super) fn claim(&mut self, token: u64, fds: Vec<OwnedFd>) -> Result<(), Gone> {
        match <[OwnedFd; 1]>::try_from(fds) {
            Ok([socket]) => self.ask(token, socket, Asked::Claim),
            Err(fds) => self.refuse(token, fds),
        }
    }

    fn ask(&mut self, token: u64, socket: OwnedFd, asked: Asked) -> Result<(), Gone> {
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        if self.estates.asked.contains_key(&token) {
            // One at a time.
            let mut fds = vec![socket];
            if let Asked::Leave { memfd, socket } = asked {
                fds.extend([memfd, socket]);
            }
            self.examiner.close(client.uid, fds);
            return Err(Gone);
        }
        client.examined += 1;
        self.estates.asked.insert(token, asked);
        self.examiner.examine(client.uid, token, ESTATE, socket);
        Ok(())
    }

    fn refuse(&mut self, token: u64, fds: Vec<OwnedFd>) -> Result<(), Gone> {
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        self.examiner.close(client.uid, fds);
        client.send(FromBroker::Decline { id: 0, reason: Decline::NotTcp }, &[])
    }

    pub(super) fn found_for_estate(
        &mut self,
        token: u64,
        facts: Result<Facts, Decline>,
        now: Instant,
    ) {
        let Some(client) = self.clients.get(&token) else { return };
        let uid = client.uid;
        let Some(asked) = self.estates.asked.remove(&token) else { return };
        // Of a process that we cannot see we know too little.
        let pid_namespace = std::fs::read_link(format!("/proc/{}/ns/pid", client.pid));
        let heir = facts.and_then(|facts| {
            let pid_namespace = pid_namespace.map_err(|_| Decline::NoEstate)?;
            Ok(Heir { uid, pid_namespace, socket: (facts.netns, facts.cookie) })
        });
        match asked {
            Asked::Leave { memfd, socket } => {
                let message = match self.keep(heir, memfd, socket, uid, now) {
                    Ok(()) => FromBroker::Left,
                    Err(reason) => FromBroker::Decline { id: 0, reason },
                };
                self.answer(token, message, None);
            }
            Asked::Claim => {
                if let Err(reason) = heir.and_then(|heir| self.give(token, &heir)) {
                    self.answer(token, FromBroker::Decline { id: 0, reason }, None);
                }
            }
            Asked::Given { .. } => drop(self.estates.asked.insert(token, asked)),
        }
    }

    /// The socket of what a claim gets is closed.
    pub(super) fn released_for_estate(&mut self, token: u64) {
        if let Some(Asked::Given { memfd, left }) = self.estates.asked.remove(&token) {
            self.answer(token, FromBroker::Estate { left }, Some(memfd));
        }
    }

    fn answer(&mut self, token: u64, message: FromBroker, memfd: Option<OwnedFd>) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        let fds: Vec<_> = memfd.iter().map(AsFd::as_fd).collect();
        if client.send(message, &fds).is_err() {
            self.doomed.push(token);
        }
        self.examiner.close(client.uid, memfd.into_iter().collect());
    }

    fn keep(
        &mut self,
        heir: Result<Heir, Decline>,
        memfd: OwnedFd,
        socket: OwnedFd,
        uid: u32,
        now: Instant,
    ) -> Result<(), Decline> {
        let heir = heir.and_then(|heir| {
            if !self.estates.has_room(uid) {
                return Err(Decline::TooMany);
            }
            if !has_side(&memfd) { Err(Decline::NoEstate) } else { Ok(heir) }
        });
        match heir {
            Ok(heir) => {
                self.estates.kept.push_back(Estate { heir, memfd, socket, until: now + KEPT });
                Ok(())
            }
            Err(reason) => {
                self.examiner.close(uid, vec![memfd, socket]);
                Err(reason)
            }
        }
    }

    fn give(&mut self, token: u64, heir: &Heir) -> Result<(), Decline> {
        let kept = &mut self.estates.kept;
        let at = kept.iter().position(|estate| estate.heir == *heir).ok_or(Decline::NoEstate)?;
        let Estate { memfd, socket, .. } = kept.remove(at).ok_or(Decline::NoEstate)?;
        let left = kept.iter().filter(|estate| estate.heir == *heir).count() as u64;
        if let Some(client) = self.clients.get_mut(&token) {
            client.examined += 1;
        }
        self.estates.asked.insert(token, Asked::Given { memfd, left });
        self.examiner.examine(heir.uid, token, RELEASED, socket);
        Ok(())
    }

    /// Takes back what nobody claimed.
    pub(super) fn expire_estates(&mut self, now: Instant) {
        while self.estates.next_expiry().is_some_and(|until| until <= now) {
            let Some(estate) = self.estates.kept.pop_front() else { return };
            let uid = estate.heir.uid;
            let page = Page::map_at(&estate.memfd, SIDE_AT as u64);
            let must_reset = page.is_ok_and(|page| is_lost(page.side()));
            self.examiner.close(uid, vec![estate.memfd]);
            if must_reset {
                tracing::debug!(uid, "nobody claimed what was unread");
                self.examiner.reset(uid, estate.socket);
            } else {
                self.examiner.close(uid, vec![estate.socket]);
            }
        }
    }
}

/// Whether the memfd has a side page that can be mapped for good.
fn has_side(memfd: &OwnedFd) -> bool {
    let is_sealed = fcntl_get_seals(memfd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    is_sealed && fstat(memfd).is_ok_and(|stat| stat.st_size >= CHANNEL_AT as i64)
}

/// The one who was to come does not. Whether nobody is left to read what is unread.
fn is_lost(side: &Side) -> bool {
    let (order, holders) = (Ordering::SeqCst, &side.rx.more_holders);
    // Before the count: the holder that sees it go must see this too.
    side.rx.foreign.store(1, order);
    let is_last = holders.fetch_update(order, order, |n| n.checked_sub(1)).is_err();
    is_last && side.rx.state.unread_bytes() > 0
}
