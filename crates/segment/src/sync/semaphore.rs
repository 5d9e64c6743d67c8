//! The counting semaphore.
//!
//! Nobody owns what a semaphore counts, so a death gives nothing back: a process that took a unit
//! and died has it for good. (With an owner it is a mutex.) What a death may not do is lose a
//! wake-up for others; naps see to that.

use super::nap::{Nap, Rest};
use super::primitive::{AtomicU64, Ordering};
use super::waiter::{low, watch};
use super::{Error, Party, Wait, Waiter};

/// Somebody may sleep on the word.
const WAITERS: u64 = 1 << 31;
const VALUE: u64 = WAITERS - 1;

/// 16 bytes, aligned to 8; zeroed has the value 0.
#[repr(C)]
pub struct Semaphore {
    /// The value in the lowest 31 bits, then a bit for waiters; the rest is 0.
    word: AtomicU64,
    reserved: u64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Semaphore>() == 16);

#[cfg(any(test, loom))]
impl Default for Semaphore {
    fn default() -> Self {
        Self { word: AtomicU64::new(0), reserved: 0 }
    }
}

impl Semaphore {
    /// The most units.
    pub const MAX: u32 = VALUE as u32;

    /// Before anybody uses it. Errors: Invalid, above [`Semaphore::MAX`].
    pub fn set_value(&self, value: u32) -> Result<(), Error> {
        if value > Self::MAX {
            return Err(Error::Invalid("a semaphore's value is at most 2^31 - 1"));
        }
        self.word.store(value.into(), Ordering::Release);
        Ok(())
    }

    pub fn value(&self) -> Result<u32, Error> {
        self.look().map(|seen| (seen & VALUE) as u32)
    }

    fn look(&self) -> Result<u64, Error> {
        check(self.word.load(Ordering::Relaxed))
    }

    /// One unit more. Errors: TooMany, Spoiled.
    pub fn post(&self, waiter: &dyn Waiter) -> Result<(), Error> {
        let mut seen = self.look()?;
        loop {
            if seen & VALUE == VALUE {
                return Err(Error::TooMany("units of a semaphore"));
            }
            // Release: of what the poster did. Who is woken sets the bit again for the others.
            let more = (seen & VALUE) + 1;
            match self.word.compare_exchange(seen, more, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if seen & WAITERS != 0 => {
                    waiter.wake(&self.word, 1);
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(now) => seen = check(now)?,
            }
        }
    }

    /// Takes a unit. Errors: Busy (only with [`Wait::No`]), TimedOut, Spoiled.
    pub fn wait(&self, by: &Party<'_>, wait: Wait) -> Result<(), Error> {
        let mut nap = Nap::for_event();
        let mut waiters = 0;
        let mut watched = wait == Wait::No;
        let mut is_late = wait == Wait::No;
        loop {
            let seen = self.look()?;
            if seen & VALUE > 0 {
                let less = (seen - 1) | waiters;
                // Acquire: of the post.
                let order = (Ordering::Acquire, Ordering::Relaxed);
                if self.word.compare_exchange(seen, less, order.0, order.1).is_ok() {
                    // Posts that came before this one woke nobody any more.
                    if waiters != 0 && less & VALUE > 0 {
                        by.waiter().wake(&self.word, 1);
                    }
                    return Ok(());
                }
                continue;
            }
            if is_late {
                return Err(if wait == Wait::No { Error::Busy } else { Error::TimedOut });
            }
            if !watched {
                watched = true;
                watch(by.waiter(), &self.word, seen, 1);
                continue;
            }
            let marked = seen | WAITERS;
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            if seen != marked && self.word.compare_exchange(seen, marked, order.0, order.1).is_err()
            {
                continue;
            }
            waiters = WAITERS;
            is_late = matches!(nap.rest(by.waiter(), &self.word, low(marked), wait), Rest::Late);
        }
    }
}

fn check(peer_word: u64) -> Result<u64, Error> {
    if peer_word >> 32 != 0 {
        return Err(Error::Spoiled { what: "a semaphore's word", value: peer_word });
    }
    Ok(peer_word)
}
