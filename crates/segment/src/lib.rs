//! Segments: memory that programs ask for by name, mapped at one address in every process, so that
//! pointers mean the same everywhere.
//!
//! ```text
//!  program ── Broker ── open ──▶ yasmind: who may, which address
//!     │                 ◀── a descriptor with these rights and no more
//!     └── Segment ── attach ──▶ Mapping: header, then the segment's own bytes
//! ```
//!
//! The broker says where a segment is and how large; nothing of that is read back from its pages,
//! which others can write. Members of a segment trust each other with its bytes and with nothing
//! else. docs/segments.md tells the rest; `yasmin.h` is the same for C.
//!
//! What programs need to share it lies in it:
//! - [`sync`]: locks and their like, for processes and domains that may die while they hold one;
//! - [`heap`]: an allocator, which is whole after a kill at any step.

mod broker;
mod error;
#[cfg(not(loom))]
pub mod heap;
mod maps;
mod segment;
pub mod socket;
pub mod sync;

pub use broker::Broker;
pub use error::Error;
pub use segment::{At, Mapping, Segment};
pub use yasmin_control::segment::{Kind, Name, Refusal, Rights, Whom};
pub use yasmin_control::status;
