//! `yasmind --host`: gives pairs of KVM guests memory, and slices of it to their connections.
//!
//! ```text
//!   guest a: yasmind ──── virtio-serial ────┐         ┌──── virtio-serial ──── yasmind: guest b
//!        └─ libraries                    yasmind --host                     libraries ─┘
//!                 QEMU a ──── QMP ─────────┘         └───────── QMP ──── QEMU b
//!                    └───────── BAR of ivshmem ── file ── BAR of ivshmem ───┘
//! ```
//!
//! One thread, which never waits for a guest or its QEMU. What a guest says is believed for its own
//! ends and its own hold on slices: by lying it spoils connections between itself and a guest that
//! connected to it. `plugging` brings memory in and out, this file decides who gets which.

mod config;
mod pairs;
mod plugging;
mod qmp;
mod region;
mod stream;

use crate::cli::Args;
use anyhow::Context;
use config::GuestConfig;
use pairs::{End, Outcome, Pairs};
use plugging::Part;
use qmp::{Heard, Qmp};
use region::{REGION_BYTES, Region};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stream::{Stream, Turn};
use yasmin_control::Decline;
use yasmin_control::uplink::{FromHost, ToHost, UPLINK_BYTES, UPLINK_VERSION, next, session_of};

/// A region in which nobody holds anything goes after so long.
const IDLE_FOR: Duration = Duration::from_secs(60);

/// Guests whose memory did not come are left alone for so long.
const FAILED_FOR: Duration = Duration::from_secs(60);

/// A device is there, and the guest has told of it, by then.
const PLUGGED_WITHIN: Duration = Duration::from_secs(20);

/// Guests have so long to let their memory go, when the broker ends.
const LEAVE_WITHIN: Duration = Duration::from_secs(15);

/// Pairs of ends that wait for a region.
const PENDING_MAX: usize = 1024;

struct Guest {
    config: GuestConfig,
    qmp: Qmp<plugging::Purpose>,
    /// Devices and memory of ours that its QEMU has are known.
    is_known: bool,
    port: Stream,
    /// What is said carries this number; 0: the guest's broker was not heard yet.
    session: u64,
}

/// A region, in both guests.
struct Shared {
    region: Region,
    guests: [usize; 2],
    parts: [Part; 2],
    /// The guest's broker has told of it, and of what is held there.
    is_told: [bool; 2],
    /// It is to go.
    is_leaving: bool,
    /// What it told of so far.
    telling: [Vec<u64>; 2],
    /// Somebody waits for it, since then.
    since: Instant,
    idle_since: Option<Instant>,
    /// Connector's and acceptor's ends that wait for it.
    pending: Vec<[End; 2]>,
}

impl Shared {
    fn side_of(&self, guest: usize) -> Option<usize> {
        self.guests.iter().position(|&one| one == guest)
    }

    fn is_ready(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Plugged { .. }))
            && self.is_told == [true; 2]
            && !self.is_leaving
    }
}

struct Failed {
    guests: [usize; 2],
    until: Instant,
}

pub struct Host {
    folder: PathBuf,
    class: u8,
    first_class: u8,
    memory_limit: u64,
    guest_limit: u64,
    guests: Vec<Guest>,
    shared: Vec<Shared>,
    pairs: Pairs,
    failed: Vec<Failed>,
    is_ending: bool,
}

/// Serves until SIGTERM or SIGINT, and takes all memory away again.
pub fn run(args: &Args, file: &Path) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let guests = config::parse(&text).with_context(|| file.display().to_string())?;
    let (signals, signal_end) = UnixStream::pair().context("cannot make a socket pair")?;
    signals.set_nonblocking(true)?;
    for signal in [libc::SIGTERM, libc::SIGINT] {
        signal_hook::low_level::pipe::register(signal, signal_end.try_clone()?)
            .context("cannot catch signals")?;
    }
    let folder = args.host_memory.clone();
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let lock = std::fs::File::create(folder.join(".lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another broker serves {}", folder.display()))?;
    let limit = args.memory_limit.unwrap_or_else(crate::memory::default_limit_bytes);
    let mut host = Host::new(args, folder, guests, limit);
    host.find_regions();
    tracing::info!(guests = host.guests.len(), memory_limit = limit, "serving guests");
    crate::notify::notify("READY=1");
    let mut end_at = None;
    loop {
        host.turn(Instant::now());
        if end_at.is_some_and(|at| at <= Instant::now()) || (host.is_ending && host.is_empty()) {
            host.remove_files();
            return Ok(());
        }
        if host.wait(&signals)? && !host.is_ending {
            tracing::info!("stopped by a signal: taking all memory away");
            host.is_ending = true;
            end_at = Some(Instant::now() + LEAVE_WITHIN);
        }
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Cannot fail, once the kernel has any randomness; numbers only have to differ.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_le_bytes(bytes) >> 1
}

impl Host {
    fn new(args: &Args, folder: PathBuf, guests: Vec<GuestConfig>, memory_limit: u64) -> Self {
        let now = Instant::now();
        let guest = |config: GuestConfig| Guest {
            qmp: Qmp::new(config.qmp.clone(), now),
            port: Stream::new(config.port.clone(), now),
            config,
            is_known: false,
            session: 0,
        };
        let class = args.max_class.min(args.host_class);
        Self {
            folder,
            class,
            first_class: args.first_class().min(class),
            memory_limit,
            guest_limit: args.user_limit.unwrap_or(memory_limit / 2),
            guests: guests.into_iter().map(guest).collect(),
            shared: Vec::new(),
            pairs: Pairs::default(),
            failed: Vec::new(),
            is_ending: false,
        }
    }

    /// Those that an earlier broker left.
    fn find_regions(&mut self) {
        let Ok(files) = std::fs::read_dir(&self.folder) else { return };
        for file in files.flatten() {
            let name = file.file_name();
            let Some(region) = name.to_str().and_then(|name| Region::adopt(&self.folder, name))
            else {
                continue;
            };
            let number_of =
                |name: &String| self.guests.iter().position(|guest| guest.config.name == *name);
            let [Some(a), Some(b)] = [number_of(&region.guests[0]), number_of(&region.guests[1])]
            else {
                // Of guests that are no more.
                region.remove();
                continue;
            };
            tracing::info!(region = format!("{:016x}", region.number), "found again");
            self.shared.push(Shared::new(region, [a, b], [Part::Unknown, Part::Unknown]));
        }
    }

    fn remove_files(&self) {
        for shared in &self.shared {
            shared.region.remove();
        }
    }

    /// No QEMU has anything of ours.
    fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }

    /// Whether a signal came.
    fn wait(&self, signals: &UnixStream) -> anyhow::Result<bool> {
        let now = Instant::now();
        let mut fds = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        for guest in &self.guests {
            for (fd, events) in
                [&guest.qmp.stream, &guest.port].into_iter().flat_map(Stream::watched)
            {
                fds.push(PollFd::from_borrowed_fd(fd, events));
            }
        }
        let streams = self.guests.iter().flat_map(|guest| [&guest.qmp.stream, &guest.port]);
        let again = streams.filter_map(Stream::next_expiry).min();
        let busy = (!self.shared.is_empty()).then(|| now + Duration::from_secs(1));
        let at = [again, busy].into_iter().flatten().min();
        let timeout = at.map(|at| {
            let left = at.saturating_duration_since(now).max(Duration::from_millis(1));
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
        Ok(!fds[0].revents().is_empty())
    }

    fn turn(&mut self, now: Instant) {
        for number in 0..self.guests.len() {
            for heard in self.guests[number].qmp.turn(now) {
                self.heard(number, heard, now);
            }
            match self.guests[number].port.turn(now) {
                Turn::Same => {}
                Turn::Connected => self.begin(number),
                Turn::Lost => self.forget_guest(number),
            }
            self.listen(number, now);
        }
        self.look_at_regions(now);
    }

    /// A new session with a guest's broker.
    fn begin(&mut self, number: usize) {
        self.forget_guest(number);
        let guest = &mut self.guests[number];
        guest.session = random().max(1);
        let begin = FromHost::Begin { version: UPLINK_VERSION };
        guest.port.send(&begin.encode(guest.session));
    }

    /// What its broker said counts no more. What it holds is told anew.
    fn forget_guest(&mut self, number: usize) {
        self.guests[number].session = 0;
        self.pairs.forget(number);
        for shared in &mut self.shared {
            if let Some(side) = shared.side_of(number) {
                shared.is_told[side] = false;
                shared.telling[side].clear();
                shared.pending.retain(|ends| ends.iter().all(|end| end.guest != number));
            }
        }
    }

    fn tell(&mut self, number: usize, message: FromHost) {
        let guest = &mut self.guests[number];
        if guest.session != 0 {
            guest.port.send(&message.encode(guest.session));
        }
    }

    /// What a guest's broker says.
    fn listen(&mut self, number: usize, now: Instant) {
        loop {
            let inbox = &mut self.guests[number].port.inbox;
            let (used, raw) = next(inbox);
            let raw: Option<[u8; UPLINK_BYTES]> = raw.copied();
            inbox.drain(..used);
            let Some(raw) = raw else { return };
            let Ok(message) = ToHost::decode(&raw) else {
                let name = &self.guests[number].config.name;
                crate::rarely::warn!("guest {name} sends what it should not");
                continue;
            };
            if let ToHost::Ask { version } = message {
                if version == UPLINK_VERSION {
                    self.begin(number);
                } else {
                    let name = &self.guests[number].config.name;
                    crate::rarely::warn!(
                        "guest {name} speaks version {version} of the uplink, this one \
                         {UPLINK_VERSION}: its connections stay on TCP; update one of them"
                    );
                }
                continue;
            }
            if session_of(&raw) == self.guests[number].session {
                self.said(number, message, now);
            }
        }
    }

    fn said(&mut self, number: usize, message: ToHost, now: Instant) {
        match message {
            ToHost::Ask { .. } => {}
            ToHost::Offer { id, role, numbers } => {
                let end = End { guest: number, id };
                match self.pairs.offer(end, role, numbers) {
                    Outcome::Waits => {}
                    Outcome::Pair(ends) => self.pair(ends, now),
                    Outcome::Conflict(other) => {
                        self.decline(other, Decline::NoProof);
                        self.decline(end, Decline::NoProof);
                    }
                    Outcome::Full => self.decline(end, Decline::TooMany),
                }
            }
            ToHost::Withdraw { id } => self.withdraw(End { guest: number, id }),
            ToHost::Held(slice) => {
                if let Some((shared, side)) = self.region_of(slice.region, number) {
                    let telling = &mut shared.telling[side];
                    if telling.len() < shared.region.slices() {
                        telling.push(slice.offset);
                    }
                }
            }
            ToHost::Region { region } => {
                if let Some((shared, side)) = self.region_of(region, number) {
                    let held = std::mem::take(&mut shared.telling[side]);
                    shared.region.retell(side, &held);
                    shared.is_told[side] = true;
                    let name = &self.guests[number].config.name;
                    tracing::info!(
                        region = format!("{region:016x}"),
                        "guest {name} has the memory"
                    );
                }
            }
            ToHost::Freed(slice) => {
                if let Some((shared, side)) = self.region_of(slice.region, number) {
                    shared.region.freed(side, slice.offset);
                }
            }
            // Its QEMU says so, too; until then nothing new goes there.
            ToHost::Gone { region } => {
                if let Some((shared, side)) = self.region_of(region, number) {
                    shared.is_told[side] = false;
                    shared.region.forget(side);
                    shared.is_leaving = true;
                }
            }
        }
    }

    fn region_of(&mut self, region: u64, guest: usize) -> Option<(&mut Shared, usize)> {
        let shared = self.shared.iter_mut().find(|shared| shared.region.number == region)?;
        let side = shared.side_of(guest)?;
        Some((shared, side))
    }

    fn decline(&mut self, end: End, reason: Decline) {
        self.tell(end.guest, FromHost::Decline { id: end.id, reason });
    }

    fn withdraw(&mut self, end: End) {
        self.pairs.withdraw(end);
        let mut left = Vec::new();
        for shared in &mut self.shared {
            shared.pending.retain(|ends| {
                let is_of = ends.contains(&end);
                if is_of {
                    left.extend(ends.iter().copied().filter(|one| *one != end));
                }
                !is_of
            });
        }
        for end in left {
            self.decline(end, Decline::NoProof);
        }
    }

    /// Two ends of one connection, of two guests.
    fn pair(&mut self, ends: [End; 2], now: Instant) {
        let guests = ends.map(|end| end.guest);
        let is_of = |shared: &&mut Shared| {
            !shared.is_leaving && guests.iter().all(|&guest| shared.side_of(guest).is_some())
        };
        let room = match self.shared.iter_mut().find(is_of) {
            Some(shared) => Ok(shared),
            None => match self.make_region(guests, now) {
                Ok(()) => self.shared.last_mut().ok_or(Decline::Memory),
                Err(reason) => Err(reason),
            },
        };
        match room {
            Ok(shared) if shared.pending.len() < PENDING_MAX => {
                if shared.pending.is_empty() {
                    shared.since = now;
                }
                shared.pending.push(ends);
            }
            Ok(_) => self.decline_both(ends, Decline::TooMany),
            Err(reason) => self.decline_both(ends, reason),
        }
    }

    fn decline_both(&mut self, ends: [End; 2], reason: Decline) {
        for end in ends {
            self.decline(end, reason);
        }
    }

    fn make_region(&mut self, guests: [usize; 2], now: Instant) -> Result<(), Decline> {
        self.failed.retain(|failed| now < failed.until);
        let is_failed = |failed: &Failed| guests.iter().all(|guest| failed.guests.contains(guest));
        if self.is_ending || self.failed.iter().any(is_failed) {
            return Err(Decline::Policy);
        }
        let of = |guest: usize| {
            let count = self.shared.iter().filter(|shared| shared.side_of(guest).is_some()).count();
            count as u64 * REGION_BYTES
        };
        let all = self.shared.len() as u64 * REGION_BYTES;
        if all + REGION_BYTES > self.memory_limit
            || guests.iter().any(|&guest| of(guest) + REGION_BYTES > self.guest_limit)
        {
            crate::rarely::warn!(
                "no memory is left for these guests: --memory-limit, --user-limit"
            );
            return Err(Decline::Memory);
        }
        if !guests.iter().all(|&guest| self.guests[guest].is_known && self.has_slot(guest)) {
            self.make_room(guests);
            return Err(Decline::Memory);
        }
        let names = guests.map(|guest| self.guests[guest].config.name.clone());
        let region = Region::create(&self.folder, random(), self.class, names);
        let region = region.map_err(|error| {
            crate::rarely::warn!("cannot make memory in {}: {error}", self.folder.display());
            Decline::Memory
        })?;
        self.shared.push(Shared::new(region, guests, [Part::Absent, Part::Absent]));
        Ok(())
    }

    /// No slot is empty: the memory that nobody uses goes, for the next one who asks.
    fn make_room(&mut self, guests: [usize; 2]) {
        for guest in guests {
            if self.has_slot(guest) {
                continue;
            }
            let idle = self.shared.iter_mut().filter(|shared| shared.side_of(guest).is_some());
            if let Some(shared) = idle
                .filter(|shared| shared.idle_since.is_some())
                .min_by_key(|shared| shared.idle_since)
            {
                shared.is_leaving = true;
            }
        }
    }

    fn look_at_regions(&mut self, now: Instant) {
        for at in 0..self.shared.len() {
            let is_ending = self.is_ending;
            let shared = &mut self.shared[at];
            let is_idle = shared.region.is_idle() && shared.pending.is_empty() && shared.is_ready();
            shared.idle_since = if is_idle { shared.idle_since.or(Some(now)) } else { None };
            let is_over = shared.idle_since.is_some_and(|since| now >= since + IDLE_FOR);
            let is_late = !shared.pending.is_empty() && now >= shared.since + PLUGGED_WITHIN;
            if is_late && !shared.is_ready() {
                self.give_up(at, "no word of it from its driver and broker in the guest", now);
            }
            let shared = &mut self.shared[at];
            shared.is_leaving |= is_ending || is_over;
            if shared.is_ready() {
                self.serve(at);
            }
            self.move_parts(at);
        }
        self.shared.retain(|shared| {
            let is_gone = shared.is_leaving && shared.parts.iter().all(Part::is_absent);
            if is_gone {
                shared.region.remove();
                tracing::info!(region = format!("{:016x}", shared.region.number), "removed");
            }
            !is_gone
        });
    }

    /// The region's memory does not come: whoever waits for it stays on TCP.
    fn give_up(&mut self, at: usize, why: &str, now: Instant) {
        let shared = &mut self.shared[at];
        shared.is_leaving = true;
        let guests = shared.guests;
        let pending = std::mem::take(&mut shared.pending);
        let names = guests.map(|guest| self.guests[guest].config.name.as_str()).join(" and ");
        tracing::warn!("no memory for guests {names}, so their connections stay on TCP: {why}");
        self.failed.push(Failed { guests, until: now + FAILED_FOR });
        for ends in pending {
            self.decline_both(ends, Decline::Memory);
        }
    }

    /// Slices for those that wait.
    fn serve(&mut self, at: usize) {
        for ends in std::mem::take(&mut self.shared[at].pending) {
            let (max_class, first_class) = (self.shared[at].region.class, self.first_class);
            let region = self.shared[at].region.number;
            match self.shared[at].region.take() {
                Ok(Some(offset)) => {
                    let first_class = first_class.min(max_class);
                    for End { guest, id } in ends {
                        let channel =
                            FromHost::Channel { id, region, offset, max_class, first_class };
                        self.tell(guest, channel);
                    }
                }
                Ok(None) => self.decline_both(ends, Decline::Memory),
                Err(error) => {
                    crate::rarely::warn!("cannot prepare a slice: {error}");
                    self.decline_both(ends, Decline::Memory);
                }
            }
        }
    }

    fn heard(&mut self, number: usize, heard: Heard<plugging::Purpose>, now: Instant) {
        if let Some((at, why)) = self.plugging_heard(number, heard) {
            self.give_up(at, &why, now);
        }
    }
}

impl Shared {
    fn new(region: Region, guests: [usize; 2], parts: [Part; 2]) -> Self {
        Self {
            region,
            guests,
            parts,
            is_told: [false; 2],
            telling: [Vec::new(), Vec::new()],
            is_leaving: false,
            since: Instant::now(),
            idle_since: None,
            pending: Vec::new(),
        }
    }
}
