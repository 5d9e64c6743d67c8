//! One connection to the broker. It never blocks longer than `PATIENCE`.

use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use yasmin_control::message::COMM_BYTES;
use yasmin_control::status::Status;
use yasmin_control::{BadMessage, CONTROL_VERSION, FromBroker, MESSAGE_BYTES, ToBroker};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Largest status that is read: some hundred thousand connections.
const MAX_STATUS_BYTES: u64 = 256 << 20;

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

    pub fn status(&self) -> Result<Status, Trouble> {
        match self.ask(ToBroker::Status { version: CONTROL_VERSION })? {
            (FromBroker::Status { len_bytes }, Some(memfd)) => {
                let mut text = Vec::new();
                let file = File::from(memfd);
                let len_bytes = len_bytes.min(MAX_STATUS_BYTES);
                text.resize(usize::try_from(len_bytes).unwrap_or(0), 0);
                file.read_exact_at(&mut text, 0)?;
                Ok(serde_json::from_slice(&text)?)
            }
            (FromBroker::Refused { version }, _) => Err(Trouble::Version { theirs: version }),
            _ => Err(Trouble::OffTopic),
        }
    }

    fn ask(&self, question: ToBroker) -> Result<(FromBroker, Option<OwnedFd>), Trouble> {
        send(&self.socket, &question.encode(), SendFlags::NOSIGNAL)?;
        self.wait()?;
        let mut datagram = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let mut into = [IoSliceMut::new(&mut datagram)];
            recvmsg(&self.socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 {
            return Err(Trouble::Silent);
        }
        let answer = FromBroker::decode(&datagram[..received.bytes]).map_err(Trouble::Nonsense)?;
        let mut descriptor = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptor = descriptors.into_iter().next();
            }
        }
        Ok((answer, descriptor))
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
