//! Between the ends and `uplink`: what is offered to the host, and what comes of it.

use super::{Broker, EndState};
use crate::channel::{Channel, end_bytes};
use crate::pairing::Key;
use crate::uplink::{Said, Uplink};
use rustix::fd::AsFd;
use std::time::Instant;
use yasmin_control::uplink::{Life, Numbers, Slice};
use yasmin_control::{Decline, FromBroker};
use yasmin_wire::Medium;

/// The host's memory comes and goes: guests leave and come back, ports become free.
const fn for_how_long(reason: Decline) -> Decline {
    match reason {
        Decline::Memory | Decline::Policy | Decline::TooMany => Decline::Later,
        other => other,
    }
}

impl Broker {
    pub fn serve_uplink(&mut self, uplink: Uplink) {
        self.uplink = Some(uplink);
    }

    /// An end waits: its peer may be in another guest.
    pub(super) fn offer_up(&mut self, serial: u64) {
        let Some(uplink) = &mut self.uplink else { return };
        let Some(end) = self.ends.get(&serial) else { return };
        let EndState::Waiting { facts, .. } = &end.state else { return };
        let is_here = facts.local.ip() == facts.peer.ip() || facts.peer.ip().is_loopback();
        if let Some(Key::Numbers { connector, acceptor }) = self.proof.key(facts, end.role)
            && !is_here
        {
            uplink.offer(serial, end.role, Numbers { connector, acceptor });
        }
    }

    pub(super) fn withdraw_up(&mut self, serial: u64) {
        if let Some(uplink) = &mut self.uplink {
            uplink.withdraw(serial);
        }
    }

    /// The host said something, or a region did.
    pub fn turn_uplink(&mut self, now: Instant) {
        let said = self.uplink.as_mut().map_or_else(Vec::new, |uplink| uplink.turn(now));
        self.hear_host(said, now);
    }

    pub(super) fn expire_uplink(&mut self, now: Instant) {
        let Some(uplink) = &mut self.uplink else { return };
        uplink.expire(now);
        let news = uplink.news();
        self.hear_host(news, now);
    }

    fn hear_host(&mut self, said: Vec<Said>, now: Instant) {
        for said in said {
            match said {
                Said::Begun => {
                    for serial in self.ends.keys().copied().collect::<Vec<_>>() {
                        self.offer_up(serial);
                    }
                }
                Said::Declined { serial, reason } => {
                    self.decline_waiting(serial, for_how_long(reason), now);
                }
                Said::Gone { region } => {
                    for channel in self.channels.values() {
                        channel.lose(region, &self.errands);
                    }
                    if let Some(segments) = &mut self.segments {
                        segments.lose(region);
                    }
                }
                Said::Segment { told, device } => self.take_segment(&told, device),
                Said::End { region, number } => {
                    if let Some(segments) = &mut self.segments {
                        segments.end_given(region, number);
                    }
                }
                Said::Probe { id, region, slot } => {
                    let life = self.segments.as_ref().map(|one| one.life_of(region, slot));
                    if let Some(uplink) = &mut self.uplink {
                        uplink.answer_probe(id, life.unwrap_or(Life::Unknown));
                    }
                }
                Said::Life { id, life } => self.answer_prober(id, life),
                Said::Ring { region, bell } => {
                    if let Some(segments) = &self.segments {
                        segments.ring(region, bell);
                    }
                }
                Said::Channel { serial, slice, max_class, first_class } => {
                    if let Err(reason) =
                        self.channel_from_host(serial, slice, max_class, first_class, now)
                    {
                        self.decline_waiting(serial, for_how_long(reason), now);
                    }
                }
            }
        }
    }

    /// An error: nobody has got the slice, and the host was told.
    fn channel_from_host(
        &mut self,
        serial: u64,
        slice: Slice,
        max_class: u8,
        first_class: u8,
        now: Instant,
    ) -> Result<(), Decline> {
        let state = self.ends.get(&serial).map(|end| &end.state);
        let label = self.label(serial).filter(|_| matches!(state, Some(EndState::Waiting { .. })));
        let uplink = self.uplink.as_mut().ok_or(Decline::NoGuest)?;
        let Some(label) = label else {
            uplink.refuse(slice);
            return Err(Decline::Taken);
        };
        let taken = uplink.take(slice, now);
        let memory = taken.map_err(|error| {
            crate::rarely::warn!("cannot take the memory that the host gives: {error}");
            Decline::Memory
        })?;
        // From here on the driver says when nobody has it any more.
        let (uid, charge) = (label.uid, end_bytes(first_class));
        let (role, region) = (label.role, slice.region);
        let made = match self.budget.take(uid, charge) {
            Ok(()) => Channel::create_across(label, region, first_class, max_class, now).map_err(
                |error| {
                    crate::rarely::warn!("cannot make a side page: {error}");
                    self.budget.give_back(uid, charge);
                },
            ),
            Err(_) => Err(()),
        };
        let Ok((channel, side)) = made else {
            drop(memory);
            self.decline_waiting(serial, Decline::Memory, now);
            return Ok(());
        };
        let name = self.name();
        self.channels.insert(name, channel);
        self.totals.channels += 1;
        self.table.withdraw(serial);
        let Some(end) = self.ends.get_mut(&serial) else { return Ok(()) };
        let EndState::Waiting { facts, .. } = std::mem::replace(&mut end.state, EndState::Between)
        else {
            return Ok(());
        };
        let message = FromBroker::Channel {
            id: end.id,
            cookie: facts.cookie,
            role,
            max_class,
            first_class,
            medium: Medium::Ivshmem,
        };
        end.state = EndState::Paired { channel: name, facts };
        let token = end.client;
        if let Some(client) = self.clients.get_mut(&token)
            && client.send(message, &[memory.as_fd(), side.as_fd()]).is_err()
        {
            self.doomed.push(token);
        }
        Ok(())
    }
}
