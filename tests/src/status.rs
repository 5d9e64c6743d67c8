//! Asking the broker what it knows, as `yasmin status` does.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
pub use yasmin_control::status::{Broker, Connection, Direction, End, Status};
use yasmin_control::{CONTROL_VERSION, FromBroker, MESSAGE_BYTES, ToBroker};

/// # Errors
/// What went wrong, for people.
pub fn ask(socket: &Path) -> Result<Status, String> {
    let broker = dial(socket)?;
    let question = ToBroker::Status { version: CONTROL_VERSION }.encode();
    send(&broker, &question, SendFlags::NOSIGNAL).map_err(|error| format!("send: {error}"))?;
    let mut text = Vec::new();
    loop {
        // A part is a message and the text behind it; an empty one is the last.
        let mut part = vec![0; 1 << 16];
        let (len, _) =
            rustix::io::retry_on_intr(|| recv(&broker, &mut part[..], RecvFlags::empty()))
                .map_err(|error| format!("recv: {error}"))?;
        let (message, more) = part[..len].split_at(len.min(MESSAGE_BYTES));
        match FromBroker::decode(message).map_err(|error| format!("answer: {error:?}"))? {
            FromBroker::Status { len_bytes: 0 } => break,
            FromBroker::Status { .. } => text.extend_from_slice(more),
            other => return Err(format!("answered {other:?}")),
        }
    }
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
