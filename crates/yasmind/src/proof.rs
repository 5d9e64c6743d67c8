//! How two ends are proven to be the ends of one connection (DESIGN section 3).

use crate::diag::Diag;
use crate::facts::Facts;
use crate::pairing::Key;
use yasmin_control::Role;

/// Either both initial sequence numbers, or the addresses inside one namespace.
pub enum Proof {
    /// Read from the sockets themselves by BPF: 64 bits that both ends share, in whatever
    /// namespaces, through whatever address translation. Whoever forges them (TCP_REPAIR) has
    /// to know them, which takes a look at the connection's packets.
    Numbers,
    /// Without BPF: mirrored addresses of sockets in the broker's own namespace, and bound to
    /// no device.
    Addresses(Diag),
}

impl Proof {
    /// As `status` names it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Numbers => "bpf",
            Self::Addresses(_) => "addresses",
        }
    }

    /// What the end shares with its peer; `None` when nothing can prove it.
    pub fn key(&self, facts: &Facts, role: Role) -> Option<Key> {
        match self {
            Self::Numbers => Some(Key::from_numbers(facts.numbers?, role)),
            Self::Addresses(diag) => {
                let netns = facts.netns?;
                if facts.bound || diag.netns != Some(netns) {
                    return None;
                }
                Some(Key::from_addresses(netns, facts.local, facts.peer, role))
            }
        }
    }

    /// Whether two ends of one key still are the ends of one connection. The numbers are of
    /// one connection for ever; addresses may have changed hands since they were offered.
    pub fn holds(&self, ends: [&Facts; 2]) -> bool {
        ends[0].cookie != ends[1].cookie
            && match self {
                Self::Numbers => true,
                Self::Addresses(diag) => ends.into_iter().all(|facts| diag.holds(facts)),
            }
    }
}
