//! An end's side page: what the processes that share one end of a connection share, and what
//! the broker reads to show it. The peer never sees it.
//!
//! The broker makes it (a sealed memfd of one page) and hands it out with the channel. Locks
//! and indices live here, and not in the channel, because whatever the peer can write is not
//! to be trusted (DESIGN section 4). The broker writes `class_limit` and nothing else.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Version of this layout; the broker writes it, the library compares it.
pub const SIDE_VERSION: u32 = 1;

/// Size of the memfd.
pub const SIDE_BYTES: usize = 4096;

/// Receiver's and sender's private state of one end, in a page of its own.
#[repr(C)]
pub struct Side {
    pub version: AtomicU32,
    /// Largest class that this end may offer; raised by the broker on GROW.
    pub class_limit: AtomicU32,
    _pad: [u64; 7],
    pub tx: Tx,
    pub rx: Rx,
}

/// The sending half. Under its lock but for the counters.
#[repr(C, align(128))]
pub struct Tx {
    /// Holder's process and thread, or 0.
    pub lock: AtomicU64,
    /// Ring bytes published, as this end knows it; the shared word must agree.
    pub tail: AtomicU64,
    /// The peer's head when last looked at; range tail-size..=tail.
    pub head_seen: AtomicU64,
    /// Not 0: this end never opens the direction again.
    pub never: AtomicU32,
    /// Not 0: the peer broke the protocol.
    pub broken: AtomicU32,
    /// Counters, for `yasmin status`. TCP bytes are those written since the channel came.
    pub ring_bytes: AtomicU64,
    pub tcp_bytes: AtomicU64,
    pub parked: AtomicU64,
}

/// The receiving half. Under its lock but for the counters and `sleepers`.
#[repr(C, align(128))]
pub struct Rx {
    /// Holder's process and thread, or 0.
    pub lock: AtomicU64,
    /// Ring bytes consumed; range word.tail-size..=word.tail.
    pub head: AtomicU64,
    /// The tail at which this end last offered the direction.
    pub offered_at: AtomicU64,
    /// The word's tail when last looked at; it never runs backwards.
    pub tail_seen: AtomicU64,
    /// TCP bytes still to be read before the next ring byte.
    pub tcp_left: AtomicU64,
    /// Not 0: offered, and not yet seen to have been opened.
    pub offer_out: AtomicU32,
    /// Class of the ring that is being read.
    pub class: AtomicU32,
    /// Threads, of all processes that share the end, that sleep in the kernel on it.
    pub sleepers: AtomicU32,
    /// Not 0: this end never offers the direction again.
    pub never: AtomicU32,
    /// Process that reads; another that reads takes it over once, then it stays parked.
    pub owner_pid: AtomicU32,
    pub broken: AtomicU32,
    pub ring_bytes: AtomicU64,
    pub tcp_bytes: AtomicU64,
}

const _: () = assert!(core::mem::size_of::<Side>() <= SIDE_BYTES);
