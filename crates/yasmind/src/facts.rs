//! What the broker learns of an offered socket before it closes it.

use crate::sys::sockopt;
use rustix::fd::AsFd;
use std::net::{IpAddr, SocketAddr};
use yasmin_control::Decline;

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
    /// `None` without BPF.
    pub numbers: Option<Numbers>,
}

/// The initial sequence numbers of the two directions, as `numbers` reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// snd_una - bytes_acked.
    pub sent: u32,
    /// rcv_nxt - bytes_received.
    pub received: u32,
}

/// TCP_ESTABLISHED, in tcpi_state and in inet_diag_msg.
pub const ESTABLISHED: u8 = 1;

/// TCPI_OPT_SYN_DATA: data travelled in the SYN, so the sequence numbers are off by it.
const SYN_DATA: u8 = 0x20;

/// Looks at `fd`. May block for as long as its owner likes: several of these calls take the
/// socket's lock, which a sender holds while it copies from its memory.
///
/// # Errors
/// Why this descriptor gets no channel.
pub fn examine(fd: impl AsFd) -> Result<Facts, Decline> {
    let fd = fd.as_fd();
    let not_tcp = |_| Decline::NotTcp;
    let (domain, kind, protocol) = sockopt::kind(fd).map_err(not_tcp)?;
    let is_tcp = [libc::AF_INET, libc::AF_INET6].contains(&(domain as i32))
        && kind as i32 == libc::SOCK_STREAM
        && protocol as i32 == libc::IPPROTO_TCP;
    if !is_tcp {
        return Err(Decline::NotTcp);
    }
    let (state, options) = sockopt::tcp_state_and_options(fd).map_err(not_tcp)?;
    let local = rustix::net::getsockname(fd).ok().and_then(|any| SocketAddr::try_from(any).ok());
    let peer = rustix::net::getpeername(fd).ok().flatten();
    let peer = peer.and_then(|any| SocketAddr::try_from(any).ok());
    let (Some(local), Some(peer)) = (local.map(plain), peer.map(plain)) else {
        return Err(Decline::NotTcp);
    };
    if local == peer {
        return Err(Decline::SelfConnected);
    }
    Ok(Facts {
        cookie: sockopt::cookie(fd).map_err(not_tcp)?,
        netns: sockopt::netns_cookie(fd).ok(),
        local,
        peer,
        is_plain: state == ESTABLISHED && options & SYN_DATA == 0,
        bound: sockopt::bound_device(fd).map_or(true, |device| device != 0),
        numbers: None,
    })
}

/// IPv4 mapped into IPv6 as IPv4, and neither flow label nor scope: one address, one value.
fn plain(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
        v4 => v4,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let connector = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (connector, listener.accept().unwrap().0)
    }

    #[test]
    fn two_ends_mirror_each_other() {
        let (connector, acceptor) = pair("127.0.0.1:0");
        let (a, b) = (examine(&connector).unwrap(), examine(&acceptor).unwrap());
        assert_eq!((a.local, a.peer), (b.peer, b.local));
        assert_ne!(a.cookie, b.cookie);
        assert_eq!(a.netns, b.netns);
        assert!(!a.bound);
        assert!(a.is_plain && b.is_plain);
    }

    #[test]
    fn others_are_declined() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect("127.0.0.1:9").unwrap();
        assert_eq!(examine(&udp).unwrap_err(), Decline::NotTcp);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(examine(&listener).unwrap_err(), Decline::NotTcp);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(examine(&file).unwrap_err(), Decline::NotTcp);
        let (connector, acceptor) = pair("127.0.0.1:0");
        drop(acceptor);
        // The FIN is there when the end of the stream is read.
        std::io::Read::read(&mut &connector, &mut [0]).unwrap();
        assert!(!examine(&connector).unwrap().is_plain);
    }

    #[test]
    fn mapped_addresses_are_plain() {
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:80".parse().unwrap();
        assert_eq!(plain(mapped), "127.0.0.1:80".parse().unwrap());
    }
}
