//! What goes wrong with a lock, and its errno.

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Somebody else has it, and the caller does not want to wait.
    #[error("somebody else holds it")]
    Busy,
    #[error("the deadline has passed")]
    TimedOut,
    /// The calling thread holds it already.
    #[error("the calling thread holds it already")]
    Deadlock,
    #[error("the calling thread does not hold it")]
    NotOwner,
    /// An owner died, and the next one let go without making the data consistent.
    #[error("an owner died and its data was not made consistent")]
    NotRecoverable,
    /// `consistent` where no owner died, or an argument outside its range.
    #[error("the call does not fit the state: {0}")]
    Invalid(&'static str),
    /// A count is at its limit.
    #[error("too many: {0}")]
    TooMany(&'static str),
    /// The caller was declared dead while it was paused, and what it held has a new owner.
    #[error("this member was declared dead, and what it held went to others")]
    Fenced,
    /// This process is a fork of the member and has to attach by itself.
    #[error("this process has not attached to the segment; a fork attaches again")]
    NotMember,
    /// Of a barrier: one who has to come is dead.
    #[error("a party of the barrier died")]
    PartyDied,
    /// Shared memory holds what no member writes: the segment is spoiled.
    #[error("shared memory is spoiled: {what} is {value:#x}")]
    Spoiled { what: &'static str, value: u64 },
}

impl Error {
    /// The errno of a C interface, as pthread has it where pthread has the case.
    pub fn errno(self) -> i32 {
        match self {
            Self::Busy => libc::EBUSY,
            Self::TimedOut => libc::ETIMEDOUT,
            Self::Deadlock => libc::EDEADLK,
            Self::NotOwner => libc::EPERM,
            Self::NotRecoverable => libc::ENOTRECOVERABLE,
            Self::Invalid(_) => libc::EINVAL,
            Self::TooMany(_) => libc::EAGAIN,
            Self::Fenced => libc::ESTALE,
            Self::NotMember => libc::ENOTCONN,
            Self::PartyDied => libc::EOWNERDEAD,
            Self::Spoiled { .. } => libc::EUCLEAN,
        }
    }
}
