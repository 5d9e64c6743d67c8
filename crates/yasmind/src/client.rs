//! One connected process: its socket, its mailbox, its offers.
//!
//! Nothing here ever waits for the process: a send that does not fit makes it `Gone`. And no
//! descriptor is received but with KEEP: whoever has received one has to close it, which may
//! take as long as its owner likes.

use crate::cpu_time::cpu_time;
use crate::errands::Errands;
use crate::sys::memfd;
use crate::sys::page::Page;
use crate::sys::sockopt::{self, Credentials};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{self, Errno};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;
use yasmin_control::{FromBroker, MESSAGE_BYTES};

/// Of CPU time, what a message may cost. The kernel wakes whatever watches the other end's socket, and
/// its process can have any number of epoll sets do so.
const COSTLY: Duration = Duration::from_millis(20);

/// SCM_MAX_FD of the kernel: with room for so many, it never closes one itself because it did
/// not fit, which would be done in our thread and can block.
const FDS_PER_MESSAGE: usize = 253;

/// The process is to be disconnected: it hung up, or does not read what it is sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone;

/// What one datagram brought.
pub struct Received {
    /// Bytes that were sent, up to one more than a message has.
    raw: [u8; MESSAGE_BYTES + 1],
    len_bytes: usize,
    pub fds: Vec<OwnedFd>,
}

impl Received {
    pub fn bytes(&self) -> &[u8] {
        &self.raw[..self.len_bytes]
    }
}

struct Mailbox {
    page: Page,
    /// Messages sent.
    sent: u64,
}

pub struct Client {
    fd: OwnedFd,
    pub pid: u32,
    pub uid: u32,
    /// As it named itself in HELLO, printable.
    pub program: String,
    /// `Some` from HELLO on.
    mailbox: Option<Mailbox>,
    /// Its name of a connection, and ours of the end.
    pub ends: HashMap<u64, u64>,
    /// What the event loop waits for.
    pub interest: EventFlags,
    /// It waits for its turn to be read from.
    pub is_queued: bool,
    rights: Rights,
}

/// Whether there may be descriptors in messages that were not read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rights {
    /// The kernel lets nobody send any.
    Refused,
    /// Before Linux 6.16: each message is looked at before it is received.
    LookedFor,
    /// KEEP is expected, or came: they are received, and closed elsewhere.
    Taken,
}

impl Client {
    pub fn new(fd: OwnedFd) -> Self {
        // It cannot fail for a Unix socket that was accepted; nobody has this user's number.
        let nobody = Credentials { pid: 0, uid: u32::MAX };
        let Credentials { pid, uid } = sockopt::peer_credentials(&fd).unwrap_or(nobody);
        // Since the connect, or not at all: only what listens says so before.
        let refuses_rights = sockopt::passes_rights(&fd).is_ok_and(|passes| !passes);
        Self {
            fd,
            pid,
            uid,
            program: String::new(),
            mailbox: None,
            ends: HashMap::new(),
            interest: EventFlags::IN,
            is_queued: false,
            rights: if refuses_rights { Rights::Refused } else { Rights::LookedFor },
        }
    }

    pub const fn credentials(&self) -> Credentials {
        Credentials { pid: self.pid, uid: self.uid }
    }

    pub fn greeted(&self) -> bool {
        self.mailbox.is_some()
    }

    /// Takes HELLO: makes the mailbox and answers WELCOME.
    pub fn greet(&mut self, comm: &[u8]) -> Result<(), Gone> {
        self.program = printable(comm);
        let (page, memfd) = memfd::page_to_read(c"yasmin-mailbox").map_err(|error| {
            crate::rarely::warn!(pid = self.pid, "no mailbox: {error}");
            Gone
        })?;
        self.mailbox = Some(Mailbox { page, sent: 0 });
        let version = yasmin_control::CONTROL_VERSION;
        self.send(FromBroker::Welcome { version }, &[memfd.as_fd()])
    }

    /// What to wait for. A process that leaves much unread is not read from until it has read;
    /// its own sends then fail, and nobody else's.
    pub fn wanted_interest(&self) -> EventFlags {
        if self.writable() { EventFlags::IN } else { EventFlags::OUT }
    }

    /// The kernel says no when more than a quarter of the queue is unread.
    pub fn writable(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)) != Ok(0)
    }

    /// The next datagram; `None` when there is none.
    pub fn receive(&self) -> Result<Option<Received>, Gone> {
        match self.rights {
            Rights::Refused => {}
            Rights::LookedFor => match self.next_has_rights() {
                Ok(false) => {}
                Ok(true) => return Err(Gone),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(_) => return Err(Gone),
            },
            Rights::Taken => return self.receive_all(),
        }
        let mut raw = [0; MESSAGE_BYTES + 1];
        match recv(&self.fd, &mut raw, RecvFlags::DONTWAIT) {
            // The end of the connection, or an empty datagram, which nobody honest sends.
            Ok((0, _)) => Err(Gone),
            Ok((len_bytes, _)) => Ok(Some(Received { raw, len_bytes, fds: Vec::new() })),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => Err(Gone),
        }
    }

    /// Whether the next message brings descriptors. They stay in it.
    fn next_has_rights(&self) -> io::Result<bool> {
        let mut raw = [0; 1];
        let message = recvmsg(
            &self.fd,
            &mut [IoSliceMut::new(&mut raw)],
            &mut RecvAncillaryBuffer::default(),
            RecvFlags::DONTWAIT | RecvFlags::PEEK,
        )?;
        Ok(message.flags.contains(ReturnFlags::CTRUNC))
    }

    /// From now on the process may send one message with a descriptor.
    pub fn expect_rights(&mut self) -> Result<(), Gone> {
        if self.rights == Rights::Refused && sockopt::set_pass_rights(&self.fd, true).is_err() {
            return Err(Gone);
        }
        self.rights = Rights::Taken;
        Ok(())
    }

    /// With the descriptors beside it.
    fn receive_all(&self) -> Result<Option<Received>, Gone> {
        let mut raw = [0; MESSAGE_BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_PER_MESSAGE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let result = recvmsg(
            &self.fd,
            &mut [IoSliceMut::new(&mut raw)],
            &mut control,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        );
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        match result {
            // An empty datagram with descriptors is passed on, so that they are closed elsewhere.
            Ok(message) if message.bytes == 0 && fds.is_empty() => Err(Gone),
            Ok(message) => Ok(Some(Received { raw, len_bytes: message.bytes, fds })),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => Err(Gone),
        }
    }

    /// Sends a message and raises the mailbox.
    pub fn send(&mut self, message: FromBroker, fds: &[BorrowedFd]) -> Result<(), Gone> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(fds));
            debug_assert!(fits, "no message has more than two descriptors");
        }
        self.transmit(&message.encode(), &mut control, &[])
    }

    /// Sends a part of the status; an empty one is the last.
    pub fn send_status(&mut self, text: &[u8]) -> Result<(), Gone> {
        let message = FromBroker::Status { len_bytes: text.len() as u64 };
        self.transmit(&message.encode(), &mut SendAncillaryBuffer::default(), text)
    }

    /// Sends what is no `FromBroker`, with at most one descriptor, and text behind it.
    pub fn send_raw(
        &mut self,
        message: [u8; MESSAGE_BYTES],
        fds: &[BorrowedFd],
        text: &[u8],
    ) -> Result<(), Gone> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        self.transmit(&message, &mut control, text)
    }

    /// The process that connected; `None` where this kernel does not tell of a process that we do
    /// not see, or it has ended.
    pub fn pidfd(&self) -> Option<OwnedFd> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        sockopt::peer_pidfd(&self.fd).ok().or_else(|| {
            let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
            pidfd_open(pid, PidfdFlags::empty()).ok()
        })
    }

    fn transmit(
        &mut self,
        raw: &[u8; MESSAGE_BYTES],
        control: &mut SendAncillaryBuffer,
        text: &[u8],
    ) -> Result<(), Gone> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let before = cpu_time();
        loop {
            match sendmsg(&self.fd, &[IoSlice::new(raw), IoSlice::new(text)], control, flags) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!(pid = self.pid, "cannot send: {error}");
                    return Err(Gone);
                }
            }
        }
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.sent += 1;
            // Release: the process loads this word with acquire, /then/ receives the message.
            mailbox.page.word(0).store(mailbox.sent, Release);
        }
        let cost = cpu_time().saturating_sub(before);
        if cost > COSTLY {
            tracing::debug!(pid = self.pid, "a message cost {cost:?}");
            return Err(Gone);
        }
        Ok(())
    }

    /// Hangs up. Messages that were not read go with it, what they may bring is closed, and who
    /// watches the other end is woken.
    pub fn close(self, errands: &Errands) {
        errands.close(self.uid, self.fd);
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A name that a process gave itself, safe to show.
pub fn printable(comm: &[u8]) -> String {
    comm.iter()
        .take_while(|&&byte| byte != 0)
        .map(|&byte| if byte == b' ' || byte.is_ascii_graphic() { byte as char } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_move_a_terminal() {
        assert_eq!(printable(b"redis-server\0\0\0\0"), "redis-server");
        assert_eq!(printable(b"a\x1b[2Jb\nc\xff\0x"), "a?[2Jb?c?");
        assert_eq!(printable(b""), "");
    }
}
