//! Who holds a lock, in the bits that a lock word has for it.
//!
//! A process id says nothing in another PID namespace or guest. So a holder is a thread of a
//! member: a slot of the segment's table, the slot's generation, and a number of the thread in
//! its process. The slot says which domain, epoch and process that is ([`super::member`]).

use super::Error;

const SLOT_BITS: u32 = 12;
const GENERATION_BITS: u32 = 18;
const NUMBER_BITS: u32 = SLOT_BITS + GENERATION_BITS;
const THREAD_BITS: u32 = 14;
pub(crate) const HOLDER_BITS: u32 = NUMBER_BITS + THREAD_BITS;

/// The most members that a segment has at a time.
pub const MAX_MEMBERS: usize = (1 << SLOT_BITS) - 1;
pub(crate) const MAX_GENERATION: u32 = (1 << GENERATION_BITS) - 1;
pub(crate) const MAX_THREADS: u16 = (1 << THREAD_BITS) - 1;

/// A member for all times: slot (from 1) and generation (from 1). No other member of the segment
/// ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u32);

impl Number {
    pub(crate) fn new(slot: usize, generation: u32) -> Option<Self> {
        let fits = (1..=MAX_MEMBERS).contains(&slot) && (1..=MAX_GENERATION).contains(&generation);
        fits.then_some(Self(generation << SLOT_BITS | slot as u32))
    }

    pub(crate) fn from_bits(peer_bits: u32) -> Option<Self> {
        let slot = peer_bits as usize & MAX_MEMBERS;
        Self::new(slot, peer_bits >> SLOT_BITS)
    }

    /// The first one of a slot, for models.
    #[cfg(loom)]
    pub fn first(slot: usize) -> Self {
        Self::new(slot, 1).unwrap()
    }

    /// 30 bits, never 0.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// From 1.
    pub fn slot(self) -> usize {
        self.0 as usize & MAX_MEMBERS
    }

    pub fn generation(self) -> u32 {
        self.0 >> SLOT_BITS
    }
}

impl TryFrom<u32> for Number {
    type Error = Error;

    /// Errors: Spoiled, for what no member has.
    fn try_from(peer_bits: u32) -> Result<Self, Error> {
        let spoiled = Error::Spoiled { what: "a member number", value: peer_bits.into() };
        Self::from_bits(peer_bits).ok_or(spoiled)
    }
}

/// A thread of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub number: Number,
    /// From 1, unique in its process among living threads.
    pub thread: u16,
}

impl Holder {
    /// [`HOLDER_BITS`] bits, never 0; the thread lowest.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.number.bits()) << THREAD_BITS | u64::from(self.thread)
    }

    pub(crate) fn from_bits(peer_bits: u64) -> Result<Self, Error> {
        let spoiled = Error::Spoiled { what: "the holder in a lock word", value: peer_bits };
        let thread = (peer_bits & u64::from(MAX_THREADS)) as u16;
        let number = u32::try_from(peer_bits >> THREAD_BITS).ok().and_then(Number::from_bits);
        match number {
            Some(number) if thread != 0 => Ok(Self { number, thread }),
            _ => Err(spoiled),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back() {
        for (slot, generation, thread) in [(1, 1, 1), (MAX_MEMBERS, MAX_GENERATION, MAX_THREADS)] {
            let holder = Holder { number: Number::new(slot, generation).unwrap(), thread };
            assert!(holder.bits() < 1 << HOLDER_BITS);
            assert_eq!(Holder::from_bits(holder.bits()), Ok(holder));
            assert_eq!((holder.number.slot(), holder.number.generation()), (slot, generation));
        }
    }

    #[test]
    fn rubbish_is_no_holder() {
        // No thread, no slot, no generation, too wide.
        for bits in [1 << 26 | 1 << 14, 1 << 26 | 1, 1 << 14 | 1, 1 << 44 | 1 << 26 | 1 << 14 | 1] {
            assert!(Holder::from_bits(bits).is_err(), "{bits:#x}");
        }
    }
}
