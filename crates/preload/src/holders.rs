//! Which processes hold a socket, and which of them reads and watches it.
//!
//! A candidate that lives through a fork, or is duplicated, has a slot: how many numbers in how many
//! processes name the socket, in pages that forks share. An end with a channel says it in its side page,
//! which they share too. A number counts until it is closed; one that this library lost sight of, as a
//! program without it has it or its process was killed, counts until the kernel is asked.
//!
//! Storey 2: table.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use yasmin_channel::side::{MANY_WATCHERS, Rx};

use crate::{process, sys};

/// Reference counts of candidates and sets that lived through a fork, in pages that forks share. A
/// candidate gets a channel only under all numbers that name it (`twins`): who has another one would
/// read and write past the ring. Of a set that others hold the kernel is told all.
static SLOTS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
const SLOT_COUNT: usize = 1 << 16;
/// In the slot of a set that several processes use; it is never given back.
const RAISED: u32 = u32::MAX;

pub fn start() {
    if let Some(slots) = sys::map_fork_shared(SLOT_COUNT * 4) {
        SLOTS.store(slots.cast(), Ordering::Release);
    }
}

fn slot_refs(slot: usize) -> &'static AtomicU32 {
    // SAFETY: taken slots are inside the table, which is never unmapped.
    unsafe { &*SLOTS.load(Ordering::Relaxed).add(slot % SLOT_COUNT) }
}

/// One number more names the candidate, or one process more holds the set.
pub fn hold_slot(slot: usize) {
    let more = |refs| (refs != RAISED).then(|| refs + 1);
    let _ = slot_refs(slot).fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
}

/// A slot for a candidate that two numbers are about to name, or a set that two processes are to hold.
pub fn take_slot() -> Option<usize> {
    take_slot_of(2)
}

/// For a candidate that so many numbers name.
pub fn take_slot_of(count: usize) -> Option<usize> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    if SLOTS.load(Ordering::Relaxed).is_null() {
        return None;
    }
    for _ in 0..1024 {
        let slot = NEXT.fetch_add(1, Ordering::Relaxed) as usize % SLOT_COUNT;
        if slot != 0
            && slot_refs(slot)
                .compare_exchange(0, count as u32, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        {
            return Some(slot);
        }
    }
    None
}

/// Says to all who share the set of `slot` that another process than its maker uses it.
pub fn raise_slot(slot: usize) {
    slot_refs(slot).store(RAISED, Ordering::SeqCst);
}

pub fn is_raised(slot: usize) -> bool {
    slot != 0 && slot_refs(slot).load(Ordering::SeqCst) == RAISED
}

/// Whether no other number names the candidate, or no other process holds the set.
pub fn is_sole_holder(slot: usize) -> bool {
    slot == 0 || slot_refs(slot).load(Ordering::SeqCst) <= 1
}

/// How many numbers name the candidate of this slot, in all processes.
pub fn counted(slot: usize) -> usize {
    slot_refs(slot).load(Ordering::SeqCst) as usize
}

/// Nobody but this process holds the set of `slot`: who else was counted is gone.
pub fn is_left_alone(slot: usize) {
    if slot != 0 {
        let one = |refs: u32| (refs != RAISED).then_some(1);
        let _ = slot_refs(slot).fetch_update(Ordering::SeqCst, Ordering::SeqCst, one);
    }
}

/// Nobody holds the candidate any more but who has a channel for it now: what else was counted went
/// with its process.
pub fn free_slot(slot: usize) {
    if slot != 0 {
        slot_refs(slot).store(0, Ordering::SeqCst);
    }
}

/// A number of the candidate is closed, or this process lets go of a set.
pub fn drop_slot(slot: usize) {
    if slot != 0 {
        let less = |refs: u32| if refs == RAISED { None } else { refs.checked_sub(1) };
        let _ = slot_refs(slot).fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

/// Whether this process may offer to receive: the one that reads does, and it may change once
/// (accepted here, served there). Two that take turns stay on TCP.
pub fn owns_rx(rx: &Rx) -> bool {
    let (me, owner) = (process::id(), rx.owner_pid.load(Ordering::Relaxed));
    if owner == me {
        return true;
    }
    if owner != 0 && rx.owner_moves.fetch_add(1, Ordering::Relaxed) > 0 {
        return false;
    }
    rx.owner_pid.store(me, Ordering::Relaxed);
    true
}

/// Whether this process is the one that reads, as far as has been seen: others that hold the end, as a worker that was
/// forked for something else, have not.
pub fn reads_alone(rx: &Rx) -> bool {
    let is_owner = rx.owner_pid.load(Ordering::Relaxed) == process::id();
    is_owner && rx.owner_moves.load(Ordering::Relaxed) <= 1
}

/// This process puts the end into an epoll set. Whether another one may have offered it.
pub fn watches_rx(rx: &Rx) -> bool {
    let me = process::id();
    let watcher = &rx.watcher_pid;
    let other = watcher.compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed);
    if other.is_err_and(|other| other != me) {
        watcher.store(MANY_WATCHERS, Ordering::SeqCst);
    }
    rx.owner_pid.load(Ordering::Relaxed) != me
}

/// This process closes an end that is in no set of its own.
pub fn watches_no_more(rx: &Rx) {
    let _ = rx.watcher_pid.compare_exchange(process::id(), 0, Ordering::SeqCst, Ordering::Relaxed);
}

/// Whether a set of another process would not learn of an offer of this one's.
pub fn is_watched_elsewhere(rx: &Rx) -> bool {
    let watcher = rx.watcher_pid.load(Ordering::SeqCst);
    watcher != 0 && watcher != process::id()
}
