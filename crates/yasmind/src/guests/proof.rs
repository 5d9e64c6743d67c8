//! Proof to be one end of a TCP connection, for who sits at the other side of a vsock
//! connection.
//!
//! What a guest announces as its address nobody has checked. So both sides prove that they see
//! the TCP connection: by a keyed hash over who talks to whom by vsock. The key is both initial
//! sequence numbers, which are never sent by vsock; the numbers of the guests are in the hash,
//! so that a third guest cannot pass on what it was told.

use crate::facts::Facts;
use crate::pairing::Key;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use yasmin_control::Role;
use yasmin_control::guest::Token;

/// The connector's CID and the acceptor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cids {
    pub connector: u32,
    pub acceptor: u32,
}

/// Of the end that is `prover`, as the end with these facts, `role`, computes it; `None`
/// without BPF.
pub fn of(
    facts: &Facts,
    role: Role,
    prover: Role,
    cids: Option<Cids>,
    token: &Token,
) -> Option<u64> {
    let Key::Numbers { connector, acceptor } = Key::from_numbers(facts.numbers?, role) else {
        return None;
    };
    let cids = cids?;
    let mut hasher = SipHasher24::new_with_keys(
        u64::from(connector) | u64::from(acceptor) << 32,
        u64::from_le_bytes(*b"yasminvm"),
    );
    let mut bare = *token;
    bare.proof = 0;
    hasher.write(&(prover as u32).to_le_bytes());
    hasher.write(&cids.connector.to_le_bytes());
    hasher.write(&cids.acceptor.to_le_bytes());
    hasher.write(&bare.encode());
    // 0 says that there is none.
    Some(hasher.finish().max(1))
}

/// Whether the other side is to be believed: it proves itself, or neither side can prove
/// anything and the administrator says that the address is that guest's.
pub fn holds(expected: Option<u64>, got: u64, is_by_hand: bool) -> bool {
    match (expected, got) {
        (Some(expected), 1..) => expected == got,
        _ => is_by_hand,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Numbers;
    use yasmin_control::directory::mapped;
    use yasmin_control::guest::Endpoint;

    fn facts(numbers: Option<Numbers>) -> Facts {
        Facts {
            cookie: 1,
            netns: Some(1),
            local: "10.0.2.20:40000".parse().unwrap(),
            peer: "10.0.2.21:6379".parse().unwrap(),
            is_plain: true,
            bound: false,
            pid_namespace: 1,
            references: None,
            numbers,
            beyond: None,
        }
    }

    #[test]
    fn both_ends_agree_and_nobody_else() {
        let token = Token {
            connector: Endpoint { address: mapped([10, 0, 2, 20]), port: 40000 },
            acceptor: Endpoint { address: mapped([10, 0, 2, 21]), port: 6379 },
            proof: 0,
        };
        let cids = Cids { connector: 1001, acceptor: 1002 };
        let connector = facts(Some(Numbers { sent: 99, received: 500 }));
        let acceptor = facts(Some(Numbers { sent: 500, received: 100 }));
        let made = of(&connector, Role::Connector, Role::Connector, Some(cids), &token);
        assert!(made.is_some());
        assert_eq!(of(&acceptor, Role::Acceptor, Role::Connector, Some(cids), &token), made);
        let relayed = Cids { connector: 1003, acceptor: 1002 };
        let mut elsewhere = token;
        elsewhere.connector.port = 1;
        for other in [
            of(&acceptor, Role::Acceptor, Role::Acceptor, Some(cids), &token),
            of(&acceptor, Role::Acceptor, Role::Connector, Some(relayed), &token),
            of(&acceptor, Role::Acceptor, Role::Connector, Some(cids), &elsewhere),
            of(&acceptor, Role::Connector, Role::Connector, Some(cids), &token),
        ] {
            assert!(other.is_some() && other != made);
        }
        assert_eq!(of(&facts(None), Role::Connector, Role::Connector, Some(cids), &token), None);
    }

    #[test]
    fn the_administrator_is_believed_where_nothing_is_proven() {
        assert!(holds(Some(5), 5, false));
        assert!(!holds(Some(5), 6, true));
        for (expected, got) in [(None, 0), (None, 6), (Some(5), 0)] {
            assert!(holds(expected, got, true) && !holds(expected, got, false));
        }
    }
}
