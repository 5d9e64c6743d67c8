//! The numbers that name one candidate: a socket that this process has duplicated, as programs do that read
//! by one number and write by another one.
//!
//! It gets a channel under all of them at once, or not at all: what went by another one would go past the
//! ring. So all names that its slot counts must be numbers of this process's, and a thread that begins a
//! call by any of them while they change waits.
//!
//! Storey 2: table.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::table::{self, Candidate, Kind};
use crate::{holders, in_flight, process, streams};

/// More numbers of one socket than this are rare, and each costs a look at every offer.
pub const MOST: usize = 4;

pub struct Twins {
    /// With their entries, as they were last seen.
    all: [(c_int, Candidate); MOST],
    count: usize,
}

/// Those that have the slot, in the order of their numbers; none where it counts one name alone.
pub fn at(slot: usize) -> impl Iterator<Item = (c_int, Candidate)> {
    let end = if holders::is_sole_holder(slot) { 0 } else { table::end() };
    (0..end).filter_map(move |at| match table::kind(table::raw(at)) {
        Kind::Candidate(twin) if twin.slot() == slot => Some((at, twin)),
        _ => None,
    })
}

impl Twins {
    /// All names of the candidate at `fd`, that one first. `None`: one is another process's, or libc moves bytes by it
    /// unseen, or they are too many.
    pub fn of(fd: c_int, candidate: Candidate) -> Option<Self> {
        let mut twins = Self { all: [(fd, candidate); MOST], count: 1 };
        let slot = candidate.slot();
        if candidate.is_by_kernel() || holders::is_sole_holder(slot) {
            return Some(twins);
        }
        for twin in at(slot).filter(|(at, _)| *at != fd) {
            if streams::hides(twin.0) {
                return None;
            }
            *twins.all.get_mut(twins.count)? = twin;
            twins.count += 1;
        }
        twins.are_all().then_some(twins)
    }

    fn seen(&self) -> &[(c_int, Candidate)] {
        &self.all[..self.count]
    }

    fn numbers(&self) -> impl Iterator<Item = c_int> {
        self.seen().iter().map(|(at, _)| *at)
    }

    /// How many references to the socket the kernel has to count; 0: who holds it is known.
    pub fn holders(&self) -> u8 {
        let is_asked = |(_, twin): &(c_int, Candidate)| twin.is_handed() || twin.is_by_kernel();
        if self.seen().iter().any(is_asked) { self.count as u8 } else { 0 }
    }

    pub fn others(&self) -> impl Iterator<Item = c_int> {
        self.numbers().skip(1)
    }

    /// Whether the slot counts no other name.
    fn are_all(&self) -> bool {
        let (_, first) = self.all[0];
        match self.count {
            1 => first.is_by_kernel() || holders::is_sole_holder(first.slot()),
            count => holders::counted(first.slot()) == count,
        }
    }

    /// One of the others that has an offer out, as it is now.
    pub fn pending_other(&self) -> Option<c_int> {
        self.others().find(|at| match table::kind(table::raw(*at)) {
            Kind::Candidate(twin) => twin.is_pending(),
            _ => false,
        })
    }

    /// Whether a call is seen to be in the kernel by one of them.
    pub fn are_in_flight(&self) -> bool {
        self.seen().iter().any(|(at, twin)| twin.is_in_flight() || in_flight::is_marked(*at))
    }

    /// Bytes sent and received by all of them together, modulo 2^32.
    pub fn moved(&self) -> Option<(u32, u32)> {
        self.numbers().try_fold((0u32, 0u32), |(sent, received), at| {
            let counts = table::counts(at)?;
            Some((
                sent.wrapping_add(counts.sent.load(Ordering::Relaxed)),
                received.wrapping_add(counts.received.load(Ordering::Relaxed)),
            ))
        })
    }

    /// Closes the gates. Whether nobody is in a call by any of them: who forks, or makes a copy of one, from
    /// now on opens its gate again.
    pub fn close(&mut self) -> bool {
        for (at, twin) in &mut self.all[..self.count] {
            let closed = twin.with_gate(true);
            if !table::swap(*at, *twin, closed.0) {
                return false;
            }
            *twin = closed;
        }
        !process::is_forking() && self.are_all() && in_flight::are_clear(self.numbers())
    }

    /// Whether their entries are those that `close` left.
    pub fn are_closed(&self) -> bool {
        self.seen().iter().all(|(at, twin)| table::raw(*at) == twin.0)
    }

    pub fn open(&self) {
        for at in self.numbers() {
            table::change(at, |candidate| candidate.with_gate(false));
        }
    }

    /// The closed entries become those of the connection at `address`; before that `one_more` hears of each but the
    /// first. False: nothing was changed, as somebody uses one of them.
    pub fn become_conn(&self, address: usize, one_more: impl Fn(c_int)) -> bool {
        let conn = table::conn_raw(address);
        if let [(at, closed)] = self.seen() {
            return table::swap(*at, *closed, conn);
        }
        // Handlers of this thread's do not run meanwhile: they would wait for it.
        let Some(_guard) = table::ENTRIES.acquire() else { return false };
        let is_used =
            |&(at, closed): &(c_int, Candidate)| !table::swap(at, closed, closed.locked().0);
        if let Some(used) = self.seen().iter().position(is_used) {
            for &(at, closed) in &self.seen()[..used] {
                table::swap(at, closed.locked(), closed.0);
            }
            return false;
        }
        self.others().for_each(one_more);
        for &(at, closed) in self.seen() {
            table::swap(at, closed.locked(), conn);
        }
        true
    }
}
