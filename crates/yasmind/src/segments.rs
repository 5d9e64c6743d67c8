//! Segments: memory that programs ask for by name, at one address in every process.
//!
//! ```text
//!  Segments ── Addresses      which addresses each has
//!     │  └──── Budget         bytes of each user and in all
//!     ├─ Segment ── memory    the memfd; the kernel knows who has it
//!     │      ├───── given     or a device's memory, which the host gives
//!     │      └───── record    what is known of it, in a memfd of the broker's own
//!     └─ Store                keeps both across the broker's death
//! ```
//!
//! Called by the broker only; nothing here waits for a process.

mod addresses;
mod given;
mod memory;
mod record;
mod store;

pub use self::addresses::Addresses;
use self::given::Given;
pub use self::given::Told;
use self::record::RIGHTS_MAX;
pub use self::store::{Store, keep};
use crate::broker::has_room;
use crate::budget::Budget;
use crate::cpu_time::cpu_time;
use crate::errands::Errands;
use crate::sys::memfd;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant, SystemTime};
use yasmin_control::segment::{Kind, Name, Place, Refusal, Rights, Whom, file_bytes};
use yasmin_control::status;
use yasmin_control::uplink::Life;

/// How often it is looked whether removed segments are still held, and creators live.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Holders that are told of.
const HOLDERS: usize = 100;

/// Of CPU time, what a question about a segment's locks may cost. Its members can make any number
/// of locks, and the kernel looks at each of them for each question.
const CROWDED: Duration = Duration::from_millis(5);

/// For so many times what such a question cost, no more are asked.
const REST: u32 = 20;

/// What the broker knows of a segment, and its successor has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: Name,
    owner: u32,
    place: Place,
    /// At most `RIGHTS_MAX` users. The owner has all rights without being named.
    rights: BTreeMap<Whom, Rights>,
    /// The number of the process with which it ends.
    creator: Option<u32>,
    /// Seconds since 1970.
    created_s: u64,
    /// Its name is free again; its memory and its addresses are somebody's still.
    is_removed: bool,
}

/// A process that has a segment, or wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// 0: not seen from here.
    pub pid: u32,
    pub uid: u32,
    pub rights: Rights,
}

/// The owner of the host's segments: no user has this number.
pub const HOST: u32 = u32::MAX;

struct Segment {
    entry: Entry,
    memory: Memory,
    /// Readable once the creator has ended.
    creator: Option<OwnedFd>,
    /// It has so many locks that it is left alone until then.
    rests_until: Cell<Option<Instant>>,
}

enum Memory {
    Own { memfd: OwnedFd, record: OwnedFd },
    Host(Given),
}

impl Memory {
    fn is_held(&self) -> bool {
        match self {
            Self::Own { memfd, .. } => memory::is_held(memfd),
            Self::Host(given) => given.is_held(),
        }
    }

    /// The file with the locks that say who has it.
    fn holders_file(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own { memfd, .. } => memfd.as_fd(),
            Self::Host(given) => given.lock_file(),
        }
    }

    fn used_bytes(&self, place: &Place) -> u64 {
        match self {
            Self::Own { memfd, .. } => memfd::used_bytes(memfd),
            // Plugged, as a whole; what the host has given for it so far nobody knows here.
            Self::Host(_) => place.mapped_bytes(),
        }
    }

    /// The host keeps what is known of its own.
    fn write_down(&self, entry: &Entry) -> io::Result<()> {
        match self {
            Self::Own { record, .. } => record::write(record, entry),
            Self::Host(_) => Ok(()),
        }
    }

    const fn given(&self) -> Option<&Given> {
        match self {
            Self::Own { .. } => None,
            Self::Host(given) => Some(given),
        }
    }
}

pub struct Limits {
    /// Of all users together. One who is not root may have as many as are left for the others.
    pub segments: usize,
    pub budget: Budget,
    /// What the machine has.
    pub most_bytes: u64,
}

pub struct Segments {
    limits: Limits,
    addresses: Addresses,
    /// By a number that is used once; removed ones are among them.
    all: BTreeMap<u64, Segment>,
    names: BTreeMap<Name, u64>,
    /// Segments of each user; no entry is 0.
    users: HashMap<u32, usize>,
    next: u64,
    store: Store,
    errands: Errands,
    look_at: Option<Instant>,
    /// Locks of the host's segments that an earlier broker had, by their regions.
    locks: HashMap<u64, OwnedFd>,
    /// Of the host's segments that ended and that nobody has any more: region and the end's number.
    unused: Vec<(u64, u64)>,
}

/// Descriptors that open a segment: of its memory, and of the locks if it is the host's.
pub struct Opened {
    pub place: Place,
    pub domain: Option<u8>,
    pub fds: Vec<OwnedFd>,
}

impl Segments {
    /// With those that the store has.
    pub fn recover(limits: Limits, is_system: bool, mut store: Store, errands: Errands) -> Self {
        let kept = store.recover();
        let uid = rustix::process::geteuid().as_raw();
        let mut segments = Self {
            limits,
            addresses: Addresses::new(is_system, uid),
            all: BTreeMap::new(),
            names: BTreeMap::new(),
            users: HashMap::new(),
            next: 0,
            store,
            errands,
            look_at: None,
            locks: HashMap::new(),
            unused: Vec::new(),
        };
        let mut parts: BTreeMap<u64, HashMap<String, OwnedFd>> = BTreeMap::new();
        for (name, fd) in kept {
            let Some((part, number)) = name.split_once('-') else { continue };
            let Ok(number) = number.parse() else { continue };
            if part == store::LOCKS {
                segments.locks.insert(number, fd);
                continue;
            }
            parts.entry(number).or_default().insert(part.to_owned(), fd);
        }
        for (number, parts) in parts {
            segments.next = segments.next.max(number);
            if let Err(error) = segments.take_back(number, parts) {
                tracing::warn!("segment {number} is lost: {error}");
                segments.store.forget_all(number);
            }
        }
        if !segments.all.is_empty() {
            tracing::info!(segments = segments.all.len(), "found again");
        }
        segments.look_at = segments.next_look();
        segments
    }

    fn take_back(&mut self, number: u64, mut parts: HashMap<String, OwnedFd>) -> io::Result<()> {
        let gone = |what| move || io::Error::other(format!("its {what} is not there"));
        let memfd = parts.remove(store::MEMORY).ok_or_else(gone("memory"))?;
        let record = parts.remove(store::RECORD).ok_or_else(gone("record"))?;
        let entry = record::read(&record)?;
        if !memory::is_of(&memfd, &entry.place) {
            return Err(io::Error::other("its memory is another's"));
        }
        if !entry.is_removed && self.names.contains_key(&entry.name) {
            return Err(io::Error::other("there are two of its name"));
        }
        if !self.addresses.take_at(entry.place.start(), entry.place.mapped_bytes()) {
            return Err(io::Error::other("its addresses are another's"));
        }
        // Limits may be lower than they were; what there is stays.
        let _ = self.limits.budget.take(entry.owner, entry.place.mapped_bytes());
        if !entry.is_removed {
            self.names.insert(entry.name, number);
        }
        *self.users.entry(entry.owner).or_default() += 1;
        let creator = parts.remove(store::CREATOR);
        let memory = Memory::Own { memfd, record };
        self.all.insert(number, Segment::new(entry, memory, creator));
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// `creator`: the process that asks, for a segment that ends with it.
    pub fn create(
        &mut self,
        uid: u32,
        name: Name,
        size_bytes: u64,
        kind: Kind,
        creator: impl FnOnce() -> Option<(u32, OwnedFd)>,
    ) -> Result<(), Refusal> {
        if let Some(there) = self.find(&name) {
            let Entry { owner, .. } = there.entry;
            return Err(if owner == HOST { Refusal::OfHost } else { Refusal::Taken { owner } });
        }
        let len_bytes = file_bytes(size_bytes, kind.is_huge);
        if len_bytes > self.limits.most_bytes {
            return Err(Refusal::TooLarge { most_bytes: self.limits.most_bytes });
        }
        let of_user = self.users.get(&uid).copied().unwrap_or(0);
        if !has_room(uid, of_user, self.all.len(), self.limits.segments) {
            return Err(Refusal::TooMany { most: of_user as u64 });
        }
        let creator = match kind.with_creator {
            true => Some(creator().ok_or(Refusal::Unseen)?),
            false => None,
        };
        let budget = &mut self.limits.budget;
        if budget.take(uid, len_bytes).is_err() {
            let (of_user, of_all) = (budget.left_of(uid), budget.left_bytes());
            return Err(if of_user < of_all {
                Refusal::UserShare { left_bytes: of_user }
            } else {
                Refusal::AllShares { left_bytes: of_all }
            });
        }
        let made = self.make(uid, name, size_bytes, kind, creator);
        if made.is_err() {
            self.limits.budget.give_back(uid, len_bytes);
        }
        made
    }

    fn make(
        &mut self,
        uid: u32,
        name: Name,
        size_bytes: u64,
        kind: Kind,
        creator: Option<(u32, OwnedFd)>,
    ) -> Result<(), Refusal> {
        let len_bytes = file_bytes(size_bytes, kind.is_huge);
        let start = self.addresses.take(len_bytes).ok_or(Refusal::NoAddress)?;
        let address = start + yasmin_control::segment::HEADER_BYTES as u64;
        let (pid, pidfd) = creator.unzip();
        let make = || -> Result<Segment, Refusal> {
            let place = Place::new(address, size_bytes, kind).ok_or(Refusal::NoAddress)?;
            let memfd = memory::make(&name, &place).map_err(|errno| match errno {
                Errno::NOMEM | Errno::INVAL if kind.is_huge => {
                    Refusal::HugePages { free_bytes: crate::memory::free_huge_bytes() }
                }
                errno => kernel(errno.into()),
            })?;
            let created_s = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
            let entry = Entry {
                name,
                owner: uid,
                place,
                rights: BTreeMap::new(),
                creator: pid,
                created_s,
                is_removed: false,
            };
            let record = record::make().map_err(kernel)?;
            record::write(&record, &entry).map_err(kernel)?;
            Ok(Segment::new(entry, Memory::Own { memfd, record }, pidfd))
        };
        let made = make().inspect_err(|_| self.addresses.give_back(start))?;
        self.next += 1;
        let number = self.next;
        self.names.insert(name, number);
        *self.users.entry(uid).or_default() += 1;
        self.all.insert(number, made);
        self.keep(number);
        self.look_at = self.next_look();
        Ok(())
    }

    /// Gives a segment to the store. Without one it ends with the broker, as far as its name goes:
    /// that is worth a warning, and no more.
    fn keep(&mut self, number: u64) {
        let Some(segment) = self.all.get(&number) else { return };
        let result = keep_parts(&mut self.store, number, segment);
        if result.or_else(|_| self.keep_all()).is_err() {
            self.give_up();
        }
    }

    /// It is tried again later.
    fn give_up(&mut self) {
        self.store.give_up();
        self.look_at = self.next_look();
    }

    /// Another keeper, and all of them.
    fn keep_all(&mut self) -> io::Result<()> {
        let result = self.store.start_again().and_then(|()| {
            let mut all = self.all.iter();
            all.try_for_each(|(&number, segment)| keep_parts(&mut self.store, number, segment))
        });
        result.inspect_err(|error| {
            crate::rarely::warn!("segments will not be found after a restart: {error}");
        })
    }

    /// Not all of them are kept yet, since whoever keeps them does not read at the moment.
    pub fn is_behind(&self) -> bool {
        self.store.is_behind()
    }

    /// What keeps them for the next broker, where nobody watches it yet.
    pub fn unwatched_keeper(&mut self) -> Option<BorrowedFd<'_>> {
        self.store.unwatched()
    }

    /// The keeper has gone, or hears again.
    pub fn keeper_said(&mut self) {
        let is_lost = self.store.has_gone() || self.store.go_on().is_err();
        if is_lost && (self.store.is_fresh() || self.keep_all().is_err()) {
            self.give_up();
        }
    }

    /// A descriptor with these rights, for that process. `left_bytes`: what the memory that it
    /// fills may be charged to has left; asked only when it is wanted.
    pub fn open(
        &self,
        name: &Name,
        holder: &Holder,
        left_bytes: impl FnOnce() -> Option<u64>,
    ) -> Result<Opened, Refusal> {
        let segment = self.find(name).ok_or(Refusal::NoSegment)?;
        let has = segment.entry.rights_of(holder.uid);
        if has < holder.rights {
            return Err(Refusal::Rights { has });
        }
        let place = segment.entry.place;
        let crowded = Refusal::Kernel { errno: libc::ENOLCK as u64 };
        let memfd = match &segment.memory {
            Memory::Own { memfd, .. } => memfd,
            Memory::Host(given) => {
                let fds = segment.of_locks(|| given.open_for(&place, holder)).ok_or(crowded)?;
                let fds = fds.map_err(kernel)?.into();
                return Ok(Opened { place, domain: Some(given.domain), fds });
            }
        };
        if holder.rights == Rights::Write && !place.kind.is_huge {
            let unused = place.mapped_bytes().saturating_sub(memfd::used_bytes(memfd));
            if let Some(left_bytes) = left_bytes().filter(|&left| left < unused) {
                return Err(Refusal::Group { left_bytes });
            }
        }
        let fd = segment.of_locks(|| memory::open_for(memfd, holder)).ok_or(crowded)?;
        let fd = fd.map_err(|errno| kernel(errno.into()))?;
        Ok(Opened { place, domain: None, fds: vec![fd] })
    }

    pub fn remove(&mut self, uid: u32, name: &Name) -> Result<(), Refusal> {
        let number = self.owned(uid, name)?;
        self.end(number);
        Ok(())
    }

    pub fn allow(
        &mut self,
        uid: u32,
        name: &Name,
        whom: Whom,
        rights: Rights,
    ) -> Result<(), Refusal> {
        let number = self.owned(uid, name)?;
        let segment = self.all.get_mut(&number).ok_or(Refusal::NoSegment)?;
        let mut entry = segment.entry.clone();
        entry.rights.insert(whom, rights);
        if entry.rights.len() > RIGHTS_MAX {
            return Err(Refusal::TooManyUsers { most: RIGHTS_MAX as u64 });
        }
        segment.memory.write_down(&entry).map_err(kernel)?;
        segment.entry = entry;
        Ok(())
    }

    /// With its holders, for those who may read it.
    pub fn about(&self, uid: u32, name: &Name) -> Result<status::Segment, Refusal> {
        let segment = self.find(name).ok_or(Refusal::NoSegment)?;
        let mut shown = segment.shown();
        let has = segment.entry.rights_of(uid);
        if has == Rights::None {
            return Err(Refusal::Rights { has });
        }
        // Less than what would make it a crowded one.
        let within = CROWDED / 2;
        let ask = || memory::holders(segment.memory.holders_file(), HOLDERS, within);
        let (holders, more) = segment.of_locks(ask).unwrap_or((Vec::new(), true));
        shown.more_holders = more;
        shown.holders = holders
            .into_iter()
            .map(|Holder { pid, uid, rights }| status::Holder {
                pid,
                user: uid,
                rights: rights.describe().to_owned(),
            })
            .collect();
        Ok(shown)
    }

    /// The next one behind this name that the user may read.
    pub fn next_shown(&self, uid: u32, after: Option<&Name>) -> Option<(Name, status::Segment)> {
        let from = after.map_or(Unbounded, |name| Excluded(*name));
        self.names
            .range((from, Unbounded))
            .filter_map(|(&name, number)| Some((name, self.all.get(number)?)))
            .find(|(_, segment)| segment.entry.rights_of(uid) > Rights::None)
            .map(|(name, segment)| (name, segment.shown()))
    }

    fn find(&self, name: &Name) -> Option<&Segment> {
        self.all.get(self.names.get(name)?)
    }

    fn owned(&self, uid: u32, name: &Name) -> Result<u64, Refusal> {
        let number = *self.names.get(name).ok_or(Refusal::NoSegment)?;
        let owner = self.all.get(&number).ok_or(Refusal::NoSegment)?.entry.owner;
        if owner == HOST {
            return Err(Refusal::OfHost);
        }
        if uid == owner || uid == 0 { Ok(number) } else { Err(Refusal::NotOwner { owner }) }
    }

    /// Its name is free; the rest when nobody has it any more.
    fn end(&mut self, number: u64) {
        self.free_name(number);
        let Some(segment) = self.all.get_mut(&number) else { return };
        segment.entry.is_removed = true;
        // First of all: that it is not kept any more may be heard late.
        if let Err(error) = segment.memory.write_down(&segment.entry) {
            crate::rarely::warn!("a removed segment may be found after a restart: {error}");
        }
        if !segment.memory.is_held() {
            return self.forget(number);
        }
        self.look_at = self.next_look();
    }

    /// Its name, if another one has not got it since.
    fn free_name(&mut self, number: u64) {
        if let Some(Segment { entry, .. }) = self.all.get(&number)
            && self.names.get(&entry.name) == Some(&number)
        {
            self.names.remove(&entry.name);
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(Segment { entry, memory, .. }) = self.all.remove(&number) else { return };
        self.look_at = self.next_look();
        self.addresses.give_back(entry.place.start());
        let memfd = match memory {
            Memory::Own { memfd, .. } => memfd,
            Memory::Host(given) => {
                self.store.forget(store::LOCKS, given.region);
                return self.unused.extend(given.end.map(|end| (given.region, end)));
            }
        };
        self.store.forget_all(number);
        self.limits.budget.give_back(entry.owner, entry.place.mapped_bytes());
        if let Some(count) = self.users.get_mut(&entry.owner) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&entry.owner);
            }
        }
        // To free much memory takes its time.
        self.errands.close(entry.owner, memfd);
    }

    /// The host gives a segment, or says anew what it gives. `device`: its memory.
    ///
    /// # Errors
    /// Why this guest cannot have it.
    pub fn give(&mut self, told: &Told, device: OwnedFd) -> Result<(), String> {
        let there = self.all.iter().find(|(_, segment)| segment.is_region(told.region));
        if let Some((&number, _)) = there {
            return self.give_again(number, told);
        }
        if self.names.contains_key(&told.name) {
            return Err("this guest has a segment of that name".to_owned());
        }
        let start = told.place.start();
        if !self.addresses.take_at(start, told.place.mapped_bytes()) {
            return Err(format!("a segment of this guest is at {start:#x}"));
        }
        let kept = self.locks.remove(&told.region);
        let given = Given::new(told, device, kept).map_err(|error| {
            self.addresses.give_back(start);
            error.to_string()
        })?;
        let entry = Entry {
            name: told.name,
            owner: HOST,
            place: told.place,
            rights: told.rights.clone(),
            creator: None,
            created_s: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            is_removed: false,
        };
        self.next += 1;
        self.names.insert(told.name, self.next);
        self.all.insert(self.next, Segment::new(entry, Memory::Host(given), None));
        self.keep(self.next);
        self.look_at = self.next_look();
        Ok(())
    }

    fn give_again(&mut self, number: u64, told: &Told) -> Result<(), String> {
        let Some(segment) = self.all.get_mut(&number) else { return Ok(()) };
        let Segment { entry, memory, .. } = segment;
        if (entry.name, entry.place) != (told.name, told.place) {
            return Err("the host says that it is another one than it was".to_owned());
        }
        if entry.is_removed && self.names.contains_key(&told.name) {
            return Err("this guest has a segment of that name by now".to_owned());
        }
        if let Memory::Host(given) = memory {
            (given.end, given.domain) = (None, told.domain);
        }
        (entry.is_removed, entry.rights) = (false, told.rights.clone());
        self.names.insert(told.name, number);
        Ok(())
    }

    /// The host takes a segment back, when nobody has it any more.
    pub fn end_given(&mut self, region: u64, end: u64) {
        let mut all = self.all.iter_mut();
        let Some((&number, segment)) = all.find(|(_, segment)| segment.is_region(region)) else {
            // It never came here, or is gone.
            return self.unused.push((region, end));
        };
        if let Memory::Host(given) = &mut segment.memory {
            given.end = Some(end);
        }
        self.end(number);
    }

    /// The host has taken it away: who touches it gets SIGBUS.
    pub fn lose(&mut self, region: u64) {
        let there = self.all.iter().find(|(_, segment)| segment.is_region(region));
        let Some((&number, segment)) = there else { return };
        tracing::info!("segment {} was taken away by the host", segment.entry.name);
        self.free_name(number);
        self.forget(number);
        self.unused.retain(|&(other, _)| other != region);
    }

    /// Of the host's segments that ended: those that nobody has any more since this was asked.
    pub fn unused(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.unused)
    }

    /// A segment of the host's that this user may write: its region, and whether the member of that
    /// slot lives, if it is of this guest.
    pub fn probe(&self, uid: u32, name: &Name, slot: u64) -> Result<(u64, Option<Life>), Refusal> {
        let (segment, given) = self.to_write(uid, name)?;
        Ok((given.region, segment.life_of(given, slot)))
    }

    /// The region of a segment of the host's that this user may write.
    pub fn region_to_write(&self, uid: u32, name: &Name) -> Result<u64, Refusal> {
        Ok(self.to_write(uid, name)?.1.region)
    }

    fn to_write(&self, uid: u32, name: &Name) -> Result<(&Segment, &Given), Refusal> {
        let segment = self.find(name).ok_or(Refusal::NoSegment)?;
        let has = segment.entry.rights_of(uid);
        let given = segment.memory.given().filter(|_| has == Rights::Write);
        Ok((segment, given.ok_or(Refusal::Rights { has })?))
    }

    /// Rings a bell in this guest: whoever sleeps at it looks.
    pub fn ring(&self, region: u64, bell: u8) {
        let segment = self.all.values().find(|segment| segment.is_region(region));
        if let Some(given) = segment.and_then(|segment| segment.memory.given()) {
            given.ring(bell);
        }
    }

    /// Whether a member of this guest lives.
    pub fn life_of(&self, region: u64, slot: u64) -> Life {
        let segment = self.all.values().find(|segment| segment.is_region(region));
        let life = segment.and_then(|segment| segment.life_of(segment.memory.given()?, slot));
        life.unwrap_or(Life::Unknown)
    }

    /// When `look` has something to do next.
    pub const fn next_expiry(&self) -> Option<Instant> {
        self.look_at
    }

    fn next_look(&self) -> Option<Instant> {
        let is_lost = self.store.is_nowhere();
        let changes = |one: &Segment| is_lost || one.entry.is_removed || one.creator.is_some();
        let has_to = self.store.is_behind() || self.all.values().any(changes);
        has_to.then(|| Instant::now() + LOOK_EVERY)
    }

    /// Ends those whose creator has ended, forgets those that nobody has any more, and has the
    /// others kept.
    pub fn look(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| at > now) {
            return;
        }
        let chosen = |is_chosen: fn(&Segment) -> bool, all: &BTreeMap<u64, Segment>| {
            let numbers = all.iter().filter(|(_, segment)| is_chosen(segment));
            numbers.map(|(&number, _)| number).collect::<Vec<u64>>()
        };
        for number in chosen(|one| !one.entry.is_removed && one.is_orphan(), &self.all) {
            self.end(number);
        }
        let is_gone = |one: &Segment| one.entry.is_removed && !one.memory.is_held();
        for number in chosen(is_gone, &self.all) {
            self.forget(number);
        }
        let is_lost = self.store.is_nowhere() && !self.all.is_empty();
        if (is_lost || self.store.go_on().is_err()) && self.keep_all().is_err() {
            self.store.give_up();
        }
        self.look_at = self.next_look();
    }
}

fn keep_parts(store: &mut Store, number: u64, segment: &Segment) -> io::Result<()> {
    let (memfd, record) = match &segment.memory {
        Memory::Own { memfd, record } => (memfd, record),
        Memory::Host(given) => return store.keep(store::LOCKS, given.region, given.lock_file()),
    };
    // The record last: who finds it finds the rest.
    store.keep(store::MEMORY, number, memfd.as_fd())?;
    if let Some(creator) = &segment.creator {
        store.keep(store::CREATOR, number, creator.as_fd())?;
    }
    store.keep(store::RECORD, number, record.as_fd())
}

fn kernel(error: io::Error) -> Refusal {
    Refusal::Kernel { errno: error.raw_os_error().unwrap_or(libc::EIO) as u64 }
}

impl Entry {
    fn rights_of(&self, uid: u32) -> Rights {
        if uid == self.owner || uid == 0 && self.owner != HOST {
            return Rights::Write;
        }
        let own = self.rights.get(&Whom::User(uid)).or_else(|| self.rights.get(&Whom::Everyone));
        own.copied().unwrap_or(Rights::None)
    }
}

impl Segment {
    const fn new(entry: Entry, memory: Memory, creator: Option<OwnedFd>) -> Self {
        Self { entry, memory, creator, rests_until: Cell::new(None) }
    }

    /// What `ask` finds of the locks. `None`: there are so many that it is not asked now.
    fn of_locks<T>(&self, ask: impl Fn() -> T) -> Option<T> {
        let now = Instant::now();
        if self.rests_until.get().is_some_and(|until| now < until) {
            return None;
        }
        self.rests_until.set(None);
        let timed = || {
            let before = cpu_time();
            let found = ask();
            (found, cpu_time().saturating_sub(before))
        };
        let (found, cost) = timed();
        if cost <= CROWDED {
            return Some(found);
        }
        // A virtual machine that is halted for a moment seems to work meanwhile: once more.
        let (found, again) = timed();
        let cost = cost.min(again);
        if cost > CROWDED {
            self.rests_until.set(Some(now + cost * REST));
        }
        Some(found)
    }

    /// Whether the member with this slot lives. `None`: it is another guest's.
    fn life_of(&self, given: &Given, slot: u64) -> Option<Life> {
        self.of_locks(|| given.life_of(slot)).unwrap_or(Some(Life::Unknown))
    }

    fn is_region(&self, region: u64) -> bool {
        self.memory.given().is_some_and(|given| given.region == region)
    }

    /// The process that it was to end with has ended.
    fn is_orphan(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.creator.as_ref().is_some_and(|creator| {
            poll(&mut [PollFd::new(creator, PollFlags::IN)], Some(&now)) == Ok(1)
        })
    }

    fn shown(&self) -> status::Segment {
        let Entry { name, owner, place, rights, creator, created_s, .. } = &self.entry;
        let now_s = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let grant = |(&whom, &rights): (&Whom, &Rights)| status::Grant {
            user: match whom {
                Whom::Everyone => None,
                Whom::User(uid) => Some(uid),
            },
            rights: rights.describe().to_owned(),
        };
        status::Segment {
            name: name.as_str().to_owned(),
            owner: *owner,
            of_host: *owner == HOST,
            size_bytes: place.size_bytes,
            address: place.address,
            used_bytes: self.memory.used_bytes(place),
            huge: place.kind.is_huge,
            creator: *creator,
            age_s: now_s.saturating_sub(*created_s),
            rights: rights.iter().map(grant).collect(),
            attached: self.memory.is_held(),
            holders: Vec::new(),
            more_holders: false,
        }
    }
}

#[cfg(test)]
mod tests;
