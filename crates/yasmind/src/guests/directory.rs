//! Which address is which guest's: kept current by a thread of its own, since the host's daemon
//! may let a request wait.
//!
//! ```text
//!  rtnetlink ──▶ own addresses ──▶ /yasmin/OWN/addresses (XenStore) ──▶ the other guests
//!  /yasmin/*/addresses ──▶ learned ─┐
//!  /etc/yasmin/hosts ──▶ by hand ───┴▶ the map, the mapped table, the file's learned part
//! ```

use super::XEN_CID_BASE;
use super::addresses::Addresses;
use super::hosts::{self, Rule};
use crate::sys::table::Mapped;
use crate::sys::vsock;
use crate::xenstore::XenStore;
use anyhow::Context;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use yasmin_control::directory::{self, Address, TABLE_BYTES};
use yasmin_control::guest::Endpoint;
use yasmin_control::negative;

const ROOT: &str = "/yasmin";
const NODE: &str = "addresses";

/// Of one guest; what it says beyond is not read.
const ADDRESSES_PER_GUEST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    pub cid: u32,
    /// The administrator says so: then it is believed without further proof.
    pub is_by_hand: bool,
}

#[derive(Default)]
pub struct Known {
    pub guests: HashMap<IpAddr, Guest>,
    /// This guest's own number.
    pub own_cid: Option<u32>,
}

pub struct Directory {
    known: Arc<Mutex<Known>>,
    /// `None` in tests.
    table: Option<Arc<Table>>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Directory {
    /// `None`: neither a Xen guest nor is there a place for a hosts file.
    pub fn start(hosts: &Path, table: &Path, is_system: bool) -> anyhow::Result<Option<Self>> {
        let store = if is_system { XenStore::open() } else { None };
        let folder = hosts.parent().unwrap_or(Path::new("/"));
        if store.is_some() {
            // Without it only the file is missing.
            let _ = fs::create_dir_all(folder);
        }
        if store.is_none() && !folder.is_dir() {
            return Ok(None);
        }
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let events = WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE;
        if let Err(error) = inotify::add_watch(&changes, folder, events | WatchFlags::MOVED_FROM) {
            tracing::warn!("changes in {} will not be seen: {error}", folder.display());
        }
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let known = Arc::new(Mutex::default());
        let made = Table::make(table, is_system)
            .with_context(|| format!("cannot make {}", table.display()))?;
        let table = Arc::new(made);
        let mut keeper = Keeper {
            store,
            own: None,
            announced: None,
            addresses: Addresses::watch().context("cannot ask for this machine's addresses")?,
            changes,
            hosts: hosts.to_owned(),
            told: Vec::new(),
            is_writable: true,
            table: Arc::clone(&table),
            known: Arc::clone(&known),
            stop: Arc::clone(&stop),
        };
        let thread =
            std::thread::Builder::new().name("directory".into()).spawn(move || keeper.run())?;
        Ok(Some(Self { known, table: Some(table), stop, thread: Some(thread) }))
    }

    /// Tells the libraries that connections to `to` stay on TCP for so long.
    pub fn cache_negative(&self, to: Endpoint, length: Duration) {
        let Some(table) = &self.table else { return };
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_ns = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(0);
        negative::publish(table.mapped.words(), &to, now_ns + length_ns);
    }

    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Directory {
    pub fn fixed(known: Known) -> Self {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        Self { known: Arc::new(Mutex::new(known)), table: None, stop, thread: None }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The mapped table, a file beside the broker's socket.
struct Table {
    mapped: Mapped,
    path: PathBuf,
}

impl Table {
    fn make(path: &Path, is_system: bool) -> io::Result<Self> {
        // Whoever has the table of a broker that was killed shall look for the new one.
        if let Ok(old) = File::options().read(true).write(true).open(path)
            && old.metadata()?.len() >= TABLE_BYTES as u64
            && let Ok(old) = Mapped::map(&old)
        {
            directory::retire(old.words());
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        // All of it now, so that no write finds the file system full.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, TABLE_BYTES as u64)?;
        let mode = if is_system { 0o644 } else { 0o600 };
        file.set_permissions(Permissions::from_mode(mode))?;
        let mapped = Mapped::map(&file)?;
        Ok(Self { mapped, path: path.to_owned() })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        directory::retire(self.mapped.words());
        let _ = fs::remove_file(&self.path);
    }
}

struct Keeper {
    store: Option<XenStore>,
    /// This guest's Xen domain number.
    own: Option<u32>,
    /// What is in XenStore of ours.
    announced: Option<String>,
    addresses: Addresses,
    changes: OwnedFd,
    hosts: PathBuf,
    /// Errors in the file that the log has.
    told: Vec<hosts::Error>,
    /// The file could be written when it was tried last.
    is_writable: bool,
    table: Arc<Table>,
    known: Arc<Mutex<Known>>,
    stop: Arc<OwnedFd>,
}

impl Keeper {
    fn run(&mut self) {
        if let Some(store) = &mut self.store {
            let own = store.read("domid").ok().and_then(|text| number(&text));
            let watched = store.watch(ROOT);
            if own.is_none() || watched.is_err() {
                tracing::warn!("XenStore does not answer: other guests are not found");
                self.store = None;
            }
            self.own = own;
        }
        loop {
            self.round();
            if self.wait() {
                break;
            }
        }
        if let (Some(store), Some(own), Some(_)) = (&mut self.store, self.own, &self.announced) {
            let _ = store.remove(&format!("{ROOT}/{own}/{NODE}"));
        }
    }

    /// Until something changed; true: the broker ends.
    fn wait(&mut self) -> bool {
        let mut fds = vec![
            PollFd::new(&*self.stop, PollFlags::IN),
            PollFd::new(&self.changes, PollFlags::IN),
            PollFd::new(&self.addresses, PollFlags::IN),
        ];
        if let Some(store) = &self.store {
            fds.push(PollFd::from_borrowed_fd(store.as_fd(), PollFlags::IN));
        }
        if poll(&mut fds, None).is_err() {
            return false;
        }
        let is_stopped = !fds[0].revents().is_empty();
        drop(fds);
        while rustix::io::read(&self.changes, &mut [0; 4096]).is_ok_and(|len| len > 0) {}
        self.addresses.drain();
        if let Some(store) = &mut self.store {
            // Whatever they say: all is read anew.
            loop {
                match store.next_event() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!("XenStore: {error}: other guests are not followed");
                        self.store = None;
                        break;
                    }
                }
            }
        }
        is_stopped
    }

    fn round(&mut self) {
        let own = self.addresses.now().unwrap_or_else(|error| {
            tracing::warn!("own addresses are unknown: {error}");
            BTreeSet::new()
        });
        self.announce(&own);
        let learned = self.learn(&own);
        let text = fs::read_to_string(&self.hosts).unwrap_or_default();
        let (rules, errors) = hosts::parse(&text);
        for error in errors.iter().filter(|error| !self.told.contains(error)) {
            tracing::warn!("{}: {error}", self.hosts.display());
        }
        self.told = errors;
        let guests = merge(&learned, &rules);
        self.publish(&guests);
        self.write(&text, &learned);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.guests != guests {
            tracing::info!(addresses = guests.len(), "the directory of guests changed");
        }
        known.guests = guests;
        known.own_cid = self.own.map(|own| XEN_CID_BASE + own).or_else(|| vsock::local_cid().ok());
    }

    /// Has the other guests learn of our addresses, if dom0 lets us.
    fn announce(&mut self, own: &BTreeSet<IpAddr>) {
        let (Some(store), Some(domain)) = (&mut self.store, self.own) else { return };
        let path = format!("{ROOT}/{domain}");
        if store.read(&path).is_err() {
            // dom0 took the entry away, or has not made it yet: its coming is an event.
            self.announced = None;
            return;
        }
        let words: Vec<String> =
            own.iter().take(ADDRESSES_PER_GUEST).map(ToString::to_string).collect();
        let text = words.join(" ");
        if self.announced.as_ref() == Some(&text) {
            return;
        }
        match store.write(&format!("{path}/{NODE}"), text.as_bytes()) {
            Ok(()) => self.announced = Some(text),
            Err(error) => tracing::warn!("cannot announce this guest's addresses: {error}"),
        }
    }

    fn learn(&mut self, own: &BTreeSet<IpAddr>) -> BTreeMap<IpAddr, u32> {
        let Some(store) = &mut self.store else { return BTreeMap::new() };
        let mut claims = Vec::new();
        for name in store.list(ROOT).unwrap_or_default() {
            let Some(domain) = number(name.as_bytes()).filter(|domain| Some(*domain) != self.own)
            else {
                continue;
            };
            if let Ok(text) = store.read(&format!("{ROOT}/{domain}/{NODE}")) {
                let text = String::from_utf8_lossy(&text);
                let found = text.split_whitespace().take(ADDRESSES_PER_GUEST);
                let cid = XEN_CID_BASE + domain;
                claims.extend(found.filter_map(|one| Some((one.parse().ok()?, cid))));
            }
        }
        settle(claims, own)
    }

    fn publish(&self, guests: &HashMap<IpAddr, Guest>) {
        let entries: Vec<(Address, u32)> =
            guests.iter().map(|(ip, guest)| (octets(*ip), guest.cid)).collect();
        let left_out = directory::publish(
            self.table.mapped.words(),
            entries.iter().map(|(address, cid)| (address, *cid)),
        );
        if left_out > 0 {
            tracing::warn!(left_out, "more addresses than the table holds");
        }
    }

    fn write(&mut self, text: &str, learned: &BTreeMap<IpAddr, u32>) {
        let wanted = hosts::with_learned(text, learned);
        if self.store.is_none() || wanted == text {
            return;
        }
        let new = self.hosts.with_extension("new");
        let written = fs::write(&new, wanted).and_then(|()| {
            // As the administrator left it.
            if let Ok(old) = fs::metadata(&self.hosts) {
                fs::set_permissions(&new, old.permissions())?;
            }
            fs::rename(&new, &self.hosts)
        });
        if let (Err(error), true) = (&written, self.is_writable) {
            tracing::warn!("cannot write {}: {error}", self.hosts.display());
        }
        self.is_writable = written.is_ok();
    }
}

fn number(text: &[u8]) -> Option<u32> {
    let number: u32 = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    // DOMID_FIRST_RESERVED.
    (number < 0x7ff0).then_some(number)
}

/// What the guests claim, without what more than one claims, what is ours (as of bridges that
/// look alike in all guests), and what is nobody's.
fn settle(claims: Vec<(IpAddr, u32)>, own: &BTreeSet<IpAddr>) -> BTreeMap<IpAddr, u32> {
    let mut learned: BTreeMap<IpAddr, Option<u32>> = BTreeMap::new();
    for (address, cid) in claims {
        let address = address.to_canonical();
        let is_nobodys =
            address.is_loopback() || address.is_unspecified() || address.is_multicast();
        if is_nobodys || own.contains(&address) {
            continue;
        }
        learned
            .entry(address)
            .and_modify(|known| *known = known.filter(|known| *known == cid))
            .or_insert(Some(cid));
    }
    learned.into_iter().filter_map(|(address, cid)| Some((address, cid?))).collect()
}

/// The administrator's word wins.
fn merge(
    learned: &BTreeMap<IpAddr, u32>,
    rules: &BTreeMap<IpAddr, Rule>,
) -> HashMap<IpAddr, Guest> {
    let guest = |cid, is_by_hand| Guest { cid, is_by_hand };
    let mut guests: HashMap<_, _> =
        learned.iter().map(|(address, cid)| (*address, guest(*cid, false))).collect();
    for (address, rule) in rules {
        match rule {
            Rule::Guest(cid) => guests.insert(*address, guest(*cid, true)),
            Rule::Never => guests.remove(address),
        };
    }
    guests
}

pub fn octets(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(v4) => directory::mapped(v4.octets()),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// IPv4 as IPv4.
pub fn ip(address: Address) -> IpAddr {
    IpAddr::from(Ipv6Addr::from(address)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn claims_that_cannot_hold_are_left_out() {
        let own = BTreeSet::from([at("10.0.2.20"), at("172.17.0.1")]);
        let claims = [
            ("10.0.2.21", 1002),
            ("10.0.2.21", 1002),
            ("10.0.2.22", 1002),
            ("10.0.2.22", 1003),
            ("10.0.2.22", 1002),
            ("172.17.0.1", 1003),
            ("127.0.0.1", 1003),
            ("::", 1003),
            ("::ffff:10.0.2.23", 1003),
        ];
        let learned = settle(claims.map(|(text, cid)| (at(text), cid)).into(), &own);
        let wanted = BTreeMap::from([(at("10.0.2.21"), 1002), (at("10.0.2.23"), 1003)]);
        assert_eq!(learned, wanted);
    }

    #[test]
    fn the_administrator_wins() {
        let learned = BTreeMap::from([(at("10.0.2.21"), 1002), (at("10.0.2.22"), 1003)]);
        let rules = BTreeMap::from([
            (at("10.0.2.21"), Rule::Guest(7)),
            (at("10.0.2.22"), Rule::Never),
            (at("fd00::1"), Rule::Guest(8)),
        ]);
        let guests = merge(&learned, &rules);
        assert_eq!(guests.len(), 2);
        assert_eq!(guests[&at("10.0.2.21")], Guest { cid: 7, is_by_hand: true });
        assert_eq!(guests[&at("fd00::1")], Guest { cid: 8, is_by_hand: true });
    }

    #[test]
    fn a_hosts_file_is_followed_and_a_stale_table_retired() {
        let folder = std::env::temp_dir().join(format!("yasmin-hosts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (hosts, table) = (folder.join("hosts"), folder.join("guests"));
        fs::write(&hosts, "10.9.0.1 1003\n").unwrap();
        let started = Directory::start(&hosts, &table, false).unwrap().unwrap();
        let until = |wanted: &[(&str, u32)]| {
            let wanted: HashMap<_, _> = wanted
                .iter()
                .map(|(text, cid)| (at(text), Guest { cid: *cid, is_by_hand: true }))
                .collect();
            while started.known().guests != wanted {
                std::thread::yield_now();
            }
        };
        until(&[("10.9.0.1", 1003)]);
        let mapped = Mapped::map(File::options().read(true).write(true).open(&table).unwrap());
        let mapped = mapped.unwrap();
        let find = |text: &str| directory::find(mapped.words(), &octets(at(text)));
        assert_eq!(find("10.9.0.1"), Some(1003));
        fs::write(folder.join("new"), "10.9.0.1 never\n10.9.0.2 domain 4\nnonsense\n").unwrap();
        fs::rename(folder.join("new"), &hosts).unwrap();
        until(&[("10.9.0.2", 1004)]);
        assert_eq!((find("10.9.0.1"), find("10.9.0.2")), (None, Some(1004)));
        drop(started);
        assert!(!directory::is_live(mapped.words()) && !table.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
