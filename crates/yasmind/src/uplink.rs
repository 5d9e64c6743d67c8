//! The way from a guest's broker up to its host's (spec/wire.md section 13): ends that have no peer
//! in this guest, and the regions that the host plugs.
//!
//! Called by the broker only, and it never waits: the port and the regions' devices lie in an epoll
//! set of its own. What the host says is checked where it is used; it can give or deny channels, and
//! no more, since an end's own facts come from its own kernel.

mod port;

use self::port::{Heard, Port};
use crate::segments::Told;
use crate::sys::slices::{self, Range};
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use yasmin_control::segment::{Name, Place, Rights, Whom};
use yasmin_control::uplink::{
    FromHost, Life, Numbers, Slice, ToHost, UPLINK_VERSION, next, session_of,
};
use yasmin_control::{Decline, Role};
use yasmin_wire::layout::PAGE_BYTES;

/// A device that was plugged comes within moments, or not at all.
const LOOK_FOR: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A region comes also when somebody loads the driver.
const LOOK_LATER: Duration = Duration::from_secs(5);

/// A host's broker that is there and does not answer is asked again after so long, then after longer.
const ASK_AFTER: Duration = Duration::from_secs(1);
const ASK_AFTER_MOST: Duration = Duration::from_secs(60);

/// The port tells late that there is somebody at its other end.
const CHECK_AFTER: Duration = Duration::from_millis(200);

/// More than that is never waiting to be written: the host does not read, and is left alone.
const OUTBOX_BYTES: usize = 1 << 20;

const PORT: u64 = u64::MAX;
const COMERS: u64 = PORT - 1;

/// What the host says to the broker.
pub enum Said {
    /// A session begins: ends that wait are to be offered.
    Begun,
    Channel {
        serial: u64,
        slice: Slice,
        max_class: u8,
        first_class: u8,
    },
    Declined {
        serial: u64,
        reason: Decline,
    },
    /// Memory was taken away: what lay in it goes on as private copies.
    Gone {
        region: u64,
    },
    /// A segment that the host gives, and its memory.
    Segment {
        told: Told,
        device: OwnedFd,
    },
    /// It ends, when nobody here has it any more.
    End {
        region: u64,
        number: u64,
    },
    /// Whether a member of this guest lives; the answer is `answer_probe`.
    Probe {
        id: u64,
        region: u64,
        slot: u64,
    },
    /// What is known of a member in another guest, by the number of `probe`.
    Life {
        id: u64,
        life: Life,
    },
    /// A bell of a segment of the host rings.
    Ring {
        region: u64,
        bell: u8,
    },
}

struct Region {
    device: OwnedFd,
    path: PathBuf,
    bytes: u64,
}

pub struct Uplink {
    epoll: OwnedFd,
    port: Port,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// `None`: the host's broker is not there, or speaks another version.
    session: Option<u64>,
    /// By their numbers.
    regions: HashMap<u64, Region>,
    /// Ends that the host knows of.
    offered: HashSet<u64>,
    /// Regions that the host has plugged and that were not found yet.
    wanted: HashSet<u64>,
    /// What the host has said of segments, by their regions; with a name all of it.
    told: HashMap<u64, HalfTold>,
    /// Segments that were found, and what else is to be heard.
    news: Vec<Said>,
    look: Option<Look>,
    /// When to see whether the host's broker is gone.
    check_at: Option<Instant>,
    /// When to ask again for a session, and how long after that.
    ask_at: Option<Instant>,
    ask_after: Duration,
}

struct HalfTold {
    domain: u8,
    place: Place,
    name: Option<Name>,
    rights: BTreeMap<Whom, Rights>,
}

/// Looks often for a device that is about to come.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    until: Instant,
}

impl Look {
    fn from(now: Instant) -> Self {
        Self { at: now, until: now + LOOK_FOR }
    }

    const fn once(now: Instant) -> Self {
        Self { at: now, until: now }
    }

    fn again(self, now: Instant) -> Self {
        let every = if now < self.until { LOOK_EVERY } else { LOOK_LATER };
        Self { at: now + every, ..self }
    }
}

impl Uplink {
    /// With the port that is named, or the virtio-serial port org.yasmin.0, when there is one.
    ///
    /// # Errors
    /// The kernel's, which has no room, or does not tell of files that come.
    pub fn start(named: Option<PathBuf>) -> io::Result<Self> {
        let now = Instant::now();
        let mut uplink = Self::on(Port::new(named, now)?)?;
        uplink.find_port(now);
        Ok(uplink)
    }

    fn on(port: Port) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(comers) = port.comers() {
            let data = epoll::EventData::new_u64(COMERS);
            epoll::add(&epoll, comers, data, epoll::EventFlags::IN)?;
        }
        Ok(Self {
            epoll,
            port,
            inbox: Vec::new(),
            outbox: Vec::new(),
            session: None,
            regions: HashMap::new(),
            offered: HashSet::new(),
            wanted: HashSet::new(),
            told: HashMap::new(),
            news: Vec::new(),
            look: None,
            check_at: None,
            ask_at: None,
            ask_after: ASK_AFTER,
        })
    }

    fn find_port(&mut self, now: Instant) {
        if self.port.find(now) {
            self.port_came(now);
        }
    }

    fn port_came(&mut self, now: Instant) {
        let Some(port) = self.port.fd() else { return };
        // By edges: a port without a host hangs up for ever.
        let events = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        match epoll::add(&self.epoll, port, epoll::EventData::new_u64(PORT), events) {
            Ok(()) => self.begin_anew(now),
            Err(error) => {
                crate::rarely::warn!("cannot wait for the port to the host: {error}");
                self.port.close(now);
            }
        }
    }

    /// It was unplugged. One that comes in its place is found.
    fn port_gone(&mut self, now: Instant) {
        if self.is_up() {
            tracing::info!("the port to the host is gone: channels stay, no new ones come");
        }
        self.port.close(now);
        self.lost();
        self.inbox.clear();
        (self.check_at, self.ask_at) = (None, None);
    }

    /// Asks for a session, and goes on to until there is one.
    fn ask(&mut self, now: Instant) {
        if self.outbox.is_empty() {
            self.outbox.extend(ToHost::Ask { version: UPLINK_VERSION }.encode(0));
        }
        self.flush();
        self.ask_at = Some(now + self.ask_after);
        self.ask_after = (self.ask_after * 2).min(ASK_AFTER_MOST);
    }

    /// What this guest and its host believe of each other differs: both begin anew.
    fn begin_anew(&mut self, now: Instant) {
        self.lost();
        self.ask_after = ASK_AFTER;
        self.ask(now);
    }

    pub const fn is_up(&self) -> bool {
        self.session.is_some()
    }

    fn send(&mut self, message: ToHost) {
        let Some(session) = self.session else { return };
        if self.outbox.len() > OUTBOX_BYTES {
            crate::rarely::warn!("the host's broker does not read: connections stay on TCP");
            self.begin_anew(Instant::now());
            return;
        }
        self.outbox.extend(message.encode(session));
        self.flush();
    }

    fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match self.port.write(&self.outbox) {
                0 => return,
                count => drop(self.outbox.drain(..count)),
            }
        }
    }

    /// The session is over; channels that were handed out stay. What was received behind its end stays
    /// too: it may be the next one's beginning.
    fn lost(&mut self) {
        self.session = None;
        self.offered.clear();
        self.wanted.clear();
        self.outbox.clear();
    }

    /// Offers an end that has no peer here.
    pub fn offer(&mut self, serial: u64, role: Role, numbers: Numbers) {
        if self.is_up() && self.offered.insert(serial) {
            self.send(ToHost::Offer { id: serial, role, numbers });
        }
    }

    /// The end waits no more.
    pub fn withdraw(&mut self, serial: u64) {
        if self.offered.remove(&serial) {
            self.send(ToHost::Withdraw { id: serial });
        }
    }

    /// A descriptor for a slice, which the host gave for an end. When nobody holds it any more, the
    /// driver says so.
    ///
    /// # Errors
    /// Nobody here has got the slice, and the host knows it, or is told what is held instead.
    pub fn take(&mut self, slice: Slice, now: Instant) -> io::Result<OwnedFd> {
        let region = self.regions.get(&slice.region).ok_or(io::ErrorKind::NotFound);
        let Slice { offset, bytes, grant, .. } = slice;
        let taken = region.map_err(io::Error::from).and_then(|region| {
            slices::get(&region.device, Range { offset, bytes, grant, flags: 0 })
        });
        match &taken {
            Ok(_) => {}
            // Held by another grant, of which the host does not know: it must not be given again.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => self.begin_anew(now),
            Err(_) => self.refuse(slice),
        }
        taken
    }

    /// A grant that nobody here has taken, or will.
    pub fn refuse(&mut self, slice: Slice) {
        self.send(ToHost::Freed(slice));
    }

    /// Something is ready: what the host said.
    pub fn turn(&mut self, now: Instant) -> Vec<Said> {
        let mut buffer = [MaybeUninit::uninit(); 64];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready: Vec<_> = match epoll::wait(&self.epoll, &mut buffer, Some(&zero)) {
            Ok((events, _)) => events.iter().map(|event| (event.data.u64(), event.flags)).collect(),
            Err(_) => return Vec::new(),
        };
        let mut said = Vec::new();
        for (token, flags) in ready {
            match token {
                PORT => {
                    self.flush();
                    self.receive(now, &mut said);
                    // The host's broker may have come.
                    if !self.is_up() && !self.port.is_hung_up() && self.ask_at.is_none() {
                        self.begin_anew(now);
                    }
                }
                COMERS => {
                    self.port.came(now);
                    self.find_port(now);
                }
                region => self.region_said(region, flags, &mut said),
            }
        }
        said.append(&mut self.news);
        said
    }

    /// What `expire` has found.
    pub fn news(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.news)
    }

    /// A segment is given when both its memory and all that is said of it are there.
    fn announce(&mut self, region: u64) {
        let Some(told) = self.told.get(&region) else { return };
        let Some(Region { device, bytes, .. }) = self.regions.get(&region) else { return };
        let Some(name) = told.name else { return };
        let HalfTold { domain, place, ref rights, .. } = *told;
        if place.mapped_bytes() > bytes.saturating_sub(PAGE_BYTES as u64) {
            return crate::rarely::warn!("the host gives segment {name} too little memory");
        }
        match device.try_clone() {
            Ok(device) => {
                let told = Told { region, domain, name, place, rights: rights.clone() };
                self.news.push(Said::Segment { told, device });
            }
            Err(error) => crate::rarely::warn!("cannot take segment {name}: {error}"),
        }
    }

    /// Nobody here has a segment of which the host said by this number that it ends.
    pub fn unused(&mut self, region: u64, number: u64) {
        self.send(ToHost::Unused { region, number });
    }

    /// Asks of a member in another guest; false: nobody can be asked now.
    pub fn probe(&mut self, id: u64, region: u64, slot: u64) -> bool {
        self.send(ToHost::Probe { id, region, slot });
        self.is_up()
    }

    /// Has a bell of a segment rung in other guests, a bit for each; or not, where other messages wait to
    /// be written: whoever rings all the time does not delay those.
    pub fn ring(&mut self, region: u64, bell: u8, domains: u8) {
        if self.outbox.is_empty() {
            self.send(ToHost::Ring { region, bell, domains });
        }
    }

    pub fn answer_probe(&mut self, id: u64, life: Life) {
        self.send(ToHost::Life { id, life });
    }

    fn receive(&mut self, now: Instant, said: &mut Vec<Said>) {
        let mut buffer = [0; 4096];
        loop {
            match self.port.read(&mut buffer) {
                Heard::Bytes(count) => self.inbox.extend(&buffer[..count]),
                Heard::Nobody => {
                    self.check_at = Some(now + CHECK_AFTER);
                    return;
                }
                Heard::Nothing => return,
                Heard::Gone => return self.port_gone(now),
            }
            loop {
                let (used, raw) = next(&self.inbox);
                let raw = raw.copied();
                self.inbox.drain(..used);
                let Some(raw) = raw else { break };
                self.understand(&raw, now, said);
            }
        }
    }

    fn understand(
        &mut self,
        raw: &[u8; yasmin_control::uplink::UPLINK_BYTES],
        now: Instant,
        said: &mut Vec<Said>,
    ) {
        let session = session_of(raw);
        match FromHost::decode(raw) {
            Ok(FromHost::Begin { version: UPLINK_VERSION }) => {
                self.lost();
                self.session = Some(session);
                // What is said of slices below is what the driver knows now: channels of the session
                // before that nobody has taken yet are void, and their ends are offered anew.
                said.retain(|said| matches!(said, Said::Gone { .. }));
                (self.ask_at, self.ask_after) = (None, ASK_AFTER);
                tracing::info!("the host's broker is there");
                for number in self.regions.keys().copied().collect::<Vec<_>>() {
                    self.tell_of(number);
                }
                // The host hears that somebody is here, though there be nothing else to say.
                self.send(ToHost::Region { region: 0 });
                self.look(now);
                said.push(Said::Begun);
            }
            Ok(FromHost::Begin { version }) => {
                self.lost();
                tracing::warn!(
                    "the host's broker speaks version {version} of the uplink, this one \
                     {UPLINK_VERSION}: connections to other guests stay on TCP; update one of them"
                );
            }
            _ if self.session != Some(session) => {}
            Ok(FromHost::Plugged { region }) => {
                if self.regions.contains_key(&region) {
                    self.announce(region);
                } else {
                    self.wanted.insert(region);
                    self.look(now);
                }
            }
            Ok(FromHost::Segment { region, domain, place }) => {
                let told = HalfTold { domain, place, name: None, rights: BTreeMap::new() };
                self.told.insert(region, told);
            }
            Ok(FromHost::Name { region, name }) => {
                if let Some(told) = self.told.get_mut(&region) {
                    told.name = Some(name);
                }
            }
            Ok(FromHost::Rights { region, whom, rights }) => {
                if let Some(told) = self.told.get_mut(&region) {
                    told.rights.insert(whom, rights);
                }
            }
            Ok(FromHost::End { region, number }) => self.news.push(Said::End { region, number }),
            Ok(FromHost::Probe { id, region, slot }) => {
                said.push(Said::Probe { id, region, slot });
            }
            Ok(FromHost::Life { id, life }) => said.push(Said::Life { id, life }),
            Ok(FromHost::Ring { region, bell }) => said.push(Said::Ring { region, bell }),
            Ok(FromHost::Channel { id, region, offset, grant, max_class, first_class }) => {
                let bytes = yasmin_wire::layout::channel_bytes(max_class) as u64;
                self.offered.remove(&id);
                let slice = Slice { region, offset, bytes, grant };
                said.push(Said::Channel { serial: id, slice, max_class, first_class });
            }
            Ok(FromHost::Decline { id, reason }) => {
                self.offered.remove(&id);
                said.push(Said::Declined { serial: id, reason });
            }
            Err(_) => crate::rarely::warn!("the host's broker sent what it should not"),
        }
    }

    /// Looks for regions that were plugged, from now on for a while.
    fn look(&mut self, now: Instant) {
        self.look = Some(Look::from(now));
        self.expire(now);
    }

    /// When `expire` has something to do next.
    pub fn next_expiry(&self) -> Option<Instant> {
        let look = self.look.map(|look| look.at);
        [look, self.check_at, self.ask_at, self.port.next_expiry()].into_iter().flatten().min()
    }

    pub fn expire(&mut self, now: Instant) {
        self.find_port(now);
        if self.check_at.is_some_and(|at| at <= now) {
            self.check_at = None;
            if self.port.is_hung_up() && self.is_up() {
                tracing::info!("the host's broker is gone: channels stay, no new ones come");
                self.lost();
                // Half a message would swallow what the next broker says first.
                self.inbox.clear();
            }
        }
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = None;
            // Where nobody is, the port says when somebody comes.
            if !self.is_up() && !self.port.is_hung_up() {
                self.ask(now);
            }
        }
        let Some(look) = self.look.filter(|look| look.at <= now) else { return };
        self.find_regions();
        self.look = (!self.wanted.is_empty()).then(|| look.again(now));
    }

    fn find_regions(&mut self) {
        let Ok(devices) = std::fs::read_dir("/dev") else { return };
        for device in devices.flatten() {
            let name = device.file_name();
            if !name.to_string_lossy().starts_with("yasmin-region") {
                continue;
            }
            let path = device.path();
            if self.regions.values().any(|region| region.path == path) {
                continue;
            }
            match self.meet(path) {
                Ok(number) => {
                    self.wanted.remove(&number);
                    self.tell_of(number);
                    self.announce(number);
                }
                Err(error) => crate::rarely::warn!("cannot use /dev/{name:?}: {error}"),
            }
        }
    }

    fn meet(&mut self, path: PathBuf) -> io::Result<u64> {
        let device = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let mut identity = [0; 32];
        if read(&device, &mut identity)? != identity.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&identity[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        // The other guest can write that page: a number that another one has is nobody's.
        let (number, bytes) = (word(16), word(24));
        if identity[..12] != *b"YASMINRG\x01\0\0\0"
            || number >= COMERS
            || self.regions.contains_key(&number)
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.epoll, &device, data, epoll::EventFlags::IN)?;
        tracing::info!(region = format!("{number:016x}"), bytes, "memory was plugged");
        self.regions.insert(number, Region { device, path, bytes });
        Ok(number)
    }

    /// What is held of a region, and then itself.
    fn tell_of(&mut self, number: u64) {
        let mut from = 0;
        while let Some(range) = self
            .regions
            .get(&number)
            .filter(|region| from < region.bytes)
            .and_then(|region| slices::held_from(&region.device, from))
        {
            let Range { offset, bytes, grant, flags } = range;
            if flags & slices::SEGMENT == 0 {
                self.send(ToHost::Held(Slice { region: number, offset, bytes, grant }));
            }
            from = offset.saturating_add(bytes.max(1));
        }
        self.send(ToHost::Region { region: number });
    }

    /// Slices were freed, or the region has gone.
    fn region_said(&mut self, number: u64, flags: epoll::EventFlags, said: &mut Vec<Said>) {
        while let Some(range) =
            self.regions.get(&number).and_then(|region| slices::freed(&region.device))
        {
            let Range { offset, bytes, grant, flags } = range;
            if flags & slices::SEGMENT != 0 {
                continue;
            }
            self.send(ToHost::Freed(Slice { region: number, offset, bytes, grant }));
        }
        if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR)
            && self.regions.remove(&number).is_some()
        {
            tracing::info!(
                region = format!("{number:016x}"),
                "memory was taken away: its connections go on by TCP"
            );
            self.told.remove(&number);
            said.push(Said::Gone { region: number });
            self.send(ToHost::Gone { region: number });
        }
    }
}

impl AsFd for Uplink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests;
