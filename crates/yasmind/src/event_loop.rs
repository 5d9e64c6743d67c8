//! The one thread that serves: waits for connections, messages, findings and signals.

use crate::broker::{Broker, ESTATES, Limits};
use crate::budget::Budget;
use crate::cli::Args;
use crate::diag::Diag;
use crate::examiner::Examiner;
use crate::guests::Guests;
use crate::guests::directory::Directory;
use crate::listener::{self, Claim, Listener};
use crate::memory;
use crate::notify::notify;
use crate::numbers::Reader;
use crate::proof::Proof;
use anyhow::Context;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Messages taken from one process before the others have their turn.
const MESSAGES_PER_TURN: usize = 16;

/// Connections taken at once.
const ACCEPTS_PER_TURN: usize = 64;

/// Descriptors kept for everything but clients.
const SPARE_FDS: usize = 1024 + 2 * ESTATES;

/// Processes of one user who is not root.
const CLIENTS_PER_USER: usize = 4096;

/// How long no connections are taken when one could not be.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(1);

const LISTENER: u64 = 0;
const SIGNALS: u64 = 1;
const FINDINGS: u64 = 2;
const GUESTS: u64 = 3;

struct EventLoop {
    epoll: OwnedFd,
    listener: Listener,
    /// `Some` while the listener is not watched: until when.
    deaf_until: Option<Instant>,
    broker: Broker,
    clients_max: usize,
    exit_when_idle: Option<Duration>,
    /// When a client left last.
    idle_since: Instant,
}

/// Serves until SIGTERM or SIGINT, or until idle for as long as `args` says.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let path = match &args.socket {
        Some(path) => path.clone(),
        None => listener::default_path(args.is_system())?,
    };
    // First of all, so that a broker that may not serve changes nothing.
    let claim = Claim::take(&path)?;
    let clients_max = raise_fd_limit().saturating_sub(SPARE_FDS).max(16);

    let (signals, signal_end) = UnixStream::pair().context("cannot make a socket pair")?;
    signals.set_nonblocking(true)?;
    for signal in [libc::SIGTERM, libc::SIGINT] {
        signal_hook::low_level::pipe::register(signal, signal_end.try_clone()?)
            .context("cannot catch signals")?;
    }

    let memory_limit = args.memory_limit.unwrap_or_else(memory::default_limit_bytes);
    let share = if args.is_system() { memory_limit / 2 } else { memory_limit };
    let budget = Budget::new(memory_limit, args.user_limit.unwrap_or(share));
    let limits = Limits {
        first_class: args.first_class(),
        max_class: args.max_class,
        clients_per_user: CLIENTS_PER_USER.min(clients_max / 2),
        clients_of_root: clients_max / 2,
    };
    let reader = if args.no_bpf { None } else { load_reader() };
    let proof = match reader {
        Some(_) => Proof::Numbers,
        None => Proof::Addresses(Diag::open().context("cannot ask the kernel for sockets")?),
    };
    let examiner = Examiner::start(reader).context("cannot start a thread")?;
    let listener = claim.listen(args.is_system())?;
    tracing::info!(
        socket = %listener.path().display(),
        proof = proof.name(),
        memory_limit,
        "serving"
    );
    let guests = meet_guests(args, table_beside(listener.path()).as_path());
    let broker = Broker::new(limits, proof, examiner, budget);
    let mut event_loop = EventLoop {
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        listener,
        deaf_until: None,
        broker,
        clients_max,
        exit_when_idle: args.exit_when_idle.map(Duration::from_secs),
        idle_since: Instant::now(),
    };
    event_loop.watch(event_loop.listener.as_fd(), LISTENER)?;
    event_loop.watch(signals.as_fd(), SIGNALS)?;
    event_loop.watch(event_loop.broker.examiner.as_fd(), FINDINGS)?;
    if let Some(guests) = guests {
        event_loop.watch(&guests, GUESTS)?;
        event_loop.broker.serve_guests(guests);
    }
    notify("READY=1");
    event_loop.serve()
}

/// The mapped table lies beside the socket.
fn table_beside(socket: &Path) -> PathBuf {
    socket.with_file_name(yasmin_control::directory::FILE_NAME)
}

/// Only the system's broker: other guests take its word for whose a TCP connection is.
fn meet_guests(args: &Args, table: &Path) -> Option<Guests> {
    let is_root = rustix::process::geteuid().is_root();
    if args.no_guests || !is_root {
        return None;
    }
    let meet = || match Directory::start(&args.hosts, table, true)? {
        Some(directory) => Guests::start(directory).map(Some),
        None => Ok(None),
    };
    match meet() {
        Ok(guests) => guests,
        Err(error) => {
            tracing::warn!("connections to other guests stay on TCP: {error:#}");
            None
        }
    }
}

fn load_reader() -> Option<Reader> {
    match Reader::load() {
        Ok(reader) => Some(reader),
        Err(error) => {
            tracing::warn!(
                "without BPF only connections inside this network namespace get channels; \
                 --no-bpf silences this ({error})"
            );
            None
        }
    }
}

/// Each client is a descriptor: as many as we may have.
fn raise_fd_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let now = getrlimit(Resource::Nofile).current.or(current);
    now.map_or(1 << 20, |limit| usize::try_from(limit).unwrap_or(usize::MAX).min(1 << 20))
}

impl EventLoop {
    fn watch(&self, fd: impl AsFd, token: u64) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 64];
        loop {
            let Some(timeout) = self.timeout(Instant::now()) else {
                tracing::info!("idle: no process is connected");
                return Ok(());
            };
            let events = match epoll::wait(&self.epoll, &mut buffer, timeout.as_ref()) {
                Ok((events, _)) => &*events,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error).context("epoll_wait"),
            };
            let now = Instant::now();
            for event in events {
                match event.data.u64() {
                    LISTENER => self.accept(now),
                    SIGNALS => {
                        tracing::info!("stopped by a signal");
                        return Ok(());
                    }
                    FINDINGS => {
                        for finding in self.broker.examiner.findings() {
                            let client = finding.client;
                            self.broker.found(finding, now);
                            self.update_interest(client);
                        }
                    }
                    GUESTS => self.broker.turn_guests(now),
                    token => {
                        self.receive(token, event.flags, now);
                        self.update_interest(token);
                    }
                }
                self.disconnect_doomed();
            }
            self.broker.expire(now);
            self.broker.answer_askers(now);
            self.disconnect_doomed();
            self.listen_again(now);
        }
    }

    /// How long to sleep; `None` to exit.
    fn timeout(&self, now: Instant) -> Option<Option<Timespec>> {
        let mut pause = self.broker.examiner.supervise(now);
        let mut at_most = |duration: Duration| {
            pause = Some(pause.map_or(duration, |pause| pause.min(duration)));
        };
        let deadlines = [self.broker.next_expiry(), self.broker.next_answer(), self.deaf_until];
        for at in deadlines.into_iter().flatten() {
            at_most(at.saturating_duration_since(now));
        }
        if let Some(limit) = self.exit_when_idle.filter(|_| self.broker.is_idle()) {
            let idle = now.saturating_duration_since(self.idle_since);
            if idle >= limit {
                return None;
            }
            at_most(limit - idle);
        }
        Some(pause.map(|pause| Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: pause.subsec_nanos().into(),
        }))
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.broker.clients() >= self.clients_max || self.broker.examiner.overrun() {
                return self.stop_listening(now);
            }
            match self.listener.accept() {
                Ok(fd) => {
                    let Some(token) = self.broker.connected(fd) else { continue };
                    let client = self.broker.client(token);
                    let watched = client.map(|client| self.watch(client, token));
                    if !matches!(watched, Some(Ok(()))) {
                        self.broker.disconnected(token);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    tracing::warn!("cannot accept: {error}");
                    return self.stop_listening(now);
                }
            }
        }
    }

    /// For a while: whoever connects meanwhile waits in the kernel.
    fn stop_listening(&mut self, now: Instant) {
        if epoll::delete(&self.epoll, &self.listener).is_ok() {
            tracing::warn!(clients = self.broker.clients(), "no room for more processes");
            self.deaf_until = Some(now + LISTEN_AGAIN_AFTER);
        }
    }

    fn listen_again(&mut self, now: Instant) {
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = match self.watch(&self.listener, LISTENER) {
                Ok(()) => None,
                Err(_) => Some(now + LISTEN_AGAIN_AFTER),
            };
        }
    }

    fn receive(&mut self, token: u64, ready: epoll::EventFlags, now: Instant) {
        if !ready.contains(epoll::EventFlags::IN) {
            if ready.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                self.broker.doomed.push(token);
            }
            return;
        }
        for _ in 0..MESSAGES_PER_TURN {
            let Some(client) = self.broker.client(token) else { return };
            match client.receive() {
                Ok(Some(received)) => self.broker.received(token, received, now),
                Ok(None) => return,
                Err(_) => self.broker.doomed.push(token),
            }
            if !self.broker.doomed.is_empty() {
                return;
            }
        }
    }

    fn update_interest(&mut self, token: u64) {
        let Some(client) = self.broker.client_mut(token) else { return };
        let wanted = client.wanted_interest();
        if client.interest != wanted {
            client.interest = wanted;
            let data = epoll::EventData::new_u64(token);
            if epoll::modify(&self.epoll, &*client, data, wanted).is_err() {
                self.broker.doomed.push(token);
            }
        }
    }

    fn disconnect_doomed(&mut self) {
        while let Some(token) = self.broker.doomed.pop() {
            // At once, and not when the descriptor is closed: that is done elsewhere.
            if let Some(client) = self.broker.client(token) {
                let _ = epoll::delete(&self.epoll, client);
            }
            self.broker.disconnected(token);
            self.idle_since = Instant::now();
        }
    }
}
