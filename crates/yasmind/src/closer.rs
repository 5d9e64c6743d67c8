//! Closes what may take as long as somebody outside likes: a socket lingers (SO_LINGER), a file
//! lies in a user's own file system. And messages that nobody read may hold either.
//!
//! Each user has a thread while there is something of his to close: who makes it wait, waits for
//! himself.

use crate::sys::sockopt;
use rustix::fd::OwnedFd;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const STACK_BYTES: usize = 64 << 10;

struct Waiting {
    fd: OwnedFd,
    /// Its connection is reset before: that waits, too, for whoever is inside a call on it.
    is_reset: bool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    has_thread: bool,
}

/// By user; an entry is there while something is being closed or waits for it.
type Queues = HashMap<u32, Queue>;

#[derive(Clone, Default)]
pub struct Closer {
    queues: Arc<Mutex<Queues>>,
}

impl Closer {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what came from `uid`.
    pub fn close(&self, uid: u32, fd: OwnedFd) {
        self.push(uid, Waiting { fd, is_reset: false });
    }

    /// The same after a reset of the connection, whoever else has the socket.
    pub fn reset(&self, uid: u32, socket: OwnedFd) {
        self.push(uid, Waiting { fd: socket, is_reset: true });
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
            drop(one);
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
        let closer = Closer::default();
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
        while closer.pending(2) > 0 {
            std::thread::yield_now();
        }
        assert!(closer.pending(1) >= 3);
        // Once the peers are gone, so is what the closes waited for.
        drop(kept);
        while closer.pending(1) > 0 {
            std::thread::yield_now();
        }
    }
}
