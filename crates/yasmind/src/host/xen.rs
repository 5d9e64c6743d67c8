//! Guests of Xen: which there are, and what a QEMU does for those of KVM (spec/wire.md section 14).
//!
//! ```text
//!   guest: yasmind ── vsock ──┐            ┌── port ────┐
//!                          this thread ────┤            ├─ the broker's thread
//!   guest: yasmin-region.ko ──┘            └── monitor ─┘
//!            device in XenStore, grants of dom0's pages
//! ```
//!
//! One thread. To the broker it looks, for each guest, like a QEMU's monitor and like its virtio-serial port:
//! what is true of plugging, of brokers that start again and of guests that end is so in one place. Memory
//! is granted to a guest by yasmin-grant.ko, and comes there as a device of XenStore's. Who lets go of it,
//! and when, the guest says; Xen lets nobody take it away.

use super::config::{Monitor, is_name};
use super::domain::{Begun, Domain};
use super::plugging::{parse_id, parse_memory};
use super::stream::{Stream, Turn};
use crate::guests::XEN_CID_BASE;
use crate::sys::{grants, vsock};
use crate::xenstore::XenStore;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use yasmin_control::guest::LAST_PRIVILEGED_PORT;
use yasmin_control::uplink::XEN_PORT;

const DRIVER: &str = "/dev/yasmin-grant";

/// The kind of device that yasmin-region.ko knows.
const KIND: &str = "yasmin-region";

/// So many pieces of memory a guest can have.
const SLOTS: usize = 64;

/// Guests, and what their drivers say, are looked at so often; and so often while something is about to change.
const LOOK_AFTER: Duration = Duration::from_secs(1);
const LOOK_SOON: Duration = Duration::from_millis(20);

/// A guest's driver that is loaded has mapped memory, or refused it, by then.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// XenbusState of xen/io/xenbus.h.
const INITIALISING: u32 = 1;
const CONNECTED: u32 = 4;
const CLOSING: u32 = 5;
const CLOSED: u32 = 6;

/// More guests' brokers than that do not wait to be accepted.
const BACKLOG: i32 = 64;

pub struct Xen {
    found: Receiver<Domain>,
    /// Readable when there is more in `found`.
    woken: UnixStream,
}

impl Xen {
    /// Looks for guests from now on.
    ///
    /// # Errors
    /// This is not dom0, or its driver is not there.
    pub fn start() -> anyhow::Result<Self> {
        let store =
            XenStore::open().context("cannot open XenStore; is this dom0, with xenfs mounted?")?;
        let open = File::options().read(true).write(true).open(DRIVER);
        let driver =
            open.with_context(|| format!("cannot open {DRIVER}; is yasmin-grant.ko loaded?"))?;
        let (wake, woken) = UnixStream::pair().context("cannot make a socket pair")?;
        woken.set_nonblocking(true)?;
        // What nobody has read yet wakes as well.
        wake.set_nonblocking(true)?;
        let (to, found) = channel();
        let (guests, left) = (BTreeMap::new(), Vec::new());
        let mut watcher = Watcher { store, driver, listener: None, to, wake, guests, left };
        watcher.look(Instant::now());
        watcher.find_left();
        thread::Builder::new()
            .name("xen".into())
            .spawn(move || watcher.watch())
            .context("cannot start a thread")?;
        Ok(Self { found, woken })
    }

    pub fn watched(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// Guests that have begun to run.
    pub fn news(&mut self) -> Vec<Domain> {
        let mut rest = [0; 64];
        while matches!(self.woken.read(&mut rest), Ok(count) if count > 0) {}
        self.found.try_iter().collect()
    }
}

/// Memory that is granted to a guest.
struct Memory {
    grant: grants::Grant,
    /// It is to be taken back.
    is_going: bool,
}

/// A device that a guest has, in XenStore.
struct Device {
    /// Its number there.
    number: u32,
    /// The command that made it, not answered yet, and until when it waits for the guest's driver.
    asked: Option<(Value, Instant)>,
    is_closing: bool,
}

struct Guest {
    domid: u32,
    monitor: Stream,
    port: Stream,
    /// From its broker.
    link: Stream,
    /// By the broker's ids.
    memory: BTreeMap<String, Memory>,
    devices: BTreeMap<String, Device>,
}

struct Watcher {
    store: XenStore,
    driver: File,
    /// `None`: yasmin.ko is not loaded.
    listener: Option<OwnedFd>,
    to: Sender<Domain>,
    wake: UnixStream,
    /// By their domain numbers, which no other run of a guest has.
    guests: BTreeMap<u32, Guest>,
    /// Memory of guests that have ended, by domain and the region's number: to be taken back.
    left: Vec<(u32, u64)>,
}

fn front(domid: u32, number: u32) -> String {
    format!("/local/domain/{domid}/device/{KIND}/{number}")
}

fn back(domid: u32, number: u32) -> String {
    format!("/local/domain/0/backend/{KIND}/{domid}/{number}")
}

/// A word that QEMU has for an error, or its usual one.
struct Refusal {
    class: &'static str,
    why: String,
}

impl Refusal {
    fn new(why: impl Into<String>) -> Self {
        Self { class: "GenericError", why: why.into() }
    }

    fn missing(what: &str) -> Self {
        Self { class: "DeviceNotFound", why: format!("there is no {what}") }
    }
}

impl Watcher {
    fn watch(mut self) {
        let mut look_at = Instant::now();
        loop {
            let now = Instant::now();
            if look_at <= now {
                self.look(now);
                let is_moving = self.guests.values().any(Guest::is_moving);
                look_at = now + if is_moving { LOOK_SOON } else { LOOK_AFTER };
            }
            self.accept(now);
            let (store, driver) = (&mut self.store, &self.driver);
            for guest in self.guests.values_mut() {
                if guest.turn(store, driver, now) {
                    look_at = now + LOOK_SOON;
                }
            }
            self.wait(look_at);
        }
    }

    fn wait(&self, until: Instant) {
        let mut fds = Vec::new();
        let listener = self.listener.iter().map(|listener| (listener.as_fd(), PollFlags::IN));
        let streams = self.guests.values().flat_map(Guest::streams).filter_map(Stream::watched);
        for (fd, events) in listener.chain(streams) {
            fds.push(PollFd::from_borrowed_fd(fd, events));
        }
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // Whatever it is, all are looked at.
        let _ = poll(&mut fds, Some(&limit));
    }

    /// Guests that have begun or ended, and what has become of devices.
    fn look(&mut self, now: Instant) {
        if self.listener.is_none() {
            self.listener = vsock::listen(XEN_PORT, BACKLOG).ok();
        }
        let listed = match self.store.list("/local/domain") {
            Ok(listed) => listed,
            Err(error) => {
                crate::rarely::warn!("XenStore does not say which guests there are: {error}");
                return;
            }
        };
        let listed: Vec<u32> = listed.iter().filter_map(|id| id.parse().ok()).collect();
        let ended: Vec<u32> =
            self.guests.keys().copied().filter(|domid| !listed.contains(domid)).collect();
        for domid in ended {
            // With it the monitor closes.
            if let Some(guest) = self.guests.remove(&domid) {
                self.clear(&guest);
            }
        }
        for domid in listed.into_iter().filter(|domid| *domid != 0) {
            if !self.guests.contains_key(&domid) {
                self.meet(domid, now);
            }
        }
        self.take_back_left();
        for guest in self.guests.values_mut() {
            guest.look(&mut self.store, &self.driver, now);
        }
    }

    fn meet(&mut self, domid: u32, now: Instant) {
        // Until it has one it is being made.
        let Ok(name) = self.store.read(&format!("/local/domain/{domid}/name")) else { return };
        let name = String::from_utf8_lossy(&name).into_owned();
        let (Ok(monitor), Ok(port)) = (UnixStream::pair(), UnixStream::pair()) else { return };
        let mut guest = Guest {
            domid,
            monitor: Stream::over(Some(monitor.0), now),
            port: Stream::over(Some(port.0), now),
            link: Stream::over(None, now),
            memory: BTreeMap::new(),
            devices: BTreeMap::new(),
        };
        guest.find_again(&mut self.store, &self.driver);
        if is_name(&name) {
            let domain = Domain {
                name,
                monitor: Monitor::Xen,
                slots: (0..SLOTS).map(|slot| format!("slot{slot}")).collect(),
                begun: Some(Begun {
                    qemu_pid: 0,
                    port: Stream::over(Some(port.1), now),
                    monitor: monitor.1,
                }),
            };
            if self.to.send(domain).is_ok() {
                let _ = self.wake.write(&[0]);
            }
        } else {
            crate::rarely::warn!(
                "the name of guest '{name}' has more than letters, digits, '-', '_' and '.': it gets no segments"
            );
        }
        self.guests.insert(domid, guest);
    }

    /// What a guest that ended has left.
    fn clear(&mut self, guest: &Guest) {
        let left = guest.memory.values().map(|memory| (guest.domid, memory.grant.number));
        self.left.extend(left);
        self.take_back_left();
        self.forget(guest.domid);
    }

    /// The same of guests that ended while no broker ran: their devices are in the store still.
    fn find_left(&mut self) {
        let listed =
            self.store.list(&format!("/local/domain/0/backend/{KIND}")).unwrap_or_default();
        for domid in listed.iter().filter_map(|id| id.parse().ok()) {
            if !self.guests.contains_key(&domid) {
                let granted = grants::of_domain(&self.driver, domid);
                self.left.extend(granted.iter().map(|grant| (domid, grant.number)));
                self.forget(domid);
            }
        }
    }

    /// A domain that has ended leaves nothing in the store, once it has nothing of ours.
    fn forget(&mut self, domid: u32) {
        if !self.left.iter().any(|(left, _)| *left == domid) {
            let _ = self.store.remove(&format!("/local/domain/0/backend/{KIND}/{domid}"));
        }
    }

    /// Xen takes its time to end a large guest, and it has its mappings until then.
    fn take_back_left(&mut self) {
        let before = std::mem::take(&mut self.left);
        let is_left = |(domid, number): &(u32, u64)| keeps(&self.driver, *domid, *number);
        self.left = before.iter().copied().filter(is_left).collect();
        for (domid, _) in before {
            self.forget(domid);
        }
    }

    /// A guest's broker has come: the last one counts.
    fn accept(&mut self, now: Instant) {
        let Some(listener) = &self.listener else { return };
        while let Ok((fd, cid, port)) = vsock::accept(listener) {
            let guest = cid.checked_sub(XEN_CID_BASE).and_then(|domid| self.guests.get_mut(&domid));
            if let Some(guest) = guest
                && port <= LAST_PRIVILEGED_PORT
            {
                // Read and written like any socket.
                guest.link = Stream::over(Some(UnixStream::from(fd)), now);
            }
        }
    }
}

impl Guest {
    fn streams(&self) -> [&Stream; 3] {
        [&self.monitor, &self.port, &self.link]
    }

    /// Something is about to change of which nobody tells.
    fn is_moving(&self) -> bool {
        self.memory.values().any(|memory| memory.is_going)
            || self.devices.values().any(|one| one.is_closing || one.asked.is_some())
    }

    /// What an earlier broker has left here: memory and devices go on under their ids.
    fn find_again(&mut self, store: &mut XenStore, driver: &File) {
        let domid = self.domid;
        let granted = grants::of_domain(driver, domid);
        let numbers = store.list(&format!("/local/domain/0/backend/{KIND}/{domid}"));
        for number in numbers.unwrap_or_default().iter().filter_map(|one| one.parse().ok()) {
            let mut word = |name: &str| {
                let value = store.read(&format!("{}/{name}", back(domid, number)));
                value.map(|value| String::from_utf8_lossy(&value).into_owned()).unwrap_or_default()
            };
            let (device, memory) = (word("id"), word("memory"));
            let region = parse_id(&device).map(|(region, _)| region);
            let grant = granted.iter().find(|grant| Some(grant.number) == region);
            match grant {
                Some(&grant) => {
                    self.memory.insert(memory, Memory { grant, is_going: false });
                    self.devices.insert(device, Device { number, asked: None, is_closing: false });
                }
                None => {
                    let _ = store.remove(&front(domid, number));
                    let _ = store.remove(&back(domid, number));
                }
            }
        }
        for grant in granted {
            let is_known = self.memory.values().any(|memory| memory.grant == grant);
            if !is_known && keeps(driver, domid, grant.number) {
                let id = format!("left-{:016x}", grant.number);
                self.memory.insert(id, Memory { grant, is_going: true });
            }
        }
    }

    /// Bytes and commands that have come. True: something is about to change.
    fn turn(&mut self, store: &mut XenStore, driver: &File, now: Instant) -> bool {
        self.link.turn(now);
        self.port.turn(now);
        let up = std::mem::take(&mut self.link.inbox);
        self.port.send(&up);
        let down = std::mem::take(&mut self.port.inbox);
        self.link.send(&down);
        if self.monitor.turn(now) == Turn::Lost {
            // The broker's thread ends: its process does.
            return false;
        }
        while let Some(end) = self.monitor.inbox.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.monitor.inbox.drain(..=end).collect();
            let Ok(command) = serde_json::from_slice::<Value>(&line) else { continue };
            let id = command["id"].clone();
            match self.command(&command, store, driver, now) {
                Ok(Some(answer)) => self.say(&json!({ "return": answer, "id": id })),
                Ok(None) => {}
                Err(refusal) => self.refuse(&id, &refusal),
            }
        }
        self.is_moving()
    }

    fn say(&mut self, line: &Value) {
        self.monitor.send(format!("{line}\n").as_bytes());
    }

    fn refuse(&mut self, id: &Value, refusal: &Refusal) {
        let error = json!({ "class": refusal.class, "desc": refusal.why });
        self.say(&json!({ "error": error, "id": id }));
    }

    /// The commands of QMP that the broker has; `None`: it is answered later.
    fn command(
        &mut self,
        command: &Value,
        store: &mut XenStore,
        driver: &File,
        now: Instant,
    ) -> Result<Option<Value>, Refusal> {
        let arguments = &command["arguments"];
        let word = |name: &str| arguments[name].as_str().unwrap_or_default();
        match command["execute"].as_str().unwrap_or_default() {
            "qmp_capabilities" => Ok(Some(json!({}))),
            "qom-list" => {
                let named = |id: &String| json!({ "name": id });
                let list: Vec<_> = match word("path") {
                    "/objects" => self.memory.keys().map(named).collect(),
                    _ => self.devices.keys().map(named).collect(),
                };
                Ok(Some(list.into()))
            }
            "object-add" => {
                let is_read_only = arguments["readonly"] == true;
                let size = arguments["size"].as_u64().unwrap_or_default();
                self.grant(driver, word("id"), word("mem-path"), size, is_read_only)?;
                Ok(Some(json!({})))
            }
            "object-del" => {
                let memory = self.memory.get_mut(word("id"));
                memory.ok_or_else(|| Refusal::missing("memory"))?.is_going = true;
                self.take_back(driver);
                Ok(Some(json!({})))
            }
            "device_add" => {
                self.plug(store, word("id"), word("memdev"), command["id"].clone(), now)?;
                Ok(None)
            }
            "device_del" => {
                let device = self.devices.get_mut(word("id"));
                let device = device.ok_or_else(|| Refusal::missing("device"))?;
                device.is_closing = true;
                let state = format!("{}/state", back(self.domid, device.number));
                store
                    .write(&state, CLOSING.to_string().as_bytes())
                    .map_err(|error| Refusal::new(format!("XenStore: {error}")))?;
                Ok(Some(json!({})))
            }
            // Which memory is not free yet.
            "human-monitor-command" => {
                let ids: Vec<&str> = self.memory.keys().map(String::as_str).collect();
                Ok(Some(ids.join("\n").into()))
            }
            other => Err(Refusal::new(format!("nothing is known of '{other}'"))),
        }
    }

    fn grant(
        &mut self,
        driver: &File,
        id: &str,
        path: &str,
        size_bytes: u64,
        is_read_only: bool,
    ) -> Result<(), Refusal> {
        let region =
            parse_memory(id).and_then(|(device, _)| parse_id(device)).map(|(number, _)| number);
        let number = region.ok_or_else(|| Refusal::new(format!("'{id}' is none of ours")))?;
        let said = |error: io::Error| match error.kind() {
            ErrorKind::StorageFull => Refusal::new(
                "the grant table is full: give Xen a larger gnttab_max_frames (512 pages each)",
            ),
            _ => Refusal::new(format!("it cannot be granted: {error}")),
        };
        let file = File::options().read(true).write(true).open(path).map_err(said)?;
        // What is behind the last page that it has is never used: a device of KVM's is a power of two.
        let bytes = file.metadata().map_err(said)?.blocks() * 512;
        let bytes = bytes.min(size_bytes);
        let grant =
            grants::make(driver, &file, self.domid, number, bytes, is_read_only).map_err(said)?;
        self.memory.insert(id.to_owned(), Memory { grant, is_going: false });
        Ok(())
    }

    fn plug(
        &mut self,
        store: &mut XenStore,
        id: &str,
        memory: &str,
        asked: Value,
        now: Instant,
    ) -> Result<(), Refusal> {
        let grant = self.memory.get(memory).filter(|memory| !memory.is_going);
        let grant = grant.ok_or_else(|| Refusal::missing("memory"))?.grant;
        let is_used = |number: &u32| self.devices.values().any(|one| one.number == *number);
        let number = (0..).find(|number| !is_used(number)).unwrap_or_default();
        self.announce(store, number, id, memory, grant)
            .map_err(|error| Refusal::new(format!("XenStore: {error}")))?;
        let asked = Some((asked, now + ANSWERS_WITHIN));
        self.devices.insert(id.to_owned(), Device { number, asked, is_closing: false });
        Ok(())
    }

    /// Writes a device into XenStore; last of all what the guest's kernel waits for.
    fn announce(
        &self,
        store: &mut XenStore,
        number: u32,
        id: &str,
        memory: &str,
        grant: grants::Grant,
    ) -> io::Result<()> {
        let (front, back) = (front(self.domid, number), back(self.domid, number));
        let pages = grant.bytes >> 12;
        store.write(&back, b"")?;
        store.permit(&back, 0, self.domid)?;
        for (name, value) in [
            ("frontend", front.clone()),
            ("frontend-id", self.domid.to_string()),
            ("id", id.to_owned()),
            ("memory", memory.to_owned()),
            ("list", grant.list.to_string()),
            ("pages", pages.to_string()),
            ("read-only", u32::from(grant.is_read_only).to_string()),
            ("state", CONNECTED.to_string()),
        ] {
            store.write(&format!("{back}/{name}"), value.as_bytes())?;
        }
        store.write(&front, b"")?;
        store.permit(&front, self.domid, 0)?;
        for (name, value) in [
            ("backend", back.clone()),
            ("backend-id", "0".to_owned()),
            ("state", INITIALISING.to_string()),
        ] {
            store.write(&format!("{front}/{name}"), value.as_bytes())?;
        }
        Ok(())
    }

    fn look(&mut self, store: &mut XenStore, driver: &File, now: Instant) {
        self.look_at_devices(store, now);
        self.take_back(driver);
    }

    /// What the guest's driver has made of its devices.
    fn look_at_devices(&mut self, store: &mut XenStore, now: Instant) {
        let ids: Vec<String> = self.devices.keys().cloned().collect();
        for id in ids {
            let Some(device) = self.devices.get(&id) else { continue };
            let state = store.read(&format!("{}/state", front(self.domid, device.number)));
            let state = state.ok().and_then(|state| String::from_utf8(state).ok()?.parse().ok());
            match state {
                Some(CONNECTED) => self.answer(&id),
                // No driver has it, and if one comes now it finds the device closing.
                Some(INITIALISING) if device.is_closing => self.unplug(store, &id),
                Some(CLOSING | CLOSED) | None => self.unplug(store, &id),
                // It comes when the driver does.
                Some(_) if device.asked.as_ref().is_some_and(|(_, until)| now >= *until) => {
                    self.answer(&id);
                }
                Some(_) => {}
            }
        }
    }

    /// Answers the command that made a device, if it was not.
    fn answer(&mut self, id: &str) {
        let asked = self.devices.get_mut(id).and_then(|device| device.asked.take());
        if let Some((asked, _)) = asked {
            self.say(&json!({ "return": {}, "id": asked }));
        }
    }

    /// A device goes. One whose making was not answered yet was refused by the guest's driver.
    fn unplug(&mut self, store: &mut XenStore, id: &str) {
        let Some(device) = self.devices.remove(id) else { return };
        let path =
            format!("/local/domain/{}/error/device/{KIND}/{}/error", self.domid, device.number);
        let why = store.read(&path).map_or_else(|_| "no reason".to_owned(), |why| printable(&why));
        for path in [path, front(self.domid, device.number), back(self.domid, device.number)] {
            let _ = store.remove(&path);
        }
        match device.asked {
            Some((asked, _)) => {
                let why = format!("yasmin-region.ko there: {why}");
                self.refuse(&asked, &Refusal::new(why));
            }
            None => self.say(&json!({ "event": "DEVICE_DELETED", "data": { "device": id } })),
        }
    }

    /// Memory that is to go, as far as the guest has let go of it.
    fn take_back(&mut self, driver: &File) {
        let domid = self.domid;
        self.memory
            .retain(|_, memory| !memory.is_going || keeps(driver, domid, memory.grant.number));
    }
}

/// Takes memory back. Whether the domain has some of it mapped still, so that it has to be tried again.
fn keeps(driver: &File, domid: u32, number: u64) -> bool {
    let ended = grants::end(driver, domid, number);
    ended.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)
}

/// What a guest has written, for people.
fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(200).collect()
}
