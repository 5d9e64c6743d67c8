//! Asking the broker what it knows, as `yasmin status` does.

use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
pub use yasmin_control::status::{Broker, Connection, Direction, End, Status};
use yasmin_control::{CONTROL_VERSION, FromBroker, MESSAGE_BYTES, ToBroker};

/// # Errors
/// What went wrong, for people.
pub fn ask(socket: &Path) -> Result<Status, String> {
    let broker = dial(socket)?;
    let question = ToBroker::Status { version: CONTROL_VERSION }.encode();
    send(&broker, &question, SendFlags::NOSIGNAL).map_err(|error| format!("send: {error}"))?;
    let mut datagram = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut datagram)];
        recvmsg(&broker, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })
    .map_err(|error| format!("recvmsg: {error}"))?;
    let answer = FromBroker::decode(&datagram[..received.bytes])
        .map_err(|error| format!("answer: {error:?}"))?;
    let FromBroker::Status { len_bytes } = answer else {
        return Err(format!("answered {answer:?}"));
    };
    let mut memfd = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            memfd = descriptors.into_iter().next();
        }
    }
    let file = File::from(memfd.ok_or("no descriptor beside the status")?);
    let mut text = vec![0; usize::try_from(len_bytes).map_err(|error| error.to_string())?];
    file.read_exact_at(&mut text, 0).map_err(|error| format!("read: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("JSON: {error}"))
}

/// A connection to the broker's socket.
///
/// # Errors
/// What went wrong, for people.
pub fn dial(socket: &Path) -> Result<OwnedFd, String> {
    let broker =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| format!("socket: {error}"))?;
    let address = SocketAddrUnix::new(socket).map_err(|error| format!("path: {error}"))?;
    connect(&broker, &address).map_err(|error| format!("connect: {error}"))?;
    rustix::net::sockopt::set_socket_timeout(
        &broker,
        rustix::net::sockopt::Timeout::Recv,
        Some(crate::process::deadline()),
    )
    .map_err(|error| format!("timeout: {error}"))?;
    Ok(broker)
}

/// Bytes by ring and by TCP, of both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    pub ring: u64,
    pub tcp: u64,
}

/// What the connections that `chosen` picks have carried so far.
pub fn bytes_of(status: &Status, chosen: impl Fn(&End) -> bool) -> Bytes {
    let mut bytes = Bytes::default();
    for connection in &status.connections {
        if connection.ends.iter().any(&chosen) {
            for end in &connection.ends {
                bytes.ring += end.sends.ring_bytes;
                bytes.tcp += end.sends.tcp_bytes;
            }
        }
    }
    bytes
}

/// What all connections have carried, closed ones included.
pub fn bytes_in_all(status: &Status) -> Bytes {
    let open = bytes_of(status, |_| true);
    Bytes {
        ring: open.ring + status.broker.closed_ring_bytes,
        tcp: open.tcp + status.broker.closed_tcp_bytes,
    }
}
