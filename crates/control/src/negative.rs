//! The negative cache at the end of the mapped table (spec/wire.md section 11.1): whom the broker
//! lets alone for a while. Connections there stay on TCP, and the library need not ask.
//!
//! ```text
//! a word each, at a place that address and port give:
//! bits 63..32 more of the same hash, 31..0 until when, in 2^24 ns of CLOCK_MONOTONIC
//! ```
//!
//! Two that share a place overwrite each other: then the library asks, as it would without.

use crate::directory::{NEGATIVE_WORDS, TABLE_WORDS};
use crate::guest::Endpoint;
use core::sync::atomic::{AtomicU64, Ordering};

/// 16.8 ms; 32 bits of them are two years.
const UNIT_SHIFT: u32 = 24;

fn place_and_tag(to: &Endpoint) -> (usize, u64) {
    let [high, low] = crate::directory::halves(&to.address);
    let mixed = high ^ low.rotate_left(29) ^ u64::from(to.port) << 47;
    let hash = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let place = (hash >> 40) as usize % NEGATIVE_WORDS;
    (TABLE_WORDS - NEGATIVE_WORDS + place, hash & 0xffff_ffff)
}

/// Connections to `to` stay on TCP until `until_ns` of CLOCK_MONOTONIC.
pub fn publish(table: &[AtomicU64; TABLE_WORDS], to: &Endpoint, until_ns: u64) {
    let (place, tag) = place_and_tag(to);
    let until = until_ns >> UNIT_SHIFT & 0xffff_ffff;
    table[place].store(tag << 32 | until, Ordering::Relaxed);
}

/// Whether connections to `to` stay on TCP at `now_ns`.
pub fn holds(table: &[AtomicU64; TABLE_WORDS], to: &Endpoint, now_ns: u64) -> bool {
    let (place, tag) = place_and_tag(to);
    let word = table[place].load(Ordering::Relaxed);
    word != 0 && word >> 32 == tag && now_ns >> UNIT_SHIFT < word & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::mapped;

    #[test]
    fn a_negative_entry_holds_for_its_endpoint_and_its_time() {
        let table = [const { AtomicU64::new(0) }; TABLE_WORDS];
        let to = Endpoint { address: mapped([10, 0, 2, 21]), port: 80 };
        let other = Endpoint { port: 81, ..to };
        let second = 1_000_000_000;
        assert!(!holds(&table, &to, 0));
        publish(&table, &to, 5 * second);
        assert!(holds(&table, &to, 4 * second));
        assert!(!holds(&table, &to, 5 * second));
        assert!(!holds(&table, &other, 4 * second));
    }

    #[test]
    fn places_are_spread_and_inside_the_table() {
        let table = [const { AtomicU64::new(0) }; TABLE_WORDS];
        for port in 0..200 {
            publish(&table, &Endpoint { address: mapped([10, 0, 2, 21]), port }, 1 << 40);
        }
        let used = |words: &[AtomicU64]| {
            words.iter().filter(|word| word.load(Ordering::Relaxed) != 0).count()
        };
        assert_eq!(used(&table[..TABLE_WORDS - NEGATIVE_WORDS]), 0);
        // 256 places, 200 at random: some 139 are expected.
        assert!(used(&table) > 110);
    }
}
