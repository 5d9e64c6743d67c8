//! Layouts of the pages that two domains share, as `spec/wire.md` states them.
//!
//! No I/O, no `unsafe`, no dependencies: this is the part that a second implementation would
//! have to repeat bit by bit, and the part that the vectors in `spec/vectors/` test.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod layout;
pub mod medium;
pub mod position;
pub mod word;

pub use medium::Medium;
pub use position::Position;
pub use word::{BadWord, State, Word};

/// Version of the shared layout. Two ends get a channel only when theirs are equal.
pub const WIRE_VERSION: u32 = 2;
