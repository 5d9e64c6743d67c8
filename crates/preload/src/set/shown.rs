//! What lies in the rings of a set that others look at as at a descriptor: a set that holds it,
//! or poll. The kernel alone answers them, so it has to know: an eventfd that can always be read
//! is in the set as long as a wait on the set would tell of ring bytes.
//!
//! What must stay true: whatever changes what a wait on such a set would tell of by rings is
//! followed by `Set::show`. That is a wait, a registration that comes, changes or goes, and a
//! read: of the last ring bytes, or of the last that TCP had before them.
//!
//! Storey 3: connection.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::{ADD, DEL, FOLLOWED, FOR_GOOD, IN, NESTED, POLLED, Set, UNUSED};
use crate::conn::Conn;
use crate::sys::{self, EpollEvent, call};
use crate::{process, table};

/// The eventfd's event. No wait tells of it.
pub const DATA: u64 = 0x59a6_7368_6f77_6e21;

/// The eventfd's number plus 1; 0: there is none yet.
static ALWAYS: AtomicI32 = AtomicI32::new(0);
/// How many sets have it.
static SHOWING: AtomicU32 = AtomicU32::new(0);
/// 1: some set is looked at as a descriptor, or was once.
static IS_ANY_LOOKED_AT: AtomicU32 = AtomicU32::new(0);

fn always_readable() -> Option<c_int> {
    const EFD_NONBLOCK_CLOEXEC: c_int = 0o4000 | 0o2000000;
    let known = ALWAYS.load(Ordering::Acquire);
    if known != 0 {
        return Some(known - 1);
    }
    // SAFETY: no memory involved.
    let low = unsafe { call!(eventfd2, 1, EFD_NONBLOCK_CLOEXEC) } as c_int;
    if low < 0 {
        return None;
    }
    // Out of the way of the numbers that the program expects.
    // SAFETY: as above.
    let high = unsafe { call!(fcntl, low, sys::F_DUPFD_CLOEXEC, table::own_below() / 2) } as c_int;
    let number = if high < 0 { low } else { high };
    if high >= 0 {
        sys::close(low);
    }
    let taken = ALWAYS.compare_exchange(0, number + 1, Ordering::AcqRel, Ordering::Acquire);
    if let Err(other) = taken {
        sys::close(number);
        return Some(other - 1);
    }
    table::set_broker(number);
    Some(number)
}

/// Bytes of the connection behind `fd` were read.
pub fn was_read(conn: &Conn, fd: c_int) {
    // What TCP had before them is gone, maybe, and a wait tells of ring bytes by now.
    let may_begin = || {
        IS_ANY_LOOKED_AT.load(Ordering::Relaxed) != 0
            && conn.pin(fd).is_some_and(|_pin| conn.has_ring_next(&conn.receiver()))
    };
    if SHOWING.load(Ordering::Relaxed) == 0 && !may_begin() {
        return;
    }
    let mut changed = [None; 8];
    let mut count = 0;
    if let Some(_registry) = super::REGISTRY.acquire() {
        let sets = super::registration::at(fd).filter_map(super::Registration::set);
        for set in sets.filter(|set| set.shows() || set.is_awaited_outside()) {
            if let Some(place) = changed.get_mut(count) {
                *place = Some(set);
            }
            count += 1;
        }
    }
    let show = |set: &'static Set| {
        if let Some(_guard) = set.lock.acquire() {
            set.show();
        }
    };
    if count <= changed.len() {
        changed.into_iter().flatten().for_each(show);
    } else {
        super::all().for_each(show);
    }
}

impl Set {
    /// Whether the kernel was told that there is something in its rings.
    pub fn shows(&self) -> bool {
        self.showing.load(Ordering::Relaxed) != 0
    }

    /// Whether others look at it as at a descriptor, and the kernel answers them.
    fn is_looked_at(&self) -> bool {
        let why = self.foreign.load(Ordering::SeqCst);
        why & (NESTED | POLLED | FOLLOWED) != 0 && why & (FOR_GOOD | UNUSED) == 0
    }

    /// The same, and not by waits alone that look at its rings, as those on a set that follows it
    /// do. Under `REGISTRY`.
    fn is_awaited_outside(&self) -> bool {
        let is_shown_only = |one: &super::Registration| {
            one.waits_for_bytes()
                && (one.is_kernels_alone()
                    || one.hot.load(Ordering::Relaxed) == 0
                    || one.set().is_some_and(|outer| outer.sleepers.load(Ordering::SeqCst) != 0))
        };
        let is_followed = !self.is_foreign() && self.is_followed();
        self.is_looked_at()
            && (!is_followed
                || super::registration::at(self.fd.load(Ordering::Relaxed)).any(is_shown_only))
    }

    /// Tells the kernel whether a wait on this set would tell of ring bytes, where others look at
    /// it as at a descriptor. Programs that have no library must not find the eventfd in it. Under
    /// the lock.
    pub fn show(&self) {
        if process::is_sandboxed() {
            return;
        }
        let is_looked_at = self.is_looked_at();
        if is_looked_at {
            IS_ANY_LOOKED_AT.store(1, Ordering::Relaxed);
        }
        let shows = is_looked_at && self.lent.load(Ordering::Relaxed) == 0 && self.tells();
        if shows == self.shows() {
            return;
        }
        let Some(always) = always_readable() else { return };
        if shows {
            self.tokens.store(1, Ordering::SeqCst);
            SHOWING.fetch_add(1, Ordering::Relaxed);
        } else {
            SHOWING.fetch_sub(1, Ordering::Relaxed);
        }
        self.showing.store(u32::from(shows), Ordering::Relaxed);
        let mut event = EpollEvent { events: IN, data: DATA };
        let (set, op) = (self.fd.load(Ordering::Relaxed), if shows { ADD } else { DEL });
        // SAFETY: event is ours.
        unsafe { call!(epoll_ctl, set, op, always, &raw mut event) };
    }
}
