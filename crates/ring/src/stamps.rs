//! When bytes were published: what puts the bytes of several rings into the order of their sending
//! (spec/wire.md section 5.8).
//!
//! All of it is a hint. The peer can write here what it likes, and whatever is read is a number that
//! is compared, never one that anything is found by.

use core::sync::atomic::{AtomicU64, Ordering};

use yasmin_wire::layout::DIRECTION_STAMPS_COUNT;

use crate::block::Block;

/// What a sender says of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The processor's counter before the bytes are published; kept to `TICKS_BITS` bits, without the
    /// lowest `STEP_BITS`.
    pub time: u64,
    /// The counter when the sender's process last did anything by TCP (section 5.7).
    pub elsewhere: u64,
}

/// Of the place in the ring's stream at which a publication begins, so many bits are kept: more than
/// the largest ring holds.
const START_BITS: u32 = 21;
const TIME_BITS: u32 = 64 - START_BITS;
/// The counter is kept in steps of 2 to this.
const STEP_BITS: u32 = 5;
/// Times are told apart over so many bits of the counter: a day at 3 GHz.
const TICKS_BITS: u32 = TIME_BITS + STEP_BITS;

const fn pack(start: u64, time: u64) -> u64 {
    time >> STEP_BITS << START_BITS | start & ((1 << START_BITS) - 1)
}

const fn is_start(packed: u64, start: u64) -> bool {
    (packed ^ start) & ((1 << START_BITS) - 1) == 0
}

/// The time, as one that is nearest to `now`.
const fn time_near(packed: u64, now: u64) -> u64 {
    let ticks = packed >> START_BITS << STEP_BITS;
    let unused = u64::BITS - TICKS_BITS;
    // Sign-extended.
    let ahead = (ticks.wrapping_sub(now) << unused).cast_signed() >> unused;
    now.wrapping_add_signed(ahead)
}

/// One publication's. All zero: none.
///
/// The packed word is stored before the other one, and read before and after it: so both are of one
/// publication, or it is seen that they are not.
#[repr(C)]
pub struct Entry {
    elsewhere: AtomicU64,
    packed: AtomicU64,
}

impl Entry {
    pub const ELSEWHERE: usize = core::mem::offset_of!(Self, elsewhere);
    pub const PACKED: usize = core::mem::offset_of!(Self, packed);

    pub const fn new() -> Self {
        Self { elsewhere: AtomicU64::new(0), packed: AtomicU64::new(0) }
    }

    pub fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    fn store(&self, packed: u64, elsewhere: u64) {
        self.packed.store(packed, Ordering::Release);
        self.elsewhere.store(elsewhere, Ordering::Release);
    }

    fn load(&self, start: u64, now: u64) -> Option<Stamp> {
        let packed = self.packed.load(Ordering::Acquire);
        if packed == 0 || !is_start(packed, start) {
            return None;
        }
        let elsewhere = self.elsewhere.load(Ordering::Acquire);
        let is_whole = self.packed.load(Ordering::Relaxed) == packed;
        is_whole.then(|| Stamp { time: time_near(packed, now), elsewhere })
    }
}

/// Of the last few publications, the last one too.
#[repr(C)]
pub struct Stamps {
    entries: [Entry; DIRECTION_STAMPS_COUNT],
    /// Which of them is written next. In shared memory: read back, it is cut to what there is.
    next: AtomicU64,
    _rest: AtomicU64,
}

impl Stamps {
    pub const NEXT: usize = core::mem::offset_of!(Self, next);

    pub const fn new() -> Self {
        Self {
            entries: [const { Entry::new() }; DIRECTION_STAMPS_COUNT],
            next: AtomicU64::new(0),
            _rest: AtomicU64::new(0),
        }
    }
}

impl Block {
    /// Under the send lock, before the word that publishes what begins at `start`.
    pub(crate) fn note_stamp(&self, start: u64, stamp: Stamp) {
        let packed = pack(start, stamp.time);
        let stamps = &self.stamps;
        let next = stamps.next.load(Ordering::Relaxed) as usize;
        let next = if next < DIRECTION_STAMPS_COUNT { next } else { 0 };
        stamps.entries[next].store(packed, stamp.elsewhere);
        stamps.next.store(next as u64 + 1, Ordering::Relaxed);
        self.stamp.store(packed, stamp.elsewhere);
    }

    pub(crate) fn stamp_at(&self, start: u64, now: u64) -> Option<Stamp> {
        let earlier = || self.stamps.entries.iter().find_map(|one| one.load(start, now));
        self.stamp.load(start, now).or_else(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publication_is_found_by_where_it_begins() {
        let block = Block::new();
        assert_eq!(block.stamp_at(0, 1 << 40), None);
        for at in 1..=20u64 {
            block.note_stamp(at * 100, Stamp { time: 3200 * at, elsewhere: at });
        }
        for at in 1..=20u64 {
            let found = block.stamp_at(at * 100, 64_000);
            let known = at > 20 - DIRECTION_STAMPS_COUNT as u64;
            assert_eq!(found, known.then_some(Stamp { time: 3200 * at, elsewhere: at }), "{at}");
        }
        assert_eq!(block.stamp_at(2050, 64_000), None);
    }

    #[test]
    fn times_are_told_apart_around_now_also_where_the_counter_turns() {
        for now in [0, 1 << 20, (1 << TICKS_BITS) - 64, 1 << TICKS_BITS, u64::MAX - 63] {
            for ahead in [-1_i64 << 40, -3200, 0, 3200, 1 << 40] {
                let now = now & !31;
                let time = now.wrapping_add_signed(ahead);
                assert_eq!(time_near(pack(7, time), now), time, "{now:#x} {ahead}");
            }
        }
    }

    #[test]
    fn what_a_hostile_peer_wrote_is_read_without_harm() {
        let block = Block::new();
        block.stamps.next.store(u64::MAX, Ordering::Relaxed);
        block.note_stamp(5, Stamp { time: 640, elsewhere: 1 });
        assert_eq!(block.stamp_at(5, 640), Some(Stamp { time: 640, elsewhere: 1 }));
    }
}
