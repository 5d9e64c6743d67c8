//! A channel's memory in user space: the region that it lies in, the medium that its pages come
//! from, where the two directions lie, and an end's own side page.
//!
//! Whoever makes, checks or maps such memory does it here: the library, the broker and the
//! benchmarks.
#![no_std]

pub mod attachment;
pub mod memfd;
pub mod region;
pub mod residue;
pub mod side;
mod sys;

pub use sys::Errno;
use yasmin_ring::{Block, Pages};
use yasmin_wire::layout;

/// Bytes of a channel of `max_class`, as the broker makes its memfd.
pub const fn bytes(max_class: u8) -> usize {
    layout::channel_bytes(max_class)
}

/// Block and rings of direction `index` (0: connector to acceptor).
///
/// # Safety
/// `base` is the mapping of a whole channel of `max_class`, and outlives what is returned.
pub unsafe fn direction<'a>(base: *mut u8, index: usize, max_class: u8) -> (&'a Block, Pages) {
    debug_assert!(index < 2 && max_class <= layout::MAX_CLASS);
    // SAFETY: inside the mapping, aligned to 512 bytes; a Block is atomics only.
    let block = unsafe { &*base.add(layout::direction_offset(index)).cast::<Block>() };
    let small = layout::small_ring_offset(index);
    let paged = layout::ring_offset(index, max_class);
    // SAFETY: both are inside the mapping, with all the bytes of the largest class that it has.
    let rings = unsafe { Pages::new(base.add(small), base.add(paged)) };
    (block, rings)
}
