//! The sequence lock: readers that write nothing, not even who they are.
//!
//! Writers exclude each other as a mutex's owners do. A reader copies what it reads and asks
//! afterwards whether a writer was there meanwhile; until it knows, the copy may be torn and is
//! not to be believed. Readers need no right to write, and are no members.
//!
//! The number is odd while a writer is at it. A writer's death leaves it odd: readers are told,
//! and the next writer has `owner_died` and writes everything.

use super::owner::{Acquired, Owner, Release};
use super::primitive::{AtomicU64, Ordering, read_fence, write_fence};
use super::{Error, Liveness, Members, Party, Wait};

/// 32 bytes, aligned to 8; zeroed is at rest.
#[repr(C)]
pub struct Sequence {
    owner: Owner,
    number: AtomicU64,
    reserved: u64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Sequence>() == 32);

#[cfg(any(test, loom))]
impl Default for Sequence {
    fn default() -> Self {
        Self { owner: Owner::new(), number: AtomicU64::new(0), reserved: 0 }
    }
}

/// When a reader began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Snapshot(u64);

impl Snapshot {
    /// For who keeps it as a number, such as C.
    pub fn number(self) -> u64 {
        self.0
    }

    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

impl Sequence {
    /// Begins to write. Errors: those of [`super::Mutex::lock`]; Deadlock: the caller writes.
    pub fn write(&self, by: &Party<'_>, wait: Wait) -> Result<Acquired, Error> {
        if self.owner.is_held_by(by) {
            return Err(Error::Deadlock);
        }
        let acquired = self.owner.acquire(by, wait)?;
        let number = self.number.load(Ordering::Relaxed);
        if !acquired.owner_died && !number.is_multiple_of(2) {
            self.owner.release(by, Release::Untouched)?;
            return Err(Error::Spoiled { what: "a sequence at rest", value: number });
        }
        // The number is odd /then/ the data changes. Of a dead writer it is odd already, or its
        // death came before or behind all it wrote.
        self.number.store(number | 1, Ordering::Relaxed);
        write_fence();
        Ok(acquired)
    }

    /// What is written is whole. Errors: NotOwner, Fenced.
    pub fn finish(&self, by: &Party<'_>) -> Result<(), Error> {
        self.owner.check_held(by)?;
        let number = self.number.load(Ordering::Relaxed);
        // Release: the data changes /then/ the number is even.
        self.number.store((number | 1).wrapping_add(1), Ordering::Release);
        self.owner.release(by, Release::Untouched)
    }

    /// Before a reader copies. Errors: Busy, while somebody writes.
    pub fn begin(&self) -> Result<Snapshot, Error> {
        let number = self.number.load(Ordering::Acquire);
        if number.is_multiple_of(2) { Ok(Snapshot(number)) } else { Err(Error::Busy) }
    }

    /// Behind the copy: whether it is whole. If not, the copy is nothing, and the reader begins
    /// again.
    pub fn is_whole(&self, snapshot: Snapshot) -> bool {
        read_fence();
        self.number.load(Ordering::Relaxed) == snapshot.0
    }

    /// For a reader that finds Busy for long: whether the writer is dead, and no other one there.
    /// Writes nothing either.
    pub fn is_abandoned(
        &self,
        members: Members<'_>,
        liveness: &dyn Liveness,
    ) -> Result<bool, Error> {
        let number = self.number.load(Ordering::Acquire);
        let is_left = match self.owner.look()?.holder {
            None => true,
            Some(holder) => members.look(holder.number, liveness)? == super::Life::Dead,
        };
        Ok(is_left && !number.is_multiple_of(2) && self.number.load(Ordering::Acquire) == number)
    }
}
