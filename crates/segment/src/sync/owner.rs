//! The word that says who owns something, and the number of each acquisition.
//!
//! ```text
//!  63          48 47                    18 17       4 3    0
//! ┌──────────────┬────────────────────────┬──────────┬──────┐
//! │ count        │ member: generation,slot│ thread   │flags │   member and thread 0: free
//! └──────────────┴────────────────────────┴──────────┴──────┘
//! ```
//!
//! Every change is a compare-and-swap of the whole word. So who takes over from a dead holder
//! takes over from that acquisition and no other, and who was declared dead while it was
//! paused cannot let go of what is another one's: its compare-and-swap fails.
//!
//! The count grows with each acquisition, by the swap that acquires. The number of an acquisition
//! is that count with its upper bits, which `fence` remembers, at most [`LAG`] and the deaths of
//! a moment behind. It is read before the word is looked at again: while the holder is the same,
//! nobody else has moved it by more than half the count's range.
//!
//! The lower half, on which waiters sleep, has the flags, the thread, the slot and two bits of
//! the generation; a holder without waiters has no flag there, so nobody falls asleep over it.

use super::holder::HOLDER_BITS;
use super::nap::{Nap, Rest};
use super::primitive::{AtomicU64, Ordering};
use super::thread::Thing;
use super::waiter::{Backoff, low};
use super::{Error, Holder, Party, Wait, Waiter};

const FLAG_BITS: u32 = 4;
/// Somebody may sleep on the word.
const WAITERS: u64 = 1;
/// An owner died, and nobody has made the data consistent since.
const STALE: u64 = 2;
/// For good: a stale one was let go without being made consistent.
const LOST: u64 = 4;
const FLAGS: u64 = (1 << FLAG_BITS) - 1;
const HOLDER: u64 = ((1 << HOLDER_BITS) - 1) << FLAG_BITS;
const COUNT_SHIFT: u32 = FLAG_BITS + HOLDER_BITS;
/// The number in `fence` is brought up to date when the count is so far ahead of it.
const LAG: u64 = 256;

/// The caller has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Acquired {
    /// Greater than that of all earlier acquisitions of the same lock; storage may refuse what
    /// comes with a smaller one than it has seen.
    pub fence: u64,
    /// An earlier owner died: the data may be in the middle of a change. EOWNERDEAD.
    pub owner_died: bool,
}

/// How an owner lets go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// What is stale becomes lost. Wakes one.
    Done,
    /// The same, where all who wait may go on together.
    DoneForAll,
    /// As it was found: nothing was changed.
    Untouched,
    /// As if the owner had died.
    Died,
}

/// 16 bytes, aligned to 8; zeroed is free.
#[repr(C)]
pub(crate) struct Owner {
    word: AtomicU64,
    fence: AtomicU64,
}

pub(crate) fn holder_of(word: u64) -> Result<Option<Holder>, Error> {
    let spoiled = Err(Error::Spoiled { what: "a lock word", value: word });
    let flags = word & FLAGS;
    if flags & !(WAITERS | STALE | LOST) != 0 || flags & STALE != 0 && flags & LOST != 0 {
        return spoiled;
    }
    match (word & HOLDER) >> FLAG_BITS {
        0 => Ok(None),
        _ if flags & LOST != 0 => spoiled,
        bits => Holder::from_bits(bits).map(Some),
    }
}

/// `word` as the next acquisition makes it, by `holder`, with `flags`.
fn taken(word: u64, holder: Holder, flags: u64) -> u64 {
    let count = (word >> COUNT_SHIFT).wrapping_add(1) << COUNT_SHIFT;
    count | holder.bits() << FLAG_BITS | flags
}

/// The number that has `count` as its lowest bits and is nearest to `near`.
fn full(near: u64, count: u64) -> u64 {
    let ahead = (count as u16).wrapping_sub(near as u16) as i16;
    near.wrapping_add_signed(ahead.into())
}

impl Owner {
    #[cfg(any(test, loom))]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0), fence: AtomicU64::new(0) }
    }

    #[inline]
    pub fn acquire(&self, by: &Party<'_>, wait: Wait) -> Result<Acquired, Error> {
        let seen = self.word.load(Ordering::Relaxed);
        if seen & (HOLDER | FLAGS) == 0 && self.swap(seen, taken(seen, by.holder(), 0)) {
            return self.settle(by, taken(seen, by.holder(), 0));
        }
        self.acquire_slowly(by, wait)
    }

    fn swap(&self, from: u64, to: u64) -> bool {
        // Acquire: of the Release of whoever let go. Release: nothing of ours.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn acquire_slowly(&self, by: &Party<'_>, wait: Wait) -> Result<Acquired, Error> {
        let mut nap = Nap::for_holder();
        // Once asleep, one cannot know whether one is the last.
        let mut waiters = 0;
        let mut backoff = Backoff::new(by.waiter());
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let Some(holder) = holder_of(seen)? else {
                if seen & LOST != 0 {
                    return Err(Error::NotRecoverable);
                }
                let new = taken(seen, by.holder(), seen & (WAITERS | STALE) | waiters);
                if self.swap(seen, new) {
                    return self.settle(by, new);
                }
                seen = self.word.load(Ordering::Relaxed);
                continue;
            };
            let rest = match wait {
                Wait::No => Rest::Late,
                _ if backoff.pause() => Rest::Woken,
                _ if seen & WAITERS == 0 && !self.swap(seen, seen | WAITERS) => Rest::Woken,
                _ => {
                    waiters = WAITERS;
                    nap.rest(by.waiter(), &self.word, low(seen | WAITERS), wait)
                }
            };
            if let Rest::Elapsed | Rest::Late = rest {
                // The swap that takes over is of this acquisition, or nothing.
                seen = self.word.load(Ordering::Relaxed);
                if holder_of(seen)? == Some(holder) && by.is_dead(holder.number)? {
                    let new = taken(seen, by.holder(), seen & WAITERS | waiters | STALE);
                    if self.swap(seen, new) {
                        return self.settle(by, new);
                    }
                } else if let Rest::Late = rest
                    && holder_of(seen)?.is_some()
                {
                    return Err(if wait == Wait::No { Error::Busy } else { Error::TimedOut });
                }
            }
            seen = self.word.load(Ordering::Relaxed);
        }
    }

    /// Behind the swap to `mine`: its number, if the caller is still taken for alive.
    #[inline]
    fn settle(&self, by: &Party<'_>, mine: u64) -> Result<Acquired, Error> {
        // Read the number /then/ look whether the word is still ours (Acquire).
        let near = self.fence.load(Ordering::Acquire);
        let is_ours = self.word.load(Ordering::Acquire) | WAITERS == mine | WAITERS;
        if !is_ours || !by.is_current() {
            self.give(by.holder(), by.waiter(), Release::Untouched);
            return Err(Error::Fenced);
        }
        let fence = full(near, mine >> COUNT_SHIFT);
        if fence.wrapping_sub(near) >= LAG {
            self.fence.fetch_max(fence, Ordering::Release);
        }
        by.thread.hold(Thing::Owner(self), by.number());
        Ok(Acquired { fence, owner_died: mine & STALE != 0 })
    }

    /// For a holder that takes it once more: the number that it has.
    pub fn again(&self, by: &Party<'_>) -> Result<Acquired, Error> {
        let near = self.fence.load(Ordering::Acquire);
        let word = self.word.load(Ordering::Acquire);
        self.check_held(by)?;
        if !by.is_current() {
            return Err(Error::Fenced);
        }
        Ok(Acquired { fence: full(near, word >> COUNT_SHIFT), owner_died: false })
    }

    /// Whether the caller's thread has it, by the word.
    pub fn is_held_by(&self, by: &Party<'_>) -> bool {
        self.word.load(Ordering::Relaxed) & HOLDER == by.holder().bits() << FLAG_BITS
    }

    /// NotOwner, or Fenced where the caller had it and was robbed of it.
    pub fn check_held(&self, by: &Party<'_>) -> Result<(), Error> {
        if self.is_held_by(by) {
            return Ok(());
        }
        // What the list says and the word does not was taken away.
        let believed = by.thread.let_go(Thing::Owner(self), by.number());
        Err(if believed { Error::Fenced } else { Error::NotOwner })
    }

    #[inline]
    pub fn release(&self, by: &Party<'_>, how: Release) -> Result<(), Error> {
        let believed = by.thread.let_go(Thing::Owner(self), by.number());
        if self.give(by.holder(), by.waiter(), how) {
            return Ok(());
        }
        Err(if believed { Error::Fenced } else { Error::NotOwner })
    }

    /// For a thread that ends.
    pub fn abandon(&self, holder: Holder, waiter: &dyn Waiter) {
        self.give(holder, waiter, Release::Died);
    }

    /// Whether `holder` still had it.
    #[inline]
    fn give(&self, holder: Holder, waiter: &dyn Waiter, how: Release) -> bool {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            if seen & HOLDER != holder.bits() << FLAG_BITS {
                return false;
            }
            let (flags, wake) = match how {
                Release::Died => (STALE, u32::MAX),
                Release::Untouched => (seen & STALE, u32::MAX),
                _ if seen & STALE != 0 => (LOST, u32::MAX),
                Release::Done => (0, 1),
                Release::DoneForAll => (0, u32::MAX),
            };
            let new = seen & !(HOLDER | FLAGS) | flags;
            // Release: what was done under it comes before.
            match self.word.compare_exchange(seen, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    if seen & WAITERS != 0 {
                        waiter.wake(&self.word, wake);
                    }
                    return true;
                }
                Err(now) => seen = now,
            }
        }
    }

    pub fn consistent(&self, by: &Party<'_>) -> Result<(), Error> {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            if seen & STALE == 0 {
                return Err(Error::Invalid("no owner died"));
            }
            self.check_held(by)?;
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            match self.word.compare_exchange(seen, seen & !STALE, order.0, order.1) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Relaxed) & HOLDER == 0
    }

    /// The number of the acquisition that `seen` shows, or the last one.
    pub fn last(&self, seen: Standing) -> u64 {
        full(self.fence.load(Ordering::Acquire), seen.word >> COUNT_SHIFT)
    }

    /// For those who wait for the owner without wanting to be it: how the word stands.
    pub fn look(&self) -> Result<Standing, Error> {
        let word = self.word.load(Ordering::Acquire);
        let holder = holder_of(word)?;
        Ok(Standing { word, holder, is_stale: word & STALE != 0, is_lost: word & LOST != 0 })
    }

    /// Sleeps until the owner that `seen` shows lets go; what a dead one leaves is free and stale.
    pub fn wait_for(
        &self,
        by: &Party<'_>,
        seen: Standing,
        nap: &mut Nap,
        wait: Wait,
    ) -> Result<(), Error> {
        let Some(holder) = seen.holder else { return Ok(()) };
        let marked = seen.word | WAITERS;
        let rest = match wait {
            Wait::No => Rest::Late,
            _ if seen.word != marked && !self.swap(seen.word, marked) => Rest::Woken,
            _ => nap.rest(by.waiter(), &self.word, low(marked), wait),
        };
        if let Rest::Woken = rest {
            return Ok(());
        }
        if by.is_dead(holder.number)? {
            self.abandon(holder, by.waiter());
        } else if let Rest::Late = rest
            && self.look()?.holder.is_some()
        {
            return Err(if wait == Wait::No { Error::Busy } else { Error::TimedOut });
        }
        Ok(())
    }
}

/// How an owner word stands.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    word: u64,
    pub holder: Option<Holder>,
    pub is_stale: bool,
    pub is_lost: bool,
}
