//! Questions about segments (spec/wire.md section 12): one message, one answer.

use super::Broker;
use crate::client::Gone;
use crate::segments::{Holder, Segments};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;
use yasmin_control::segment::{Answer, Refusal, Request};
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
        }
        self.answer_creators();
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
                segments
                    .open(&name, &Holder { pid, uid, rights }, left)
                    .map(|(place, fd)| Reply::Segment(Answer::Segment { place, rights }, fd))
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
        client.send_reply(&result.unwrap_or_else(Reply::Refused))
    }
}

/// An answer with what goes beside it.
pub enum Reply {
    Done,
    Refused(Refusal),
    Segment(Answer, OwnedFd),
    Text(Vec<u8>),
}

impl crate::client::Client {
    fn send_reply(&mut self, reply: &Reply) -> Result<(), Gone> {
        match reply {
            Reply::Done => self.send_raw(Answer::Done.encode(), &[], &[]),
            Reply::Refused(refusal) => self.send_raw(Answer::Refused(*refusal).encode(), &[], &[]),
            Reply::Segment(answer, fd) => self.send_raw(answer.encode(), &[fd.as_fd()], &[]),
            Reply::Text(text) => {
                let answer = Answer::Text { len_bytes: text.len() as u64 };
                self.send_raw(answer.encode(), &[], text)
            }
        }
    }
}
