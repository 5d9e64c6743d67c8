//! This guest's own addresses, by rtnetlink(7): those of global scope, and word when they change.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{self, Errno};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const SCOPE_GLOBAL: u8 = 0;
/// RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR.
const GROUPS: u32 = 0x10 | 0x100;

pub struct Addresses {
    changes: OwnedFd,
}

fn socket() -> io::Result<OwnedFd> {
    rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // Protocol 0, NETLINK_ROUTE.
        None,
    )
}

impl Addresses {
    pub fn watch() -> io::Result<Self> {
        let changes = socket()?;
        rustix::net::bind(&changes, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { changes })
    }

    /// Forgets the news that are there; what they say is asked for anew.
    pub fn drain(&self) {
        let mut buffer = [0; 8192];
        loop {
            match rustix::net::recv(&self.changes, &mut buffer[..], RecvFlags::DONTWAIT) {
                // Too many at once: that, too, is news.
                Ok(_) | Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(_) => return,
            }
        }
    }

    pub fn now(&self) -> io::Result<BTreeSet<IpAddr>> {
        let fd = socket()?;
        let mut request = [0u8; 24];
        request[0..4].copy_from_slice(&24u32.to_ne_bytes());
        request[4..6].copy_from_slice(&RTM_GETADDR.to_ne_bytes());
        request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
        rustix::net::send(&fd, &request, SendFlags::empty())?;
        let mut found = BTreeSet::new();
        let mut buffer = [0; 32768];
        loop {
            let (len, _) = rustix::net::recv(&fd, &mut buffer[..], RecvFlags::empty())?;
            if len == 0 || collect(&buffer[..len], &mut found) {
                return Ok(found);
            }
        }
    }
}

impl AsFd for Addresses {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

/// Takes the addresses of one datagram of answers; true: it was the last.
fn collect(mut rest: &[u8], into: &mut BTreeSet<IpAddr>) -> bool {
    while let Some((len, kind)) = head(rest) {
        if matches!(kind, NLMSG_DONE | NLMSG_ERROR) {
            return true;
        }
        if kind == RTM_NEWADDR
            && let Some(address) = rest.get(16..len).and_then(address_of)
        {
            into.insert(address);
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// Length and kind of the message at the front, if it is whole.
fn head(bytes: &[u8]) -> Option<(usize, u16)> {
    let len = u32::from_ne_bytes(bytes.get(0..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    (len >= 16 && len <= bytes.len()).then_some((len, kind))
}

/// Of an ifaddrmsg and its attributes.
fn address_of(message: &[u8]) -> Option<IpAddr> {
    let (family, scope) = (*message.first()?, *message.get(3)?);
    if scope != SCOPE_GLOBAL {
        return None;
    }
    let mut rest = message.get(8..)?;
    let (mut peer, mut local) = (None, None);
    while rest.len() >= 4 {
        let len = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let kind = u16::from_ne_bytes([rest[2], rest[3]]);
        let value = rest.get(4..len)?;
        match kind {
            IFA_ADDRESS => peer = ip(family, value),
            // Where there is one, IFA_ADDRESS is the other end of a point-to-point link.
            IFA_LOCAL => local = ip(family, value),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    local.or(peer)
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        libc::AF_INET6 => {
            <[u8; 16]>::try_from(value).ok().map(|octets| IpAddr::from(Ipv6Addr::from(octets)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_nobody_elses_business() {
        let found = Addresses::watch().unwrap().now().unwrap();
        assert!(found.iter().all(|address| !address.is_loopback()), "{found:?}");
    }

    #[test]
    fn answers_are_read() {
        let mut message = vec![libc::AF_INET as u8, 24, 0x80, SCOPE_GLOBAL, 2, 0, 0, 0];
        for (kind, value) in [(IFA_ADDRESS, [10, 0, 0, 1]), (IFA_LOCAL, [10, 0, 0, 2])] {
            message.extend(8u16.to_ne_bytes());
            message.extend(u16::to_ne_bytes(kind));
            message.extend(value);
        }
        let mut all = Vec::new();
        for (kind, body) in [(RTM_NEWADDR, &message[..]), (NLMSG_DONE, &[0; 4])] {
            all.extend((16 + body.len() as u32).to_ne_bytes());
            all.extend(kind.to_ne_bytes());
            all.extend([0; 10]);
            all.extend(body);
        }
        let mut found = BTreeSet::new();
        assert!(collect(&all, &mut found));
        assert_eq!(found, BTreeSet::from(["10.0.0.2".parse().unwrap()]));
        message[3] = 253;
        assert_eq!(address_of(&message), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            collect(&bytes, &mut BTreeSet::new());
            address_of(&bytes);
        }
    }
}
