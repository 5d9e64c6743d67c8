//! The places of registrations in the kernel's list of what is ready, as far as this library knows.
//!
//! The kernel tells of what is ready in the order in which it became so (`ep_poll_callback`,
//! `ep_insert`, `ep_modify` of fs/eventpoll.c), and what it told of level-triggered goes to the end
//! of its list at once, where it stays until a wait finds it not ready (`ep_send_events`).
//!
//! Storey 3: connection.

use core::sync::atomic::{AtomicPtr, Ordering};

use super::Set;
use super::registration::{PRESENT, Registration};
use crate::clock;
use crate::sys::EpollEvent;

/// Of so many registrations of a set the data may be known, each in one of so many places.
pub const KNOWN: usize = 256;
const KNOWN_AT: usize = 8;

impl Set {
    /// Where the registration with `data` may stand.
    fn known(&self, data: u64) -> impl Iterator<Item = &AtomicPtr<Registration>> {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
        let first = (data.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (first..first + KNOWN_AT).map(|at| &self.known[at % KNOWN])
    }

    /// A registration with this data finds its place in front of others that are no more.
    pub fn know(&self, one: &'static Registration) {
        let this = core::ptr::from_ref(one).cast_mut();
        let data = one.data.load(Ordering::Relaxed);
        let is_free = |at: &&AtomicPtr<Registration>| {
            let it = at.load(Ordering::Relaxed);
            // SAFETY: null, or a registration, whose memory stays one.
            it == this || unsafe { it.as_ref() }.is_none_or(|it| !it.is_of(self))
        };
        let last = || self.known(data).last();
        if let Some(at) = self.known(data).find(is_free).or_else(last) {
            at.store(this, Ordering::Release);
        }
    }

    /// The registration that the program's `data` stands for, as far as that is known.
    pub fn by_data(&self, data: u64) -> Option<&'static Registration> {
        self.known(data).find_map(|at| {
            // SAFETY: null, or a registration, whose memory stays one.
            let one = unsafe { at.load(Ordering::Acquire).as_ref() }?;
            let is_it = one.is_of(self) && one.data.load(Ordering::Relaxed) == data;
            (is_it && one.has(PRESENT)).then_some(one)
        })
    }

    /// A wait ends with `events`: in this order they have their places in the kernel's list.
    pub fn ends_wait(&self, events: impl ExactSizeIterator<Item = EpollEvent>) {
        let is_mixed = self.is_mixed.load(Ordering::Relaxed) != 0;
        if !is_mixed && events.len() > 0 {
            // Who told them has noted their places.
            self.waited_at.store(self.emits_at.load(Ordering::Relaxed), Ordering::Relaxed);
            return;
        }
        let now = clock::ticks();
        self.waited_at.store(now, Ordering::Relaxed);
        self.is_mixed.store(0, Ordering::Relaxed);
        if events.len() == 0 {
            self.differs.store(0, Ordering::Relaxed);
        }
        for (index, event) in (0..).zip(events) {
            if let Some(one) = self.by_data(event.data) {
                one.told_at.store(now + index, Ordering::Relaxed);
            }
        }
    }

    /// Neither rings nor kernel had anything to tell, who was asked just now: nothing has a place.
    pub fn list_is_empty(&self) {
        self.waited_at.store(self.looked_at.load(Ordering::Relaxed), Ordering::Relaxed);
        self.differs.store(0, Ordering::Relaxed);
    }
}
