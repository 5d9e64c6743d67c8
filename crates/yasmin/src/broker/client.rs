//! One connection to the broker. It never blocks longer than `PATIENCE`.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use yasmin_control::message::COMM_BYTES;
use yasmin_control::status::Status;
use yasmin_control::{BadMessage, CONTROL_VERSION, FromBroker, MESSAGE_BYTES, ToBroker};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Largest status that is read: some hundred thousand connections.
const MAX_STATUS_BYTES: usize = 256 << 20;

/// Longer than any part of it.
const PART_BYTES: usize = 64 << 10;

/// Why the broker cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("no broker listens")]
    Nobody,
    #[error("no permission")]
    Permission,
    #[error("the broker there speaks version {theirs}, this command {CONTROL_VERSION}")]
    Version { theirs: u32 },
    #[error("the broker there does not answer")]
    Silent,
    #[error("the path is too long for a socket")]
    PathTooLong,
    #[error("the broker's answer makes no sense ({0:?})")]
    Nonsense(BadMessage),
    #[error("the broker answered something else than asked")]
    OffTopic,
    #[error("the broker's status cannot be read: {0}")]
    Status(#[from] serde_json::Error),
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::CONNREFUSED => Self::Nobody,
            Errno::ACCESS | Errno::PERM => Self::Permission,
            Errno::AGAIN | Errno::PIPE | Errno::CONNRESET => Self::Silent,
            Errno::NAMETOOLONG => Self::PathTooLong,
            other => Self::System(other.into()),
        }
    }
}

pub struct Client {
    socket: OwnedFd,
}

impl Client {
    pub fn connect(path: &Path) -> Result<Self, Trouble> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &address)?;
        Ok(Self { socket })
    }

    /// Greets the broker, to learn that it is alive and of our version.
    pub fn hello(&self) -> Result<(), Trouble> {
        let mut comm = [0; COMM_BYTES];
        comm[..6].copy_from_slice(b"yasmin");
        match self.ask(ToBroker::Hello { version: CONTROL_VERSION, comm })?.0 {
            FromBroker::Welcome { .. } => Ok(()),
            FromBroker::Refused { version } => Err(Trouble::Version { theirs: version }),
            _ => Err(Trouble::OffTopic),
        }
    }

    /// The status comes in parts; an empty one is the last.
    pub fn status(&self) -> Result<Status, Trouble> {
        let (mut message, mut part) = self.ask(ToBroker::Status { version: CONTROL_VERSION })?;
        let mut text = Vec::new();
        loop {
            match message {
                FromBroker::Status { len_bytes: 0 } => return Ok(serde_json::from_slice(&text)?),
                FromBroker::Status { len_bytes } if len_bytes == part.len() as u64 => {}
                FromBroker::Refused { version } => {
                    return Err(Trouble::Version { theirs: version });
                }
                _ => return Err(Trouble::OffTopic),
            }
            text.append(&mut part);
            if text.len() > MAX_STATUS_BYTES {
                return Err(Trouble::OffTopic);
            }
            (message, part) = self.receive()?;
        }
    }

    fn ask(&self, question: ToBroker) -> Result<(FromBroker, Vec<u8>), Trouble> {
        send(&self.socket, &question.encode(), SendFlags::NOSIGNAL)?;
        self.receive()
    }

    /// A message, and what text follows it.
    fn receive(&self) -> Result<(FromBroker, Vec<u8>), Trouble> {
        self.wait()?;
        let mut datagram = vec![0; PART_BYTES];
        let flags = RecvFlags::empty();
        let (len, _) = retry_on_intr(|| recv(&self.socket, &mut datagram[..], flags))?;
        if len == 0 {
            return Err(Trouble::Silent);
        }
        datagram.truncate(len);
        let text = datagram.split_off(len.min(MESSAGE_BYTES));
        let answer = FromBroker::decode(&datagram).map_err(Trouble::Nonsense)?;
        Ok((answer, text))
    }

    fn wait(&self) -> Result<(), Trouble> {
        let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let mut one = [PollFd::new(&self.socket, PollFlags::IN)];
        match retry_on_intr(|| poll(&mut one, Some(&timeout)))? {
            0 => Err(Trouble::Silent),
            _ => Ok(()),
        }
    }
}
