//! A half whose holder was killed in the middle of a step, as whoever takes its lock finds it.
//!
//! A step changes the shared word once, in one piece, and notes it in several private numbers.
//! What was not noted is taken from the word: for this once it is believed as far as it stays
//! inside the ring. A peer that lies just then spoils its own connection, as it always can.

use core::sync::atomic::Ordering::Relaxed;

use yasmin_wire::layout::class_bytes;
use yasmin_wire::{State, Word};

use crate::memory::Memory;
use crate::primitive::Ordering;
use crate::receiver::{Receiver, TCP_AHEAD_MAX};
use crate::sender::Sender;
use crate::state::{clear, set};

impl<M: Memory> Sender<'_, M> {
    /// Under the lock that a killed process held.
    pub fn recover(&self) {
        let Ok(word) = Word::decode(self.block.word.load(Ordering::Acquire)) else { return };
        let state = self.state;
        // Published, and not noted.
        let ahead = word.tail.since(state.tail.position());
        if word.class <= self.max_class && ahead <= u64::from(class_bytes(self.max_class)) {
            state.tail.set_position(word.tail);
            if word.state == State::Open {
                state.class.store(u32::from(word.class), Relaxed);
                set(&state.open);
            } else {
                clear(&state.open);
            }
        }
        // Sent by TCP, and not said.
        self.hint();
    }
}

impl<M: Memory> Receiver<'_, M> {
    /// Under the lock that a killed process held. `tcp_position`: as for `look`.
    pub fn recover(&self, tcp_position: impl FnOnce() -> Option<u64>) {
        let state = self.state;
        let Ok(mut seen) = Word::decode(state.word_seen.get()) else { return };
        let Ok(word) = Word::decode(self.block.word.load(Ordering::Acquire)) else { return };
        let is_drained = seen.tail == state.head.position();
        if seen.state == State::Parked && word != seen && is_drained && word.class <= self.max_class
        {
            // Nobody but this end changes a parked word: it was offered, and not noted.
            seen = Word { state: State::Offered, class: word.class, tail: seen.tail };
            state.word_seen.set(seen.encode());
        }
        // The word that was seen says the same in one piece.
        state.tail_seen.set_position(seen.tail);
        state.class.store(u32::from(seen.class), Relaxed);
        state.set_state_seen(seen.state);
        // Taken from the ring, and not said.
        self.block.head.store(state.head.get(), Ordering::Release);
        // Read from TCP, and not counted: what is left lies before the unread ring bytes.
        let mut left = 0;
        if seen.tail != state.head.position()
            && let Some(own_position) = tcp_position()
        {
            let peer_position = self.block.tcp_position.load(Ordering::Relaxed);
            let ahead = peer_position.wrapping_sub(own_position);
            left = if ahead <= TCP_AHEAD_MAX { ahead } else { 0 };
        }
        state.tcp_left.set(left);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
