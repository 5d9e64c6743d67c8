//! Ends that guests offered and whose peers are in other guests. Pure.
//!
//! A guest can offer any numbers. With those of a connection that is not its own it can spoil that
//! connection's rings, if it knows 64 random bits; it gets memory with nobody who did not offer the
//! same connection's other end.

use std::collections::HashMap;
use std::time::Instant;
use yasmin_control::Role;
use yasmin_control::uplink::Numbers;

/// Ends of one guest that wait.
pub const WAITING_MAX: usize = 16384;

/// An end, by its guest and the guest's own name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GuestEnd {
    pub guest: usize,
    pub id: u64,
}

/// Two ends of one connection that wait for memory.
#[derive(Debug)]
pub struct Pending {
    /// The connector's, the acceptor's.
    pub ends: [GuestEnd; 2],
    pub numbers: Numbers,
    pub since: Instant,
}

impl Pending {
    pub fn guests(&self) -> [usize; 2] {
        self.ends.map(|end| end.guest)
    }

    pub fn is_of(&self, guests: [usize; 2]) -> bool {
        self.guests().iter().all(|guest| guests.contains(guest))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Waits,
    /// The connector's end, the acceptor's end.
    Pair([GuestEnd; 2]),
    /// Both claim to be one end, or both are of one guest: neither is believed.
    Conflict(GuestEnd),
    /// This guest has too many.
    Full,
}

#[derive(Default)]
pub struct Pairs {
    waiting: HashMap<Numbers, (GuestEnd, Role)>,
    /// Of ends that wait.
    numbers: HashMap<GuestEnd, Numbers>,
    /// How many of each guest.
    counts: HashMap<usize, usize>,
}

impl Pairs {
    pub fn offer(&mut self, end: GuestEnd, role: Role, numbers: Numbers) -> Outcome {
        if let Some(&(other, of)) = self.waiting.get(&numbers) {
            self.withdraw(other);
            return match (role, role == of || other.guest == end.guest) {
                (_, true) => Outcome::Conflict(other),
                (Role::Connector, false) => Outcome::Pair([end, other]),
                (Role::Acceptor, false) => Outcome::Pair([other, end]),
            };
        }
        let count = self.counts.entry(end.guest).or_default();
        if *count >= WAITING_MAX || self.numbers.contains_key(&end) {
            return Outcome::Full;
        }
        *count += 1;
        self.waiting.insert(numbers, (end, role));
        self.numbers.insert(end, numbers);
        Outcome::Waits
    }

    pub fn withdraw(&mut self, end: GuestEnd) {
        if let Some(numbers) = self.numbers.remove(&end) {
            self.waiting.remove(&numbers);
            if let Some(count) = self.counts.get_mut(&end.guest) {
                *count -= 1;
            }
        }
    }

    /// Forgets what a guest offered.
    pub fn forget(&mut self, guest: usize) {
        let of_guest: Vec<_> =
            self.numbers.keys().copied().filter(|end| end.guest == guest).collect();
        for end in of_guest {
            self.withdraw(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers { connector: 1, acceptor: 2 };
    const A: GuestEnd = GuestEnd { guest: 0, id: 7 };
    const B: GuestEnd = GuestEnd { guest: 1, id: 7 };

    #[test]
    fn mirrored_ends_of_two_guests_are_a_pair() {
        for (first, second) in
            [(Role::Connector, Role::Acceptor), (Role::Acceptor, Role::Connector)]
        {
            let mut pairs = Pairs::default();
            assert_eq!(pairs.offer(A, first, NUMBERS), Outcome::Waits);
            let wanted = if first == Role::Connector { [A, B] } else { [B, A] };
            assert_eq!(pairs.offer(B, second, NUMBERS), Outcome::Pair(wanted));
            assert_eq!(pairs.offer(B, second, NUMBERS), Outcome::Waits);
        }
    }

    #[test]
    fn who_claims_what_another_has_offered_is_not_believed() {
        let mut pairs = Pairs::default();
        assert_eq!(pairs.offer(A, Role::Connector, NUMBERS), Outcome::Waits);
        assert_eq!(pairs.offer(B, Role::Connector, NUMBERS), Outcome::Conflict(A));
        assert_eq!(pairs.offer(A, Role::Connector, NUMBERS), Outcome::Waits);
        let own = GuestEnd { id: 8, ..A };
        assert_eq!(pairs.offer(own, Role::Acceptor, NUMBERS), Outcome::Conflict(A));
    }

    #[test]
    fn one_guest_has_a_bounded_number() {
        let mut pairs = Pairs::default();
        for id in 0..WAITING_MAX as u64 {
            let numbers = Numbers { connector: id as u32, acceptor: 0 };
            assert_eq!(
                pairs.offer(GuestEnd { guest: 0, id }, Role::Connector, numbers),
                Outcome::Waits
            );
        }
        let more = Numbers { connector: 0, acceptor: 1 };
        let end = GuestEnd { guest: 0, id: u64::MAX };
        assert_eq!(pairs.offer(end, Role::Connector, more), Outcome::Full);
        assert_eq!(pairs.offer(B, Role::Connector, more), Outcome::Waits);
        pairs.withdraw(B);
        pairs.forget(0);
        assert_eq!(pairs.offer(end, Role::Connector, more), Outcome::Waits);
    }
}
