//! The barrier: so many parties wait for each other, round after round.
//!
//! Who arrives last opens the next round, by one swap. Who dies in that very moment leaves a word
//! that says "all are here", and any other one opens. A process that arrives is entered in a
//! list; who has waited for a nap looks whether all in it live. A dead one will not come
//! back: the barrier is broken for all, until somebody repairs it with a new number of parties.
//! A party that never came once is not known, and neither are processes beyond the list's end.

use super::nap::{Nap, Rest};
use super::primitive::{AtomicU32, AtomicU64, Ordering};
use super::waiter::{low, watch};
use super::{Error, Number, Party, Wait};

#[cfg(not(loom))]
const LISTED: usize = 48;
#[cfg(loom)]
const LISTED: usize = 3;

/// The round is the lower half; above it who has arrived, and a bit for sleepers.
const ONE: u64 = 1 << 32;
const SLEEPERS: u64 = 1 << 63;
const MAX_PARTIES: u32 = (1 << 31) - 1;
/// A barrier is passed within microseconds or not at all soon.
const PATIENCE: u32 = 8;

/// How a party got past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The one in each round that came last: PTHREAD_BARRIER_SERIAL_THREAD.
    Last,
    Other,
}

/// 256 bytes, aligned to 8, best to 64; zeroed it has no parties and has to be repaired first.
#[repr(C)]
pub struct Barrier {
    word: AtomicU64,
    parties: AtomicU32,
    broken: AtomicU32,
    reserved: [u64; 6],
    /// Numbers of the processes that came. Apart from the word, which moves all the time.
    listed: [AtomicU32; LISTED],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Barrier>() == 256);

#[cfg(any(test, loom))]
impl Default for Barrier {
    fn default() -> Self {
        let zero = || AtomicU32::new(0);
        let listed = std::array::from_fn(|_| zero());
        let word = AtomicU64::new(0);
        Self { word, parties: zero(), broken: zero(), reserved: [0; 6], listed }
    }
}

fn arrived(word: u64) -> u64 {
    (word & !SLEEPERS) >> 32
}

/// The word of the next round, nobody there yet.
fn next_round(word: u64) -> u64 {
    u64::from((word as u32).wrapping_add(1))
}

impl Barrier {
    /// Makes it a barrier for so many, or a broken one whole again, while nobody waits at it.
    /// Errors: Invalid.
    pub fn repair(&self, parties: u32) -> Result<(), Error> {
        if parties == 0 || parties > MAX_PARTIES {
            return Err(Error::Invalid("a barrier has 1 to 2^31 - 1 parties"));
        }
        for listed in &self.listed {
            listed.store(0, Ordering::Relaxed);
        }
        self.word.store(next_round(self.word.load(Ordering::Relaxed)), Ordering::Relaxed);
        self.parties.store(parties, Ordering::Relaxed);
        self.broken.store(0, Ordering::Release);
        Ok(())
    }

    /// Waits until all are there. Errors: PartyDied (then and afterwards), TimedOut (then this
    /// party has not arrived), Busy (only with [`Wait::No`]), Invalid (no parties), Spoiled.
    pub fn wait(&self, by: &Party<'_>, wait: Wait) -> Result<Passed, Error> {
        let parties = u64::from(self.parties.load(Ordering::Acquire));
        if parties == 0 {
            return Err(Error::Invalid("a barrier without parties; repair it first"));
        }
        self.check_whole()?;
        self.list(by.number());
        // AcqRel: what all did before comes before what any does behind it.
        let mine = self.word.fetch_add(ONE, Ordering::AcqRel) + ONE;
        let spoiled = Error::Spoiled { what: "a barrier's count", value: mine };
        match arrived(mine) {
            0 => Err(spoiled),
            count if count > parties => Err(spoiled),
            count if count == parties && self.open(by, mine) => Ok(Passed::Last),
            _ => self.wait_for_others(by, parties, mine as u32, wait),
        }
    }

    /// Whether it was this call that opened the round that `full` shows.
    fn open(&self, by: &Party<'_>, mut full: u64) -> bool {
        let round = low(full);
        while low(full) == round {
            let next = next_round(full);
            match self.word.compare_exchange(full, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    if full & SLEEPERS != 0 {
                        by.waiter().wake(&self.word, u32::MAX);
                    }
                    return true;
                }
                Err(now) => full = now,
            }
        }
        false
    }

    fn wait_for_others(
        &self,
        by: &Party<'_>,
        parties: u64,
        round: u32,
        wait: Wait,
    ) -> Result<Passed, Error> {
        let mut nap = Nap::for_holder();
        let mut seen = self.word.load(Ordering::Acquire);
        while low(seen) == round {
            let now = watch(by.waiter(), &self.word, seen, PATIENCE);
            if now != seen {
                seen = now;
                continue;
            }
            let marked = seen | SLEEPERS;
            if seen != marked && !self.swap(seen, marked) {
                seen = self.word.load(Ordering::Acquire);
                continue;
            }
            let rest = nap.rest(by.waiter(), &self.word, low(marked), wait);
            seen = self.word.load(Ordering::Acquire);
            if matches!(rest, Rest::Woken) || low(seen) != round {
                continue;
            }
            if arrived(seen) == parties {
                // Its last one died before it opened.
                return Ok(if self.open(by, seen) { Passed::Last } else { Passed::Other });
            }
            let is_broken = self.check_whole().is_err();
            if is_broken || self.finds_a_dead_one(by)? {
                // Read the list /then/ look again: who opened this round, or came last to it, may have
                // ended well since.
                seen = self.word.load(Ordering::Acquire);
                if !is_broken && (low(seen) != round || arrived(seen) == parties) {
                    continue;
                }
                self.broken.store(1, Ordering::Release);
                by.waiter().wake(&self.word, u32::MAX);
                return Err(Error::PartyDied);
            }
            if matches!(rest, Rest::Late) && self.swap(seen, seen - ONE) {
                return Err(if wait == Wait::No { Error::Busy } else { Error::TimedOut });
            }
        }
        Ok(Passed::Other)
    }

    fn swap(&self, from: u64, to: u64) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn check_whole(&self) -> Result<(), Error> {
        match self.broken.load(Ordering::Acquire) {
            0 => Ok(()),
            1 => Err(Error::PartyDied),
            other => Err(Error::Spoiled { what: "a barrier's state", value: other.into() }),
        }
    }

    fn list(&self, number: Number) {
        let first = number.slot() % LISTED;
        for index in (first..LISTED).chain(0..first) {
            let listed = &self.listed[index];
            let seen = listed.load(Ordering::Relaxed);
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            let is_there = seen == number.bits()
                || seen == 0 && listed.compare_exchange(0, number.bits(), order.0, order.1).is_ok();
            if is_there {
                return;
            }
        }
    }

    fn finds_a_dead_one(&self, by: &Party<'_>) -> Result<bool, Error> {
        for listed in &self.listed {
            let bits = listed.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            let spoiled = Error::Spoiled { what: "a barrier's list", value: bits.into() };
            if by.is_dead(Number::from_bits(bits).ok_or(spoiled)?)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
