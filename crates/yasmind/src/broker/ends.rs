//! The life of an end: offered, examined, waiting, paired, gone.

use super::{Broker, Declined, EndState, Limits, OfferedEnd, User};
use crate::channel::{Channel, ChannelEnd, EndLabel, end_bytes};
use crate::client::Gone;
use crate::facts::{Facts, plain_end};
use crate::memory;
use crate::pairing::{Key, Outcome};
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;
use yasmin_channel::side::{FOR_NOW, GIVEN_BACK};
use yasmin_control::{Decline, FromBroker, Role, Socket, Then};
use yasmin_wire::Medium;
use yasmin_wire::layout::paged_bytes;

/// Ends that one process may have offered and not released.
const ENDS_PER_PROCESS: usize = 16384;

/// Declined connections that `status` still shows.
const DECLINED_SHOWN: usize = 256;

/// Of one process, those that it says itself stay on TCP, and those that gave their channel back.
const STAYING_SHOWN: usize = 16;

/// Of a connection that goes on.
const GAVE_BACK: &str = "it gave its channel back, and gets one again once it is busy";
const IS_WITHOUT: &str = "it gave its channel back for now, and gets one again soon";

impl Broker {
    pub(super) fn offered(
        &mut self,
        token: u64,
        id: u64,
        role: Role,
        socket: &Socket,
        holders: u8,
        now: Instant,
    ) -> Result<(), Gone> {
        let (serial, ends) = (self.name(), self.ends.len());
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        if client.ends.contains_key(&id) {
            // An id is never used twice.
            return Err(Gone);
        }
        let user = self.users.entry(client.uid).or_default();
        let has_room = super::has_room(client.uid, user.ends, ends, self.limits.ends);
        if client.ends.len() >= ENDS_PER_PROCESS || !has_room {
            return client.send(FromBroker::Decline { id, reason: Decline::TooMany }, &[]);
        }
        // What was said of this connection before, or of an earlier one at these addresses.
        let (local, peer) = (plain_end(socket.local), plain_end(socket.peer));
        self.declined.retain(|declined| {
            let label = &declined.label;
            declined.client != token || (label.local, label.peer) != (local, peer)
        });
        client.ends.insert(id, serial);
        user.ends += 1;
        self.ends.insert(serial, OfferedEnd { client: token, id, role, state: EndState::Between });
        let facts = self.look(token, socket).and_then(connected);
        let facts = facts.and_then(|facts| held_by(holders, facts));
        self.found(serial, role, facts, now);
        Ok(())
    }

    /// What a process says of a connection that it does not offer: shown as it is told, to those who
    /// see the process.
    pub(super) fn stays(
        &mut self,
        token: u64,
        role: Role,
        reason: Decline,
        socket: &Socket,
        now: Instant,
    ) {
        let Some(client) = self.clients.get(&token) else { return };
        let label = EndLabel {
            uid: client.uid,
            pid: client.pid,
            program: client.program.clone(),
            role,
            local: plain_end(socket.local),
            peer: plain_end(socket.peer),
        };
        // No offer has this name: it stays until its process ends.
        self.show_staying(label, reason.describe(), token, u64::MAX, now);
    }

    fn show_staying(
        &mut self,
        label: EndLabel,
        reason: &'static str,
        client: u64,
        id: u64,
        now: Instant,
    ) {
        let shown = self.declined.iter().filter(|declined| declined.client == client);
        if shown.count() < STAYING_SHOWN {
            self.show_declined(label, reason, client, id, now);
        }
    }

    fn show_declined(
        &mut self,
        label: EndLabel,
        reason: &'static str,
        client: u64,
        id: u64,
        now: Instant,
    ) {
        if self.declined.len() >= DECLINED_SHOWN {
            self.declined.pop_front();
        }
        self.declined.push_back(Declined { label, reason, since: now, client, id });
    }

    pub(super) fn released(&mut self, token: u64, id: u64) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        match client.ends.remove(&id) {
            Some(serial) => {
                Self::count_end_out(&mut self.users, client.uid);
                self.forget_end(serial);
            }
            None => self.declined.retain(|declined| (declined.client, declined.id) != (token, id)),
        }
    }

    /// An end gives its channel back, and its connection goes on: the other one is to do the same. It is shown
    /// until it is released once more, as it is closed, or is offered again.
    pub(super) fn gives_back(&mut self, token: u64, id: u64, then: Then, now: Instant) {
        let (why, reason) = match then {
            Then::Closes => return,
            Then::IsSeldom => (GIVEN_BACK, GAVE_BACK),
            Then::GoesOn => (FOR_NOW, IS_WITHOUT),
        };
        let serial = self.clients.get(&token).and_then(|client| client.ends.get(&id));
        let Some(end) = serial.and_then(|serial| self.ends.get(serial)) else { return };
        let EndState::Paired { channel, .. } = &end.state else { return };
        if let Some(channel) = self.channels.get(channel) {
            channel.end_use(end.role.other(), why, &self.errands);
            let label = channel.end(end.role).label.clone();
            self.show_staying(label, reason, token, id, now);
        }
    }

    pub(super) fn grow(&mut self, token: u64, id: u64, class: u8, now: Instant) {
        let serial = self.clients.get(&token).and_then(|client| client.ends.get(&id));
        let Some(end) = serial.and_then(|serial| self.ends.get(serial)) else { return };
        let EndState::Paired { channel, .. } = &end.state else { return };
        let Some(channel) = self.channels.get_mut(channel) else { return };
        let (role, filler) = (end.role, channel.ends[1 - end.role.sends_on()].group.clone());
        let (uid, peer) = channel.users(role);
        let old = channel.end(role).class;
        // As far as the memory goes: the reader's user's, and that of the group that fills it.
        for class in (old + 1..=class.min(self.limits.max_class)).rev() {
            let more = end_bytes(class) - channel.end(role).charged_bytes;
            if self.budget.take_for(uid, peer, more).is_err() {
                continue;
            }
            if self.groups.take(filler.as_deref(), more, now) {
                channel.raise(role, class, &self.errands);
                break;
            }
            self.budget.give_back_for(uid, peer, more);
        }
    }

    fn found(&mut self, serial: u64, role: Role, facts: Result<Facts, Decline>, now: Instant) {
        let facts = match facts {
            Ok(facts) => facts,
            Err(reason) => return self.decline(serial, reason, None, now),
        };
        let cookie = (facts.netns, facts.cookie);
        if self.cookies.contains_key(&cookie) {
            return self.decline(serial, Decline::Taken, Some(&facts), now);
        }
        let Some(key) = self.proof.key(&facts, role) else {
            return self.decline(serial, Decline::NoProof, Some(&facts), now);
        };
        if let Some(end) = self.ends.get_mut(&serial) {
            end.state = EndState::Waiting { facts, since: now };
        }
        self.cookies.insert(cookie, serial);
        match self.table.offer(key, role, serial, now) {
            Outcome::Waits => self.offer_up(serial),
            Outcome::Full => self.decline_waiting(serial, Decline::TooMany, now),
            Outcome::Pair { other } => {
                self.withdraw_up(other);
                self.pair(serial, other, now);
            }
            Outcome::Conflict { other } => self.conflict(key, serial, other, now),
        }
    }

    /// Two different sockets claim to be one end. Of an address pair the older has lost it, or
    /// is no longer; numbers that two sockets share are forged, and nobody can say which.
    fn conflict(&mut self, key: Key, serial: u64, other: u64, now: Instant) {
        self.decline_waiting(other, Decline::NoProof, now);
        let retry = match (&key, self.ends.get(&serial)) {
            (Key::Addresses { .. }, Some(end)) => Some(end.role),
            _ => None,
        };
        match retry.map(|role| self.table.offer(key, role, serial, now)) {
            Some(Outcome::Waits) => {}
            _ => self.decline_waiting(serial, Decline::NoProof, now),
        }
    }

    fn pair(&mut self, serial: u64, other: u64, now: Instant) {
        let both = [serial, other];
        let facts = |serial: &u64| match self.ends.get(serial).map(|end| &end.state) {
            Some(EndState::Waiting { facts, .. }) => Some(facts),
            _ => None,
        };
        let proven = match (facts(&serial), facts(&other)) {
            (Some(a), Some(b)) => self.proof.holds([a, b]),
            _ => false,
        };
        let made =
            if proven { self.make_channel(serial, other, now) } else { Err(Decline::NoProof) };
        if let Err(reason) = made {
            for serial in both {
                self.decline_waiting(serial, reason, now);
            }
        }
    }

    fn make_channel(&mut self, a: u64, b: u64, now: Instant) -> Result<(), Decline> {
        let is_connector =
            |serial| self.ends.get(&serial).is_some_and(|e| e.role == Role::Connector);
        let serials = if is_connector(a) { [a, b] } else { [b, a] };
        let label = |serial| self.label(serial).ok_or(Decline::NoProof);
        let labels = [label(serials[0])?, label(serials[1])?];
        let Limits { first_class, same_user_only, .. } = self.limits;
        if same_user_only && labels[0].uid != labels[1].uid {
            return Err(Decline::Policy);
        }
        let groups = [labels[0].pid, labels[1].pid].map(memory::group_of);
        if !self.groups.take_both(&groups, paged_bytes(first_class) as u64, now) {
            return Err(Decline::Memory);
        }
        let made = self.make_channel_for(serials, labels, groups.clone(), now);
        if made.is_err() {
            for group in groups.iter().flatten() {
                self.groups.give_back(group, paged_bytes(first_class) as u64);
            }
        }
        made
    }

    fn make_channel_for(
        &mut self,
        serials: [u64; 2],
        labels: [EndLabel; 2],
        groups: [Option<PathBuf>; 2],
        now: Instant,
    ) -> Result<(), Decline> {
        let uids = [labels[0].uid, labels[1].uid];
        let Limits { first_class, max_class, .. } = self.limits;
        let charge = end_bytes(first_class);
        let [first, second] = uids;
        self.budget.take_for(first, second, charge).map_err(|_| Decline::Memory)?;
        if self.budget.take_for(second, first, charge).is_err() {
            self.budget.give_back_for(first, second, charge);
            return Err(Decline::Memory);
        }
        let (mut channel, handout) = match Channel::create(labels, first_class, max_class, now) {
            Ok(made) => made,
            Err(error) => {
                crate::rarely::warn!("cannot make a channel: {error}");
                self.budget.give_back_for(first, second, charge);
                self.budget.give_back_for(second, first, charge);
                return Err(Decline::Memory);
            }
        };
        for (end, group) in channel.ends.iter_mut().zip(groups) {
            end.group = group;
        }
        let name = self.name();
        self.channels.insert(name, channel);
        self.totals.channels += 1;
        for (serial, side) in serials.into_iter().zip(&handout.sides) {
            let Some(end) = self.ends.get_mut(&serial) else { continue };
            let EndState::Waiting { facts, .. } =
                std::mem::replace(&mut end.state, EndState::Between)
            else {
                continue;
            };
            let message = FromBroker::Channel {
                id: end.id,
                cookie: facts.cookie,
                role: end.role,
                max_class,
                first_class,
                medium: Medium::Memfd,
            };
            end.state = EndState::Paired { channel: name, facts };
            let (token, fds) = (end.client, [handout.channel.as_fd(), side.as_fd()]);
            let Some(client) = self.clients.get_mut(&token) else { continue };
            if client.send(message, &fds).is_err() {
                self.doomed.push(token);
            }
        }
        Ok(())
    }

    /// Takes back ends that have waited too long.
    pub fn expire(&mut self, now: Instant) {
        while let Some(serial) = self.table.expire(now, self.limits.offers_for) {
            self.decline_waiting(serial, Decline::NoProof, now);
        }
        self.expire_guests(now);
        self.expire_residues(now);
        self.expire_uplink(now);
        self.look_at_segments(now);
    }

    /// When `expire` has something to do next.
    pub fn next_expiry(&self) -> Option<Instant> {
        let guests = self.guests().and_then(crate::guests::Guests::next_expiry);
        let offers = self.table.oldest().map(|since| since + self.limits.offers_for);
        let segments = self.segments.as_ref().and_then(crate::segments::Segments::next_expiry);
        let uplink = self.uplink.as_ref().and_then(crate::uplink::Uplink::next_expiry);
        let residues = self.residues.next_expiry();
        [offers, guests, segments, residues, uplink].into_iter().flatten().min()
    }

    pub(super) fn label(&self, serial: u64) -> Option<EndLabel> {
        let end = self.ends.get(&serial)?;
        match &end.state {
            EndState::Waiting { facts, .. } | EndState::Paired { facts, .. } => {
                self.label_of(end, facts)
            }
            EndState::Between => None,
        }
    }

    pub(super) fn label_of(&self, end: &OfferedEnd, facts: &Facts) -> Option<EndLabel> {
        let client = self.clients.get(&end.client)?;
        Some(EndLabel {
            uid: client.uid,
            pid: client.pid,
            program: client.program.clone(),
            role: end.role,
            local: facts.local,
            peer: facts.peer,
        })
    }

    pub(super) fn decline_waiting(&mut self, serial: u64, reason: Decline, now: Instant) {
        self.table.withdraw(serial);
        self.withdraw_up(serial);
        let Some(end) = self.ends.get_mut(&serial) else { return };
        match std::mem::replace(&mut end.state, EndState::Between) {
            EndState::Waiting { facts, .. } => {
                self.cookies.remove(&(facts.netns, facts.cookie));
                self.decline(serial, reason, Some(&facts), now);
            }
            state => end.state = state,
        }
    }

    /// Tells the process that an end, which neither waits nor is paired, stays on TCP.
    fn decline(&mut self, serial: u64, reason: Decline, facts: Option<&Facts>, now: Instant) {
        let Some(end) = self.ends.remove(&serial) else { return };
        let label = facts.and_then(|facts| self.label_of(&end, facts));
        if let Some(label) = label {
            self.show_declined(label, reason.describe(), end.client, end.id, now);
        }
        let Some(client) = self.clients.get_mut(&end.client) else { return };
        client.ends.remove(&end.id);
        Self::count_end_out(&mut self.users, client.uid);
        if client.send(FromBroker::Decline { id: end.id, reason }, &[]).is_err() {
            self.doomed.push(end.client);
        }
    }

    fn count_end_out(users: &mut HashMap<u32, User>, uid: u32) {
        if let Some(user) = users.get_mut(&uid) {
            user.ends -= 1;
        }
    }

    /// Drops an end that its process has released, or that went with its process.
    pub(super) fn forget_end(&mut self, serial: u64) {
        let Some(end) = self.ends.remove(&serial) else { return };
        match end.state {
            EndState::Between => {}
            EndState::Waiting { facts, .. } => {
                self.table.withdraw(serial);
                self.withdraw_up(serial);
                self.cookies.remove(&(facts.netns, facts.cookie));
            }
            EndState::Paired { channel: name, facts } => {
                self.cookies.remove(&(facts.netns, facts.cookie));
                let Some(channel) = self.channels.get_mut(&name) else { return };
                let (uid, peer) = channel.users(end.role);
                let (charged_bytes, last) = channel.leave(end.role);
                self.budget.give_back_for(uid, peer, charged_bytes);
                if last {
                    for (group, bytes) in channel.charges() {
                        self.groups.give_back(group, bytes);
                    }
                    for end in channel.ends.each_ref().map(ChannelEnd::view) {
                        let closed = self.totals.closed.clone();
                        closed.uncounted.fetch_add(1, Ordering::Relaxed);
                        self.errands.touch(end.label.uid, move || {
                            let counters = end.counters();
                            closed.ring.fetch_add(counters.ring_bytes, Ordering::Relaxed);
                            closed.tcp.fetch_add(counters.tcp_bytes, Ordering::Relaxed);
                            closed.uncounted.fetch_sub(1, Ordering::Release);
                        });
                    }
                    self.channels.remove(&name);
                }
            }
        }
    }
}

/// Of a socket that a process got from another one: whoever holds it besides would read and write
/// past the ring. The kernel's count of references says so, of which this process has as many as it says. Without
/// BPF nobody says. `holders` 0: the process knows.
fn held_by(holders: u8, facts: Facts) -> Result<Facts, Decline> {
    match facts.references {
        _ if holders == 0 => Ok(facts),
        Some(references) if references == u64::from(holders) => Ok(facts),
        Some(_) => Err(Decline::Shared),
        None => Err(Decline::NoProof),
    }
}

/// Only an established connection's end gets a channel.
pub(super) fn connected(facts: Facts) -> Result<Facts, Decline> {
    if !facts.is_plain {
        return Err(Decline::NotTcp);
    }
    if facts.local == facts.peer {
        return Err(Decline::SelfConnected);
    }
    Ok(facts)
}
