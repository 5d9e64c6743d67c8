//! A segment that the host of this guest gives to it and to other guests (spec/wire.md section 13.4).
//!
//! Its memory is a device's, which cannot say who has it as a file can. So each holder gets a
//! description of a file of this guest's own, too, for the locks that say so, and those of the members
//! (`yasmin-segment`, `life`): they live as long as this guest's system, and so do the processes. In the
//! file's page is how often each bell was rung in this guest (`yasmin-segment`, `bells`).

use super::Holder;
use super::memory;
use crate::sys::page::Page;
use crate::sys::slices::{self, Range};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, fchmod};
use std::collections::BTreeMap;
use std::io;
use yasmin_control::segment::{Name, Place, Rights, Whom};
use yasmin_control::uplink::{DOMAINS_MAX, Life};
use yasmin_wire::layout::PAGE_BYTES;

/// Where the signs of life of members are, by slot (`yasmin-segment`, `life`).
const FIRST_SLOT: i64 = 1 << 61;

/// What the host says of it.
#[derive(Clone, Debug)]
pub struct Told {
    pub region: u64,
    /// This guest's number among those that share it.
    pub domain: u8,
    pub name: Name,
    pub place: Place,
    pub rights: BTreeMap<Whom, Rights>,
}

pub struct Given {
    pub region: u64,
    pub domain: u8,
    device: OwnedFd,
    locks: OwnedFd,
    /// Of the file of locks.
    bells: Page,
    /// The number by which the host said that it ends.
    pub end: Option<u64>,
}

impl Given {
    /// `kept`: the locks of a broker before, whose holders may live.
    pub fn new(told: &Told, device: OwnedFd, kept: Option<OwnedFd>) -> io::Result<Self> {
        let make = || {
            let locks = crate::sys::memfd::sealed(c"yasmin-segment-locks", PAGE_BYTES)?;
            fchmod(&locks, Mode::RUSR | Mode::WUSR)?;
            Ok::<_, io::Error>(locks)
        };
        let locks = kept.map_or_else(make, Ok)?;
        let bells = Page::map(&locks)?;
        Ok(Self { region: told.region, domain: told.domain, device, locks, bells, end: None })
    }

    /// Its memory, with these rights, and the locks.
    pub fn open_for(&self, place: &Place, holder: &Holder) -> io::Result<[OwnedFd; 2]> {
        let kind = if holder.rights == Rights::Write { 0 } else { slices::READ_ONLY };
        let bytes = place.mapped_bytes();
        let (offset, flags) = (PAGE_BYTES as u64, slices::SEGMENT | kind);
        let memory = slices::get(&self.device, Range { offset, bytes, grant: 0, flags })?;
        Ok([memory, memory::open_for(&self.locks, holder)?])
    }

    /// Whether a process has it, mapped or open.
    pub fn is_held(&self) -> bool {
        slices::held_from(&self.device, 0).is_some()
    }

    /// Whether the member with this slot lives. `None`: it is another guest's.
    pub fn life_of(&self, slot: u64) -> Option<Life> {
        if slot.checked_sub(1)? % u64::from(DOMAINS_MAX) != u64::from(self.domain) {
            return None;
        }
        let at = i64::try_from(slot).ok().and_then(|slot| FIRST_SLOT.checked_add(slot));
        Some(match at.map(|at| crate::sys::lock::is_set_to_write(&self.locks, at)) {
            Some(Ok(false)) => Life::Dead,
            Some(Ok(true)) => Life::Alive,
            _ => Life::Unknown,
        })
    }

    /// Wakes who sleeps at this bell.
    pub fn ring(&self, bell: u8) {
        self.bells.ring(bell.into());
    }

    pub fn lock_file(&self) -> BorrowedFd<'_> {
        self.locks.as_fd()
    }
}
