//! The mutex, with the semantics of pthread's robust mutexes.
//!
//! | kind | locked again by its holder | unlocked by another one |
//! |---|---|---|
//! | plain | waits for itself | NotOwner |
//! | error-checking | Deadlock | NotOwner |
//! | recursive | counts | NotOwner |
//!
//! A holder's death: the next one has it, with `owner_died`; it makes the data whole and says
//! `consistent`, or unlocks without, and then nobody gets it any more (NotRecoverable).

use super::owner::{Acquired, Owner, Release};
use super::primitive::{AtomicU32, Ordering};
use super::{Error, Party, Wait};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    Plain = 0,
    ErrorChecking = 1,
    Recursive = 2,
}

/// 32 bytes, aligned to 8; zeroed is a plain one, free.
#[repr(C)]
pub struct Mutex {
    pub(crate) owner: Owner,
    kind: AtomicU32,
    /// Of a recursive one: how often its holder has it beyond the first time. The holder's alone.
    depth: AtomicU32,
    reserved: u64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Mutex>() == 32);

#[cfg(any(test, loom))]
impl Default for Mutex {
    fn default() -> Self {
        let word = || AtomicU32::new(0);
        Self { owner: Owner::new(), kind: word(), depth: word(), reserved: 0 }
    }
}

impl Mutex {
    /// Before anybody uses it, in zeroed memory.
    pub fn set_kind(&self, kind: Kind) {
        self.kind.store(kind as u32, Ordering::Release);
    }

    pub fn kind(&self) -> Result<Kind, Error> {
        match self.kind.load(Ordering::Relaxed) {
            0 => Ok(Kind::Plain),
            1 => Ok(Kind::ErrorChecking),
            2 => Ok(Kind::Recursive),
            other => Err(Error::Spoiled { what: "a mutex's kind", value: other.into() }),
        }
    }

    /// Locks it. Errors: Busy (only with [`Wait::No`]), TimedOut, Deadlock, NotRecoverable, Fenced,
    /// Spoiled, TooMany (a recursive one, 2^32 times).
    pub fn lock(&self, by: &Party<'_>, wait: Wait) -> Result<Acquired, Error> {
        let kind = self.kind()?;
        if kind != Kind::Plain && self.owner.is_held_by(by) {
            return self.lock_again(by, kind, wait);
        }
        let acquired = self.owner.acquire(by, wait)?;
        if kind == Kind::Recursive {
            self.depth.store(0, Ordering::Relaxed);
        }
        Ok(acquired)
    }

    fn lock_again(&self, by: &Party<'_>, kind: Kind, wait: Wait) -> Result<Acquired, Error> {
        if kind == Kind::ErrorChecking {
            return Err(if wait == Wait::No { Error::Busy } else { Error::Deadlock });
        }
        let depth = self.depth.load(Ordering::Relaxed);
        let more = depth.checked_add(1).ok_or(Error::TooMany("locks of a recursive mutex"))?;
        let acquired = self.owner.again(by)?;
        self.depth.store(more, Ordering::Relaxed);
        Ok(acquired)
    }

    /// Errors: NotOwner; Fenced where the caller had it and was declared dead since.
    pub fn unlock(&self, by: &Party<'_>) -> Result<(), Error> {
        if self.kind()? == Kind::Recursive {
            self.owner.check_held(by)?;
            let depth = self.depth.load(Ordering::Relaxed);
            if depth > 0 {
                self.depth.store(depth - 1, Ordering::Relaxed);
                return Ok(());
            }
        }
        self.owner.release(by, Release::Done)
    }

    /// The data is whole again after an owner's death. Errors: Invalid, NotOwner, Fenced.
    pub fn consistent(&self, by: &Party<'_>) -> Result<(), Error> {
        self.owner.consistent(by)
    }

    /// Whether the caller has it still: NotOwner, or Fenced.
    pub fn check_held(&self, by: &Party<'_>) -> Result<(), Error> {
        self.owner.check_held(by)
    }

    /// A condition's wait gives it away once.
    pub(crate) fn is_deep(&self) -> Result<bool, Error> {
        Ok(self.kind()? == Kind::Recursive && self.depth.load(Ordering::Relaxed) > 0)
    }
}
