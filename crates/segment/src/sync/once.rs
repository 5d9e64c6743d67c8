//! Once: something that is made by the first one who needs it.
//!
//! Who dies while making it leaves it to the next one, who is told.

use super::owner::{Owner, Release};
use super::primitive::{AtomicU64, Ordering};
use super::{Error, Party, Wait};

const UNDONE: u64 = 0;
const DONE: u64 = 1;

/// 32 bytes, aligned to 8; zeroed is undone.
#[repr(C)]
pub struct Once {
    owner: Owner,
    done: AtomicU64,
    reserved: u64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Once>() == 32);

#[cfg(any(test, loom))]
impl Default for Once {
    fn default() -> Self {
        Self { owner: Owner::new(), done: AtomicU64::new(UNDONE), reserved: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Begun {
    /// It is made.
    Done,
    /// The caller makes it, /then/ calls [`Once::finish`]. `owner_died`: another one began.
    Make { owner_died: bool },
}

impl Once {
    /// Errors: those of [`super::Mutex::lock`] but NotRecoverable; Deadlock: the caller makes it
    /// right now.
    pub fn begin(&self, by: &Party<'_>, wait: Wait) -> Result<Begun, Error> {
        if self.is_done()? {
            return Ok(Begun::Done);
        }
        if self.owner.is_held_by(by) {
            return Err(Error::Deadlock);
        }
        let acquired = self.owner.acquire(by, wait)?;
        match self.is_done() {
            Ok(false) => Ok(Begun::Make { owner_died: acquired.owner_died }),
            done => {
                // Who died behind its making left nothing to mend.
                if acquired.owner_died {
                    self.owner.consistent(by)?;
                }
                self.owner.release(by, Release::Done)?;
                done.map(|_| Begun::Done)
            }
        }
    }

    /// It is made. Errors: NotOwner, Fenced.
    pub fn finish(&self, by: &Party<'_>) -> Result<(), Error> {
        self.owner.check_held(by)?;
        // Release: of what was made.
        self.done.store(DONE, Ordering::Release);
        self.owner.release(by, Release::Untouched)
    }

    /// It could not be made; the next one tries. Errors: NotOwner, Fenced.
    pub fn give_up(&self, by: &Party<'_>) -> Result<(), Error> {
        self.owner.release(by, Release::Untouched)
    }

    pub fn is_done(&self) -> Result<bool, Error> {
        match self.done.load(Ordering::Acquire) {
            UNDONE => Ok(false),
            DONE => Ok(true),
            other => Err(Error::Spoiled { what: "a once's state", value: other }),
        }
    }
}
