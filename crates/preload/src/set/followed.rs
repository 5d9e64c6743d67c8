//! Sets in sets: a set that another one of this process holds may be *followed*. Whoever waits on
//! the outer one looks at the inner one's rings, too, and parks them before it sleeps.
//!
//! What must stay true: while a registration of a followed set is armed and the set's own hot list
//! is not empty, the registration is in the outer set's hot list, or the set is parked and the
//! kernel shown what it tells; and the kernel has the followed set's own registrations as the
//! program asked, always. Locks: the outer set's before the inner one's.
//!
//! Storey 3: connection.

use core::sync::atomic::Ordering;

use super::registration::{self, Registration};
use super::{EDGE, EXCLUSIVE, FOLLOWED, Set, of};

impl Set {
    pub fn is_followed(&self) -> bool {
        self.foreign.load(Ordering::Relaxed) & FOLLOWED != 0
    }

    /// The set behind a registration of one, if waits here look at its rings.
    pub fn followed(one: &Registration) -> Option<&'static Self> {
        of(one.at()).filter(|inner| inner.is_followed() && !inner.is_foreign())
    }

    /// Of a followed set with something in its hot list: whether whoever may wait for it on a set
    /// that holds it looks at its rings. Under `REGISTRY`.
    pub fn is_seen_outside(&self) -> bool {
        if !self.is_followed() {
            return true;
        }
        registration::at(self.fd.load(Ordering::Relaxed)).all(|one| {
            let Some(outer) = one.set() else { return true };
            if outer.is_foreign() || one.is_kernels_alone() {
                return false;
            }
            if !one.waits_for_bytes() {
                return true;
            }
            if outer.sleepers.load(Ordering::SeqCst) != 0 {
                outer.wanted.store(1, Ordering::Relaxed);
                return false;
            }
            if one.hot.load(Ordering::Relaxed) != 0 {
                return true;
            }
            let Some(_guard) = outer.lock.try_acquire() else { return false };
            outer.may_offer() && outer.push_hot(one)
        })
    }

    /// `outer` has this set, by `one`, and asks for its bytes from now on. Whether waits there look
    /// at its rings, or it is parked until they do.
    pub fn follow(&'static self, outer: &'static Self, one: &'static Registration) -> bool {
        let is_possible = || {
            one.asked() & (EDGE | EXCLUSIVE) == 0
                && !self.is_foreign()
                && !self.is_shared()
                && !outer.is_foreign()
                && !outer.is_followed()
                && !outer.is_shared()
                && self.has_sets.load(Ordering::Relaxed) == 0
                && self.names.load(Ordering::Relaxed) == 1
        };
        let Some(_outer_guard) = outer.lock.acquire() else { return false };
        let Some(_guard) = self.lock.acquire() else { return false };
        if !one.is_of(outer) || !is_possible() {
            return false;
        }
        outer.has_sets.store(1, Ordering::Relaxed);
        if self.foreign.fetch_or(FOLLOWED, Ordering::SeqCst) & FOLLOWED == 0 {
            self.flush();
        }
        let is_seen = self.hot.is_empty() || outer.may_offer() && outer.push_hot(one);
        if !is_seen {
            // Somebody sleeps there already.
            outer.wanted.store(1, Ordering::Relaxed);
            self.park_hot();
        }
        self.show();
        true
    }
}
