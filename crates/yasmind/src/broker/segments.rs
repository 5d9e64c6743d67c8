//! Questions about segments (spec/wire.md section 12): one message, one answer.

use super::Broker;
use crate::client::Gone;
use crate::segments::{Holder, Opened, Segments, Told};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;
use yasmin_control::segment::{Answer, Refusal, Request};
use yasmin_control::uplink::Life;
use yasmin_control::{CONTROL_VERSION, FromBroker};

/// A list is told in parts of about so many bytes; whoever wants more asks again.
const PART_BYTES: usize = 8 << 10;

impl Broker {
    pub fn serve_segments(&mut self, segments: Segments) {
        self.segments = Some(segments);
    }

    pub fn unwatched_keeper(&mut self) -> Option<BorrowedFd<'_>> {
        self.segments.as_mut()?.unwatched_keeper()
    }

    pub fn keeper_said(&mut self) {
        if let Some(segments) = &mut self.segments {
            segments.keeper_said();
        }
        self.answer_creators();
    }

    pub(super) fn look_at_segments(&mut self, now: Instant) {
        if let Some(segments) = &mut self.segments {
            segments.look(now);
            for (region, end) in segments.unused() {
                if let Some(uplink) = &mut self.uplink {
                    uplink.unused(region, end);
                }
            }
        }
        self.answer_creators();
    }

    /// A segment that the host gives.
    pub(super) fn take_segment(&mut self, told: &Told, device: OwnedFd) {
        let Some(segments) = &mut self.segments else { return };
        match segments.give(told, device) {
            Ok(()) => tracing::info!("segment {} is the host's, for several guests", told.name),
            Err(why) => {
                crate::rarely::warn!("segment {} of the host is not used: {why}", told.name)
            }
        }
    }

    /// Asks the host whether a member in another guest lives.
    fn probe_above(&mut self, token: u64, region: u64, slot: u64) -> bool {
        let id = self.name();
        let is_asked = self.uplink.as_mut().is_some_and(|uplink| uplink.probe(id, region, slot));
        if is_asked {
            // Each client asks one thing at a time.
            self.probers.retain(|_, other| *other != token);
            self.probers.insert(id, token);
        }
        is_asked
    }

    /// What the host says of a member in another guest.
    pub(super) fn answer_prober(&mut self, id: u64, life: Life) {
        let Some(token) = self.probers.remove(&id) else { return };
        let Some(client) = self.clients.get_mut(&token) else { return };
        if client.send_reply(&Reply::Life(life)).is_err() {
            self.doomed.push(token);
        }
    }

    /// Who made a segment hears of it when it is kept: it is then there, whatever happens to the
    /// broker.
    fn answer_creators(&mut self) {
        if self.creators.is_empty() || self.segments.as_ref().is_some_and(Segments::is_behind) {
            return;
        }
        for token in std::mem::take(&mut self.creators) {
            let Some(client) = self.clients.get_mut(&token) else { continue };
            if client.send_reply(&Reply::Done).is_err() {
                self.doomed.push(token);
            }
        }
    }

    /// Answers a datagram that is about segments.
    pub(super) fn segment_asked(&mut self, token: u64, raw: &[u8]) -> Result<(), Gone> {
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        let (pid, uid) = (client.pid, client.uid);
        let request = Request::decode(raw).map_err(|error| {
            tracing::debug!(token, ?error, "malformed");
            Gone
        })?;
        if request.version() != CONTROL_VERSION {
            let _ = client.send(FromBroker::Refused { version: CONTROL_VERSION }, &[]);
            return Err(Gone);
        }
        let segments = self.segments.as_mut().ok_or(Gone)?;
        let result = match request {
            Request::Create { name, size_bytes, kind, .. } => {
                let creator = || client.pidfd().map(|pidfd| (pid, pidfd));
                match segments.create(uid, name, size_bytes, kind, creator) {
                    Ok(()) if segments.is_behind() => {
                        self.creators.push(token);
                        return Ok(());
                    }
                    made => made.map(|()| Reply::Done),
                }
            }
            Request::Open { name, rights, sparse, .. } => {
                let left = || if sparse { None } else { crate::memory::left_for(pid) };
                segments.open(&name, &Holder { pid, uid, rights }, left).map(|opened| {
                    let Opened { place, domain, fds } = opened;
                    Reply::Segment(Answer::Segment { place, rights, domain }, fds)
                })
            }
            Request::Probe { name, slot, .. } => match segments.probe(uid, &name, slot) {
                Ok((_, Some(life))) => Ok(Reply::Life(life)),
                Ok((region, None)) if self.probe_above(token, region, slot) => return Ok(()),
                Ok((_, None)) => Ok(Reply::Life(Life::Unknown)),
                Err(refusal) => Err(refusal),
            },
            Request::Ring { name, bell, domains, .. } => {
                match segments.region_to_write(uid, &name) {
                    Ok(region) => {
                        if let Some(uplink) = &mut self.uplink {
                            uplink.ring(region, bell, domains);
                        }
                    }
                    Err(refusal) => tracing::debug!(pid, uid, ?request, ?refusal, "refused"),
                }
                return Ok(());
            }
            Request::Remove { name, .. } => segments.remove(uid, &name).map(|()| Reply::Done),
            Request::Allow { name, whom, rights, .. } => {
                segments.allow(uid, &name, whom, rights).map(|()| Reply::Done)
            }
            Request::About { name, .. } => segments.about(uid, &name).map(|shown| {
                // Of types of numbers and strings: it cannot fail.
                Reply::Text(serde_json::to_vec(&shown).unwrap_or_default())
            }),
            Request::List { after, .. } => {
                let mut text = vec![b'['];
                let mut last = after;
                while text.len() < PART_BYTES {
                    let Some((name, shown)) = segments.next_shown(uid, last.as_ref()) else {
                        break;
                    };
                    if text.len() > 1 {
                        text.push(b',');
                    }
                    let _ = serde_json::to_writer(&mut text, &shown);
                    last = Some(name);
                }
                text.push(b']');
                Ok(Reply::Text(text))
            }
        };
        if let Err(refusal) = &result {
            tracing::debug!(pid, uid, ?request, ?refusal, "refused");
        }
        let client = self.clients.get_mut(&token).ok_or(Gone)?;
        client.send_reply(&result.unwrap_or_else(Reply::Refused))
    }
}

/// An answer with what goes beside it.
pub enum Reply {
    Done,
    Refused(Refusal),
    Segment(Answer, Vec<OwnedFd>),
    Life(Life),
    Text(Vec<u8>),
}

impl crate::client::Client {
    fn send_reply(&mut self, reply: &Reply) -> Result<(), Gone> {
        match reply {
            Reply::Done => self.send_raw(Answer::Done.encode(), &[], &[]),
            Reply::Refused(refusal) => self.send_raw(Answer::Refused(*refusal).encode(), &[], &[]),
            Reply::Segment(answer, fds) => {
                let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                self.send_raw(answer.encode(), &fds, &[])
            }
            Reply::Life(life) => self.send_raw(Answer::Life(*life).encode(), &[], &[]),
            Reply::Text(text) => {
                let answer = Answer::Text { len_bytes: text.len() as u64 };
                self.send_raw(answer.encode(), &[], text)
            }
        }
    }
}
