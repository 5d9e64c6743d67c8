//! What a receive and a send on a connection with a channel do next: which bytes come from the ring
//! and which from TCP, when a direction is parked or offered, and when the call ends.
//!
//! Decides without I/O. What a call can do is a trait, [`receive::Source`] and [`send::Sink`],
//! which `preload` carries out and tests play; how it waits in between is `yasmin_wait`'s.
#![no_std]
#![forbid(unsafe_code)]

pub mod receive;
pub mod send;

use yasmin_wait::Found;

/// Bytes, or minus errno: what calls return.
pub type Ret = isize;

/// The call is over, and returns this.
pub const fn answer(ret: Ret) -> Found<Option<Ret>> {
    Found::Answer(Some(ret))
}

pub const EINTR: Ret = 4;
pub const EAGAIN: Ret = 11;
pub const EFAULT: Ret = 14;
pub const ECONNRESET: Ret = 104;
