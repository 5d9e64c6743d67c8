//! The reader-writer lock: one writer, as the mutex's owner, or many readers.
//!
//! A count of readers would not say which of them died. So each process that reads has an entry
//! with its number and how many of its threads read; a dead process's entry is struck out whole.
//! A reader enters itself /then/ looks for a writer; a writer takes the owner word /then/ waits
//! until no entry is left. So of the two at least one sees the other.
//!
//! Writers go first: who has taken the word lets no new readers in. A thread that reads already
//! may read again all the same, or it would wait for itself.
//!
//! A reader's death leaves nothing to mend. A writer's does: readers and writers are told
//! `owner_died` until a writer has made the data consistent; if one unlocks without, nobody gets
//! the lock any more.

use super::nap::{Nap, Rest};
use super::owner::{Acquired, Owner, Release};
use super::primitive::{AtomicU64, Ordering, full_fence};
use super::thread::Thing;
use super::waiter::low;
use super::{Error, Number, Party, Wait, Waiter};

/// So many processes read at a time; another one waits until one of them leaves.
#[cfg(not(loom))]
pub const MAX_READERS: usize = 28;
#[cfg(loom)]
pub const MAX_READERS: usize = 2;

/// The count in an entry; the number lies above.
const COUNT_BITS: u32 = 18;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// 256 bytes, aligned to 8; zeroed is free.
#[repr(C)]
pub struct RwLock {
    owner: Owner,
    /// Counts the readers that left while a writer waited for it.
    left: AtomicU64,
    reserved: u64,
    entries: [AtomicU64; MAX_READERS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<RwLock>() == 256);

#[cfg(any(test, loom))]
impl Default for RwLock {
    fn default() -> Self {
        let entries = std::array::from_fn(|_| AtomicU64::new(0));
        Self { owner: Owner::new(), left: AtomicU64::new(0), reserved: 0, entries }
    }
}

fn entry_of(number: Number, count: u64) -> u64 {
    u64::from(number.bits()) << COUNT_BITS | count
}

/// The process of an entry that is not 0.
fn reader_of(peer_entry: u64) -> Result<Number, Error> {
    let spoiled = Error::Spoiled { what: "a reader's entry", value: peer_entry };
    let number = u32::try_from(peer_entry >> COUNT_BITS).ok().and_then(Number::from_bits);
    number.filter(|_| peer_entry & COUNT != 0).ok_or(spoiled)
}

impl RwLock {
    /// Locks for reading; `fence` is that of the last writer. `owner_died`: a writer died, and the
    /// data is as it left it.
    ///
    /// Errors: Busy (only with [`Wait::No`]), TimedOut, Deadlock (the caller writes),
    /// NotRecoverable, Fenced, Spoiled.
    pub fn read(&self, by: &Party<'_>, wait: Wait) -> Result<Acquired, Error> {
        if self.owner.is_held_by(by) {
            return Err(Error::Deadlock);
        }
        let reads_already = by.thread.holds(Thing::Read(self), by.number());
        let mut nap = Nap::for_holder();
        loop {
            let seen = self.owner.look()?;
            if seen.is_lost {
                return Err(Error::NotRecoverable);
            }
            if seen.holder.is_some() && !reads_already {
                self.owner.wait_for(by, seen, &mut nap, wait)?;
                continue;
            }
            if !self.enter(by.number())? {
                self.wait_for_readers(by, &mut nap, wait, true)?;
                continue;
            }
            full_fence();
            let seen = match self.owner.look() {
                Ok(seen) if seen.holder.is_none() || reads_already => seen,
                other => {
                    self.leave(by.number(), by.waiter());
                    other?;
                    continue;
                }
            };
            if seen.is_lost || !by.is_current() {
                self.leave(by.number(), by.waiter());
                return Err(if seen.is_lost { Error::NotRecoverable } else { Error::Fenced });
            }
            by.thread.hold(Thing::Read(self), by.number());
            return Ok(Acquired { fence: self.owner.last(seen), owner_died: seen.is_stale });
        }
    }

    /// Locks for writing. Errors as [`RwLock::read`]; Deadlock: the calling thread has it, for
    /// whatever.
    pub fn write(&self, by: &Party<'_>, wait: Wait) -> Result<Acquired, Error> {
        if self.owner.is_held_by(by) || by.thread.holds(Thing::Read(self), by.number()) {
            return Err(Error::Deadlock);
        }
        if wait == Wait::No && self.has_readers(by)? {
            return Err(Error::Busy);
        }
        let acquired = self.owner.acquire(by, wait)?;
        full_fence();
        let mut nap = Nap::for_holder();
        if let Err(error) = self.wait_for_readers(by, &mut nap, wait, false) {
            self.owner.release(by, Release::Untouched)?;
            return Err(error);
        }
        // The wait may have been long.
        if !by.is_current() {
            self.owner.release(by, Release::Untouched)?;
            return Err(Error::Fenced);
        }
        self.owner.check_held(by)?;
        Ok(acquired)
    }

    /// Of whatever the calling thread has. Errors: NotOwner; Fenced.
    pub fn unlock(&self, by: &Party<'_>) -> Result<(), Error> {
        if by.thread.let_go(Thing::Read(self), by.number()) {
            let was_there = self.leave(by.number(), by.waiter());
            return if was_there { Ok(()) } else { Err(Error::Fenced) };
        }
        self.owner.release(by, Release::DoneForAll)
    }

    /// The writer has made the data whole again. Errors: Invalid, NotOwner, Fenced.
    pub fn consistent(&self, by: &Party<'_>) -> Result<(), Error> {
        self.owner.consistent(by)
    }

    /// One more reader of `number`. False: no entry is free.
    fn enter(&self, number: Number) -> Result<bool, Error> {
        let home = number.slot() % MAX_READERS;
        let is_own = |entry: u64| entry >> COUNT_BITS == u64::from(number.bits());
        if self.enter_at(home, number, |entry| entry == 0 || is_own(entry))? {
            return Ok(true);
        }
        let mut elsewhere = (home + 1..MAX_READERS).chain(0..home);
        for index in elsewhere.clone() {
            if self.enter_at(index, number, is_own)? {
                return Ok(true);
            }
        }
        elsewhere.try_fold(false, |is_in, index| {
            Ok(is_in || self.enter_at(index, number, |entry| entry == 0)?)
        })
    }

    fn enter_at(
        &self,
        index: usize,
        number: Number,
        may: impl Fn(u64) -> bool,
    ) -> Result<bool, Error> {
        let entry = &self.entries[index];
        let mut seen = entry.load(Ordering::Relaxed);
        while may(seen) {
            if seen & COUNT == COUNT {
                return Err(Error::TooMany("reading threads of a process"));
            }
            let more = entry_of(number, (seen & COUNT) + 1);
            // SeqCst: as a full fence, before the look for a writer.
            let order = (Ordering::SeqCst, Ordering::Relaxed);
            match entry.compare_exchange(seen, more, order.0, order.1) {
                Ok(_) => return Ok(true),
                Err(now) => seen = now,
            }
        }
        Ok(false)
    }

    /// One reader of `number` less. Whether there was one.
    pub(crate) fn leave(&self, number: Number, waiter: &dyn Waiter) -> bool {
        let first = number.slot() % MAX_READERS;
        for index in (first..MAX_READERS).chain(0..first) {
            let entry = &self.entries[index];
            let mut seen = entry.load(Ordering::Relaxed);
            while seen >> COUNT_BITS == u64::from(number.bits()) && seen & COUNT != 0 {
                let less = if seen & COUNT == 1 { 0 } else { seen - 1 };
                // Release: what was read comes before. SeqCst: before the look for a writer.
                let order = (Ordering::SeqCst, Ordering::Relaxed);
                match entry.compare_exchange(seen, less, order.0, order.1) {
                    Ok(_) => {
                        full_fence();
                        self.tell_writer(waiter);
                        return true;
                    }
                    Err(now) => seen = now,
                }
            }
        }
        false
    }

    fn tell_writer(&self, waiter: &dyn Waiter) {
        if !self.owner.is_free() {
            self.left.fetch_add(1, Ordering::Release);
            waiter.wake(&self.left, u32::MAX);
        }
    }

    fn has_readers(&self, by: &Party<'_>) -> Result<bool, Error> {
        let mut any = false;
        for entry in &self.entries {
            // Acquire: of the Release of the reader that left.
            let seen = entry.load(Ordering::Acquire);
            if seen != 0 && !self.strike_if_dead(by, entry, seen)? {
                any = true;
            }
        }
        Ok(any)
    }

    fn strike_if_dead(&self, by: &Party<'_>, entry: &AtomicU64, seen: u64) -> Result<bool, Error> {
        if !by.is_dead(reader_of(seen)?)? {
            return Ok(false);
        }
        // A dead process enters nothing: this cannot take away anybody's.
        Ok(entry.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    /// Sleeps until no entry is in use, or `for_one`, until one may be free.
    fn wait_for_readers(
        &self,
        by: &Party<'_>,
        nap: &mut Nap,
        wait: Wait,
        for_one: bool,
    ) -> Result<(), Error> {
        loop {
            // Read the count /then/ look at the entries: who leaves behind the look changes it.
            let left = self.left.load(Ordering::Acquire);
            let in_use = self.entries.iter().filter(|e| e.load(Ordering::Acquire) != 0).count();
            if in_use == 0 || for_one && in_use < MAX_READERS {
                return Ok(());
            }
            let rest = nap.rest(by.waiter(), &self.left, low(left), wait);
            if let Rest::Woken = rest {
                continue;
            }
            if self.has_readers(by)?
                && let Rest::Late = rest
            {
                return Err(if wait == Wait::No { Error::Busy } else { Error::TimedOut });
            }
        }
    }
}
