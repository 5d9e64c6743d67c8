//! The table in which the library looks an address up: written by the broker, mapped read-only
//! by every process under it (spec/wire.md section 11.1).
//!
//! ```text
//! words of 64 bits:  0 magic "YASMINGD"   1 state: 1 live, else look for a new file
//!                    2 changes: odd while one is under way   3 how many entries
//!                    4.. entries: address (2 words, as in the network), CID
//!                    1792.. the negative cache (`negative`)
//! ```

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// IPv6, or IPv4 mapped into it.
pub type Address = [u8; 16];

/// File name of the table, beside the broker's socket.
pub const FILE_NAME: &str = "guests";

pub const TABLE_WORDS: usize = 2048;
pub const TABLE_BYTES: usize = TABLE_WORDS * 8;
/// At the end: `negative`.
pub const NEGATIVE_WORDS: usize = 256;
/// More are left out.
pub const ENTRIES_MAX: usize = (TABLE_WORDS - NEGATIVE_WORDS - HEADER_WORDS) / ENTRY_WORDS;

const HEADER_WORDS: usize = 4;
const ENTRY_WORDS: usize = 3;
const MAGIC: u64 = u64::from_le_bytes(*b"YASMINGD");
const LIVE: u64 = 1;
/// Looks at a table that changes under them before the reader takes it for empty.
const TRIES: usize = 8;

pub const fn mapped(v4: [u8; 4]) -> Address {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, v4[0], v4[1], v4[2], v4[3]]
}

pub(crate) fn halves(address: &Address) -> [u64; 2] {
    let mut halves = [[0; 8]; 2];
    halves[0].copy_from_slice(&address[..8]);
    halves[1].copy_from_slice(&address[8..]);
    halves.map(u64::from_ne_bytes)
}

/// Whether the broker that wrote it is still the one to believe.
pub fn is_live(table: &[AtomicU64; TABLE_WORDS]) -> bool {
    table[0].load(Ordering::Relaxed) == MAGIC && table[1].load(Ordering::Acquire) == LIVE
}

/// The CID of the guest that has `address`.
pub fn find(table: &[AtomicU64; TABLE_WORDS], address: &Address) -> Option<u32> {
    let wanted = halves(address);
    for _ in 0..TRIES {
        let before = table[2].load(Ordering::Acquire);
        if !before.is_multiple_of(2) {
            core::hint::spin_loop();
            continue;
        }
        let count = (table[3].load(Ordering::Relaxed) as usize).min(ENTRIES_MAX);
        let entries = table[HEADER_WORDS..].chunks_exact(ENTRY_WORDS).take(count);
        let found = entries
            .filter(|entry| entry[0].load(Ordering::Relaxed) == wanted[0])
            .find(|entry| entry[1].load(Ordering::Relaxed) == wanted[1])
            .map(|entry| entry[2].load(Ordering::Relaxed) as u32);
        // The entries, /then/ the count of changes once more.
        fence(Ordering::Acquire);
        if table[2].load(Ordering::Relaxed) == before {
            return found;
        }
    }
    None
}

/// Fills the table; gives how many entries found no room.
pub fn publish<'a>(
    table: &[AtomicU64; TABLE_WORDS],
    entries: impl Iterator<Item = (&'a Address, u32)>,
) -> usize {
    let changes = table[2].load(Ordering::Relaxed) & !1;
    table[2].store(changes + 1, Ordering::Relaxed);
    // The odd count, /then/ the entries.
    fence(Ordering::Release);
    let mut count = 0;
    let entries_words = HEADER_WORDS..HEADER_WORDS + ENTRIES_MAX * ENTRY_WORDS;
    let mut places = table[entries_words].chunks_exact(ENTRY_WORDS);
    let mut left_out = 0;
    for (address, cid) in entries {
        let Some(place) = places.next() else {
            left_out += 1;
            continue;
        };
        let [high, low] = halves(address);
        place[0].store(high, Ordering::Relaxed);
        place[1].store(low, Ordering::Relaxed);
        place[2].store(u64::from(cid), Ordering::Relaxed);
        count += 1;
    }
    table[3].store(count, Ordering::Relaxed);
    table[2].store(changes + 2, Ordering::Release);
    table[0].store(MAGIC, Ordering::Relaxed);
    table[1].store(LIVE, Ordering::Release);
    left_out
}

/// Nobody believes the table from now on.
pub fn retire(table: &[AtomicU64; TABLE_WORDS]) {
    table[1].store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found() {
        let table = [const { AtomicU64::new(0) }; TABLE_WORDS];
        let (a, b) = (mapped([10, 0, 2, 20]), mapped([10, 0, 2, 21]));
        assert!(!is_live(&table));
        assert_eq!(find(&table, &a), None);
        assert_eq!(publish(&table, [(&a, 1001), (&b, 1002)].into_iter()), 0);
        assert!(is_live(&table));
        assert_eq!((find(&table, &a), find(&table, &b)), (Some(1001), Some(1002)));
        assert_eq!(publish(&table, [(&b, 1003)].into_iter()), 0);
        assert_eq!((find(&table, &a), find(&table, &b)), (None, Some(1003)));
        retire(&table);
        assert!(!is_live(&table));
    }

    #[test]
    fn what_finds_no_room_is_left_out() {
        let table = [const { AtomicU64::new(0) }; TABLE_WORDS];
        let all: Vec<Address> =
            (0..ENTRIES_MAX + 3).map(|i| mapped([10, 1, (i >> 8) as u8, i as u8])).collect();
        assert_eq!(publish(&table, all.iter().map(|address| (address, 9))), 3);
        assert_eq!(find(&table, &all[ENTRIES_MAX - 1]), Some(9));
        assert_eq!(find(&table, &all[ENTRIES_MAX]), None);
    }
}
