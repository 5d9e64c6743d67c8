//! A process's own membership of a segment.
//!
//! A fork is another process: it inherits the mapping and no membership. It is told so
//! ([`Error::NotMember`]) with whatever it tries, and attaches again ([`Attachment::renew`]);
//! of its parent's locks it holds none. A vfork child acts as its parent.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};

use super::life::open_again;
use super::thread::incarnation;
use super::{
    Error, FileLife, FileProbe, Futex, Identity, Members, Number, Party, Probe, Slot, Thread,
    Waiter,
};

struct Own {
    incarnation: u64,
    number: Number,
    life: ManuallyDrop<FileLife>,
}

/// Opens the segment's file once more, for a description that nobody else has.
pub type Open = Box<dyn Fn() -> io::Result<File> + Send + Sync>;

/// How its threads sleep and are woken.
pub type Sleeping = Box<dyn Waiter + Send + Sync>;

/// The calling process as a member; one for each segment.
pub struct Attachment<'a> {
    members: Members<'a>,
    probe: Probe,
    /// None: by `/proc`.
    open: Option<Open>,
    waiter: Sleeping,
    own: Own,
}

impl<'a> Attachment<'a> {
    /// Attaches to the segment whose table is `slots` and whose file is `file`, which must be open
    /// for writing; `/proc` has to be there.
    pub fn new(slots: &'a [Slot], file: BorrowedFd<'_>, identity: Identity) -> io::Result<Self> {
        let probe = Probe::File(FileProbe::new(file)?);
        Self::join(slots, probe, Box::new(Futex::new()), None, identity)
    }

    /// The same for a process that may not open the file by itself, but knows who does, and where
    /// several guests share the segment.
    pub fn by(
        slots: &'a [Slot],
        probe: Probe,
        waiter: Sleeping,
        open: Open,
        identity: Identity,
    ) -> io::Result<Self> {
        Self::join(slots, probe, waiter, Some(open), identity)
    }

    fn join(
        slots: &'a [Slot],
        probe: Probe,
        waiter: Sleeping,
        open: Option<Open>,
        identity: Identity,
    ) -> io::Result<Self> {
        let members = Members::new(slots);
        let own = claim(members, &probe, open.as_ref(), identity)?;
        Ok(Self { members, probe, open, waiter, own })
    }

    /// Attaches this process, a fork, by itself.
    pub fn renew(&mut self, identity: Identity) -> io::Result<()> {
        if self.own.incarnation != incarnation() {
            Thread::with_current(Thread::forget_the_parent);
            // The parent's sign of life is not in this process, and is not dropped.
            self.own = claim(self.members, &self.probe, self.open.as_ref(), identity)?;
        }
        Ok(())
    }

    /// The number of this process. Errors: NotMember, in a fork.
    pub fn number(&self) -> Result<Number, Error> {
        let is_ours = self.own.incarnation == incarnation();
        if is_ours { Ok(self.own.number) } else { Err(Error::NotMember) }
    }

    pub fn members(&self) -> Members<'a> {
        self.members
    }

    pub fn waiter(&self) -> &dyn Waiter {
        &*self.waiter
    }

    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Runs `act` as the calling thread. Errors: NotMember, TooMany, and those of `act`.
    pub fn act<T>(&self, act: impl FnOnce(&Party<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let number = self.number()?;
        let acted = Thread::with_current(|thread| {
            act(&Party::new(self.members, number, thread, &*self.waiter, &self.probe)?)
        });
        acted.unwrap_or(Err(Error::NotMember))
    }
}

fn claim(
    members: Members<'_>,
    probe: &Probe,
    open: Option<&Open>,
    identity: Identity,
) -> io::Result<Own> {
    let incarnation = incarnation();
    if incarnation == 0 {
        return Err(io::Error::other("the kernel wipes no page in a fork (MADV_WIPEONFORK)"));
    }
    let domain = probe.domain().map_or(identity.domain, |domain| domain.number);
    let identity = Identity { domain, ..identity };
    let take = |slot| {
        if !probe.may_claim(slot) {
            return Ok(None);
        }
        let own = open.map_or_else(|| open_again(probe.as_fd()), |open| open());
        own.and_then(|own| FileLife::take(own, slot)).map_err(Refused::Io)
    };
    match members.claim(identity, take) {
        Ok((number, life)) => Ok(Own { incarnation, number, life: ManuallyDrop::new(life) }),
        Err(Refused::Io(error)) => Err(error),
        Err(Refused::Table(error)) => Err(io::Error::other(error)),
    }
}

enum Refused {
    Io(io::Error),
    Table(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Table(error)
    }
}

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        if self.number().is_ok() {
            self.members.release(self.own.number);
            // SAFETY: dropped here, and nowhere else: this is the attachment's own drop.
            unsafe { ManuallyDrop::drop(&mut self.own.life) };
        }
    }
}
