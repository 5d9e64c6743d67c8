//! Closes what may take as long as somebody outside likes: a socket lingers (SO_LINGER), a file
//! lies in a user's own file system. And messages that nobody read may hold either.
//!
//! Each user has a thread while there is something of his to close: who makes it wait, waits for
//! himself. What has to come after a close is told by a bell.

use crate::sys::sockopt;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const STACK_BYTES: usize = 64 << 10;

enum Then {
    Nothing,
    /// Tells that so named is closed.
    Tell(u64),
}

struct Waiting {
    fd: OwnedFd,
    /// Its connection is reset before: that waits, too, for whoever is inside a call on it.
    is_reset: bool,
    then: Then,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    has_thread: bool,
}

/// By user; an entry is there while something is being closed or waits for it.
type Queues = HashMap<u32, Queue>;

#[derive(Clone)]
pub struct Closer {
    queues: Arc<Mutex<Queues>>,
    /// What is closed and was not asked for yet.
    closed: Arc<Mutex<Vec<u64>>>,
    /// Readable when there is something of the kind.
    bell: Arc<OwnedFd>,
}

impl Closer {
    pub fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { queues: Arc::default(), closed: Arc::default(), bell: Arc::new(bell) })
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The names of what `close_and_tell` has closed since this was last asked.
    pub fn closed(&self) -> Vec<u64> {
        let _ = io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what came from `uid`.
    pub fn close(&self, uid: u32, fd: OwnedFd) {
        self.push(uid, Waiting { fd, is_reset: false, then: Then::Nothing });
    }

    /// The same; the bell tells when nothing here holds it any more.
    pub fn close_and_tell(&self, uid: u32, fd: OwnedFd, name: u64) {
        self.push(uid, Waiting { fd, is_reset: false, then: Then::Tell(name) });
    }

    /// The same after a reset of the connection, whoever else has the socket.
    pub fn reset(&self, uid: u32, socket: OwnedFd) {
        self.push(uid, Waiting { fd: socket, is_reset: true, then: Then::Nothing });
    }

    fn push(&self, uid: u32, waiting: Waiting) {
        let mut queues = self.lock();
        let queue = queues.entry(uid).or_default();
        queue.waiting.push_back(waiting);
        if queue.has_thread {
            return;
        }
        let closer = self.clone();
        let thread = std::thread::Builder::new().name("closer".into()).stack_size(STACK_BYTES);
        match thread.spawn(move || closer.serve(uid)) {
            Ok(_) => queue.has_thread = true,
            // The next one tries again.
            Err(error) => crate::rarely::warn!("cannot start a thread: {error}"),
        }
    }

    /// How much of `uid` is not closed yet.
    pub fn pending(&self, uid: u32) -> usize {
        // The one that is being closed too.
        self.lock().get(&uid).map_or(0, |queue| queue.waiting.len() + 1)
    }

    fn serve(&self, uid: u32) {
        let mut queues = self.lock();
        while let Some(one) = queues.get_mut(&uid).and_then(|queue| queue.waiting.pop_front()) {
            drop(queues);
            if one.is_reset {
                sockopt::reset(&one.fd);
            }
            drop(one.fd);
            if let Then::Tell(name) = one.then {
                self.closed.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                let _ = io::write(&self.bell, &1u64.to_ne_bytes());
            }
            queues = self.lock();
        }
        queues.remove(&uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn a_lingering_close_holds_its_user_up_and_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closer = Closer::new().unwrap();
        let mut kept = Vec::new();
        for _ in 0..3 {
            let connector = TcpStream::connect(address).unwrap();
            let (acceptor, _) = listener.accept().unwrap();
            // More than the peer, which never reads, takes: the close lingers.
            connector.set_nonblocking(true).unwrap();
            while std::io::Write::write(&mut &connector, &[0; 65536]).is_ok() {}
            let linger = Some(Duration::from_secs(3600));
            rustix::net::sockopt::set_socket_linger(&connector, linger).unwrap();
            kept.push(acceptor);
            closer.close(1, connector.into());
        }
        closer.close(2, std::fs::File::open("/dev/null").unwrap().into());
        closer.close_and_tell(1, std::fs::File::open("/dev/null").unwrap().into(), 7);
        let (mut pipe, end) = std::io::pipe().unwrap();
        closer.close_and_tell(2, end.into(), 8);
        while closer.pending(2) > 0 {
            std::thread::yield_now();
        }
        assert!(closer.pending(1) >= 3);
        assert_eq!(closer.closed(), [8], "and not what waits behind the lingering ones");
        assert_eq!(std::io::Read::read(&mut pipe, &mut [0]).unwrap(), 0);
        // Once the peers are gone, so is what the closes waited for.
        drop(kept);
        while closer.pending(1) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(closer.closed(), [7]);
    }
}
