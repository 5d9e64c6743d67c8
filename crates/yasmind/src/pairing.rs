//! Offers that wait for their peer's. Pure: no kernel, no clock of its own.

use crate::facts::Numbers;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use yasmin_control::Role;

/// What both ends of one connection have in common. Two connections have it only where their
/// addresses are equal, which `Proof::holds` tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The sequence numbers of the first data byte of each direction.
    Numbers { connector: u32, acceptor: u32 },
    /// The addresses, inside the broker's network namespace.
    Addresses { connector: SocketAddr, acceptor: SocketAddr },
}

impl Key {
    /// The connector's SYN is one of the bytes that were acknowledged to it, and so is not to
    /// the acceptor: the kernel makes the accepted socket when the handshake is over, with
    /// snd_una past the SYN and bytes_acked 0. On both sides rcv_nxt starts past the SYN with
    /// bytes_received 0 (tcp_rcv_synsent_state_process, tcp_create_openreq_child).
    pub const fn from_numbers(numbers: Numbers, role: Role) -> Self {
        match role {
            Role::Connector => Self::Numbers {
                connector: numbers.sent.wrapping_add(1),
                acceptor: numbers.received,
            },
            Role::Acceptor => Self::Numbers { connector: numbers.received, acceptor: numbers.sent },
        }
    }

    pub const fn from_addresses(local: SocketAddr, peer: SocketAddr, role: Role) -> Self {
        match role {
            Role::Connector => Self::Addresses { connector: local, acceptor: peer },
            Role::Acceptor => Self::Addresses { connector: peer, acceptor: local },
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody has offered the other end yet.
    Waits,
    /// `other` waited for this one; it waits no more.
    Pair { other: u64 },
    /// `other` claims to be the same end. Neither is believed, and it waits no more.
    Conflict { other: u64 },
    /// Too many wait.
    Full,
}

#[derive(Debug)]
struct Waiting {
    serial: u64,
    role: Role,
    since: Instant,
}

/// Ends are named by serials that only ever rise, so that the order of serials is the order
/// of age.
#[derive(Debug)]
pub struct Table {
    waiting: HashMap<Key, Waiting>,
    by_age: BTreeMap<u64, Key>,
    limit: usize,
}

impl Table {
    pub fn new(limit: usize) -> Self {
        Self { waiting: HashMap::new(), by_age: BTreeMap::new(), limit }
    }

    /// Takes an end's offer.
    pub fn offer(&mut self, key: Key, role: Role, serial: u64, now: Instant) -> Outcome {
        if let Some(found) = self.waiting.get(&key) {
            let (other, same_role) = (found.serial, found.role == role);
            self.withdraw(other);
            return if same_role { Outcome::Conflict { other } } else { Outcome::Pair { other } };
        }
        if self.waiting.len() >= self.limit {
            return Outcome::Full;
        }
        self.waiting.insert(key, Waiting { serial, role, since: now });
        self.by_age.insert(serial, key);
        Outcome::Waits
    }

    /// Forgets an end, whether it waits or not.
    pub fn withdraw(&mut self, serial: u64) {
        if let Some(key) = self.by_age.remove(&serial) {
            self.waiting.remove(&key);
        }
    }

    /// Takes out the next end that has waited for `patience`; call until there is none.
    pub fn expire(&mut self, now: Instant, patience: Duration) -> Option<u64> {
        let (&serial, key) = self.by_age.first_key_value()?;
        let since = self.waiting.get(key)?.since;
        if now.saturating_duration_since(since) < patience {
            return None;
        }
        self.withdraw(serial);
        Some(serial)
    }

    /// When the oldest began to wait.
    pub fn oldest(&self) -> Option<Instant> {
        let (_, key) = self.by_age.first_key_value()?;
        self.waiting.get(key).map(|waiting| waiting.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(n: u32) -> Key {
        Key::Numbers { connector: n, acceptor: !n }
    }

    #[test]
    fn connector_and_acceptor_make_a_pair_in_either_order() {
        for roles in [[Role::Connector, Role::Acceptor], [Role::Acceptor, Role::Connector]] {
            let mut table = Table::new(8);
            let now = Instant::now();
            assert_eq!(table.offer(key(1), roles[0], 10, now), Outcome::Waits);
            assert_eq!(table.offer(key(1), roles[1], 11, now), Outcome::Pair { other: 10 });
            assert_eq!(table.offer(key(1), roles[1], 12, now), Outcome::Waits);
        }
    }

    #[test]
    fn a_withdrawn_offer_pairs_with_nobody() {
        let mut table = Table::new(8);
        let now = Instant::now();
        assert_eq!(table.offer(key(1), Role::Connector, 10, now), Outcome::Waits);
        table.withdraw(10);
        assert_eq!(table.offer(key(1), Role::Acceptor, 11, now), Outcome::Waits);
    }

    #[test]
    fn two_that_claim_one_end_are_both_out() {
        let mut table = Table::new(8);
        let now = Instant::now();
        assert_eq!(table.offer(key(1), Role::Connector, 10, now), Outcome::Waits);
        assert_eq!(table.offer(key(1), Role::Connector, 11, now), Outcome::Conflict { other: 10 });
        assert_eq!(table.offer(key(1), Role::Acceptor, 12, now), Outcome::Waits);
    }

    #[test]
    fn a_full_table_still_pairs() {
        let mut table = Table::new(1);
        let now = Instant::now();
        assert_eq!(table.offer(key(1), Role::Connector, 10, now), Outcome::Waits);
        assert_eq!(table.offer(key(2), Role::Connector, 11, now), Outcome::Full);
        assert_eq!(table.offer(key(1), Role::Acceptor, 12, now), Outcome::Pair { other: 10 });
    }

    #[test]
    fn the_oldest_expire_first() {
        let mut table = Table::new(8);
        let start = Instant::now();
        assert_eq!(table.offer(key(1), Role::Connector, 10, start), Outcome::Waits);
        assert_eq!(table.offer(key(2), Role::Connector, 11, start + SECOND), Outcome::Waits);
        assert_eq!(table.oldest(), Some(start));
        assert_eq!(table.expire(start + SECOND, 2 * SECOND), None);
        assert_eq!(table.expire(start + 2 * SECOND, 2 * SECOND), Some(10));
        assert_eq!(table.expire(start + 2 * SECOND, 2 * SECOND), None);
        assert_eq!(table.offer(key(1), Role::Acceptor, 12, start), Outcome::Waits);
    }

    #[test]
    fn numbers_of_the_two_ends_give_one_key() {
        // ISNs 1000 (connector) and 0xffff_ffff (acceptor), as the kernel leaves them.
        let connector = Numbers { sent: 1000, received: 0 };
        let acceptor = Numbers { sent: 0, received: 1001 };
        assert_eq!(
            Key::from_numbers(connector, Role::Connector),
            Key::from_numbers(acceptor, Role::Acceptor)
        );
        assert_ne!(
            Key::from_numbers(connector, Role::Acceptor),
            Key::from_numbers(acceptor, Role::Connector)
        );
    }

    proptest! {
        #[test]
        fn table_and_ages_agree(steps in prop::collection::vec((0u32..6, any::<bool>(), 0u8..4), 0..200)) {
            let mut table = Table::new(4);
            let now = Instant::now();
            for (serial, (n, connects, action)) in steps.into_iter().enumerate() {
                let serial = serial as u64;
                let role = if connects { Role::Connector } else { Role::Acceptor };
                match action {
                    0 => table.withdraw(serial / 2),
                    1 => { table.expire(now, Duration::ZERO); }
                    _ => { table.offer(key(n), role, serial, now); }
                }
                prop_assert_eq!(table.waiting.len(), table.by_age.len());
                prop_assert!(table.waiting.len() <= 4);
            }
        }
    }
}
