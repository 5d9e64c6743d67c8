//! What the broker learns of a socket that a process names.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use yasmin_control::guest::Endpoint;

/// One end of a connection, as its kernel socket describes it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// SO_COOKIE: no other socket of this kernel ever has it.
    pub cookie: u64,
    /// The network namespace's cookie; `None` before Linux 5.14.
    pub netns: Option<u64>,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// Established, and no data travelled in its SYN: its positions can be counted.
    pub is_plain: bool,
    /// Bound to a device: what its addresses mean depends on the device.
    pub bound: bool,
    /// Of the process that has it: its pid namespace's inode.
    pub pid_namespace: u64,
    /// References to the socket's file: descriptors, messages under way that carry one, calls
    /// inside the kernel. `None` where it cannot be read.
    pub references: Option<u64>,
    /// `None` without BPF.
    pub numbers: Option<Numbers>,
    /// The cookie of the namespace in which the peer has to be, if nobody on the way changes
    /// addresses. `None` where the way does not tell.
    pub beyond: Option<u64>,
}

impl Facts {
    /// Whether the two cannot be the ends of one connection, whatever their numbers say: each has the
    /// other's addresses, so nobody changed them on the way, and one has its peer in another namespace
    /// than the other's.
    ///
    /// Linux makes initial sequence numbers of a hash of the addresses, with one secret for all
    /// namespaces, and of the time in steps of 64 ns (secure_tcp_seq). So connections with equal
    /// addresses that begin at once have equal numbers (seen: 3 of 12,870).
    pub fn contradicts(&self, peer: &Self) -> bool {
        let mirrors = self.local == peer.peer && self.peer == peer.local;
        let elsewhere = |from: &Self, to: &Self| {
            from.beyond.zip(to.netns).is_some_and(|(beyond, netns)| beyond != netns)
        };
        mirrors && (elsewhere(self, peer) || elsewhere(peer, self))
    }
}

/// The initial sequence numbers of the two directions, as `sight` reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// snd_una - bytes_acked.
    pub sent: u32,
    /// rcv_nxt - bytes_received.
    pub received: u32,
}

/// TCP_ESTABLISHED, in a socket's state and in inet_diag_msg.
pub const ESTABLISHED: u8 = 1;

/// IPv4 mapped into IPv6 as IPv4: one address, one value.
pub fn plain(address: [u8; 16], port: u16) -> SocketAddr {
    let ip = Ipv6Addr::from(address);
    SocketAddr::new(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4), port)
}

pub fn plain_end(end: Endpoint) -> SocketAddr {
    plain(end.address, end.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_in_other_namespaces_than_they_lead_to_contradict_each_other() {
        let end = |netns, beyond, local: &str, peer: &str| Facts {
            cookie: 1,
            netns: Some(netns),
            local: local.parse().unwrap(),
            peer: peer.parse().unwrap(),
            is_plain: true,
            bound: false,
            pid_namespace: 1,
            references: None,
            numbers: None,
            beyond,
        };
        let (a, b) = ("10.0.0.1:1", "10.0.0.2:2");
        let first = end(1, Some(2), a, b);
        assert!(!first.contradicts(&end(2, Some(1), b, a)));
        assert!(first.contradicts(&end(4, Some(3), b, a)));
        assert!(first.contradicts(&end(4, None, b, a)));
        assert!(end(4, None, b, a).contradicts(&first));
        // A bridge or a router: nothing is known.
        assert!(!end(1, None, a, b).contradicts(&end(2, None, b, a)));
        // Their addresses were changed on the way, and with them where it leads.
        assert!(!first.contradicts(&end(4, Some(4), "10.0.9.9:80", a)));
    }

    #[test]
    fn mapped_addresses_are_plain() {
        let mapped: Ipv6Addr = "::ffff:127.0.0.1".parse().unwrap();
        assert_eq!(plain(mapped.octets(), 80), "127.0.0.1:80".parse().unwrap());
        let other: Ipv6Addr = "::1".parse().unwrap();
        assert_eq!(plain(other.octets(), 80), "[::1]:80".parse().unwrap());
    }
}
