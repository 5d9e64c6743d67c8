//! Waiting among guests: looks that come further and further apart, and bells for long sleeps.
//!
//! No futex reaches another guest, and the memory of a device has none for several processes. So a
//! segment of guests has [`BELLS`] bells, and each word belongs to one of them, by where it lies in its
//! page. A sleeper sleeps at the bell of its word, on a futex in a page of its own guest. Whoever
//! changes the word rings that bell: in this guest at once, in others by the brokers.
//!
//! To ring in another guest takes messages, so it is asked for: a sleeper that has slept for some time
//! sets its guest's bit in the bell's mark, which all guests share, /then/ looks at the word again.
//! Who has changed a word takes the bits, and rings where they say. Both are read-modify-writes of one
//! word: either the bit is seen, or the sleeper sees the change.
//!
//! A bell may ring for another word, or for nobody: the sleeper looks, and sleeps on. It may also not
//! ring: its ringer died, its broker is away, a guest is paused, others rang too often. So a sleeper
//! looks all the same, every 1 to 10 ms. Marks and counts are members' to write, as the locks are.

use super::primitive::{AtomicU64, Ordering};
use super::waiter::{Waiter, low};
use yasmin_control::segment::BELLS;

/// A sleeper looks after so long, then after four times as long, and some times in each of its sleeps,
/// which get longer the longer it waits: a ring that is lost makes it late by a part of its wait.
const LOOK_FIRST_NS: u64 = 50_000;
const LOOKS: u64 = 8;
const LOOK_LAST_NS: std::ops::RangeInclusive<u64> = 1_000_000..=10_000_000;

/// Before a sleep that is longer than this it asks to be rung for: then it has slept for about as long.
const ASK_FROM_NS: u64 = 250_000;

/// What bells are made of in a guest.
pub trait Ringing {
    /// By bell: a bit for each guest where somebody asks to be rung for. As many in each guest.
    fn marks(&self) -> &[AtomicU64];

    /// How often the bell was rung here.
    fn rung(&self, bell: usize) -> u32;

    /// Sleeps here while the bell was rung `rung` times, for at most `limit_ns`; may return at any
    /// time.
    fn rest(&self, bell: usize, rung: u32, limit_ns: u64);

    /// Rings it here: one more, /then/ whoever sleeps at it is woken.
    fn ring(&self, bell: usize);

    /// Has it rung in other guests, a bit for each.
    fn ring_in(&self, guests: u64, bell: usize);

    fn now_ns(&self) -> u64;

    fn looks(&self) -> u32;

    /// How long a sleep is at first.
    fn first_ns(&self) -> u64 {
        LOOK_FIRST_NS
    }
}

/// The waiter of a member in a guest.
pub struct Bells<R> {
    /// This guest's bit.
    own: u64,
    guest: R,
}

impl<R: Ringing> Bells<R> {
    /// `domain`: this guest's number among those that share the segment, below 64.
    pub fn new(domain: u32, guest: R) -> Self {
        Self { own: 1 << domain, guest }
    }

    /// The same in every guest: by where the word lies in its page.
    fn bell_of(&self, word: &AtomicU64) -> usize {
        let in_page = std::ptr::from_ref(word).addr() % 4096;
        // What is waited for is 16 bytes or more.
        let at = in_page / 16;
        (at ^ (at / BELLS)) % self.guest.marks().len()
    }
}

impl<R: Ringing> Waiter for Bells<R> {
    fn sleep(&self, word: &AtomicU64, seen: u32, limit_ns: u64) -> bool {
        let bell = self.bell_of(word);
        let until_ns = self.guest.now_ns().saturating_add(limit_ns);
        let longest_ns = (limit_ns / LOOKS).clamp(*LOOK_LAST_NS.start(), *LOOK_LAST_NS.end());
        let mut sleep_ns = self.guest.first_ns();
        loop {
            // Before the look: a ring behind it ends the sleep.
            let rung = self.guest.rung(bell);
            let left_ns = until_ns.saturating_sub(self.guest.now_ns());
            if sleep_ns > ASK_FROM_NS && left_ns > 0 {
                self.guest.marks()[bell].fetch_or(self.own, Ordering::AcqRel);
            }
            if low(word.load(Ordering::Acquire)) != seen {
                return false;
            }
            if left_ns == 0 {
                return true;
            }
            self.guest.rest(bell, rung, sleep_ns.min(left_ns));
            sleep_ns = (sleep_ns * 4).min(longest_ns);
        }
    }

    /// Wakes all who sleep at the word's bell.
    fn wake(&self, word: &AtomicU64, _count: u32) {
        let bell = self.bell_of(word);
        let asked = self.guest.marks()[bell].swap(0, Ordering::AcqRel);
        self.guest.ring(bell);
        if asked & !self.own != 0 {
            self.guest.ring_in(asked & !self.own, bell);
        }
    }

    fn now_ns(&self) -> u64 {
        self.guest.now_ns()
    }

    fn looks(&self) -> u32 {
        self.guest.looks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::primitive::AtomicU32;
    use std::sync::{Arc, Mutex};

    /// Guests whose sleepers only ever end a sleep where the test's next step does.
    struct Lab {
        marks: Vec<AtomicU64>,
        rung: Vec<AtomicU32>,
        /// What rests were asked for, in nanoseconds; the clock stands at their sum.
        rests: Mutex<Vec<u64>>,
        asked: Mutex<Vec<(u64, usize)>>,
    }

    impl Lab {
        fn new() -> Arc<Self> {
            let marks = (0..BELLS).map(|_| AtomicU64::new(0)).collect();
            let rung = (0..BELLS).map(|_| AtomicU32::new(0)).collect();
            Arc::new(Self { marks, rung, rests: Mutex::default(), asked: Mutex::default() })
        }
    }

    impl Ringing for Arc<Lab> {
        fn marks(&self) -> &[AtomicU64] {
            &self.marks
        }
        fn rung(&self, bell: usize) -> u32 {
            self.rung[bell].load(Ordering::Acquire)
        }
        fn rest(&self, _bell: usize, _rung: u32, limit_ns: u64) {
            self.rests.lock().unwrap().push(limit_ns);
        }
        fn ring(&self, bell: usize) {
            self.rung[bell].fetch_add(1, Ordering::AcqRel);
        }
        fn ring_in(&self, guests: u64, bell: usize) {
            self.asked.lock().unwrap().push((guests, bell));
        }
        fn now_ns(&self) -> u64 {
            self.rests.lock().unwrap().iter().sum()
        }
        fn looks(&self) -> u32 {
            0
        }
    }

    #[test]
    fn a_long_sleep_asks_to_be_rung_for_and_looks_now_and_then() {
        let lab = Lab::new();
        let word = AtomicU64::new(7);
        let rests = |limit_ns| {
            assert!(Bells::new(2, lab.clone()).sleep(&word, 7, limit_ns));
            let rests = std::mem::take(&mut *lab.rests.lock().unwrap());
            rests.iter().map(|ns| ns / 1000).collect::<Vec<u64>>()
        };
        assert_eq!(rests(4_000_000), [50, 200, 800, 1000, 1000, 950]);
        let long = rests(100_000_000);
        assert_eq!(long[..5], [50, 200, 800, 3200, 10_000]);
        assert_eq!(long.len(), 14);
        let marked = |lab: &Lab| -> Vec<u64> {
            lab.marks.iter().map(|mark| mark.load(Ordering::Acquire)).filter(|&m| m != 0).collect()
        };
        assert_eq!(marked(&lab), [1 << 2]);
        // A short one does not: nobody sends a message for it.
        lab.marks.iter().for_each(|mark| mark.store(0, Ordering::Release));
        assert!(Bells::new(2, lab.clone()).sleep(&word, 7, 250_000));
        assert!(marked(&lab).is_empty());
    }

    #[test]
    fn whoever_asked_is_rung_for_once_and_in_its_guest() {
        let lab = Lab::new();
        let word = AtomicU64::new(7);
        for domain in [0, 2, 3] {
            assert!(Bells::new(domain, lab.clone()).sleep(&word, 7, 2_000_000));
        }
        let ringer = Bells::new(2, lab.clone());
        ringer.wake(&word, 1);
        ringer.wake(&word, 1);
        let bell = ringer.bell_of(&word);
        assert_eq!(*lab.asked.lock().unwrap(), [(1 | 1 << 3, bell)]);
        assert_eq!(lab.rung(bell), 2);
        let others = (0..BELLS).filter(|&other| other != bell);
        assert!(others.map(|other| lab.rung(other)).all(|rung| rung == 0));
    }

    #[test]
    fn a_change_ends_a_sleep() {
        let lab = Lab::new();
        assert!(!Bells::new(0, lab.clone()).sleep(&AtomicU64::new(8), 7, 2_000_000));
        assert!(lab.rests.lock().unwrap().is_empty());
    }

    #[test]
    fn words_of_a_page_are_spread_over_all_bells() {
        let bells = Bells::new(0, Lab::new());
        let words: Vec<AtomicU64> = (0..1024).map(AtomicU64::new).collect();
        let at = |word: &AtomicU64| std::ptr::from_ref(word).addr();
        let mut count = [0; BELLS];
        for word in &words {
            count[bells.bell_of(word)] += 1;
            let again = words.iter().filter(|other| at(other) % 4096 == at(word) % 4096);
            assert!(again.into_iter().all(|other| bells.bell_of(other) == bells.bell_of(word)));
        }
        assert!(count.iter().all(|&count| count == 1024 / BELLS), "{count:?}");
    }
}
