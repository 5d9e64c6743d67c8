//! The one thread that serves: waits for connections, messages, findings and signals.

use crate::broker::{Broker, Limits};
use crate::budget::Budget;
use crate::cli::Args;
use crate::diag::Diag;
use crate::errands::Errands;
use crate::guests::Guests;
use crate::guests::directory::Directory;
use crate::listener::{self, Claim, Listener};
use crate::memory;
use crate::notify::notify;
use crate::proof::Proof;
use crate::segments::{self, Segments, Store};
use crate::sight::Sight;
use crate::sys::sockopt;
use crate::turns::Turns;
use crate::uplink::Uplink;
use anyhow::Context;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long messages are served before it is seen who else has some.
const TURN: Duration = Duration::from_millis(2);

/// Clients that are found ready at once.
const EVENTS: usize = 1024;

/// Connections taken at once.
const ACCEPTS_PER_TURN: usize = 64;

/// Descriptors kept for everything but clients, residues and segments.
const SPARE_FDS: usize = 1024;

/// Residues of all users together, and the part of all descriptors that they may have: each is two.
const RESIDUES_MAX: usize = 4096;
const RESIDUES_SHARE: usize = 8;

/// Mappings kept for everything but clients, of which each has one, and ends, of which each has
/// one and a half.
const SPARE_MAPS: usize = 4096;

/// Ends of all users together.
const ENDS_MAX: usize = 1 << 18;

/// How long no connections are taken when the system has no room for one.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How long errands have before it is looked again whether they are done.
const ERRANDS_AGAIN_AFTER: Duration = Duration::from_millis(100);

const LISTENER: u64 = 0;
const SIGNALS: u64 = 1;
const GUESTS: u64 = 2;
const ERRANDS: u64 = 3;
const KEEPER: u64 = 4;
const UPLINK: u64 = 5;

struct EventLoop {
    epoll: OwnedFd,
    listener: Listener,
    /// `Some` while the listener is not watched: until when.
    deaf_until: Option<Instant>,
    /// Its place is for a connection that is taken to be closed, when there is no other.
    reserve: Option<OwnedFd>,
    broker: Broker,
    turns: Turns,
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
    let inherited = sockopt::inherited();
    let claim = Claim::take(&path, inherited.listener)?;
    let fds = raise_fd_limit();
    // Each is three descriptors.
    let segments_max = usize::from(args.segments).min(fds / 12);
    let residues = (fds / RESIDUES_SHARE / 2).min(RESIDUES_MAX);
    let fds = fds.saturating_sub(SPARE_FDS + 3 * segments_max + 2 * residues);
    let maps = mappings_max().saturating_sub(SPARE_MAPS);

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
        same_user_only: args.same_user_only,
        clients: fds.min(maps / 4).max(16),
        ends: (maps / 2).clamp(16, ENDS_MAX),
        offers_for: Duration::from_secs(args.offers_for.into()),
        residues,
        residues_for: Duration::from_secs(args.passed_on_for.into()),
    };
    let sight = if args.no_bpf { None } else { load_sight() };
    let proof = match sight {
        Some(sight) => Proof::Numbers(Box::new(sight)),
        None => Proof::Addresses(Diag::open().context("cannot ask the kernel for sockets")?),
    };
    let errands = Errands::new().context("cannot make an eventfd")?;
    let store = Store::open(inherited.kept, &path);
    let segments = recover_segments(args, segments_max, store, &errands);
    let listener = claim.listen(args.is_system())?;
    tracing::info!(
        socket = %listener.path().display(),
        proof = proof.name(),
        memory_limit,
        "serving"
    );
    let guests = meet_guests(args, table_beside(listener.path()).as_path());
    let mut broker = Broker::new(limits, proof, budget, errands.clone());
    broker.serve_segments(segments);
    let mut event_loop = EventLoop {
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        listener,
        deaf_until: None,
        reserve: reserve(),
        broker,
        turns: Turns::default(),
        exit_when_idle: args.exit_when_idle.map(Duration::from_secs),
        idle_since: Instant::now(),
    };
    event_loop.watch(event_loop.listener.as_fd(), LISTENER)?;
    event_loop.watch(signals.as_fd(), SIGNALS)?;
    event_loop.watch(errands.bell(), ERRANDS)?;
    if let Some(guests) = guests {
        event_loop.watch(&guests, GUESTS)?;
        event_loop.broker.serve_guests(guests);
    }
    if let Some(uplink) = meet_host(args) {
        event_loop.watch(&uplink, UPLINK)?;
        event_loop.broker.serve_uplink(uplink);
    }
    notify("READY=1");
    event_loop.serve()
}

fn recover_segments(args: &Args, most: usize, store: Store, errands: &Errands) -> Segments {
    let most_bytes = memory::total_bytes();
    let limit = args.segment_limit.unwrap_or(most_bytes);
    let share = if args.is_system() { limit / 2 } else { limit };
    let limits = segments::Limits {
        segments: most,
        budget: Budget::new(limit, args.segment_user_limit.unwrap_or(share)),
        most_bytes,
    };
    Segments::recover(limits, args.is_system(), store, errands.clone())
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

/// Only the system's broker, which alone may open the port.
fn meet_host(args: &Args) -> Option<Uplink> {
    if args.no_guests || !rustix::process::geteuid().is_root() {
        return None;
    }
    match Uplink::start(args.uplink.clone()) {
        Ok(uplink) => Some(uplink),
        Err(error) => {
            tracing::warn!("connections to other guests of the host stay on TCP: {error}");
            None
        }
    }
}

fn load_sight() -> Option<Sight> {
    match Sight::load() {
        Ok(sight) => Some(sight),
        Err(error) => {
            tracing::warn!(
                "without BPF only connections inside this network namespace get channels; \
                 --no-bpf silences this ({error})"
            );
            None
        }
    }
}

fn reserve() -> Option<OwnedFd> {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()
}

/// vm.max_map_count; its default where it cannot be read.
fn mappings_max() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(65530)
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
        let mut buffer = [MaybeUninit::uninit(); EVENTS];
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
                    GUESTS => self.broker.turn_guests(now),
                    ERRANDS => {
                        for token in self.broker.errands_found() {
                            self.update_interest(token);
                        }
                    }
                    UPLINK => self.broker.turn_uplink(now),
                    KEEPER => self.broker.keeper_said(),
                    token => self.ready(token, event.flags),
                }
                self.disconnect_doomed();
            }
            self.take_turns(now);
            self.broker.expire(now);
            if let Some(token) = self.broker.report(now) {
                self.update_interest(token);
            }
            self.disconnect_doomed();
            self.listen_again(now);
            self.watch_keeper();
        }
    }

    /// How long to sleep; `None` to exit.
    fn timeout(&self, now: Instant) -> Option<Option<Timespec>> {
        let mut pause = (!self.turns.is_empty()).then_some(Duration::ZERO);
        let mut at_most = |duration: Duration| {
            pause = Some(pause.map_or(duration, |pause| pause.min(duration)));
        };
        let deadlines = [self.broker.next_expiry(), self.broker.next_report(now), self.deaf_until];
        for at in deadlines.into_iter().flatten() {
            at_most(at.saturating_duration_since(now));
        }
        if let Some(limit) = self.exit_when_idle.filter(|_| self.broker.is_idle()) {
            let mut left = limit.saturating_sub(now.saturating_duration_since(self.idle_since));
            // The end of most errands is not told.
            if self.broker.has_errands() {
                left = left.max(ERRANDS_AGAIN_AFTER);
            }
            if left.is_zero() {
                return None;
            }
            at_most(left);
        }
        Some(pause.map(|pause| Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: pause.subsec_nanos().into(),
        }))
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listener.accept() {
                Ok(client) => {
                    let Some(token) = self.broker.connected(client) else { continue };
                    let client = self.broker.client(token);
                    let watched = client.map(|client| self.watch(client, token));
                    if !matches!(watched, Some(Ok(()))) {
                        self.broker.disconnected(token);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    crate::rarely::warn!("cannot accept: {error}");
                    if error != Errno::MFILE || !self.turn_away() {
                        return self.stop_listening(now);
                    }
                }
            }
        }
    }

    /// Hangs up on the next one who connects, so that those behind him have their turn.
    fn turn_away(&mut self) -> bool {
        self.reserve = None;
        if let Ok(client) = self.listener.accept() {
            self.broker.refused(client);
        }
        self.reserve = reserve();
        self.reserve.is_some()
    }

    /// For a moment: whoever connects meanwhile waits in the kernel.
    fn stop_listening(&mut self, now: Instant) {
        if epoll::delete(&self.epoll, &self.listener).is_ok() {
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

    /// A keeper is started with the first segment, or when the last one has gone.
    fn watch_keeper(&mut self) {
        let epoll = &self.epoll;
        let Some(keeper) = self.broker.unwatched_keeper() else { return };
        let data = epoll::EventData::new_u64(KEEPER);
        // It is writable nearly always.
        let changes = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        if let Err(error) = epoll::add(epoll, keeper, data, changes) {
            crate::rarely::warn!("the end of what keeps segments will not be seen: {error}");
        }
    }

    /// A client has something to say, has room again, or is gone.
    fn ready(&mut self, token: u64, flags: epoll::EventFlags) {
        let Some(client) = self.broker.client_mut(token) else { return };
        if flags.contains(epoll::EventFlags::IN) {
            if !std::mem::replace(&mut client.is_queued, true) {
                self.turns.push(client.uid, token);
            }
        } else if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.broker.doomed.push(token);
        } else {
            self.broker.reports_go_on();
            self.update_interest(token);
        }
    }

    /// One message of each client that has some, one user after the other.
    fn take_turns(&mut self, now: Instant) {
        let start = Instant::now();
        while start.elapsed() < TURN {
            let Some(token) = self.turns.next() else { return };
            let Some(client) = self.broker.client_mut(token) else { continue };
            client.is_queued = false;
            match client.receive() {
                Ok(Some(received)) => self.broker.received(token, received, now),
                Ok(None) => {}
                Err(_) => self.broker.doomed.push(token),
            }
            self.update_interest(token);
            self.disconnect_doomed();
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
