//! A channel that was handed out: its pages as the broker keeps them, its two ends, what it
//! costs.
//!
//! The broker maps the side pages and the control page, for display and for class limits, and
//! never a ring. A mapping keeps all of a memfd's memory, so the control page goes as soon as
//! one end has: then the rings are freed when the processes unmap them.
//!
//! Once it is handed out, a page is touched by errands alone: its processes may punch holes there.

use crate::errands::Errands;
use crate::sys::memfd;
use crate::sys::page::Page;
use rustix::fd::OwnedFd;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use yasmin_channel::side::{GONE, SIDE_BYTES, SIDE_VERSION};
use yasmin_control::Role;
use yasmin_wire::layout::{
    CHANNEL_MAGIC, DIRECTION_WORD, HEADER_MAGIC, HEADER_MAX_CLASS, HEADER_VERSION, PAGE_BYTES,
    channel_bytes, direction_offset, paged_bytes,
};
use yasmin_wire::{WIRE_VERSION, Word};

/// An end as it is shown, also when its process is gone.
#[derive(Clone, Debug)]
pub struct EndLabel {
    pub uid: u32,
    pub pid: u32,
    pub program: String,
    pub role: Role,
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// What an end sent, as it counts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub ring_bytes: u64,
    pub tcp_bytes: u64,
    pub parked: u64,
}

pub struct ChannelEnd {
    pub label: EndLabel,
    /// Class limit of the ring from which it receives; never read back from the side page.
    pub class: u8,
    /// Set aside for it in its user's budget; 0 once it is gone.
    pub charged_bytes: u64,
    /// The control group of its process, which is charged for the ring that it fills.
    pub group: Option<PathBuf>,
    pub live: bool,
    /// Bytes sent when the status was last asked for, and when that was.
    last: Arc<Mutex<(u64, Instant)>>,
    side: Arc<Page>,
}

/// An end as errands see it.
pub struct EndView {
    pub label: EndLabel,
    last: Arc<Mutex<(u64, Instant)>>,
    side: Arc<Page>,
}

pub struct Channel {
    /// Connector, acceptor.
    pub ends: [ChannelEnd; 2],
    pub since: Instant,
    /// `None` when one end is gone, or in another guest.
    control: Option<Arc<Page>>,
    /// The region that its memory is a slice of; `None`: it is a memfd.
    region: Option<u64>,
}

/// A channel as errands see it.
pub struct View {
    /// Connector, acceptor.
    pub ends: [EndView; 2],
    pub since: Instant,
    pub memory_bytes: u64,
    control: Option<Arc<Page>>,
}

/// What the two processes are sent.
pub struct Handout {
    pub channel: OwnedFd,
    /// Connector's, acceptor's.
    pub sides: [OwnedFd; 2],
}

/// What an end is charged for: the pages of the ring from which it receives, its side page, half of
/// the channel's first page.
pub const fn end_bytes(class: u8) -> u64 {
    paged_bytes(class) as u64 + SIDE_BYTES as u64 + PAGE_BYTES as u64 / 2
}

impl Channel {
    /// Makes the memory of a new channel. `labels`: connector, acceptor.
    pub fn create(
        labels: [EndLabel; 2],
        first_class: u8,
        max_class: u8,
        now: Instant,
    ) -> io::Result<(Self, Handout)> {
        let channel = memfd::sealed(c"yasmin-channel", channel_bytes(max_class))?;
        let control = Page::map(&channel)?;
        control.word(HEADER_MAGIC).store(CHANNEL_MAGIC.to_le(), Relaxed);
        // Version and largest class are two 32-bit fields of one aligned word.
        const _: () =
            assert!(HEADER_VERSION.is_multiple_of(8) && HEADER_MAX_CLASS == HEADER_VERSION + 4);
        let versions = u64::from(WIRE_VERSION) | u64::from(max_class) << 32;
        control.word(HEADER_VERSION).store(versions.to_le(), Relaxed);

        let [connector, acceptor] = labels;
        let make_end = |label| ChannelEnd::create(label, first_class, first_class, now);
        let (connector, connector_side) = make_end(connector)?;
        let (acceptor, acceptor_side) = make_end(acceptor)?;
        let ends = [connector, acceptor];
        let sides = [connector_side, acceptor_side];
        Ok((
            Self { ends, since: now, control: Some(Arc::new(control)), region: None },
            Handout { channel, sides },
        ))
    }

    /// The part of a channel with another guest that is of this one: the end of `label`, and its
    /// side page. Memory of the host's is charged to no control group here, so the end fills what
    /// its peer offers.
    pub fn create_across(
        label: EndLabel,
        region: u64,
        first_class: u8,
        max_class: u8,
        now: Instant,
    ) -> io::Result<(Self, OwnedFd)> {
        let role = label.role;
        let peer = EndLabel {
            uid: label.uid,
            pid: 0,
            program: "(another guest)".to_owned(),
            role: role.other(),
            local: label.peer,
            peer: label.local,
        };
        let (end, side) = ChannelEnd::create(label, first_class, max_class, now)?;
        // Its page is seen by nobody.
        let (mut peer, _) = ChannelEnd::create(peer, first_class, max_class, now)?;
        (peer.live, peer.charged_bytes) = (false, 0);
        let ends = match role {
            Role::Connector => [end, peer],
            Role::Acceptor => [peer, end],
        };
        Ok((Self { ends, since: now, control: None, region: Some(region) }, side))
    }

    pub fn end(&self, role: Role) -> &ChannelEnd {
        &self.ends[role.sends_on()]
    }

    pub fn end_mut(&mut self, role: Role) -> &mut ChannelEnd {
        &mut self.ends[role.sends_on()]
    }

    /// The user of an end, and that of the other one.
    pub fn users(&self, role: Role) -> (u32, u32) {
        (self.end(role).label.uid, self.end(role.other()).label.uid)
    }

    /// Marks an end as gone. Gives what it was charged; true when it was the last.
    pub fn leave(&mut self, role: Role) -> (u64, bool) {
        self.control = None;
        let end = self.end_mut(role);
        end.live = false;
        let charged_bytes = std::mem::take(&mut end.charged_bytes);
        (charged_bytes, !self.ends.iter().any(|end| end.live))
    }

    /// Lets the end offer rings up to `class`, and the other one fill them.
    pub fn raise(&mut self, role: Role, class: u8, errands: &Errands) {
        let end = self.end_mut(role);
        end.class = class;
        end.charged_bytes = end_bytes(class);
        let (uid, side) = (end.label.uid, end.side.clone());
        let other = &self.ends[1 - role.sends_on()];
        let (others_side, own_errands) = (other.side.clone(), errands.clone());
        // Whoever sees a larger offer may fill it already.
        errands.touch(other.label.uid, move || {
            others_side.side().tx_class_limit.store(u32::from(class), Release);
            // Nothing else is published by this word: an end that sees it late offers a smaller
            // ring.
            own_errands.touch(uid, move || {
                side.side().class_limit.store(u32::from(class), Release);
            });
        });
    }

    pub fn view(&self) -> View {
        View {
            ends: self.ends.each_ref().map(ChannelEnd::view),
            since: self.since,
            memory_bytes: self.memory_bytes(),
            control: self.control.clone(),
        }
    }

    /// Control groups, and what each is charged for: the ring that its end fills.
    pub fn charges(&self) -> impl Iterator<Item = (&Path, u64)> {
        let rings = [self.ends[1].class, self.ends[0].class];
        self.ends
            .iter()
            .zip(rings)
            .filter_map(|(end, class)| Some((end.group.as_deref()?, paged_bytes(class) as u64)))
    }

    /// The region has gone: whoever holds an end here is told, if the channel lies in it.
    pub fn lose(&self, region: u64, errands: &Errands) {
        if self.region == Some(region) {
            [Role::Connector, Role::Acceptor]
                .iter()
                .for_each(|&role| self.end_use(role, GONE, errands));
        }
    }

    /// The end, if somebody holds it here, is to use the channel no more: `GONE`, `GIVEN_BACK` or `FOR_NOW`.
    pub fn end_use(&self, role: Role, why: u32, errands: &Errands) {
        let end = self.end(role);
        if end.live {
            let side = end.side.clone();
            errands.touch(end.label.uid, move || side.side().gone.store(why, Release));
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.charged_bytes).sum()
    }
}

impl ChannelEnd {
    /// With its side page, as a memfd.
    fn create(
        label: EndLabel,
        first_class: u8,
        fills_class: u8,
        now: Instant,
    ) -> io::Result<(Self, OwnedFd)> {
        let memfd = memfd::sealed(c"yasmin-side", SIDE_BYTES)?;
        let page = Page::map(&memfd)?;
        page.side().tx_class_limit.store(u32::from(fills_class), Relaxed);
        page.side().class_limit.store(u32::from(first_class), Relaxed);
        page.side().version.store(SIDE_VERSION, Relaxed);
        let end = Self {
            label,
            class: first_class,
            charged_bytes: end_bytes(first_class),
            group: None,
            live: true,
            last: Arc::new(Mutex::new((0, now))),
            side: Arc::new(page),
        };
        Ok((end, memfd))
    }

    pub fn view(&self) -> EndView {
        let Self { label, last, side, .. } = self;
        EndView { label: label.clone(), last: last.clone(), side: side.clone() }
    }
}

impl View {
    /// The word of the direction on which `role` sends. The ends write it, so it may be none;
    /// none either when one end is gone.
    pub fn word(&self, role: Role) -> Option<Word> {
        let at = direction_offset(role.sends_on()) + DIRECTION_WORD;
        Word::decode(self.control.as_ref()?.word(at).load(Relaxed)).ok()
    }

    pub fn end(&self, role: Role) -> &EndView {
        &self.ends[role.sends_on()]
    }
}

impl EndView {
    pub fn counters(&self) -> Counters {
        let tx = &self.side.side().tx;
        Counters {
            ring_bytes: tx.ring_bytes.get(),
            tcp_bytes: tx.tcp_bytes.get(),
            parked: tx.parked.get(),
        }
    }

    /// Bytes a second since this was last asked: it sent so many in all by now.
    pub fn rate(&self, sent: u64, now: Instant) -> f64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (last_sent, last_time) = std::mem::replace(&mut *last, (sent, now));
        let seconds = now.saturating_duration_since(last_time).as_secs_f64();
        sent.saturating_sub(last_sent) as f64 / seconds.max(1e-6)
    }
}
