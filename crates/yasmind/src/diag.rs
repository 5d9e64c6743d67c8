//! Asks the kernel for a socket by its addresses and cookie (NETLINK_SOCK_DIAG, sock_diag(7)),
//! and where packets between two addresses go (NETLINK_ROUTE, rtnetlink(7)).
//!
//! Both answer for the network namespace that the broker runs in, to any user, and wait for
//! nobody.

use crate::facts::{ESTABLISHED, Facts};
use crate::sys::sockopt;
use rustix::fd::OwnedFd;
use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::net::{IpAddr, SocketAddr};

const HEADER_BYTES: usize = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;
/// rtm_type: for this very machine.
const RTN_LOCAL: u8 = 2;

/// struct inet_diag_msg, and where its fields are.
const DIAG_BYTES: usize = 72;
const DIAG_STATE: usize = 1;
const DIAG_DEVICE: usize = 40;
const DIAG_UID: usize = 64;
const DIAG_INODE: usize = 68;
const INET_DIAG_SOCKOPT: u16 = 22;
/// Of struct inet_diag_sockopt's first byte: IP_FREEBIND, IP_TRANSPARENT.
const FOREIGN_ADDRESS: u8 = 0x04 | 0x20;

pub struct Diag {
    sockets: OwnedFd,
    routes: OwnedFd,
    /// Cookie of the namespace that the answers are about; `None` before Linux 5.14.
    pub netns: Option<u64>,
}

/// A socket of this namespace.
#[derive(Debug)]
pub struct Found {
    pub inode: u64,
    /// Whose it is: of whoever made or accepted it.
    pub uid: u32,
    pub is_established: bool,
    /// Bound to a device, or made to use an address that need not be this machine's.
    pub bound: bool,
}

impl Diag {
    pub fn open() -> io::Result<Self> {
        let open = |protocol| {
            let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
            rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)
        };
        let sockets = open(Some(netlink::SOCK_DIAG))?;
        let netns = sockopt::netns_cookie(&sockets).ok();
        Ok(Self { sockets, routes: open(None)?, netns })
    }

    /// The socket with this cookie, if it has these addresses in this namespace.
    pub fn find(&self, cookie: u64, local: SocketAddr, peer: SocketAddr) -> Option<Found> {
        let request = socket_request(cookie, local, peer)?;
        let mut answer = [0u8; 2048];
        let answer = ask(&self.sockets, &request, &mut answer)?;
        let found = body(answer, SOCK_DIAG_BY_FAMILY)?;
        let u32_at = |at: usize| found.get(at..at + 4).map(|raw| u32::from_ne_bytes(array(raw)));
        let flags = attribute(found.get(DIAG_BYTES..)?, INET_DIAG_SOCKOPT)
            .and_then(|flags| flags.first().copied());
        Some(Found {
            inode: u64::from(u32_at(DIAG_INODE)?),
            uid: u32_at(DIAG_UID)?,
            is_established: found.get(DIAG_STATE) == Some(&ESTABLISHED),
            bound: u32_at(DIAG_DEVICE)? != 0 || flags.is_some_and(|f| f & FOREIGN_ADDRESS != 0),
        })
    }

    /// Whether the very socket that `facts` describes is established now, in this namespace,
    /// under those addresses.
    pub fn holds(&self, facts: &Facts) -> bool {
        self.find(facts.cookie, facts.local, facts.peer).is_some_and(|found| found.is_established)
    }

    /// Whether what one of these addresses sends to the other is delivered in this namespace.
    ///
    /// Only then are two sockets with these addresses the ends of one connection. A transparent
    /// proxy has two that are not: the addresses are other machines'.
    pub fn stays_here(&self, a: SocketAddr, b: SocketAddr) -> bool {
        self.delivers(a, b) && self.delivers(b, a)
    }

    fn delivers(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let Some(request) = route_request(from, to) else { return false };
        let mut answer = [0u8; 2048];
        let route = ask(&self.routes, &request, &mut answer)
            .and_then(|answer| body(answer, RTM_NEWROUTE)?.get(7).copied());
        route == Some(RTN_LOCAL)
    }
}

fn ask<'a>(fd: &OwnedFd, request: &[u8], answer: &'a mut [u8]) -> Option<&'a [u8]> {
    let len = retry(|| {
        rustix::net::send(fd, request, SendFlags::empty())?;
        // The kernel answers inside the send; DONTWAIT says so.
        let (len, _) = rustix::net::recv(fd, &mut answer[..], RecvFlags::DONTWAIT)?;
        Ok(len)
    });
    match len {
        Ok(len) => answer.get(..len),
        Err(error) => {
            crate::rarely::warn!("netlink: {error}");
            None
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn array<const N: usize>(raw: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(raw);
    out
}

/// struct nlmsghdr, and what follows.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    out[0..4].copy_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    out[4..6].copy_from_slice(&kind.to_ne_bytes());
    out[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    out.extend_from_slice(body);
    out
}

/// What follows the header of an answer of this kind (and not NLMSG_ERROR).
fn body(answer: &[u8], kind: u16) -> Option<&[u8]> {
    let len = u32::from_ne_bytes(array(answer.get(0..4)?)) as usize;
    if answer.get(4..6)? != kind.to_ne_bytes() {
        return None;
    }
    answer.get(HEADER_BYTES..len.min(answer.len()))
}

/// The attribute of this kind among these, without its header.
fn attribute(mut raw: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(array(raw.get(0..2)?)));
        let attribute = raw.get(4..len)?;
        if raw.get(2..4)? == kind.to_ne_bytes() {
            return Some(attribute);
        }
        raw = raw.get(len.next_multiple_of(4)..)?;
    }
}

fn family(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// struct inet_diag_req_v2. The cookie is part of the question: the kernel answers ESTALE when
/// another socket holds the addresses by now.
fn socket_request(cookie: u64, local: SocketAddr, peer: SocketAddr) -> Option<Vec<u8>> {
    /// INET_DIAG_NOCOOKIE: whatever socket has the addresses.
    const ANY: u64 = u64::MAX;
    if cookie == ANY || local.is_ipv4() != peer.is_ipv4() {
        return None;
    }
    let mut out = [0u8; 56];
    out[0] = family(local.ip());
    out[1] = libc::IPPROTO_TCP as u8;
    // No more is asked for: struct tcp_info would wait for whoever is inside a call on the socket.
    out[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    out[8..10].copy_from_slice(&local.port().to_be_bytes());
    out[10..12].copy_from_slice(&peer.port().to_be_bytes());
    let (local, peer) = (octets(local.ip()), octets(peer.ip()));
    out[12..12 + local.len()].copy_from_slice(&local);
    out[28..28 + peer.len()].copy_from_slice(&peer);
    out[48..52].copy_from_slice(&(cookie as u32).to_ne_bytes());
    out[52..56].copy_from_slice(&((cookie >> 32) as u32).to_ne_bytes());
    Some(message(SOCK_DIAG_BY_FAMILY, &out))
}

/// struct rtmsg: the way of a TCP packet that this machine sends.
fn route_request(from: SocketAddr, to: SocketAddr) -> Option<Vec<u8>> {
    if from.is_ipv4() != to.is_ipv4() {
        return None;
    }
    let (source, destination) = (octets(from.ip()), octets(to.ip()));
    let bits = (destination.len() * 8) as u8;
    let mut out = vec![0u8; 12];
    out[0] = family(to.ip());
    out[1] = bits;
    out[2] = bits;
    let mut push = |kind: u16, value: &[u8]| {
        out.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(4), 0);
    };
    push(RTA_DST, &destination);
    push(RTA_SRC, &source);
    push(RTA_IP_PROTO, &[libc::IPPROTO_TCP as u8]);
    push(RTA_SPORT, &from.port().to_be_bytes());
    push(RTA_DPORT, &to.port().to_be_bytes());
    Some(message(RTM_GETROUTE, &out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn inode(socket: impl AsFd) -> u64 {
        rustix::fs::fstat(socket).unwrap().st_ino
    }

    #[test]
    fn a_socket_has_its_addresses_until_it_is_closed() {
        let diag = Diag::open().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let connector = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (acceptor, _) = listener.accept().unwrap();
            let ends = [connector.local_addr().unwrap(), connector.peer_addr().unwrap()];
            let cookie = |socket: &TcpStream| rustix::net::sockopt::socket_cookie(socket).unwrap();
            let find = |cookie| diag.find(cookie, ends[0], ends[1]);
            let found = find(cookie(&connector)).unwrap();
            assert_eq!(found.inode, inode(&connector));
            assert_eq!(found.uid, rustix::process::geteuid().as_raw());
            assert!(found.is_established && !found.bound);
            assert!(diag.find(cookie(&acceptor), ends[1], ends[0]).is_some());
            assert!(find(cookie(&acceptor)).is_none(), "the cookie is part of the question");
            assert!(find(u64::MAX).is_none(), "no cookie is one of any socket");
            let before = cookie(&connector);
            drop(connector);
            assert!(!find(before).is_some_and(|found| found.is_established));
        }
    }

    #[test]
    fn what_goes_to_other_machines_does_not_stay_here() {
        let diag = Diag::open().unwrap();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(diag.stays_here(at("127.0.0.1:40000"), at("127.0.0.1:80")));
        assert!(diag.stays_here(at("[::1]:40000"), at("[::1]:80")));
        for other in ["192.0.2.1:80", "[2001:db8::1]:80"] {
            let here = if at(other).is_ipv4() { at("127.0.0.1:1") } else { at("[::1]:1") };
            assert!(!diag.stays_here(at(other), here));
            assert!(!diag.stays_here(here, at(other)));
            assert!(!diag.stays_here(at(other), at(other)));
        }
    }
}
