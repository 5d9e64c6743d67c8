//! The answer of one epoll_wait, in the program's buffer: one event a registration, in the order of the
//! kernel's list of what is ready.
//!
//! A registration keeps its place there from when it was told of, if nobody waited since; else it
//! comes behind these, by when it became ready (`set/places.rs`). A key of the order is a time in
//! ticks; behind those that have one, [`UNKNOWN`] and what the kernel said of their order; behind
//! these, with [`BEHIND`](crate::set::BEHIND), the rings whose senders did something by TCP before.
//!
//! Storey 6: waits.

use core::ops::Range;
use core::sync::atomic::Ordering;

use crate::set::Set;
use crate::set::registration::Place;
use crate::sys::EpollEvent;

/// In a key: nothing says when it became ready.
const UNKNOWN: u64 = 1 << 62;

const NOTHING: EpollEvent = EpollEvent { events: 0, data: 0 };

/// Puts events of one registration that both the rings and the kernel told into one: the first
/// `found` are of the one, the `more` behind them of the other. Returns how many of the `more`
/// remain.
pub fn merge(events: *mut EpollEvent, found: usize, more: usize) -> usize {
    let mut kept = 0;
    for i in found..found + more {
        // SAFETY: inside the program's buffer, filled so far.
        unsafe {
            let event = events.add(i).read_unaligned();
            let twin = (0..found).find(|&at| {
                let data = events.add(at).read_unaligned().data;
                data == event.data
            });
            if let Some(at) = twin {
                let mut both = events.add(at).read_unaligned();
                both.events |= event.events;
                events.add(at).write_unaligned(both);
            } else {
                events.add(found + kept).write_unaligned(event);
                kept += 1;
            }
        }
    }
    kept
}

/// Gives the events of the ready list, which come first, and those in `told`, which the kernel told behind
/// them, their places. False without memory for that. Under the lock.
pub fn place(set: &Set, events: *const EpollEvent, told: Range<usize>) -> bool {
    let placed = &set.placed;
    if !placed.reserve(told.end as u32) {
        return false;
    }
    placed.clear();
    for index in 0..told.end as u32 {
        placed.push((set.ready.get(index).map_or(0, |ready| ready.key), NOTHING));
    }
    // When the one behind came into the kernel's list, at the latest.
    let mut next = UNKNOWN;
    for index in told.clone().rev() {
        // SAFETY: inside the program's buffer, filled so far.
        let event = unsafe { events.add(index).read_unaligned() };
        let place = set.by_data(event.data).and_then(|one| one.place(event.events));
        let key = match place {
            Some(Place { key, in_kernel_at }) => {
                next = next.min(in_kernel_at);
                key
            }
            None if next < UNKNOWN => next - (told.end - index) as u64,
            None => UNKNOWN + index as u64,
        };
        placed.put(index as u32, (key, NOTHING));
    }
    true
}

/// The same for events of the ready list that stand in `range`. Under the lock.
pub fn place_late(set: &Set, events: *const EpollEvent, range: Range<usize>) {
    let data_of = |at: usize| {
        // SAFETY: inside the program's buffer, filled so far.
        unsafe { events.add(at).read_unaligned() }.data
    };
    let mut index = 0;
    for at in range {
        // They are in its order.
        let ready = loop {
            let Some(ready) = set.ready.get(index) else { break None };
            index += 1;
            if ready.one.data.load(Ordering::Relaxed) == data_of(at) {
                break Some(ready);
            }
        };
        set.placed.push((ready.map_or(UNKNOWN, |ready| ready.key), NOTHING));
    }
}

/// Puts the events that have a place, which are the first, into its order. Returns whether that is
/// another one than they had. Under the lock.
pub fn arrange(set: &Set, events: *mut EpollEvent) -> bool {
    let placed = &set.placed;
    let key = |index| placed.get(index).map(|(key, _)| key);
    if (1..placed.len()).all(|index| key(index - 1) <= key(index)) {
        return false;
    }
    for index in 0..placed.len() {
        // SAFETY: inside the program's buffer, filled so far.
        let event = unsafe { events.add(index as usize).read_unaligned() };
        placed.put(index, (placed.get(index).map_or(0, |(key, _)| key), event));
    }
    placed.sort(|&(key, _)| key);
    for index in 0..placed.len() {
        if let Some((_, event)) = placed.get(index) {
            // SAFETY: as above.
            unsafe { events.add(index as usize).write_unaligned(event) };
        }
    }
    true
}
