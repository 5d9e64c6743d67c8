//! A direction's control block in the shared pages.

use core::sync::atomic::{AtomicU32 as Unused32, AtomicU64 as Unused64};

use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use crate::stamps::{Entry, Stamps};

/// Laid over `layout::direction_offset(index)`. Every field may change at any time.
///
/// Three cache lines, a neighbour apart: the first is written by the sender (and by the
/// receiver's compare-and-swap of the word), the second by the receiver alone, the third by the
/// sender alone.
#[repr(C)]
pub struct Block {
    pub(crate) word: AtomicU64,
    /// The sender's TCP stream position when it last opened the direction: stored before the
    /// word's release, read after the word's acquire.
    pub(crate) tcp_position: AtomicU64,
    /// Raised after each send by TCP: where a receiver that watches the word learns of them.
    pub(crate) tcp_hint: AtomicU64,
    pub(crate) sender_cpu: AtomicU32,
    pub(crate) class_wanted: AtomicU32,
    // Atomics too: the peer can write here, so nothing may hold it for unchanging.
    _wake: Unused64,
    /// When the bytes of the last publication were published, and after what.
    pub(crate) stamp: Entry,
    _line: [Unused64; 9],
    /// Ring bytes consumed: stored (release) after they were copied out, so that the sender,
    /// who loads it (acquire), may overwrite them.
    pub(crate) head: AtomicU64,
    pub(crate) receiver_cpu: AtomicU32,
    _rest: [Unused32; 29],
    pub(crate) stamps: Stamps,
}

impl Block {
    /// A fresh block, as zeroed pages hold it.
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            tcp_position: AtomicU64::new(0),
            tcp_hint: AtomicU64::new(0),
            sender_cpu: AtomicU32::new(0),
            class_wanted: AtomicU32::new(0),
            _wake: Unused64::new(0),
            stamp: Entry::new(),
            _line: [const { Unused64::new(0) }; 9],
            head: AtomicU64::new(0),
            receiver_cpu: AtomicU32::new(0),
            _rest: [const { Unused32::new(0) }; 29],
            stamps: Stamps::new(),
        }
    }

    /// The word as it is now, undecoded: for display and for watching.
    pub fn word_raw(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Count of sends by TCP, as the peer says: a hint to look at the kernel, never trusted.
    pub fn tcp_hint(&self) -> u64 {
        self.tcp_hint.load(Ordering::Relaxed)
    }

    /// The processor's counter, as the sender says, when its process last did something by TCP before
    /// it published what the word says. A hint to ask the kernel first, never trusted.
    pub fn tcp_elsewhere(&self) -> u64 {
        self.stamp.elsewhere()
    }

    /// CPU on which the sender last ran, as it says; only a choice between two ways of waiting
    /// hangs on it.
    pub fn sender_cpu(&self) -> u32 {
        self.sender_cpu.load(Ordering::Relaxed)
    }

    /// CPU on which the receiver last ran, as it says.
    pub fn receiver_cpu(&self) -> u32 {
        self.receiver_cpu.load(Ordering::Relaxed)
    }

    pub fn set_sender_cpu(&self, cpu: u32) {
        self.sender_cpu.store(cpu, Ordering::Relaxed);
    }

    pub fn set_receiver_cpu(&self, cpu: u32) {
        self.receiver_cpu.store(cpu, Ordering::Relaxed);
    }

    /// Test access for a hostile peer: overwrites the shared fields with anything.
    #[cfg(any(test, loom, fuzzing, feature = "hostile"))]
    pub fn scribble(&self, word: u64, tcp_position: u64, head: u64) {
        self.word.store(word, Ordering::Release);
        self.tcp_position.store(tcp_position, Ordering::Release);
        self.head.store(head, Ordering::Release);
    }

    /// Test access: the TCP position as it was stored last.
    #[cfg(any(test, loom, fuzzing, feature = "hostile"))]
    pub fn tcp_position_raw(&self) -> u64 {
        self.tcp_position.load(Ordering::Relaxed)
    }

    /// Test access: the receiver's head as it was stored last.
    #[cfg(any(test, loom, fuzzing, feature = "hostile"))]
    pub fn head_raw(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }
}

impl Default for Block {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(loom))]
const _: () = {
    use yasmin_wire::layout;
    assert!(core::mem::offset_of!(Block, word) == layout::DIRECTION_WORD);
    assert!(core::mem::offset_of!(Block, tcp_position) == layout::DIRECTION_TCP_POSITION);
    assert!(core::mem::offset_of!(Block, tcp_hint) == layout::DIRECTION_TCP_HINT);
    assert!(core::mem::offset_of!(Block, sender_cpu) == layout::DIRECTION_SENDER_CPU);
    assert!(core::mem::offset_of!(Block, class_wanted) == layout::DIRECTION_CLASS_WANTED);
    let stamp = core::mem::offset_of!(Block, stamp);
    assert!(stamp + Entry::ELSEWHERE == layout::DIRECTION_TCP_ELSEWHERE);
    assert!(stamp + Entry::PACKED == layout::DIRECTION_STAMP);
    let stamps = core::mem::offset_of!(Block, stamps);
    assert!(stamps == layout::DIRECTION_STAMPS);
    assert!(stamps + Stamps::NEXT == layout::DIRECTION_NEXT_STAMP);
    assert!(core::mem::offset_of!(Block, head) == layout::DIRECTION_HEAD);
    assert!(core::mem::offset_of!(Block, receiver_cpu) == layout::DIRECTION_RECEIVER_CPU);
    assert!(core::mem::size_of::<Block>() == layout::DIRECTION_BYTES);
};
