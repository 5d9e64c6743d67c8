//! What the kernel is told of a set, and what it told.
//!
//! Storey 3: connection.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use super::registration::{
    self, ARMED, DATA_TOLD, DIRTY, IN_KERNEL, Idea, PRESENT, Registration, TOKENED, WAKES,
};
use super::{ADD, DEL, EDGE, MOD, ONESHOT, Set, shown};
use crate::clock;
use crate::sys::{EpollEvent, call};

/// In an edge-triggered registration whose ring bytes no wait has told of yet, for the next program: EPOLLMSG, which
/// no socket tells.
pub const UNTOLD: u32 = 0x400;

/// Counts the kernel's answers to waits that were not empty.
static KERNEL_TOLD: AtomicU32 = AtomicU32::new(0);

pub fn kernel_told() -> u32 {
    KERNEL_TOLD.load(Ordering::Relaxed)
}

/// The kernel told a wait of `count` ready descriptors.
pub fn note_kernel_told(count: c_int) {
    if count > 0 {
        KERNEL_TOLD.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts the ends of connections, their peers' or their own, that waits told the program of.
static ENDS_TOLD: AtomicU32 = AtomicU32::new(0);

pub fn ends_told() -> u32 {
    ENDS_TOLD.load(Ordering::Relaxed)
}

pub fn note_end_told() {
    ENDS_TOLD.fetch_add(1, Ordering::Relaxed);
}

impl Set {
    pub fn kernel_ctl(&self, op: c_int, one: &Registration) {
        self.kernel_ctl_for(op, one, one.asked(), one.kernel_data());
    }

    pub(super) fn kernel_ctl_for(&self, op: c_int, one: &Registration, events: u32, data: u64) {
        let mut event = EpollEvent { events, data };
        // A one-shot that the kernel does not know by a token it disarms without a word to anybody.
        let is_seen = events & ONESHOT == 0 || one.has(TOKENED);
        one.kernel_events.store(if is_seen { events } else { 0 }, Ordering::Relaxed);
        one.kernel_told_at.store(clock::ticks(), Ordering::Relaxed);
        one.remove(WAKES | DATA_TOLD);
        if !one.has(TOKENED) {
            one.add(DATA_TOLD);
        }
        let set = self.fd.load(Ordering::Relaxed);
        // SAFETY: event is ours.
        unsafe { call!(epoll_ctl, set, op, one.number(), &raw mut event) };
    }

    /// Gives the kernel what the program asks for.
    pub fn arm_kernel(&self, one: &Registration) {
        self.kernel_ctl(if one.has(IN_KERNEL) { MOD } else { ADD }, one);
        one.add(IN_KERNEL | ARMED);
    }

    /// Takes it out of the kernel's set.
    fn take_from_kernel(&self, one: &Registration) {
        if one.has(IN_KERNEL) {
            self.kernel_ctl(DEL, one);
            one.remove(IN_KERNEL | ARMED);
        }
    }

    /// The kernel has it as one that it told of. It may still tell of an end or an error, once: to programs
    /// without this library, if they `know` its data; where the library is, `told` sees what that is.
    fn disarm_kernel(&self, one: &Registration, they_know: bool) {
        let op = if one.has(IN_KERNEL) { MOD } else { ADD };
        let data = if they_know { one.data.load(Ordering::Relaxed) } else { shown::DATA };
        self.kernel_ctl_for(op, one, ONESHOT | one.asked() & EDGE, data);
        one.add(IN_KERNEL);
        one.remove(ARMED);
    }

    /// Others use the set from now on, in this process's place (`they_know` the program's data then) or
    /// beside it: what is in it the kernel alone says, and what it is told by. Under the lock.
    pub fn leaves_to_kernel(&self, they_know: bool) {
        self.flush();
        self.take_tokens_back();
        // What is spent comes with data that only `told` takes for nothing.
        self.tokens.store(1, Ordering::Relaxed);
        // One whose number was closed nobody can change any more; the number may be another file's.
        let is_missing = |one: &Registration| {
            one.has(PRESENT) && !one.has(IN_KERNEL) && one.number() == one.at()
        };
        registration::all(|one| one.is_of(self) && is_missing(one))
            .for_each(|one| self.disarm_kernel(one, they_know));
    }

    /// What the program changed, or was told, and the kernel does not know yet.
    pub fn tell_kernel(&self, one: &Registration) {
        one.remove(DIRTY);
        if one.kernels_idea() == Idea::Same {
            return;
        }
        if one.is_armed() {
            let has_it = one.has(IN_KERNEL) && one.has(ARMED) && one.has(TOKENED);
            // A one-shot told of by its ring, and armed again.
            if !has_it || one.kernel_events.load(Ordering::Relaxed) != one.asked() {
                self.arm_kernel(one);
            }
        } else if !one.has(PRESENT) || one.has(ARMED) {
            // One that the kernel has told of stays.
            let is_passed = self.passed.load(Ordering::Relaxed) != 0;
            if one.has(PRESENT) && (is_passed || self.is_shared()) {
                self.disarm_kernel(one, is_passed);
            } else {
                self.take_from_kernel(one);
            }
        }
    }

    /// Whether one-shot registrations may be known to the kernel by tokens: nobody else waits.
    pub fn may_use_tokens(&self) -> bool {
        !self.is_foreign() && !self.is_shared() && self.tokenless.load(Ordering::Relaxed) == 0
    }

    /// The kernel gets the program's own data back, and tells of it alone from now on. Under the lock.
    pub fn take_tokens_back(&self) {
        if self.tokens.load(Ordering::Relaxed) == 0 {
            return;
        }
        for one in registration::all(|one| one.is_of(self) && one.has(TOKENED)) {
            one.remove(TOKENED);
            if one.has(IN_KERNEL) && one.is_armed() {
                self.arm_kernel(one);
            }
            if let Some(conn) = one.conn()
                && let Ok(_rx) = conn.lock_rx(one.at())
            {
                conn.park_rx(&conn.receiver());
            }
        }
    }

    /// Tells the kernel what changed. Under the lock, before the kernel is asked.
    pub fn flush(&self) {
        self.flush_but(|_| false);
    }

    /// All but what `may_wait`, in the order in which the program asked for it: what is ready at
    /// once, as room is, the kernel tells of in that order.
    pub fn flush_but(&self, may_wait: impl Fn(&Registration) -> bool) {
        self.dirty.sort(|one| one.asked_at.load(Ordering::Relaxed));
        let (mut index, mut kept) = (0, 0u32);
        while let Some(one) = self.dirty.get(index) {
            index += 1;
            if !one.is_of(self) || !one.has(DIRTY) {
                continue;
            }
            if may_wait(one) {
                // One that the kernel was told outside of a flush may be there twice, side by side.
                let before = kept.checked_sub(1).and_then(|last| self.dirty.get(last));
                if !before.is_some_and(|it| core::ptr::eq(it, one)) {
                    self.dirty.put(kept, one);
                    kept += 1;
                }
                continue;
            }
            self.tell_kernel(one);
            if !one.has(PRESENT) {
                self.drop_hot(one);
                one.free();
            }
        }
        self.dirty.truncate(kept);
    }
}
