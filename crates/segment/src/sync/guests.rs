//! Members of a segment that several guests of one host share.
//!
//! Guests have no file in common. Each has one of its own, and in that the signs of life of its
//! members; its slots are those whose number divides by it, so that no two guests claim one. Of the
//! slots of another guest the broker knows, who asks that guest's broker ([`super::FileLife`] says why
//! an answer "dead" holds for the generation that the slot had before it was asked).

use std::os::fd::{AsFd, BorrowedFd};

use super::life::{FileProbe, Life, Liveness};

/// Asks the broker whether the member of another guest's slot lives.
pub type Ask = Box<dyn Fn(usize) -> Life + Send + Sync>;

/// A guest's number among those that share the segment, and how many there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    pub number: u32,
    pub count: u32,
}

impl Domain {
    /// Whether a slot, counted from 1, is this guest's.
    pub fn has(self, slot: usize) -> bool {
        slot.checked_sub(1).is_some_and(|at| at % self.count as usize == self.number as usize)
    }
}

/// How a member asks about slots.
pub enum Probe {
    /// All members are in one kernel.
    File(FileProbe),
    Guests {
        own: FileProbe,
        domain: Domain,
        ask: Ask,
    },
}

impl Probe {
    /// Whether this member may claim that slot.
    pub fn may_claim(&self, slot: usize) -> bool {
        match self {
            Self::File(_) => true,
            Self::Guests { domain, .. } => domain.has(slot),
        }
    }

    /// Of this guest, among those that share the segment.
    pub const fn domain(&self) -> Option<Domain> {
        match self {
            Self::File(_) => None,
            Self::Guests { domain, .. } => Some(*domain),
        }
    }
}

impl AsFd for Probe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(own) | Self::Guests { own, .. } => own.as_fd(),
        }
    }
}

impl Liveness for Probe {
    fn probe(&self, slot: usize) -> Life {
        match self {
            Self::Guests { domain, ask, .. } if !domain.has(slot) => ask(slot),
            Self::File(own) | Self::Guests { own, .. } => own.probe(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_one_guests() {
        let domains = (0..8).map(|number| Domain { number, count: 8 });
        for slot in 1..100 {
            let of: Vec<Domain> = domains.clone().filter(|domain| domain.has(slot)).collect();
            assert_eq!(of, [Domain { number: (slot as u32 - 1) % 8, count: 8 }]);
        }
        assert!(domains.into_iter().all(|domain| !domain.has(0)));
    }
}
