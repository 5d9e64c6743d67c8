//! A connection to a socket of QEMU's: connects again by itself, and never waits.

use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// More than that is neither kept nor waits to be written: the other side is broken.
const BUFFER_BYTES: usize = 4 << 20;

/// Where the other end is.
enum Way {
    /// Somebody listens there, now or later.
    Path(PathBuf),
    /// It is connected: there is this one socket, and no other when that is lost.
    Given(Option<UnixStream>),
}

pub struct Stream {
    way: Way,
    socket: Option<UnixStream>,
    pub inbox: Vec<u8>,
    outbox: Vec<u8>,
    again_at: Instant,
}

/// What became of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Same,
    Connected,
    Lost,
}

impl Stream {
    pub const fn new(path: PathBuf, now: Instant) -> Self {
        Self::by(Way::Path(path), now)
    }

    /// By a socket that is connected. `None`: there is nobody.
    pub const fn over(socket: Option<UnixStream>, now: Instant) -> Self {
        Self::by(Way::Given(socket), now)
    }

    const fn by(way: Way, now: Instant) -> Self {
        Self { way, socket: None, inbox: Vec::new(), outbox: Vec::new(), again_at: now }
    }

    /// Who listened at the other end, by process; 0: nobody that can be seen here.
    pub fn peer_pid(&self) -> u32 {
        let cred = self.socket.as_ref().map(rustix::net::sockopt::socket_peercred);
        cred.and_then(Result::ok).map_or(0, |cred| cred.pid.as_raw_pid().cast_unsigned())
    }

    /// When to call `turn` though nothing is ready; `None` while it is connected.
    pub fn next_expiry(&self) -> Option<Instant> {
        let is_over = matches!(self.way, Way::Given(None));
        (self.socket.is_none() && !is_over).then_some(self.again_at)
    }

    pub fn watched(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let out = if self.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        Some((self.socket.as_ref()?.as_fd(), PollFlags::IN | out))
    }

    /// Connects, writes and reads what is possible.
    pub fn turn(&mut self, now: Instant) -> Turn {
        if self.socket.is_none() {
            return self.connect(now);
        }
        if self.transfer().is_none() {
            self.lose(now);
            return Turn::Lost;
        }
        Turn::Same
    }

    fn connect(&mut self, now: Instant) -> Turn {
        if now < self.again_at {
            return Turn::Same;
        }
        self.again_at = now + AGAIN_AFTER;
        let socket = match &mut self.way {
            // A Unix socket's connect waits only for a listener whose queue is full: QEMU's is not.
            Way::Path(path) => UnixStream::connect(path).ok(),
            Way::Given(socket) => socket.take(),
        };
        let Some(socket) = socket else { return Turn::Same };
        if socket.set_nonblocking(true).is_err() {
            return Turn::Same;
        }
        self.socket = Some(socket);
        Turn::Connected
    }

    pub fn lose(&mut self, now: Instant) {
        self.socket = None;
        self.inbox.clear();
        self.outbox.clear();
        self.again_at = now + AGAIN_AFTER;
    }

    pub fn send(&mut self, bytes: &[u8]) {
        if self.socket.is_some() && self.outbox.len() <= BUFFER_BYTES {
            self.outbox.extend(bytes);
            // What does not fit goes with the next turn.
            let _ = self.flush();
        }
    }

    /// Whether all that was sent is written.
    pub const fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    fn flush(&mut self) -> Option<()> {
        let socket = self.socket.as_mut()?;
        while !self.outbox.is_empty() {
            match socket.write(&self.outbox) {
                Ok(0) => return None,
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        (self.outbox.len() <= BUFFER_BYTES).then_some(())
    }

    /// `None`: the connection is over.
    fn transfer(&mut self) -> Option<()> {
        self.flush()?;
        let mut buffer = [0; 16384];
        // A part of what there may be: others have their turn.
        for _ in 0..16 {
            match self.socket.as_mut()?.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.inbox.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        (self.inbox.len() <= BUFFER_BYTES).then_some(())
    }
}
