//! Which addresses segments have: one range for each, used again as late as possible, so that a
//! process that still maps a segment that is gone is not in the way of a new one.

use std::collections::BTreeMap;
use std::ops::Range;
use yasmin_control::segment::{
    ADDRESSES_END, ADDRESSES_START, HOST_ADDRESSES_END, HOST_ADDRESSES_START, HUGE_BYTES,
};

/// At least so much stays free behind each, so that whoever runs over its end faults.
const GUARD_BYTES: u64 = HUGE_BYTES;

/// Large segments are aligned to what the largest pages need.
const GIGANTIC_BYTES: u64 = 1 << 30;

#[derive(Debug)]
pub struct Addresses {
    /// Start and end; they do not touch each other.
    taken: BTreeMap<u64, u64>,
    /// Where they are.
    range: Range<u64>,
    /// Those in `range` that only `take_at` gives.
    kept: Range<u64>,
    /// Where the next one is looked for.
    next: u64,
}

impl Addresses {
    /// Of a host that gives segments to its guests.
    pub fn of_host() -> Self {
        let range = HOST_ADDRESSES_START..HOST_ADDRESSES_END;
        Self { taken: BTreeMap::new(), next: range.start, kept: range.end..range.end, range }
    }

    /// Of a broker on whose machine programs run; those of the host are the host's to give.
    ///
    /// The system's broker begins at the start. Others, of which there may be one for each user,
    /// begin in the upper half, in different places: a process may attach segments of several.
    pub fn new(is_system: bool, uid: u32) -> Self {
        let half = (ADDRESSES_END - ADDRESSES_START) / 2;
        let next = if is_system {
            ADDRESSES_START
        } else {
            ADDRESSES_START + half + (u64::from(uid) % 4096) * (half / 4096)
        };
        let range = ADDRESSES_START..ADDRESSES_END;
        Self { taken: BTreeMap::new(), next, range, kept: HOST_ADDRESSES_START..HOST_ADDRESSES_END }
    }

    /// `len_bytes` of addresses; `None`: there are not so many in one piece.
    pub fn take(&mut self, len_bytes: u64) -> Option<u64> {
        let start =
            self.find(self.next, len_bytes).or_else(|| self.find(self.range.start, len_bytes))?;
        self.taken.insert(start, start + len_bytes);
        self.next = start + len_bytes;
        Some(start)
    }

    /// The same, at this place; false: it is taken.
    pub fn take_at(&mut self, start: u64, len_bytes: u64) -> bool {
        let Range { start: first, end } = self.range;
        let is_free = start >= first
            && start.is_multiple_of(HUGE_BYTES)
            && len_bytes <= end - start.min(end)
            && self.in_the_way(start, len_bytes).is_none();
        if is_free {
            self.taken.insert(start, start + len_bytes);
            if !self.kept.contains(&start) {
                self.next = self.next.max(start + len_bytes);
            }
        }
        is_free
    }

    pub fn give_back(&mut self, start: u64) {
        self.taken.remove(&start);
    }

    fn find(&self, from: u64, len_bytes: u64) -> Option<u64> {
        let align = if len_bytes >= GIGANTIC_BYTES { GIGANTIC_BYTES } else { HUGE_BYTES };
        let mut at = from;
        loop {
            at = at.checked_next_multiple_of(align)?;
            let end = at.checked_add(len_bytes)?;
            if end > self.range.end {
                return None;
            }
            if at < self.kept.end && end > self.kept.start {
                at = self.kept.end;
                continue;
            }
            match self.in_the_way(at, len_bytes) {
                Some(end) => at = end + GUARD_BYTES,
                None => return Some(at),
            }
        }
    }

    /// The end of one that is nearer than the guard to these addresses.
    fn in_the_way(&self, at: u64, len_bytes: u64) -> Option<u64> {
        let below = self.taken.range(..at + len_bytes + GUARD_BYTES).next_back();
        below.map(|(_, &end)| end).filter(|end| end + GUARD_BYTES > at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_used_again_late() {
        let mut addresses = Addresses::new(true, 0);
        let first = addresses.take(8192).unwrap();
        assert_eq!(first, ADDRESSES_START);
        addresses.give_back(first);
        let second = addresses.take(8192).unwrap();
        assert_eq!(second, first + HUGE_BYTES);
        // All of it, and then the rest of it.
        let rest = ADDRESSES_END - second - HUGE_BYTES * 2;
        assert!(addresses.take(rest + GIGANTIC_BYTES).is_none());
        assert_eq!(addresses.take(4096), Some(second + 2 * HUGE_BYTES));
        // The first's place is nearer than the guard to the second.
        addresses.give_back(second);
        addresses.next = ADDRESSES_END;
        assert_eq!(addresses.take(4096), Some(first), "the end is followed by the start");
    }

    #[test]
    fn what_is_taken_is_not_taken_again() {
        let mut addresses = Addresses::new(false, 1000);
        let at = ADDRESSES_START + (1 << 40);
        assert!(addresses.take_at(at, 4096));
        for (start, len_bytes) in [
            (at, 4096),
            (at + HUGE_BYTES, 4096),
            (at - HUGE_BYTES, 4096),
            (at + 4096, 1),
            (ADDRESSES_END, 4096),
            (u64::MAX - HUGE_BYTES + 1, 4096),
            (0, 4096),
        ] {
            assert!(!addresses.take_at(start, len_bytes), "{start:x}");
        }
        assert!(addresses.take_at(at + 2 * HUGE_BYTES, 4096));
        assert!(addresses.take_at(at - 2 * HUGE_BYTES, 4096));
    }

    proptest! {
        #[test]
        fn never_two_at_one_address(
            steps in prop::collection::vec((1u64..1 << 36, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut addresses = Addresses::new(true, 0);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (len_bytes, which) in steps {
                if len_bytes % 3 == 0 && !live.is_empty() {
                    let (start, _) = live.swap_remove(which.index(live.len()));
                    addresses.give_back(start);
                } else if let Some(start) = addresses.take(len_bytes) {
                    prop_assert_eq!(start % HUGE_BYTES, 0);
                    prop_assert!(start >= ADDRESSES_START && start + len_bytes <= ADDRESSES_END);
                    for &(other, other_len) in &live {
                        prop_assert!(
                            start + len_bytes + GUARD_BYTES <= other
                                || other + other_len + GUARD_BYTES <= start
                        );
                    }
                    live.push((start, len_bytes));
                }
            }
        }
    }
}
