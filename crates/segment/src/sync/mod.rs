//! Locks and their like in shared memory, for holders that may die at any step.
//!
//! All types here are plain memory of a fixed size that works from zeroed bytes; a C header may
//! have them as opaque arrays. They hold no pointers. Every member of a segment may scribble over
//! them: a word that cannot be a lock's state is [`Error::Spoiled`], and no wait.
//!
//! | file | noun |
//! |---|---|
//! | `holder` | who holds: slot, generation and thread in 44 bits |
//! | `member` | the table of processes that have a segment, one slot each |
//! | `life` | how a waiter learns that a process is dead |
//! | `guests` | the same of a process in another guest |
//! | `waiter` | sleeping and waking |
//! | `bells`, `belfry` | the same among guests: what a sleeper waits at, and of what that is made |
//! | `thread`, `party` | who asks: a thread of a member, and what it holds |
//! | `attachment` | a process's own membership, across forks |
//! | `owner` | the word that mutex, reader-writer lock, once and sequence lock have in common |
//!
//! **What a death does.** A process that dies drops its membership (`life`). Who waits for it looks
//! after each nap, of [`NAP_LONGEST_NS`] at most, whether the holder lives. If not it takes the
//! word over by one compare-and-swap of the whole word, and is told [`Acquired::owner_died`].
//! A wake-up that was meant for a thread that died is made up for by the same naps. A thread that
//! ends while its process lives gives back, marked as dead, what it holds (`thread`).
//!
//! **Fencing.** Every acquisition has a number, greater than those of all earlier ones of that
//! lock. It comes from the compare-and-swap that acquires, so that no two acquisitions have the
//! same one, and a member that was declared dead while it was only paused cannot get a new one.

#[cfg(not(loom))]
mod attachment;
mod barrier;
#[cfg(not(loom))]
mod belfry;
mod bells;
mod condition;
mod error;
#[cfg(not(loom))]
mod guests;
mod holder;
mod life;
mod member;
mod mutex;
mod nap;
mod once;
mod owner;
mod party;
#[cfg(not(loom))]
pub(crate) mod primitive;
#[cfg(loom)]
#[doc(hidden)]
pub mod primitive;
mod rwlock;
mod semaphore;
mod sequence;
mod thread;
mod waiter;

#[cfg(not(loom))]
pub use attachment::{Attachment, Open, Sleeping};
pub use barrier::{Barrier, Passed};
#[cfg(not(loom))]
pub use belfry::{Belfry, Ring};
pub use bells::{Bells, Ringing};
pub use condition::Condition;
pub use error::Error;
#[cfg(not(loom))]
pub use guests::{Ask, Domain, Probe};
pub use holder::{Holder, MAX_MEMBERS, Number};
pub use life::{FileLife, FileProbe, Life, Liveness, open_again};
pub use member::{Identity, Members, Slot};
pub use mutex::{Kind, Mutex};
pub use nap::{NAP_LONGEST_NS, Wait};
pub use once::{Begun, Once};
pub use owner::Acquired;
pub use party::Party;
/// A word of shared memory.
pub use primitive::AtomicU64 as Word;
pub use rwlock::{MAX_READERS, RwLock};
pub use semaphore::Semaphore;
pub use sequence::{Sequence, Snapshot};
pub use thread::Thread;
pub use waiter::{Futex, Waiter};
