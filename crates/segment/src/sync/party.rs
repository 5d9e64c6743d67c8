//! Who asks: a thread of a member, with its ways to sleep and to learn of deaths.

use super::{Error, Holder, Life, Liveness, Members, Number, Slot, Thread, Waiter};

#[derive(Clone, Copy)]
pub struct Party<'a> {
    members: Members<'a>,
    slot: &'a Slot,
    number: Number,
    pub(crate) thread: &'a Thread,
    waiter: &'a dyn Waiter,
    liveness: &'a dyn Liveness,
}

impl<'a> Party<'a> {
    /// Errors: the number is none of this table, or the process has too many threads.
    pub fn new(
        members: Members<'a>,
        number: Number,
        thread: &'a Thread,
        waiter: &'a dyn Waiter,
        liveness: &'a dyn Liveness,
    ) -> Result<Self, Error> {
        let slot = members.slot(number).ok_or(Error::NotMember)?;
        if thread.number() == 0 {
            return Err(Error::TooMany("threads in this process"));
        }
        Ok(Self { members, slot, number, thread, waiter, liveness })
    }

    pub fn waiter(&self) -> &'a dyn Waiter {
        self.waiter
    }

    pub fn number(&self) -> Number {
        self.number
    }

    pub fn holder(&self) -> Holder {
        Holder { number: self.number, thread: self.thread.number() }
    }

    /// Whether others take this member for alive.
    pub(crate) fn is_current(&self) -> bool {
        self.slot.is_attached_as(self.number.generation())
    }

    pub(crate) fn is_dead(&self, number: Number) -> Result<bool, Error> {
        Ok(self.members.life(number, self.liveness)? == Life::Dead)
    }
}
