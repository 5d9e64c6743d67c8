//! An end's side page: what the processes that share one end of a connection share, and what
//! the broker reads to show it. The peer never sees it.
//!
//! The broker makes it (a sealed memfd of one page) and hands it out with the channel. Locks
//! and indices live here, and not in the channel, because whatever the peer can write is not
//! to be trusted. The broker writes the two limits of classes, and `gone`, and nothing else.

use core::sync::atomic::{AtomicU32, AtomicU64};

use yasmin_ring::{Private, ReceiverState, SenderState};

/// Version of this layout; the broker writes it, the library compares it.
pub const SIDE_VERSION: u32 = 4;

/// Size of the memfd.
pub const SIDE_BYTES: usize = 4096;

/// Receiver's and sender's private state of one end, in a page of its own.
#[repr(C)]
pub struct Side {
    pub version: AtomicU32,
    /// Largest class that this end may offer; raised by the broker on GROW.
    pub class_limit: AtomicU32,
    /// Largest class that this end fills, whatever the peer's offer says: the pages are charged
    /// to whom touches them first. Raised before the peer's `class_limit`.
    pub tx_class_limit: AtomicU32,
    /// Why the end is to use the channel no more, written by the broker: 0, `GONE`, `GIVEN_BACK` or `FOR_NOW`.
    pub gone: AtomicU32,
    _pad: [u32; 12],
    pub tx: Tx,
    pub rx: Rx,
}

/// The sending half. Under its lock but for the counters.
#[repr(C, align(128))]
pub struct Tx {
    /// Holder's process and thread, or 0.
    pub lock: AtomicU64,
    pub state: SenderState,
    /// Threads that send by TCP without the lock: nobody opens the direction meanwhile.
    pub kernel_senders: AtomicU32,
    /// Counters, for `yasmin status`. TCP bytes are those written since the channel came.
    pub ring_bytes: Private,
    pub tcp_bytes: Private,
    /// Times the direction went from open to parked.
    pub parked: Private,
    /// `ring_bytes` when the kernel's counters last were what was sent by TCP.
    pub ring_checked: Private,
}

/// The receiving half. Under its lock but for the counters and `sleepers`.
#[repr(C, align(128))]
pub struct Rx {
    /// Holder's process and thread, or 0.
    pub lock: AtomicU64,
    pub state: ReceiverState,
    /// Threads, of all processes that share the end, that sleep in the kernel on it.
    pub sleepers: AtomicU32,
    /// Process that reads; another that reads takes it over once, then it stays parked.
    pub owner_pid: AtomicU32,
    /// How often it was taken over.
    pub owner_moves: AtomicU32,
    /// Not 0: O_NONBLOCK is set on the description.
    pub nonblocking: AtomicU32,
    pub ring_bytes: Private,
    pub tcp_bytes: Private,
    /// Processes beyond the first that hold the end with the library. A process that is killed
    /// stays counted.
    pub more_holders: AtomicU32,
    /// `FOREIGN`: a process without the library may hold the socket too. `HELD_BACK`: a filter on
    /// it drops what comes by TCP, until nothing is unread here.
    pub foreign: AtomicU32,
    /// Process that has it in an epoll set made since others hold it too; 0: none,
    /// `MANY_WATCHERS`: several. A set of one process knows nothing of another one's offer.
    pub watcher_pid: AtomicU32,
    /// `ring_bytes` when the kernel's counters last were what was read from TCP.
    pub ring_checked: Private,
    /// Not 0: what was unread is in a residue now, and not here any more.
    pub moved: AtomicU32,
    /// Not 0: both directions are parked for good only since a program was started that may have the socket too.
    pub lent: AtomicU32,
}

/// Of `Side::gone`: the memory of the channel went, and what is mapped is a private copy.
pub const GONE: u32 = 1;
/// The other end gave the channel back, since the connection talks too seldom for one.
pub const GIVEN_BACK: u32 = 2;
/// The other end gave the channel back, and is to have another one.
pub const FOR_NOW: u32 = 3;

pub const MANY_WATCHERS: u32 = u32::MAX;

/// Of `Rx::foreign`.
pub const FOREIGN: u32 = 1;
pub const HELD_BACK: u32 = 2;

const _: () = assert!(core::mem::size_of::<Side>() <= SIDE_BYTES);
