//! Asks the kernel which socket holds an address pair (NETLINK_SOCK_DIAG, sock_diag(7)).
//!
//! It answers for the network namespace that the broker runs in, to any user, and takes no
//! socket's lock.

use crate::facts::{ESTABLISHED, Facts};
use crate::sys::sockopt;
use rustix::fd::OwnedFd;
use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::net::{IpAddr, SocketAddr};

const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;

pub struct Diag {
    fd: OwnedFd,
    /// Cookie of the namespace that the answers are about; `None` before Linux 5.14.
    pub netns: Option<u64>,
}

impl Diag {
    pub fn open() -> io::Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        let netns = sockopt::netns_cookie(&fd).ok();
        Ok(Self { fd, netns })
    }

    /// Whether the very socket that `facts` describes is established now, in this namespace,
    /// under those addresses.
    pub fn holds(&self, facts: &Facts) -> bool {
        let Some(request) = request(facts) else { return false };
        let mut answer = [0u8; 256];
        let ask = || -> io::Result<usize> {
            rustix::net::send(&self.fd, &request, SendFlags::empty())?;
            // The kernel answers inside the send; DONTWAIT says so.
            let (len, _) = rustix::net::recv(&self.fd, &mut answer[..], RecvFlags::DONTWAIT)?;
            Ok(len)
        };
        let len = match retry(ask) {
            Ok(len) => len,
            Err(error) => {
                tracing::warn!("sock_diag: {error}");
                return false;
            }
        };
        established(&answer[..len.min(answer.len())])
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

/// nlmsghdr and inet_diag_req_v2. The cookie is part of the question: the kernel answers
/// ESTALE when another socket holds the addresses by now.
fn request(facts: &Facts) -> Option<[u8; REQUEST_BYTES]> {
    let mut out = [0u8; REQUEST_BYTES];
    out[0..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    out[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let body = &mut out[HEADER_BYTES..];
    body[0] = match facts.local {
        SocketAddr::V4(_) => libc::AF_INET as u8,
        SocketAddr::V6(_) => libc::AF_INET6 as u8,
    };
    body[1] = libc::IPPROTO_TCP as u8;
    body[4..8].copy_from_slice(&(1u32 << ESTABLISHED).to_ne_bytes());
    body[8..10].copy_from_slice(&facts.local.port().to_be_bytes());
    body[10..12].copy_from_slice(&facts.peer.port().to_be_bytes());
    match (facts.local.ip(), facts.peer.ip()) {
        (IpAddr::V4(local), IpAddr::V4(peer)) => {
            body[12..16].copy_from_slice(&local.octets());
            body[28..32].copy_from_slice(&peer.octets());
        }
        (IpAddr::V6(local), IpAddr::V6(peer)) => {
            body[12..28].copy_from_slice(&local.octets());
            body[28..44].copy_from_slice(&peer.octets());
        }
        _ => return None,
    }
    body[48..52].copy_from_slice(&(facts.cookie as u32).to_ne_bytes());
    body[52..56].copy_from_slice(&((facts.cookie >> 32) as u32).to_ne_bytes());
    Some(out)
}

/// Whether the answer is an inet_diag_msg of an established socket (and not NLMSG_ERROR).
fn established(answer: &[u8]) -> bool {
    let Some(kind) = answer.get(4..6) else { return false };
    kind == SOCK_DIAG_BY_FAMILY.to_ne_bytes() && answer.get(HEADER_BYTES + 1) == Some(&ESTABLISHED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::examine;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_socket_holds_its_addresses_until_it_is_closed() {
        let diag = Diag::open().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let connector = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (acceptor, _) = listener.accept().unwrap();
            let (a, b) = (examine(&connector).unwrap(), examine(&acceptor).unwrap());
            assert_eq!(a.netns, diag.netns);
            assert!(diag.holds(&a) && diag.holds(&b));
            let stranger = Facts { cookie: b.cookie, ..a.clone() };
            assert!(!diag.holds(&stranger), "the cookie is part of the question");
            drop(connector);
            assert!(!diag.holds(&a));
        }
    }
}
