//! Offsets in a channel's pages (spec/wire.md section 1).
//!
//! ```text
//! 0x0000 channel header (informational; no side reads it back)
//! 0x0400 direction 0 (connector to acceptor): word line, receiver line, stamps
//! 0x0600 direction 1 (acceptor to connector)
//! 0x0800 ring of class 0 of direction 0, 1 KiB
//! 0x0c00 ring of class 0 of direction 1
//! 0x1000 ring of the other classes of direction 0, class_bytes(max_class); none if that is 0
//! ...... ring of the other classes of direction 1
//! ```

/// "YASMINCH" in ASCII, little-endian.
pub const CHANNEL_MAGIC: u64 = u64::from_le_bytes(*b"YASMINCH");

pub const PAGE_BYTES: usize = 4096;

/// Largest size class: 1 MiB.
pub const MAX_CLASS: u8 = 9;

/// Smallest class whose rings have pages of their own; that of class 0 lies in the first page.
pub const MIN_PAGED_CLASS: u8 = 1;

/// Bytes of a ring of `class`: 1 KiB, 4 KiB, 8 KiB, ... 1 MiB.
pub const fn class_bytes(class: u8) -> u32 {
    if class < MIN_PAGED_CLASS { 1024 } else { 4096 << (class - MIN_PAGED_CLASS) }
}

pub const HEADER_MAGIC: usize = 0;
pub const HEADER_VERSION: usize = 8;
pub const HEADER_MAX_CLASS: usize = 12;

/// Where direction `index`'s control block begins; 0: connector to acceptor, 1: the reverse.
pub const fn direction_offset(index: usize) -> usize {
    0x400 + index * 0x200
}

/// In a direction's block, written by the sender (and, the word alone, by the receiver's CAS).
pub const DIRECTION_WORD: usize = 0x00;
pub const DIRECTION_TCP_POSITION: usize = 0x08;
pub const DIRECTION_TCP_HINT: usize = 0x10;
pub const DIRECTION_SENDER_CPU: usize = 0x18;
pub const DIRECTION_CLASS_WANTED: usize = 0x1c;
pub const DIRECTION_TCP_ELSEWHERE: usize = 0x28;
pub const DIRECTION_STAMP: usize = 0x30;
/// In a direction's block, written by the receiver; two cache lines on, so that neither the
/// line nor its prefetched neighbour is shared with the sender's.
pub const DIRECTION_HEAD: usize = 0x80;
pub const DIRECTION_RECEIVER_CPU: usize = 0x88;
/// In a direction's block, written by the sender and seldom read: two cache lines on again, so that
/// a receiver that watches the word does not fetch these with it.
pub const DIRECTION_STAMPS: usize = 0x100;
pub const DIRECTION_STAMPS_COUNT: usize = 7;
pub const DIRECTION_NEXT_STAMP: usize = 0x170;
pub const DIRECTION_BYTES: usize = 0x180;

/// Where direction `index`'s ring of class 0 begins.
pub const fn small_ring_offset(index: usize) -> usize {
    0x800 + index * class_bytes(0) as usize
}

/// Bytes that a channel of `max_class` keeps for the rings of a direction that have pages.
pub const fn paged_bytes(max_class: u8) -> usize {
    if max_class < MIN_PAGED_CLASS { 0 } else { class_bytes(max_class) as usize }
}

/// Where direction `index`'s rings of the classes above 0 begin, in a channel of `max_class`.
pub const fn ring_offset(index: usize, max_class: u8) -> usize {
    PAGE_BYTES + index * paged_bytes(max_class)
}

/// Bytes of a whole channel.
pub const fn channel_bytes(max_class: u8) -> usize {
    PAGE_BYTES + 2 * paged_bytes(max_class)
}
