//! Does what may take as long as somebody outside likes, so that the one thread that serves never
//! does: closes a socket that lingers (SO_LINGER), or a file in a user's own file system, or messages
//! that nobody read and that may hold either; and touches memory that a user's processes can punch holes
//! into, for which the kernel has whoever touches it wait.
//!
//! Each user has a thread, for as long as there is something of his to be done and a moment longer:
//! who makes it wait, waits for himself. What has to come afterwards is told by a bell.

use crate::sys::sockopt;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const STACK_BYTES: usize = 256 << 10;

/// How long a thread waits for the next errand before it ends.
const IDLE: Duration = Duration::from_secs(1);

/// What an errand brought, for who sent it.
pub enum Found {
    /// The socket of a residue is closed. `None`: the residue is lost.
    Residue(Option<OwnedFd>),
    /// Of a report: connections as JSON, with commas between them.
    Connections(Vec<u8>),
}

struct Errand {
    run: Box<dyn FnOnce() + Send>,
    /// It closes something.
    is_close: bool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Errand>,
    /// Descriptors that are not closed yet.
    unclosed: usize,
    /// The thread is at an errand.
    is_busy: bool,
    has_thread: bool,
    /// Of the thread, which waits for errands.
    wake: Arc<Condvar>,
}

/// Whose thread does it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    User(u32),
    /// What a user is told of connections, also of others' if he is root.
    Report(u32),
}

/// An entry is there while something is done or waits for it, or a thread waits for more.
type Queues = HashMap<Whose, Queue>;

#[derive(Clone)]
pub struct Errands {
    queues: Arc<Mutex<Queues>>,
    /// What was found and not asked for yet, by name.
    found: Arc<Mutex<Vec<(u64, Found)>>>,
    /// Readable when there is something of the kind.
    bell: Arc<OwnedFd>,
}

impl Errands {
    pub fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { queues: Arc::default(), found: Arc::default(), bell: Arc::new(bell) })
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// What errands have found since this was last asked, by the names that they were given.
    pub fn found(&self) -> Vec<(u64, Found)> {
        let _ = io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what came from `uid`.
    pub fn close(&self, uid: u32, fd: OwnedFd) {
        self.push(Whose::User(uid), Errand { run: Box::new(|| drop(fd)), is_close: true });
    }

    /// Resets the connection, whoever else has the socket, if `is_lost`, and closes it.
    pub fn end(&self, uid: u32, socket: OwnedFd, is_lost: impl FnOnce() -> bool + Send + 'static) {
        let run = move || {
            // This waits, too, for whoever is inside a call on it.
            if is_lost() {
                sockopt::reset(&socket);
            }
        };
        self.push(Whose::User(uid), Errand { run: Box::new(run), is_close: true });
    }

    /// Touches memory of that user's.
    pub fn touch(&self, uid: u32, touch: impl FnOnce() + Send + 'static) {
        self.push(Whose::User(uid), Errand { run: Box::new(touch), is_close: false });
    }

    /// Closes something of that user's, and tells by the bell what it found.
    pub fn find(&self, uid: u32, name: u64, find: impl FnOnce() -> Found + Send + 'static) {
        self.tell(Whose::User(uid), name, true, find);
    }

    /// Reads what that user wants to see.
    pub fn report(&self, uid: u32, name: u64, find: impl FnOnce() -> Found + Send + 'static) {
        self.tell(Whose::Report(uid), name, false, find);
    }

    fn tell(
        &self,
        whose: Whose,
        name: u64,
        is_close: bool,
        find: impl FnOnce() -> Found + Send + 'static,
    ) {
        let (found, bell) = (self.found.clone(), self.bell.clone());
        let run = move || {
            let one = find();
            found.lock().unwrap_or_else(PoisonError::into_inner).push((name, one));
            let _ = io::write(&bell, &1u64.to_ne_bytes());
        };
        self.push(whose, Errand { run: Box::new(run), is_close });
    }

    fn push(&self, whose: Whose, errand: Errand) {
        let mut queues = self.lock();
        let queue = queues.entry(whose).or_default();
        queue.unclosed += usize::from(errand.is_close);
        queue.waiting.push_back(errand);
        if queue.has_thread {
            queue.wake.notify_one();
            return;
        }
        let errands = self.clone();
        let thread = std::thread::Builder::new().name("errands".into()).stack_size(STACK_BYTES);
        match thread.spawn(move || errands.serve(whose)) {
            Ok(_) => queue.has_thread = true,
            // The next one tries again.
            Err(error) => crate::rarely::warn!("cannot start a thread: {error}"),
        }
    }

    /// Whether everything is done.
    pub fn are_done(&self) -> bool {
        self.lock().values().all(|queue| queue.waiting.is_empty() && !queue.is_busy)
    }

    /// How much of `uid` is not closed yet.
    pub fn unclosed(&self, uid: u32) -> usize {
        self.lock().get(&Whose::User(uid)).map_or(0, |queue| queue.unclosed)
    }

    fn serve(&self, whose: Whose) {
        let mut queues = self.lock();
        while let Some(queue) = queues.get_mut(&whose) {
            if let Some(Errand { run, is_close }) = queue.waiting.pop_front() {
                queue.is_busy = true;
                drop(queues);
                run();
                queues = self.lock();
                if let Some(queue) = queues.get_mut(&whose) {
                    queue.unclosed -= usize::from(is_close);
                    queue.is_busy = false;
                }
                continue;
            }
            let wake = queue.wake.clone();
            let waited = wake.wait_timeout(queues, IDLE).unwrap_or_else(PoisonError::into_inner);
            queues = waited.0;
            if waited.1.timed_out() && queues.get(&whose).is_some_and(|one| one.waiting.is_empty())
            {
                queues.remove(&whose);
            }
        }
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
        let errands = Errands::new().unwrap();
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
            errands.close(1, connector.into());
        }
        errands.close(2, std::fs::File::open("/dev/null").unwrap().into());
        let tell = |uid, name, fd: OwnedFd| {
            errands.find(uid, name, move || Found::Residue(Some(fd)));
        };
        tell(1, 7, std::fs::File::open("/dev/null").unwrap().into());
        let (mut pipe, end) = std::io::pipe().unwrap();
        tell(2, 8, end.into());
        while errands.unclosed(2) > 0 {
            std::thread::yield_now();
        }
        assert!(errands.unclosed(1) >= 3);
        assert!(!errands.are_done());
        let names = || errands.found().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(), [8], "and not what waits behind the lingering ones");
        assert_eq!(std::io::Read::read(&mut pipe, &mut [0]).unwrap(), 0);
        // Once the peers are gone, so is what the closes waited for.
        drop(kept);
        while errands.unclosed(1) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(names(), [7]);
        assert!(errands.are_done());
    }

    #[test]
    fn what_is_under_way_is_not_done() {
        let errands = Errands::new().unwrap();
        assert!(errands.are_done());
        let (go_on, wait) = std::sync::mpsc::channel();
        let (tell, begun) = std::sync::mpsc::channel();
        errands.touch(1, move || {
            tell.send(()).unwrap();
            wait.recv().unwrap();
        });
        begun.recv().unwrap();
        assert!(!errands.are_done());
        go_on.send(()).unwrap();
        while !errands.are_done() {
            std::thread::yield_now();
        }
    }
}
