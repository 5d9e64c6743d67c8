//! Segments: memory at one address in several domains, with what programs need to share it.
//!
//! - [`sync`]: locks and their like, for processes and domains that may die while they hold one;
//! - [`heap`]: an allocator in a segment, which is whole after a kill at any step.

#[cfg(not(loom))]
pub mod heap;
pub mod sync;
