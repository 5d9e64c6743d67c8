//! What an end keeps to itself about its two directions.
//!
//! Plain numbers under the caller's lock, in memory that forked processes share and the peer
//! does not see. They are atomics only so that another thread may look at them without the
//! lock, as a hint.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(any(test, loom, fuzzing, feature = "hostile"))]
use yasmin_wire::Word;
use yasmin_wire::{Position, State};

/// A private number, read and written whole.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Private(AtomicU64);

impl Private {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// For counters: the holder of the lock is the only writer.
    pub fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    pub(crate) fn position(&self) -> Position {
        Position::new(self.get())
    }

    pub(crate) fn set_position(&self, at: Position) {
        self.set(at.get());
    }
}

/// The sending half. All zero is the state of a fresh channel.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SenderState {
    /// Ring bytes published; the shared word must agree.
    pub(crate) tail: Private,
    /// The peer's head when last looked at; range tail-size..=tail.
    pub(crate) head_seen: Private,
    /// Not 0: this end opened the direction and has not seen it parked since.
    pub(crate) open: AtomicU32,
    /// Class of the ring while open.
    pub(crate) class: AtomicU32,
    pub(crate) never: AtomicU32,
    pub(crate) broken: AtomicU32,
    /// Not 0: a publication failed; the bytes go by TCP before the direction is opened again.
    pub(crate) retried: AtomicU32,
}

impl SenderState {
    /// Test access: a direction whose positions begin at `start` and not at 0. Its word and
    /// head must be set likewise, and the other end's state.
    #[cfg(any(test, loom, fuzzing, feature = "hostile"))]
    pub fn starting_at(start: Position) -> Self {
        let state = Self::default();
        state.tail.set_position(start);
        state.head_seen.set_position(start);
        state
    }
}

/// The receiving half. All zero is the state of a fresh channel.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ReceiverState {
    /// Ring bytes consumed; range tail_seen-size..=tail_seen.
    pub(crate) head: Private,
    /// The word's tail when last looked at; it never runs backwards.
    pub(crate) tail_seen: Private,
    /// The whole word when last looked at or written.
    pub(crate) word_seen: Private,
    /// TCP bytes still to be read before the next ring byte.
    pub(crate) tcp_left: Private,
    pub(crate) hint_seen: Private,
    /// The [`State`] that the receiver knows its direction to be in: offered until it sees the
    /// opening.
    pub(crate) state_seen: AtomicU32,
    /// Class that was offered last.
    pub(crate) class: AtomicU32,
    pub(crate) never: AtomicU32,
    pub(crate) broken: AtomicU32,
}

impl ReceiverState {
    /// Test access: as `SenderState::starting_at`.
    #[cfg(any(test, loom, fuzzing, feature = "hostile"))]
    pub fn starting_at(start: Position) -> Self {
        let state = Self::default();
        state.head.set_position(start);
        state.tail_seen.set_position(start);
        state.word_seen.set(Word { tail: start, ..Word::INITIAL }.encode());
        state
    }

    /// Bytes that the reader knows of and has not taken.
    pub fn unread_bytes(&self) -> u32 {
        self.tail_seen.position().since(self.head.position()) as u32
    }

    pub(crate) fn state_seen(&self) -> State {
        match self.state_seen.load(Ordering::Relaxed) {
            0 => State::Parked,
            1 => State::Offered,
            _ => State::Open,
        }
    }

    pub(crate) fn set_state_seen(&self, state: State) {
        self.state_seen.store(state as u32, Ordering::Relaxed);
    }
}

pub(crate) fn is_set(flag: &AtomicU32) -> bool {
    flag.load(Ordering::Relaxed) != 0
}

pub(crate) fn set(flag: &AtomicU32) {
    flag.store(1, Ordering::Relaxed);
}

pub(crate) fn clear(flag: &AtomicU32) {
    flag.store(0, Ordering::Relaxed);
}
