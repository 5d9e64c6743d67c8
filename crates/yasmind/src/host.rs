//! `yasmind --host`: gives pairs of KVM guests memory, and slices of it to their connections; and segments to
//! guests of KVM and Xen.
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
mod desk;
mod domain;
mod grants;
mod kept;
mod leaving;
mod libvirt;
mod losses;
mod pairs;
mod plugging;
mod qmp;
mod region;
mod segment;
mod segments;
mod serving;
mod stream;
mod xen;

use crate::cli::Args;
use crate::segments::Addresses;
use anyhow::Context;
use config::{Config, GuestConfig, Monitor};
use desk::Desk;
use domain::Domain;
use leaving::Left;
use libvirt::Libvirt;
use losses::Losses;
use pairs::{GuestEnd, Outcome, Pairs, Pending};
use plugging::{FREED_WITHIN, Part, Plug, Spot};
use qmp::{Heard, Qmp};
use region::Region;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use segment::Segment;
use segments::{ASecond, Probes};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stream::{Stream, Turn};
use xen::Xen;
use yasmin_control::uplink::{FromHost, ToHost, UPLINK_BYTES, UPLINK_VERSION, next, session_of};
use yasmin_control::{Decline, Role};

/// A region in which nobody holds anything goes after so long.
const IDLE_FOR: Duration = Duration::from_secs(60);

/// Guests whose memory did not come are left alone for so long.
const FAILED_FOR: Duration = Duration::from_secs(60);

/// A device is there, and the guest has told of it, by then.
const PLUGGED_WITHIN: Duration = Duration::from_secs(20);

/// Guests have so long to let their memory go, when the broker ends.
const LEAVE_WITHIN: Duration = Duration::from_secs(15);

/// A guest's broker that goes on in a session that is over is told so after so long, then after longer.
const REMIND_AFTER: Duration = Duration::from_secs(1);
const REMIND_AFTER_MOST: Duration = Duration::from_secs(60);

/// Pairs of ends that wait for memory.
const PENDING_MAX: usize = 1024;

struct Guest {
    config: GuestConfig,
    qmp: Qmp<plugging::Purpose>,
    /// QEMU's process, if libvirt says it; else it is who listens at the QMP socket.
    qemu_pid: u32,
    /// Devices and memory of ours that its QEMU has are known.
    is_known: bool,
    port: Stream,
    /// What is said carries this number; 0: the guest's broker was not heard yet.
    session: u64,
    /// Until then messages of another session are those that were under way when this one began.
    remind_at: Instant,
    /// How long after the next session's beginning that will be.
    remind_after: Duration,
    /// It has said something in this session.
    is_heard: bool,
}

impl Guest {
    fn new(config: GuestConfig, now: Instant) -> Self {
        let monitor = match &config.monitor {
            Monitor::Socket(path) => Stream::new(path.clone(), now),
            Monitor::Libvirt | Monitor::Xen => Stream::over(None, now),
        };
        let port = config.port.clone();
        let port = port.map_or_else(|| Stream::over(None, now), |path| Stream::new(path, now));
        Self {
            qmp: Qmp::new(monitor),
            qemu_pid: 0,
            port,
            config,
            is_known: false,
            session: 0,
            remind_at: now,
            remind_after: REMIND_AFTER,
            is_heard: false,
        }
    }

    /// 0: nobody that can be seen here.
    fn qemu_pid(&self) -> u32 {
        match self.config.monitor {
            Monitor::Socket(_) => self.qmp.stream.peer_pid(),
            Monitor::Libvirt | Monitor::Xen => self.qemu_pid,
        }
    }
}

/// A region, in both guests.
struct Shared {
    region: Region,
    plugs: [Plug; 2],
    /// Connections had their channels in it.
    was_ready: bool,
    /// It is to go.
    is_leaving: bool,
    /// And not because this broker wanted it; not counted yet.
    is_lost: bool,
    /// Offset and grant of what it told of so far.
    telling: [Vec<(u64, u64)>; 2],
    idle_since: Option<Instant>,
}

impl Shared {
    fn guests(&self) -> [usize; 2] {
        [self.plugs[0].guest, self.plugs[1].guest]
    }

    const fn bytes(&self) -> u64 {
        self.region.way.bytes()
    }

    fn side_of(&self, guest: usize) -> Option<usize> {
        self.plugs.iter().position(|plug| plug.guest == guest)
    }

    fn is_ready(&self) -> bool {
        self.plugs.iter().all(Plug::is_ready) && !self.is_leaving
    }

    fn is_of(&self, guests: [usize; 2]) -> bool {
        guests.iter().all(|&guest| self.side_of(guest).is_some())
    }

    /// It is to go, and nothing of it is given any more.
    fn leave(&mut self) {
        self.is_leaving = true;
        self.region.close();
    }

    /// A guest has it no more.
    fn lost_by(&mut self, side: usize) {
        self.plugs[side].is_told = false;
        self.telling[side].clear();
        self.is_lost |= !self.is_leaving;
        self.leave();
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
    /// None is ever taken out: their numbers stay what they are.
    guests: Vec<Guest>,
    libvirt: Option<Libvirt>,
    xen: Option<Xen>,
    shared: Vec<Shared>,
    segments: Vec<Segment>,
    /// Of segments.
    addresses: Addresses,
    probes: Probes,
    /// Bells that guests have rung in others.
    rings: ASecond,
    pairs: Pairs,
    /// Ends of one connection, in the order in which they came.
    pending: Vec<Pending>,
    failed: Vec<Failed>,
    losses: Losses,
    left: Left,
    /// `None`: nobody can ask.
    desk: Option<Desk>,
    is_ending: bool,
}

/// Serves until SIGTERM or SIGINT, and takes all memory away again.
pub fn run(args: &Args, file: &Path) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let config = config::parse(&text).with_context(|| file.display().to_string())?;
    let (signals, signal_end) = UnixStream::pair().context("cannot make a socket pair")?;
    signals.set_nonblocking(true)?;
    for signal in [libc::SIGTERM, libc::SIGINT] {
        signal_hook::low_level::pipe::register(signal, signal_end.try_clone()?)
            .context("cannot catch signals")?;
    }
    let folder = args.host_memory.clone();
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    own(&folder)?;
    let lock = std::fs::File::create(folder.join(".lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another broker serves {}", folder.display()))?;
    let limit = args.memory_limit.unwrap_or_else(crate::memory::default_limit_bytes);
    let Config { guests, libvirt, has_xen } = config;
    let mut host = Host::new(args, folder, guests, limit);
    if let Some(uri) = libvirt {
        host.libvirt = Some(Libvirt::start(&uri)?);
    }
    if has_xen {
        host.xen = Some(Xen::start()?);
    }
    // First: what is found belongs to guests.
    host.hear_of_guests(Instant::now());
    host.find_regions();
    host.find_segments();
    host.find_left();
    match Desk::open(&args.host_socket) {
        Ok(desk) => host.desk = Some(desk),
        Err(error) => tracing::warn!(
            "cannot listen at {}, so yasmin host does not work: {error}; is there another broker? \
             --host-socket names another place",
            args.host_socket.display()
        ),
    }
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

/// What lies in the folder is believed: nobody else may write there.
fn own(folder: &Path) -> anyhow::Result<()> {
    let meta = rustix::fs::stat(folder)?;
    let me = rustix::process::geteuid().as_raw();
    anyhow::ensure!(
        meta.st_uid == me && meta.st_mode & 0o022 == 0,
        "{} belongs to user {} and has mode {:o}, so others may write there; remove it, or name another folder \
         with --host-memory",
        folder.display(),
        meta.st_uid,
        meta.st_mode & 0o7777
    );
    Ok(())
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
        let class = args.max_class.min(args.host_class);
        Self {
            folder,
            class,
            first_class: args.first_class().min(class),
            memory_limit,
            guest_limit: args.user_limit.unwrap_or(memory_limit / 2),
            guests: guests.into_iter().map(|config| Guest::new(config, now)).collect(),
            libvirt: None,
            xen: None,
            shared: Vec::new(),
            segments: Vec::new(),
            addresses: Addresses::of_host(),
            probes: Probes::default(),
            rings: ASecond::default(),
            pairs: Pairs::default(),
            pending: Vec::new(),
            failed: Vec::new(),
            losses: Losses::default(),
            left: Left::default(),
            desk: None,
            is_ending: false,
        }
    }

    /// Those that an earlier broker left.
    fn find_regions(&mut self) {
        let Ok(files) = std::fs::read_dir(&self.folder) else { return };
        for file in files.flatten() {
            let name = file.file_name();
            let adopt = |name| Region::adopt(&self.folder, name, random());
            let Some(region) = name.to_str().and_then(adopt) else {
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
            let plugs = [a, b].map(|guest| Plug::new(guest, Part::Unknown));
            self.shared.push(Shared::new(region, plugs));
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
        let libvirt = self.libvirt.iter().map(Libvirt::watched);
        let told = libvirt.chain(self.xen.iter().map(Xen::watched));
        fds.extend(told.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        for (fd, events) in self.desk.iter().flat_map(Desk::watched) {
            fds.push(PollFd::from_borrowed_fd(fd, events));
        }
        let streams = self.guests.iter().flat_map(|guest| [&guest.qmp.stream, &guest.port]);
        let again = streams.filter_map(Stream::next_expiry).min();
        let has_visitors = self.desk.as_ref().is_some_and(Desk::is_busy);
        let is_moving = self.segments.iter().any(|one| !one.is_filled())
            || self.segments.iter().flat_map(Segment::plugs).any(|plug| !plug.is_ready());
        let is_busy =
            has_visitors || is_moving || !self.shared.is_empty() || !self.pending.is_empty();
        let is_freeing = self.plugs().any(|plug| plug.part.is_freeing());
        let is_filling = self.segments.iter().any(|one| !one.is_filled() && one.want().is_none());
        let again_after =
            if is_freeing || is_filling { FREED_WITHIN } else { Duration::from_secs(1) };
        let busy = is_busy.then(|| now + again_after);
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
        self.hear_of_guests(now);
        for number in 0..self.guests.len() {
            for heard in self.guests[number].qmp.turn(now) {
                self.heard(number, heard, now);
            }
            match self.guests[number].port.turn(now) {
                Turn::Same => {}
                Turn::Connected => self.begin(number, now),
                Turn::Lost => self.forget_guest(number),
            }
            self.listen(number, now);
        }
        self.hear_desk(now);
        self.look_at_regions(now);
        self.answer_desk(now);
    }

    fn hear_of_guests(&mut self, now: Instant) {
        let libvirt = self.libvirt.as_mut().map_or_else(Vec::new, Libvirt::news);
        let xen = self.xen.as_mut().map_or_else(Vec::new, Xen::news);
        for domain in libvirt.into_iter().chain(xen) {
            self.meet(domain, now);
        }
    }

    /// A guest that libvirt has, or Xen, or that begins to run now.
    fn meet(&mut self, domain: Domain, now: Instant) {
        let Domain { name, monitor, slots, begun } = domain;
        let number = self.guests.iter().position(|guest| guest.config.name == name);
        let number = number.unwrap_or_else(|| {
            let monitor = monitor.clone();
            let config = GuestConfig { name, monitor, port: None, slots: Vec::new() };
            self.guests.push(Guest::new(config, now));
            self.seat(self.guests.len() - 1);
            self.guests.len() - 1
        });
        let guest = &mut self.guests[number];
        if guest.config.monitor != monitor {
            let GuestConfig { name, monitor: first, .. } = &guest.config;
            crate::rarely::warn!("there is another guest {name} {monitor}: the one {first} counts");
            return;
        }
        guest.config.slots = slots;
        let Some(begun) = begun else { return };
        tracing::info!("guest {} {monitor} runs", guest.config.name);
        // The QEMU that it had before has ended.
        if guest.qmp.is_up() {
            self.heard(number, Heard::Down, now);
        }
        self.forget_guest(number);
        let guest = &mut self.guests[number];
        guest.qmp = Qmp::new(Stream::over(Some(begun.monitor), now));
        guest.qemu_pid = begun.qemu_pid;
        guest.port = begun.port;
    }

    /// A new session with a guest's broker.
    fn begin(&mut self, number: usize, now: Instant) {
        self.forget_guest(number);
        let guest = &mut self.guests[number];
        guest.session = random().max(1);
        guest.remind_at = now + guest.remind_after;
        guest.remind_after = (guest.remind_after * 2).min(REMIND_AFTER_MOST);
        let begin = FromHost::Begin { version: UPLINK_VERSION };
        guest.port.send(&begin.encode(guest.session));
        for spot in self.spots_of(number) {
            let is_going = matches!(spot, Spot::Pair { at, .. } if self.shared[at].is_leaving);
            if self.plug(spot).is_plugged() && !is_going {
                self.tell_of(spot);
            }
        }
    }

    /// What its broker said counts no more. What it holds is told anew.
    fn forget_guest(&mut self, number: usize) {
        self.guests[number].session = 0;
        self.guests[number].is_heard = false;
        self.pairs.forget(number);
        self.forget_seats(number);
        for shared in &mut self.shared {
            if let Some(side) = shared.side_of(number) {
                shared.plugs[side].is_told = false;
                shared.telling[side].clear();
            }
        }
        // The other ends of their connections wait for them again.
        for Pending { ends, numbers, .. } in
            self.take_pending(|pending| pending.ends.iter().any(|end| end.guest == number))
        {
            for (end, role) in ends.into_iter().zip([Role::Connector, Role::Acceptor]) {
                if end.guest != number && self.pairs.offer(end, role, numbers) != Outcome::Waits {
                    self.decline(end, Decline::NoProof);
                }
            }
        }
    }

    fn take_pending(&mut self, is_wanted: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let (taken, kept) = std::mem::take(&mut self.pending).into_iter().partition(is_wanted);
        self.pending = kept;
        taken
    }

    fn tell(&mut self, number: usize, message: FromHost) {
        let guest = &mut self.guests[number];
        if guest.session != 0 {
            guest.port.send(&message.encode(guest.session));
        }
    }

    /// What a guest's broker says.
    fn listen(&mut self, number: usize, now: Instant) {
        let inbox = std::mem::take(&mut self.guests[number].port.inbox);
        let mut rest = inbox.as_slice();
        let mut wants_session = false;
        loop {
            let (used, raw) = next(rest);
            rest = &rest[used..];
            let Some(raw) = raw else { break };
            wants_session |= self.hear(number, raw, now);
        }
        self.guests[number].port.inbox = rest.to_vec();
        // Once, however often it has asked: what it said before counts no more in either case.
        if wants_session {
            self.begin(number, now);
        }
    }

    /// One message. True: a session has to begin.
    fn hear(&mut self, number: usize, raw: &[u8; UPLINK_BYTES], now: Instant) -> bool {
        let guest = &self.guests[number];
        let name = &guest.config.name;
        match ToHost::decode(raw) {
            Err(_) => {
                crate::rarely::warn!("guest {name} sends what it should not");
                false
            }
            Ok(ToHost::Ask { version: UPLINK_VERSION }) => true,
            Ok(ToHost::Ask { version }) => {
                crate::rarely::warn!(
                    "guest {name} speaks version {version} of the uplink, this one \
                     {UPLINK_VERSION}: its connections stay on TCP; update one of them"
                );
                false
            }
            Ok(message) if session_of(raw) == guest.session => {
                let guest = &mut self.guests[number];
                (guest.is_heard, guest.remind_after) = (true, REMIND_AFTER);
                guest.remind_at = guest.remind_at.min(now + REMIND_AFTER);
                self.said(number, message, now);
                false
            }
            // It missed that a session began: without this it would get nothing for good.
            Ok(_) => now >= guest.remind_at,
        }
    }

    fn said(&mut self, number: usize, message: ToHost, now: Instant) {
        match message {
            ToHost::Ask { .. } => {}
            ToHost::Offer { id, role, numbers } => {
                let end = GuestEnd { guest: number, id };
                match self.pairs.offer(end, role, numbers) {
                    Outcome::Waits => {}
                    Outcome::Pair(ends) => self.pair(Pending { ends, numbers, since: now }),
                    Outcome::Conflict(other) => {
                        let names = [end, other].map(|end| self.name_of(end.guest));
                        crate::rarely::warn!(
                            "guests {} and {} offer one and the same end of a connection: neither \
                             is believed; one of them is wrong, or was copied while it ran",
                            names[0],
                            names[1]
                        );
                        self.decline(other, Decline::NoProof);
                        self.decline(end, Decline::NoProof);
                    }
                    Outcome::Full => {
                        crate::rarely::warn!(
                            "guest {} offers too many ends at once: those stay on TCP",
                            self.name_of(number)
                        );
                        self.decline(end, Decline::TooMany);
                    }
                }
            }
            ToHost::Withdraw { id } => self.withdraw(GuestEnd { guest: number, id }),
            ToHost::Held(slice) => {
                if let Some((shared, side)) = self.region_of(slice.region, number) {
                    let telling = &mut shared.telling[side];
                    if telling.len() < shared.region.slices() {
                        telling.push((slice.offset, slice.grant));
                    }
                }
            }
            ToHost::Region { region } => {
                self.segment_told(number, region);
                if let Some((shared, side)) = self.region_of(region, number) {
                    let held = std::mem::take(&mut shared.telling[side]);
                    shared.region.told(side, &held);
                    if !std::mem::replace(&mut shared.plugs[side].is_told, true) {
                        let name = &self.guests[number].config.name;
                        let region = format!("{region:016x}");
                        tracing::info!(region, "guest {name} has the memory");
                    }
                }
            }
            ToHost::Freed(slice) => {
                if let Some((shared, side)) = self.region_of(slice.region, number) {
                    shared.region.freed(side, slice.offset, slice.grant);
                }
            }
            // Its QEMU says so, too; until then nothing new goes there.
            ToHost::Gone { region } => {
                self.segment_gone(number, region);
                if let Some((shared, side)) = self.region_of(region, number) {
                    shared.lost_by(side);
                }
            }
            ToHost::Unused { region, number: end } => self.segment_unused(number, region, end),
            ToHost::Probe { id, region, slot } => self.probe(number, id, region, slot, now),
            ToHost::Life { id, life } => self.probed(number, id, life),
            ToHost::Ring { region, bell, domains } => {
                self.ring(number, region, bell, domains, now);
            }
        }
    }

    fn name_of(&self, guest: usize) -> &str {
        &self.guests[guest].config.name
    }

    fn names_of(&self, guests: [usize; 2]) -> String {
        guests.map(|guest| self.name_of(guest)).join(" and ")
    }

    fn region_of(&mut self, region: u64, guest: usize) -> Option<(&mut Shared, usize)> {
        let shared = self.shared.iter_mut().find(|shared| shared.region.number == region)?;
        let side = shared.side_of(guest)?;
        Some((shared, side))
    }

    fn decline(&mut self, end: GuestEnd, reason: Decline) {
        self.tell(end.guest, FromHost::Decline { id: end.id, reason });
    }

    fn withdraw(&mut self, end: GuestEnd) {
        self.pairs.withdraw(end);
        for pending in self.take_pending(|pending| pending.ends.contains(&end)) {
            for other in pending.ends.into_iter().filter(|one| *one != end) {
                self.decline(other, Decline::NoProof);
            }
        }
    }

    /// Two ends of one connection, of two guests.
    fn pair(&mut self, pending: Pending) {
        if self.pending.len() < PENDING_MAX {
            return self.pending.push(pending);
        }
        crate::rarely::warn!(
            "{PENDING_MAX} connections wait for memory: one of guests {} stays on TCP",
            self.names_of(pending.guests())
        );
        self.decline_both(pending.ends, Decline::TooMany);
    }

    fn decline_both(&mut self, ends: [GuestEnd; 2], reason: Decline) {
        for end in ends {
            self.decline(end, reason);
        }
    }

    fn look_at_regions(&mut self, now: Instant) {
        for shared in &mut self.shared {
            let is_wanted = self.pending.iter().any(|pending| shared.is_of(pending.guests()));
            let is_idle = shared.region.is_idle() && shared.is_ready() && !is_wanted;
            shared.was_ready |= shared.is_ready();
            if std::mem::take(&mut shared.is_lost) {
                self.losses.lost(shared.guests(), now);
            }
            shared.idle_since = if is_idle { shared.idle_since.or(Some(now)) } else { None };
            let is_over = self.is_ending || self.left.has(shared.guests());
            if is_over || shared.idle_since.is_some_and(|since| now >= since + IDLE_FOR) {
                shared.leave();
            }
        }
        self.serve_pending(now);
        for at in 0..self.shared.len() {
            for side in 0..2 {
                self.move_plug(Spot::Pair { at, side }, now);
            }
        }
        self.look_at_segments(now);
        self.shared.retain(|shared| {
            let is_gone =
                shared.is_leaving && shared.plugs.iter().all(|plug| plug.part.is_absent());
            if is_gone {
                shared.region.remove();
                tracing::info!(region = format!("{:016x}", shared.region.number), "removed");
            }
            !is_gone
        });
    }

    fn heard(&mut self, number: usize, heard: Heard<plugging::Purpose>, now: Instant) {
        let Some((at, why)) = self.plugging_heard(number, heard, now) else { return };
        let guests = self.shared[at].guests();
        let names = self.names_of(guests);
        tracing::warn!("no memory for guests {names}, so their connections stay on TCP: {why}");
        self.give_up(guests, now);
        for pending in self.take_pending(|pending| pending.is_of(guests)) {
            self.decline_both(pending.ends, Decline::Memory);
        }
    }
}

impl Shared {
    fn new(region: Region, plugs: [Plug; 2]) -> Self {
        Self {
            region,
            plugs,
            was_ready: false,
            telling: [Vec::new(), Vec::new()],
            is_leaving: false,
            is_lost: false,
            idle_since: None,
        }
    }
}

#[cfg(test)]
mod tests;
