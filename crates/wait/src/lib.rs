//! When a wait watches a ring before it sleeps, for how long, and when it gives way.
//!
//! Decides by the times that it is told, in ticks of the processor's counter: it reads no clock and
//! does no system call. `preload` watches, asks and sleeps as this says. Its state is shared by the
//! threads of a process without a lock: two that write at once lose what one of them has learnt,
//! and nothing else hangs on it.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod backoff;
mod crowding;
mod engine;
mod pace;
mod pause;
mod polling;
mod share;
mod turns;
mod watching;

pub use backoff::Backoff;
pub use crowding::{Crowd, Crowding};
pub use engine::{Found, Interests, wait};
pub use pace::{Moved, Pace, Use};
pub use pause::Pause;
pub use polling::{Occasion, Polling};
pub use share::Share;
pub use turns::{Record, Turns};
pub use watching::{Budget, Watched, Watching};

/// How fast the counter goes: ticks in a microsecond.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub u64);

impl Rate {
    pub const fn us(self, count: u64) -> u64 {
        count.saturating_mul(self.0)
    }
}
