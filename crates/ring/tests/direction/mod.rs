//! One direction with both its ends in one thread, and the stream that goes over it: what the
//! property tests of `yasmin-ring` and `yasmin-call` share.

use yasmin_ring::{Block, Pages, Receiver, ReceiverState, Sender, SenderState};
use yasmin_wire::layout::class_bytes;
use yasmin_wire::{Position, Word};

pub struct Direction {
    block: Block,
    memory: Pages,
    /// What `memory` points to.
    _rings: [Vec<u8>; 2],
    class: u8,
    tx_state: SenderState,
    rx_state: ReceiverState,
}

impl Direction {
    /// A parked one, both of whose ends take rings up to `class`.
    pub fn new(start: u64, class: u8) -> Self {
        let start = Position::new(start);
        let block = Block::new();
        block.scribble(Word { tail: start, ..Word::INITIAL }.encode(), 0, start.get());
        let mut rings = [class_bytes(0), class_bytes(class)].map(|len| vec![0u8; len as usize]);
        let [small, paged] = &mut rings;
        Self {
            block,
            // SAFETY: `_rings` live as long, and are not used beside it.
            memory: unsafe { Pages::new(small.as_mut_ptr(), paged.as_mut_ptr()) },
            _rings: rings,
            class,
            tx_state: SenderState::starting_at(start),
            rx_state: ReceiverState::starting_at(start),
        }
    }

    pub fn tx(&self) -> Sender<'_, Pages> {
        let (block, state) = (&self.block, &self.tx_state);
        Sender { block, state, memory: self.memory, max_class: self.class, class_limit: self.class }
    }

    pub fn rx(&self) -> Receiver<'_, Pages> {
        let (block, state) = (&self.block, &self.rx_state);
        Receiver { block, state, memory: self.memory, max_class: self.class }
    }
}

/// The byte at a place of the program's stream.
pub fn byte_at<P: TryInto<u64>>(place: P) -> u8 {
    let place = place.try_into().unwrap_or_else(|_| panic!("a place below zero"));
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
