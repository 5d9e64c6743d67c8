//! A direction: one-way byte stream over a ring in shared pages with TCP beside it
//! (spec/wire.md sections 2 to 5).
//!
//! The state machine is here and the I/O is not: [`Sender`] and [`Receiver`] say where the
//! next bytes go or come from, and the caller does what has to be done on the TCP connection.
//! This is the only crate that touches memory which the peer can write; whatever it loads from
//! there is checked before it is used, and what does not follow is [`Broken`].
//!
//! One caller at a time for each half of an end (the caller's lock); the two ends run freely.
#![cfg_attr(not(any(test, loom)), no_std)]

mod block;
mod memory;
mod primitive;
mod receiver;
mod recover;
mod sender;
mod stamps;
mod state;

pub use block::Block;
pub use memory::{Memory, Pages, Place};
pub use receiver::{Park, Receiver, View};
pub use sender::{Publish, Room, Sender, Write};
pub use stamps::Stamp;
pub use state::{Private, ReceiverState, SenderState};

/// The peer wrote what no honest peer writes: the direction is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;
