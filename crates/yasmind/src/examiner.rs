//! The thread that looks at offered sockets and closes descriptors that came from outside.
//!
//! Both can block for as long as the descriptor's owner likes: a socket's lock is held by a
//! sender while it copies from its memory, which a user-space file system may serve; a close
//! that turns out to be the last lingers (SO_LINGER). So a thread that is stuck is left behind
//! and another takes over, and each user can have but a few stuck: what more of his comes is
//! held back until one is free again.

use crate::facts::{self, Facts};
use crate::numbers::Reader;
use crate::sys::sockopt;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use yasmin_control::Decline;

/// A job that takes longer is taken for stuck. Between a socket's offer and its close here,
/// the connection's FIN is held back; so this also bounds what one user does to others.
const STUCK_AFTER: Duration = Duration::from_millis(20);

/// Threads that one user may have stuck.
const STUCK_PER_USER: u32 = 8;

/// Jobs that may be held back for one user's stuck threads before no more connections are
/// taken, of anybody: whose the next one is shows only when it has been taken.
const HELD_PER_USER: usize = 256;

const STACK_BYTES: usize = 256 << 10;

/// What was found out about the socket that came as `serial`: an end, or see `broker`.
pub struct Finding {
    /// Who offered it.
    pub client: u64,
    pub serial: u64,
    pub facts: Result<Facts, Decline>,
}

struct Job {
    uid: u32,
    /// The client and the end to examine the first descriptor for; `None` only to close all.
    end: Option<(u64, u64)>,
    fds: Vec<OwnedFd>,
    /// Not only close them: they are TCP sockets whose connections are to end with a reset.
    resets: bool,
}

#[derive(Default)]
struct Work {
    /// By user; no queue is empty.
    jobs: HashMap<u32, VecDeque<Job>>,
    /// Users with jobs, in the order in which they are served: one job each.
    turns: VecDeque<u32>,
    findings: Vec<Finding>,
    /// Of the thread that serves; others leave when they are free.
    generation: u64,
    /// Whose job the serving thread has, and since when.
    current: Option<(u32, Instant)>,
    /// Threads of past generations that are not free yet, by user; no entry is 0.
    stuck: HashMap<u32, u32>,
}

impl Work {
    fn blocked(&self, uid: u32) -> bool {
        self.stuck.get(&uid).is_some_and(|&count| count >= STUCK_PER_USER)
    }

    fn push(&mut self, job: Job) {
        let uid = job.uid;
        let queue = self.jobs.entry(uid).or_default();
        if queue.is_empty() {
            self.turns.push_back(uid);
        }
        queue.push_back(job);
    }

    /// The next job of the next user who is not blocked.
    fn pop(&mut self) -> Option<Job> {
        let at = self.turns.iter().position(|&uid| !self.blocked(uid))?;
        let uid = self.turns.remove(at)?;
        let queue = self.jobs.get_mut(&uid)?;
        let job = queue.pop_front();
        if queue.is_empty() {
            self.jobs.remove(&uid);
        } else {
            self.turns.push_back(uid);
        }
        job
    }

    fn pending(&self) -> bool {
        self.turns.iter().any(|&uid| !self.blocked(uid))
    }
}

struct Shared {
    work: Mutex<Work>,
    ready: Condvar,
    /// Readable while there are findings.
    done: OwnedFd,
    /// `None` without BPF. Never locked while anything blocks.
    reader: Option<Mutex<Reader>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Examiner {
    shared: Arc<Shared>,
}

impl Examiner {
    /// Starts the thread; with a reader, findings have numbers.
    pub fn start(reader: Option<Reader>) -> std::io::Result<Self> {
        let done = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (work, ready) = (Mutex::default(), Condvar::new());
        let shared = Shared { work, ready, done, reader: reader.map(Mutex::new) };
        let examiner = Self { shared: Arc::new(shared) };
        examiner.spawn(0)?;
        Ok(examiner)
    }

    fn spawn(&self, generation: u64) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("examiner".into())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(&shared, generation))
            .map(drop)
    }

    /// Examines `fd` for `client`'s end `serial`, closes it, and tells.
    pub fn examine(&self, uid: u32, client: u64, serial: u64, fd: OwnedFd) {
        self.push(Job { uid, end: Some((client, serial)), fds: vec![fd], resets: false });
    }

    /// Closes what came from `uid`.
    pub fn close(&self, uid: u32, fds: Vec<OwnedFd>) {
        if !fds.is_empty() {
            self.push(Job { uid, end: None, fds, resets: false });
        }
    }

    /// Resets the connection of a TCP socket that came from `uid`, and closes it.
    pub fn reset(&self, uid: u32, socket: OwnedFd) {
        self.push(Job { uid, end: None, fds: vec![socket], resets: true });
    }

    fn push(&self, job: Job) {
        self.shared.lock().push(job);
        self.shared.ready.notify_one();
    }

    /// What has been found out since the last call.
    pub fn findings(&self) -> Vec<Finding> {
        // Empty the eventfd, /then/ take the findings: one that comes between is seen twice,
        // not never.
        let _ = rustix::io::read(&self.shared.done, &mut [0; 8]);
        std::mem::take(&mut self.shared.lock().findings)
    }

    /// Whether `uid` has so many threads stuck that nothing more of his is taken.
    pub fn blocked(&self, uid: u32) -> bool {
        self.shared.lock().blocked(uid)
    }

    /// Whether more is held back than a user may have.
    pub fn overrun(&self) -> bool {
        let work = self.shared.lock();
        work.stuck.keys().any(|uid| {
            work.blocked(*uid) && work.jobs.get(uid).is_some_and(|jobs| jobs.len() > HELD_PER_USER)
        })
    }

    /// Replaces the thread if it is stuck. Gives how soon to look again, if there is anything
    /// to look at.
    pub fn supervise(&self, now: Instant) -> Option<Duration> {
        let mut work = self.shared.lock();
        let Some((uid, since)) = work.current else {
            return work.pending().then_some(STUCK_AFTER);
        };
        let age = now.saturating_duration_since(since);
        if age < STUCK_AFTER {
            return Some(STUCK_AFTER - age);
        }
        // The thread first: without one to take over, the stuck one stays in charge.
        let generation = work.generation + 1;
        if let Err(error) = self.spawn(generation) {
            tracing::warn!("cannot start a thread: {error}");
            return Some(STUCK_AFTER);
        }
        tracing::debug!(uid, "a descriptor holds its examiner up");
        work.generation = generation;
        work.current = None;
        *work.stuck.entry(uid).or_insert(0) += 1;
        Some(STUCK_AFTER)
    }
}

impl AsFd for Examiner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.done.as_fd()
    }
}

fn serve(shared: &Shared, generation: u64) {
    let mut work = shared.lock();
    while work.generation == generation {
        let Some(job) = work.pop() else {
            work = shared.ready.wait(work).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let uid = job.uid;
        work.current = Some((uid, Instant::now()));
        drop(work);
        run(shared, job);
        work = shared.lock();
        if work.generation == generation {
            work.current = None;
        } else {
            if let Some(count) = work.stuck.get_mut(&uid) {
                *count -= 1;
                if *count == 0 {
                    work.stuck.remove(&uid);
                }
            }
            // What was held back for this user's sake can go on.
            shared.ready.notify_one();
        }
    }
}

fn run(shared: &Shared, job: Job) {
    if let (Some((client, serial)), Some(fd)) = (job.end, job.fds.first()) {
        let mut facts = facts::examine(fd);
        if let (Ok(facts), Some(reader)) = (&mut facts, &shared.reader)
            && facts.is_plain
        {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            match reader.read(fd.as_fd(), facts.cookie) {
                Ok(numbers) => facts.numbers = Some(numbers),
                Err(error) => tracing::warn!(serial, "no sequence numbers: {error}"),
            }
        }
        // Closed, /then/ told: whoever hears of it closes the socket as if nobody had had it.
        drop(job.fds);
        shared.lock().findings.push(Finding { client, serial, facts });
        // Cannot fail but when 2^64 findings wait.
        let _ = rustix::io::write(&shared.done, &1u64.to_ne_bytes());
        return;
    }
    if job.resets {
        job.fds.iter().for_each(sockopt::reset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn wait(examiner: &Examiner) -> Vec<Finding> {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(examiner, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        examiner.findings()
    }

    #[test]
    fn finds_and_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connector = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (acceptor, _) = listener.accept().unwrap();
        let examiner = Examiner::start(None).unwrap();
        examiner.examine(0, 1, 7, connector.into());
        let findings = wait(&examiner);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].serial, 7);
        let facts = findings[0].facts.as_ref().unwrap();
        assert_eq!(facts.peer, acceptor.local_addr().unwrap());
        // Ours was the last descriptor of the other end.
        assert_eq!(std::io::Read::read(&mut &acceptor, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn users_take_turns() {
        let job = |uid, serial| Job { uid, end: Some((0, serial)), fds: Vec::new(), resets: false };
        let mut work = Work::default();
        for (uid, serial) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)] {
            work.push(job(uid, serial));
        }
        let mut served = Vec::new();
        while let Some(job) = work.pop() {
            served.push(job.end.unwrap().1);
        }
        assert_eq!(served, [10, 20, 30, 11, 21, 12]);
        assert!(work.jobs.is_empty() && work.turns.is_empty());
        work.push(job(1, 13));
        work.stuck.insert(1, STUCK_PER_USER);
        assert!(work.pop().is_none() && !work.pending());
    }

    #[test]
    fn a_lingering_close_holds_nobody_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let examiner = Examiner::start(None).unwrap();
        let mut kept = Vec::new();
        for _ in 0..STUCK_PER_USER + 3 {
            let connector = TcpStream::connect(address).unwrap();
            let (acceptor, _) = listener.accept().unwrap();
            // More than the peer, which never reads, takes: the close lingers.
            connector.set_nonblocking(true).unwrap();
            while std::io::Write::write(&mut &connector, &[0; 65536]).is_ok() {}
            let linger = Some(Duration::from_secs(3600));
            rustix::net::sockopt::set_socket_linger(&connector, linger).unwrap();
            kept.push(acceptor);
            examiner.close(1, vec![connector.into()]);
        }
        examiner.examine(2, 1, 9, std::fs::File::open("/dev/null").unwrap().into());
        loop {
            let pause = examiner.supervise(Instant::now());
            if let Some(finding) = examiner.findings().first() {
                assert_eq!(finding.serial, 9);
                break;
            }
            std::thread::sleep(pause.unwrap());
        }
        // User 1 may be one short of the limit only until the next look.
        while !examiner.blocked(1) {
            std::thread::sleep(examiner.supervise(Instant::now()).unwrap());
        }
        assert!(!examiner.blocked(2));
        // Once the peers are gone, so is what the closes waited for.
        drop(kept);
        while examiner.blocked(1) {
            examiner.supervise(Instant::now());
            std::thread::yield_now();
        }
    }
}
