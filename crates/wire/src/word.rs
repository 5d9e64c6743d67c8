//! A direction's word: its state, its ring's size class and its tail (spec/wire.md section 3).

use crate::layout::MAX_CLASS;
use crate::position::Position;

/// Who may sleep and where new bytes go (spec/wire.md section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The receiver may sleep in any way it likes; new bytes go by TCP.
    Parked = 0,
    /// The receiver is awake and says so; new bytes still go by TCP.
    Offered = 1,
    /// New bytes go into the ring; the receiver does not sleep.
    Open = 2,
}

/// The word as both sides load and compare-and-swap it:
/// bits 0-1 state, bits 2-5 class, bits 6-63 tail.
///
/// The all-zero word is `Parked`, class 0, tail 0: a fresh channel needs no set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub state: State,
    /// Size class of the ring, 0..=MAX_CLASS: `layout::class_bytes` gives its bytes.
    pub class: u8,
    /// Ring bytes ever published.
    pub tail: Position,
}

/// A word that no honest peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadWord {
    State { bits: u8 },
    Class { class: u8 },
}

impl Word {
    pub const INITIAL: Self = Self { state: State::Parked, class: 0, tail: Position::ZERO };

    pub const fn encode(self) -> u64 {
        self.state as u64 | (self.class as u64) << 2 | self.tail.get() << 6
    }

    /// # Errors
    /// `BadWord` when the state bits or the class are none that this version knows.
    pub const fn decode(raw: u64) -> Result<Self, BadWord> {
        let state = match raw & 3 {
            0 => State::Parked,
            1 => State::Offered,
            2 => State::Open,
            bits => return Err(BadWord::State { bits: bits as u8 }),
        };
        let class = (raw >> 2 & 15) as u8;
        if class > MAX_CLASS {
            return Err(BadWord::Class { class });
        }
        Ok(Self { state, class, tail: Position::new(raw >> 6) })
    }

    pub const fn with_state(self, state: State) -> Self {
        Self { state, ..self }
    }
}
