//! An end's memory: the channel that it shares with its peer, and its own side page, mapped.

use core::sync::atomic::Ordering;

use yasmin_ring::{Block, Pages};
use yasmin_wire::{Medium, layout};

use crate::region::{Filling, Mapping, Region};
use crate::side::{SIDE_BYTES, SIDE_VERSION, Side};

pub struct Attachment {
    channel: Mapping,
    side: Mapping,
    max_class: u8,
}

impl Attachment {
    /// Maps a channel of `max_class` that begins where `channel` does, in `medium`'s memory, and a
    /// side page. `None`:
    /// one of them is not what it should be, or there is no memory.
    pub fn map(
        channel: Region,
        medium: Medium,
        side: Region,
        max_class: u8,
        filling: Filling,
    ) -> Option<Self> {
        if max_class > layout::MAX_CLASS {
            return None;
        }
        let channel = channel.slice(0, layout::channel_bytes(max_class))?;
        let side = side.slice(0, SIDE_BYTES)?;
        // A page is never worth unlocking.
        let channel = channel.map_from(medium, filling).ok()?;
        let side = side.map(Filling::Usual).ok()?;
        let attachment = Self { channel, side, max_class };
        let version = attachment.side().version.load(Ordering::Relaxed);
        (version == SIDE_VERSION).then_some(attachment)
    }

    pub const fn max_class(&self) -> u8 {
        self.max_class
    }

    pub fn side(&self) -> &Side {
        // SAFETY: a whole page, aligned, of atomics, mapped while `self` lives.
        unsafe { &*self.side.as_ptr().cast::<Side>() }
    }

    /// Block and ring of direction `index` (0: connector to acceptor).
    pub fn direction(&self, index: usize) -> (&Block, Pages) {
        // SAFETY: a whole channel of that class, mapped while `self` lives.
        unsafe { crate::direction(self.channel.as_ptr(), index, self.max_class) }
    }

    /// Both stay mapped: the channel's pages, and the side page. See `of_kept`.
    pub fn keep(self) -> (*mut u8, *mut Side) {
        (self.channel.keep(), self.side.keep().cast())
    }

    /// What was kept, to be unmapped.
    ///
    /// # Safety
    /// `keep` gave both, of an attachment of this class, and nobody uses them any more.
    pub unsafe fn of_kept(base: *mut u8, side: *mut Side, max_class: u8) -> Option<Self> {
        // SAFETY: the caller's.
        let channel = unsafe { Mapping::of_kept(base, layout::channel_bytes(max_class)) };
        // SAFETY: the caller's.
        let side = unsafe { Mapping::of_kept(side.cast(), SIDE_BYTES) };
        Some(Self { channel: channel?, side: side?, max_class })
    }
}
