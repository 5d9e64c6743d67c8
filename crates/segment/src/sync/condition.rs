//! The condition: waiting with a mutex until somebody says that something has changed.
//!
//! As everywhere, a wait may end without a signal, and the caller looks again at what it waits
//! for. That is also what makes up for deaths: whoever naps and finds that there were signals
//! since returns, so that a signal whose receiver died is not lost.

use super::nap::{Nap, Rest};
use super::primitive::{AtomicU64, Ordering};
use super::waiter::low;
use super::{Acquired, Error, Mutex, Party, Wait, Waiter};

/// Somebody may sleep on the word.
const WAITERS: u64 = 1;
const ONE_SIGNAL: u64 = 2;

/// 16 bytes, aligned to 8; zeroed is ready.
#[repr(C)]
pub struct Condition {
    /// Signals that met a waiter, modulo 2^31, above a bit for waiters; the upper half is 0.
    word: AtomicU64,
    reserved: u64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Condition>() == 16);

#[cfg(any(test, loom))]
impl Default for Condition {
    fn default() -> Self {
        Self { word: AtomicU64::new(0), reserved: 0 }
    }
}

fn check(peer_word: u64) -> Result<u64, Error> {
    if peer_word >> 32 != 0 {
        return Err(Error::Spoiled { what: "a condition's word", value: peer_word });
    }
    Ok(peer_word)
}

impl Condition {
    /// Unlocks `mutex`, waits, and locks it again, whatever it returns; except for what the
    /// mutex itself says: an error other than TimedOut and Spoiled is that of the second lock,
    /// and the mutex is not held then.
    ///
    /// Errors: Invalid (a recursive mutex that is held more than once), NotOwner, and those of
    /// [`Mutex::lock`]. With [`Wait::No`] it is TimedOut.
    pub fn wait(&self, by: &Party<'_>, mutex: &Mutex, wait: Wait) -> Result<Acquired, Error> {
        mutex.check_held(by)?;
        if mutex.is_deep()? {
            return Err(Error::Invalid("a condition gives up a mutex that is held once"));
        }
        let before = self.mark()?;
        mutex.unlock(by)?;
        let mut nap = Nap::for_event();
        let outcome = loop {
            let rest = nap.rest(by.waiter(), &self.word, low(before), wait);
            match check(self.word.load(Ordering::Acquire)) {
                Err(error) => break Err(error),
                Ok(now) if now & !WAITERS != before & !WAITERS => break Ok(()),
                // Not a signal, but who says that it was none: the caller looks.
                Ok(_) if matches!(rest, Rest::Woken) => break Ok(()),
                Ok(_) if matches!(rest, Rest::Late) => break Err(Error::TimedOut),
                Ok(_) => {
                    if let Err(error) = self.mark() {
                        break Err(error);
                    }
                }
            }
        };
        let acquired = mutex.lock(by, Wait::Forever)?;
        outcome.map(|()| acquired)
    }

    /// Marks that somebody waits; the word then.
    fn mark(&self) -> Result<u64, Error> {
        let mut seen = check(self.word.load(Ordering::Relaxed))?;
        while seen & WAITERS == 0 {
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            match self.word.compare_exchange(seen, seen | WAITERS, order.0, order.1) {
                Ok(_) => seen |= WAITERS,
                Err(now) => seen = check(now)?,
            }
        }
        Ok(seen)
    }

    /// Wakes at least one of those who wait.
    pub fn signal(&self, waiter: &dyn Waiter) -> Result<(), Error> {
        self.tell(waiter, WAITERS, 1)
    }

    /// Wakes all who wait.
    pub fn broadcast(&self, waiter: &dyn Waiter) -> Result<(), Error> {
        self.tell(waiter, 0, u32::MAX)
    }

    fn tell(&self, waiter: &dyn Waiter, keep: u64, count: u32) -> Result<(), Error> {
        let mut seen = check(self.word.load(Ordering::Relaxed))?;
        while seen & WAITERS != 0 {
            let next = u64::from((seen + ONE_SIGNAL) as u32) & !WAITERS | keep;
            match self.word.compare_exchange(seen, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    waiter.wake(&self.word, count);
                    return Ok(());
                }
                Err(now) => seen = check(now)?,
            }
        }
        Ok(())
    }
}
