//! The table of a segment's members: a slot for each process that has attached.
//!
//! A lock word names its holder by slot and generation. The slot tells which domain, epoch and
//! process that is, for people to read. Only the state is used to decide.
//!
//! **A slot's life.** Free, attached, gone. Who claims one has the slot's sign of life first
//! ([`super::FileLife`]), /then/ raises the generation and attaches; so an attached slot without
//! its sign of life is that of a dead member. Who finds that out marks it as gone. The generation
//! never comes back: what names an older one names a dead member, whoever has the slot now. A
//! slot whose generations are used up (262,143 claims) is left alone for good.
//!
//! A member that was declared dead although it was only paused finds its slot's state changed as
//! soon as it acquires anything ([`super::Error::Fenced`]).

use super::primitive::{AtomicU64, Ordering};
use super::{Error, Life, Liveness, MAX_MEMBERS, Number, holder::MAX_GENERATION};

const PHASE_BITS: u32 = 2;
const FREE: u64 = 0;
const ATTACHED: u64 = 1;
const GONE: u64 = 2;

/// Who a member is, told when it attaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub domain: u32,
    /// The process id in its own namespace.
    pub process: u32,
    /// Of the domain: changes when it starts anew.
    pub epoch: u64,
}

/// 64 bytes, aligned to 8; zeroed is free.
#[repr(C)]
pub struct Slot {
    /// Generation, and phase in the lowest [`PHASE_BITS`] bits.
    state: AtomicU64,
    /// Domain in the upper half, process in the lower.
    domain_process: AtomicU64,
    epoch: AtomicU64,
    reserved: [u64; 5],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64);

#[cfg(any(test, loom))]
impl Default for Slot {
    fn default() -> Self {
        let word = || AtomicU64::new(0);
        Self { state: word(), domain_process: word(), epoch: word(), reserved: [0; 5] }
    }
}

impl Slot {
    pub(crate) fn is_attached_as(&self, generation: u32) -> bool {
        self.state.load(Ordering::Acquire) == state(generation, ATTACHED)
    }
}

fn state(generation: u32, phase: u64) -> u64 {
    u64::from(generation) << PHASE_BITS | phase
}

fn parse(peer_state: u64) -> Result<(u32, u64), Error> {
    let generation = peer_state >> PHASE_BITS;
    let phase = peer_state & ((1 << PHASE_BITS) - 1);
    if generation > u64::from(MAX_GENERATION) || phase > GONE {
        return Err(Error::Spoiled { what: "a member slot's state", value: peer_state });
    }
    Ok((generation as u32, phase))
}

/// The whole table; slots are counted from 1.
#[derive(Clone, Copy)]
pub struct Members<'a> {
    slots: &'a [Slot],
}

impl<'a> Members<'a> {
    pub fn new(slots: &'a [Slot]) -> Self {
        Self { slots: &slots[..slots.len().min(MAX_MEMBERS)] }
    }

    pub(crate) fn slot(&self, number: Number) -> Option<&'a Slot> {
        self.slots.get(number.slot() - 1)
    }

    /// Claims a slot. `take` gets the sign of life of a slot, or None where somebody who lives
    /// has it; its errors end the search.
    pub fn claim<T, E: From<Error>>(
        &self,
        identity: Identity,
        mut take: impl FnMut(usize) -> Result<Option<T>, E>,
    ) -> Result<(Number, T), E> {
        // Slots that say of themselves that they are in use, only where there is no other.
        for wanted in [false, true] {
            for (index, slot) in self.slots.iter().enumerate() {
                let (_, phase) = parse(slot.state.load(Ordering::Relaxed))?;
                if (phase == ATTACHED) != wanted {
                    continue;
                }
                let Some(sign) = take(index + 1)? else { continue };
                let (generation, _) = parse(slot.state.load(Ordering::Acquire))?;
                let Some(number) = Number::new(index + 1, generation + 1) else { continue };
                let who = u64::from(identity.domain) << 32 | u64::from(identity.process);
                slot.state.store(state(generation, GONE), Ordering::Release);
                slot.domain_process.store(who, Ordering::Relaxed);
                slot.epoch.store(identity.epoch, Ordering::Relaxed);
                slot.state.store(state(number.generation(), ATTACHED), Ordering::Release);
                return Ok((number, sign));
            }
        }
        Err(Error::TooMany("members of the segment").into())
    }

    /// Gives a slot back; its sign of life goes afterwards. What it still holds goes to the next
    /// ones as that of a dead member.
    pub fn release(&self, number: Number) {
        self.leave(number, FREE);
    }

    /// To all others this member is dead from now on, and it learns so with its next acquisition.
    /// The broker's word, for members whose domain is gone. Whether it was alive to the table.
    pub fn declare_dead(&self, number: Number) -> bool {
        self.leave(number, GONE)
    }

    fn leave(&self, number: Number, phase: u64) -> bool {
        let from = state(number.generation(), ATTACHED);
        let to = state(number.generation(), phase);
        self.slot(number).is_some_and(|slot| {
            slot.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// Whether the member lives. Unknown where it cannot be asked now.
    pub fn life(&self, number: Number, liveness: &dyn Liveness) -> Result<Life, Error> {
        let life = self.look(number, liveness)?;
        if life == Life::Dead {
            // For those who ask later. Lost against its own leave, or the next claim: dead as well.
            self.leave(number, GONE);
        }
        Ok(life)
    }

    /// The same for who has no right to write.
    pub fn look(&self, number: Number, liveness: &dyn Liveness) -> Result<Life, Error> {
        let spoiled = Error::Spoiled { what: "a member number", value: number.bits().into() };
        let slot = self.slot(number).ok_or(spoiled)?;
        let (generation, phase) = parse(slot.state.load(Ordering::Acquire))?;
        if number.generation() > generation {
            return Err(spoiled);
        }
        if number.generation() < generation || phase != ATTACHED {
            return Ok(Life::Dead);
        }
        Ok(liveness.probe(number.slot()))
    }

    /// Who the member is or was; None where the slot is another one's now.
    pub fn identity(&self, number: Number) -> Option<Identity> {
        let slot = self.slot(number)?;
        let before = slot.state.load(Ordering::Acquire);
        let who = slot.domain_process.load(Ordering::Relaxed);
        let epoch = slot.epoch.load(Ordering::Acquire);
        let is_same = slot.state.load(Ordering::Relaxed) == before
            && before >> PHASE_BITS == u64::from(number.generation());
        is_same.then_some(Identity { domain: (who >> 32) as u32, process: who as u32, epoch })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Living(RefCell<Vec<usize>>);

    impl Liveness for Living {
        fn probe(&self, slot: usize) -> Life {
            if self.0.borrow().contains(&slot) { Life::Alive } else { Life::Dead }
        }
    }

    fn claim(members: Members<'_>, living: &Living) -> Result<Number, Error> {
        let identity = Identity { domain: 3, process: 7, epoch: 11 };
        let (number, ()) = members.claim(identity, |slot| {
            let mut living = living.0.borrow_mut();
            let is_free = !living.contains(&slot);
            if is_free {
                living.push(slot);
            }
            Ok::<_, Error>(is_free.then_some(()))
        })?;
        assert_eq!(members.identity(number), Some(identity));
        Ok(number)
    }

    #[test]
    fn the_slot_of_a_dead_member_is_used_again_under_another_number() {
        let slots = [Slot::default(), Slot::default()];
        let members = Members::new(&slots);
        let living = Living(RefCell::default());
        let (first, second) = (claim(members, &living).unwrap(), claim(members, &living).unwrap());
        assert_eq!(claim(members, &living), Err(Error::TooMany("members of the segment")));
        assert_eq!(members.life(first, &living), Ok(Life::Alive));
        living.0.borrow_mut().retain(|slot| *slot != first.slot());
        let third = claim(members, &living).unwrap();
        assert_eq!(third.slot(), first.slot());
        assert_ne!(third, first);
        assert_eq!(members.life(first, &living), Ok(Life::Dead));
        assert_eq!(members.life(third, &living), Ok(Life::Alive));
        assert_eq!(members.identity(first), None);
        members.release(second);
        assert_eq!(members.life(second, &living), Ok(Life::Dead));
    }

    #[test]
    fn rubbish_is_an_error() {
        let slots = [Slot::default()];
        let members = Members::new(&slots);
        let living = Living(RefCell::default());
        assert!(members.life(Number::new(2, 1).unwrap(), &living).is_err());
        assert!(members.life(Number::new(1, 9).unwrap(), &living).is_err());
        slots[0].state.store(u64::MAX, Ordering::Relaxed);
        assert!(members.life(Number::new(1, 1).unwrap(), &living).is_err());
        assert!(claim(members, &living).is_err());
    }

    #[test]
    fn used_up_slots_are_left_alone() {
        let slots = [Slot::default(), Slot::default()];
        slots[0].state.store(state(MAX_GENERATION, GONE), Ordering::Relaxed);
        let living = Living(RefCell::default());
        assert_eq!(claim(Members::new(&slots), &living).unwrap().slot(), 2);
    }
}
