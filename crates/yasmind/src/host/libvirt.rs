//! Guests that libvirt runs: which there are, and a way to each one's monitor.
//!
//! virsh does what is to be done, as for people: so the broker links with nothing, and a libvirt that
//! does not answer holds up threads of this file only. One watches which guests there are; one for each
//! guest that runs passes commands on to its QEMU, and looks to the broker like QEMU's own socket.
//!
//! A guest counts if it has the virtio-serial port that the broker in it asks for. Memory is plugged
//! into PCI Express ports that are empty in libvirt's description; libvirt itself uses the lowest first,
//! so the highest come first here, and the lowest is left to it.

use super::config::{Monitor, is_name};
use super::domain::{Begun, Domain};
use super::kept::Qemu;
use super::stream::Stream;
use anyhow::Context;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use yasmin_control::uplink::PORT_NAME;

/// Where libvirt's system service notes the process of a QEMU.
const PIDS: &str = "/run/libvirt/qemu";

/// All guests are looked through so often, should an event have been missed.
const LOOK_AFTER: Duration = Duration::from_secs(30);

/// Whether a QEMU still runs is looked at so often; and guests no more often, whatever events one
/// of them makes.
const TICK: Duration = Duration::from_secs(1);

/// A QEMU that says that it ends has done so by then.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Events after which a guest may have begun, ended, or another port.
const EVENTS: [&str; 4] = ["RESUME", "SHUTDOWN", "VSERPORT_CHANGE", "DEVICE_DELETED"];

pub struct Libvirt {
    found: Receiver<Domain>,
    /// Readable when there is more in `found`.
    woken: UnixStream,
    events: Arc<Mutex<Option<Child>>>,
}

impl Libvirt {
    /// Looks through all guests, and watches them from then on.
    ///
    /// # Errors
    /// virsh cannot be run. A libvirt that does not answer is asked again and again.
    pub fn start(uri: &str) -> anyhow::Result<Self> {
        let virsh = Virsh { uri: uri.to_owned() };
        let version = virsh.command(&["--version"]).output();
        version.context("cannot run virsh; install libvirt-clients")?;
        let (wake, woken) = UnixStream::pair().context("cannot make a socket pair")?;
        woken.set_nonblocking(true)?;
        // What nobody has read yet wakes as well.
        wake.set_nonblocking(true)?;
        let (to, found) = channel();
        let events = Arc::new(Mutex::new(None));
        let mut watcher = Watcher {
            virsh,
            to,
            wake,
            running: HashMap::new(),
            told: HashMap::new(),
            events: Arc::clone(&events),
        };
        watcher.look(&HashSet::new());
        thread::Builder::new()
            .name("libvirt".into())
            .spawn(move || watcher.watch())
            .context("cannot start a thread")?;
        Ok(Self { found, woken, events })
    }

    pub fn watched(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// Guests that are new, or not as they were.
    pub fn news(&mut self) -> Vec<Domain> {
        let mut rest = [0; 64];
        while matches!(std::io::Read::read(&mut self.woken, &mut rest), Ok(count) if count > 0) {}
        self.found.try_iter().collect()
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        if let Some(child) = &mut *self.events.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = child.kill();
        }
    }
}

#[derive(Clone)]
struct Virsh {
    uri: String,
}

impl Virsh {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("virsh");
        // Its words are read here.
        command.env("LC_ALL", "C").args(["--connect", &self.uri]).args(words).stdin(Stdio::null());
        command
    }

    /// What it prints, or the last line of what is wrong.
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().map_err(|error| format!("virsh: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason");
        Err(line.trim_start_matches("error: ").to_owned())
    }
}

/// A monitor's end on this side: the thread that passes commands on and the one that watches write.
type MonitorEnd = Arc<Mutex<UnixStream>>;

/// A guest that runs.
struct Running {
    name: String,
    qemu: Option<Qemu>,
    /// `None`: it has no port.
    monitor: Option<MonitorEnd>,
}

struct Watcher {
    virsh: Virsh,
    to: Sender<Domain>,
    wake: UnixStream,
    /// By libvirt's number, which no other run of a guest has.
    running: HashMap<u32, Running>,
    /// The ports that were told last of each guest.
    told: HashMap<String, Vec<String>>,
    events: Arc<Mutex<Option<Child>>>,
}

impl Watcher {
    fn watch(mut self) {
        loop {
            let lines = self.listen();
            let mut looked_at = Instant::now();
            let mut look_at = looked_at + SETTLED_AFTER;
            let (mut changed, mut settling) = (HashSet::new(), HashSet::new());
            loop {
                let wait = look_at.saturating_duration_since(Instant::now()).min(TICK);
                match lines.recv_timeout(wait) {
                    Ok(line) => {
                        if let Some(event) = Event::parse(&line) {
                            self.pass_on(&event);
                            changed.insert(event.domain.to_owned());
                            look_at = look_at.min(looked_at + TICK);
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    // libvirt is started anew: guests go on meanwhile.
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                let now = Instant::now();
                if look_at <= now || looked_at + TICK <= now && self.has_ended() {
                    self.look(&(&changed | &settling));
                    // Once more when what began is over.
                    settling = std::mem::take(&mut changed);
                    looked_at = Instant::now();
                    let after = if settling.is_empty() { LOOK_AFTER } else { SETTLED_AFTER };
                    look_at = looked_at + after;
                }
            }
            thread::sleep(SETTLED_AFTER);
        }
    }

    /// Lines of events, until libvirt ends.
    fn listen(&self) -> Receiver<String> {
        let (to, lines) = channel();
        let words = ["qemu-monitor-event", "--loop"];
        let started =
            self.virsh.command(&words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        if let Ok(mut child) = started
            && let Some(out) = child.stdout.take()
        {
            let before = self.events.lock().unwrap_or_else(PoisonError::into_inner).replace(child);
            if let Some(mut before) = before {
                let _ = before.kill();
                let _ = before.wait();
            }
            let _ = thread::Builder::new().name("libvirt-events".into()).spawn(move || {
                let lines = BufReader::new(out).lines().map_while(Result::ok);
                let _ = lines.map(|line| to.send(line)).find(Result::is_err);
            });
        }
        lines
    }

    fn has_ended(&self) -> bool {
        let mut qemus = self.running.values().filter_map(|one| one.qemu);
        qemus.any(|qemu| Qemu::of_process(qemu.pid) != Some(qemu))
    }

    fn pass_on(&self, event: &Event<'_>) {
        let Some(device) = event.deleted() else { return };
        let of_domain = self.running.values().filter(|one| one.name == event.domain);
        for monitor in of_domain.filter_map(|one| one.monitor.as_ref()) {
            write(monitor, &json!({ "event": "DEVICE_DELETED", "data": { "device": device } }));
        }
    }

    /// Tells of guests that are new, that began, or that are `changed`; closes what ended.
    fn look(&mut self, changed: &HashSet<String>) {
        let listed = match self.virsh.run(&["list", "--all", "--id", "--name"]) {
            Ok(listed) => listed,
            Err(why) => {
                crate::rarely::warn!("libvirt does not say which guests there are: {why}");
                return;
            }
        };
        let listed: Vec<_> = listed.lines().filter_map(parse_listed).collect();
        let ids: HashSet<u32> = listed.iter().filter_map(|(id, _)| *id).collect();
        self.running.retain(|id, one| {
            let is_there = ids.contains(id);
            if !is_there && let Some(monitor) = &one.monitor {
                let socket = monitor.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = socket.shutdown(Shutdown::Both);
            }
            is_there
        });
        for (id, name) in listed {
            let is_known = match id {
                Some(id) => self.running.contains_key(&id),
                None => self.told.contains_key(name),
            };
            if !is_known || changed.contains(name) {
                self.examine(id, name);
            }
        }
    }

    fn examine(&mut self, id: Option<u32>, name: &str) {
        // A name may look like a number; a number is always one guest's, or nobody's any more.
        let number = id.map(|id| id.to_string());
        let words = ["dumpxml", "--domain", number.as_deref().unwrap_or(name)];
        let Some(described) = self.virsh.run(&words).ok().and_then(|xml| Described::parse(&xml))
        else {
            return;
        };
        if described.name != name {
            return;
        }
        if !described.has_port {
            let running = || Running::new(name, None);
            id.map(|id| self.running.entry(id).or_insert_with(running));
            return;
        }
        if !is_name(name) {
            crate::rarely::warn!(
                "the name of libvirt's guest '{name}' has more than letters, digits, '-', '_' and \
                 '.': its connections stay on TCP"
            );
            return;
        }
        let has_monitor = |id| self.running.get(id).is_some_and(|one| one.monitor.is_some());
        let begun = match (id, described.port) {
            (Some(id), Some(port)) if !has_monitor(&id) => self.begin(id, name, port),
            _ => None,
        };
        if begun.is_none() && self.told.get(name) == Some(&described.slots) {
            return;
        }
        self.told.insert(name.to_owned(), described.slots.clone());
        let domain = Domain {
            name: name.to_owned(),
            monitor: Monitor::Libvirt,
            slots: described.slots,
            begun,
        };
        if self.to.send(domain).is_ok() {
            let _ = self.wake.write(&[0]);
        }
    }

    /// A guest runs: from now on commands are passed on to its QEMU.
    fn begin(&mut self, id: u32, name: &str, port: PathBuf) -> Option<Begun> {
        let (ours, monitor) = UnixStream::pair().ok()?;
        let commands = ours.try_clone().ok()?;
        let ours = Arc::new(Mutex::new(ours));
        let (virsh, answers) = (self.virsh.clone(), Arc::clone(&ours));
        thread::Builder::new()
            .name("libvirt-monitor".into())
            .spawn(move || pass_commands(&virsh, id, commands, &answers))
            .ok()?;
        let mut running = Running::new(name, Some(ours));
        running.qemu = qemu_of(name);
        let qemu_pid = running.qemu.map_or(0, |qemu| qemu.pid);
        self.running.insert(id, running);
        Some(Begun { qemu_pid, port: Stream::new(port, Instant::now()), monitor })
    }
}

impl Running {
    fn new(name: &str, monitor: Option<MonitorEnd>) -> Self {
        Self { name: name.to_owned(), qemu: None, monitor }
    }
}

/// The process of a guest's QEMU, where libvirt notes it.
fn qemu_of(name: &str) -> Option<Qemu> {
    let path = Path::new(PIDS).join(format!("{name}.pid"));
    Qemu::of_process(std::fs::read_to_string(path).ok()?.trim().parse().ok()?)
}

fn write(monitor: &MonitorEnd, line: &Value) {
    let mut socket = monitor.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = socket.write_all(format!("{line}\n").as_bytes());
}

/// Until the broker, or the watcher, closes the socket.
fn pass_commands(virsh: &Virsh, id: u32, commands: UnixStream, answers: &MonitorEnd) {
    for line in BufReader::new(commands).lines().map_while(Result::ok) {
        let Ok(mut command) = serde_json::from_str::<Value>(&line) else { continue };
        // libvirt has a number of its own for each.
        let number = command.as_object_mut().and_then(|command| command.remove("id"));
        let mut answer = if command["execute"] == "qmp_capabilities" {
            json!({ "return": {} })
        } else {
            let (id, command) = (id.to_string(), command.to_string());
            let words = ["qemu-monitor-command", "--domain", &id, "--cmd", &command];
            let said = virsh.run(&words);
            let parsed = said.and_then(|text| {
                serde_json::from_str::<Value>(&text).map_err(|error| format!("virsh: {error}"))
            });
            match parsed {
                Ok(answer) if answer.is_object() => answer,
                Ok(_) => continue,
                Err(why) => json!({ "error": { "class": "GenericError", "desc": why } }),
            }
        };
        answer["id"] = number.unwrap_or_default();
        write(answers, &answer);
    }
}

/// A line of `virsh list --all --id --name`: the number of a guest that runs, its name.
fn parse_listed(line: &str) -> Option<(Option<u32>, &str)> {
    let (id, name) = line.trim().split_once(char::is_whitespace)?;
    let id = if id == "-" { None } else { Some(id.parse().ok()?) };
    Some((id, name.trim()))
}

/// A line of `virsh qemu-monitor-event`:
///
/// ```text
/// event DEVICE_DELETED at 1795733311.626314 for domain 'web': {"device":"net0","path":"..."}
/// ```
#[derive(Debug, PartialEq, Eq)]
struct Event<'a> {
    kind: &'a str,
    domain: &'a str,
    data: &'a str,
}

impl<'a> Event<'a> {
    /// `None`: none that matters.
    fn parse(line: &'a str) -> Option<Self> {
        let (kind, rest) = line.strip_prefix("event ")?.split_once(' ')?;
        let (_, rest) = rest.split_once(" for domain '")?;
        let (domain, data) = rest.split_once("': ")?;
        EVENTS.contains(&kind).then_some(Self { kind, domain, data })
    }

    /// The id of the device that has gone.
    fn deleted(&self) -> Option<String> {
        let data: Value = serde_json::from_str(self.data).ok()?;
        let device = data.get("device")?.as_str()?;
        (self.kind == "DEVICE_DELETED").then(|| device.to_owned())
    }
}

/// What libvirt's description of a guest says.
#[derive(Debug, PartialEq, Eq)]
struct Described {
    name: String,
    has_port: bool,
    /// Its socket, while the guest runs.
    port: Option<PathBuf>,
    slots: Vec<String>,
}

impl Described {
    fn parse(xml: &str) -> Option<Self> {
        let document = roxmltree::Document::parse(xml).ok()?;
        let root = document.root_element();
        let child = |name: &'static str| root.children().find(move |node| node.has_tag_name(name));
        let name = child("name")?.text()?.to_owned();
        let devices = child("devices")?;
        let port = devices.children().filter(|node| node.has_tag_name("channel")).find(|node| {
            let is_it = |target: roxmltree::Node<'_, '_>| {
                target.has_tag_name("target") && target.attribute("name") == Some(PORT_NAME)
            };
            node.children().any(is_it)
        });
        let path = port.and_then(|port| {
            let source = port.children().find(|node| node.has_tag_name("source"))?;
            source.attribute("path").map(PathBuf::from)
        });
        let used: HashSet<u32> = devices
            .descendants()
            .filter(|node| node.has_tag_name("address") && node.attribute("type") == Some("pci"))
            .filter_map(|node| number(node.attribute("bus")?))
            .collect();
        let mut empty: BTreeMap<u32, String> = devices
            .children()
            .filter(|node| node.attribute("model") == Some("pcie-root-port"))
            .filter_map(|node| {
                let index = number(node.attribute("index")?)?;
                let alias = node.children().find(|node| node.has_tag_name("alias"));
                let alias = alias.and_then(|alias| alias.attribute("name"));
                Some((index, alias.map_or_else(|| format!("pci.{index}"), str::to_owned)))
            })
            .filter(|(index, alias)| !used.contains(index) && is_name(alias))
            .collect();
        if empty.len() > 1 {
            empty.pop_first();
        }
        let slots = empty.into_values().rev().collect();
        Some(Self { name, has_port: port.is_some(), port: path, slots })
    }
}

/// Decimal, or hexadecimal behind 0x.
fn number(text: &str) -> Option<u32> {
    let hex = text.strip_prefix("0x");
    hex.map_or_else(|| text.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_virsh_prints() {
        assert_eq!(parse_listed(" 3   web a"), Some((Some(3), "web a")));
        assert_eq!(parse_listed(" -   db"), Some((None, "db")));
        assert_eq!((parse_listed(""), parse_listed("x y")), (None, None));
        let line = "event DEVICE_DELETED at 1795733311.626314 for domain 'web-a': \
                    {\"device\":\"yd\",\"path\":\"/machine/peripheral/yd\"}";
        let event = Event::parse(line).unwrap();
        assert_eq!((event.domain, event.deleted()), ("web-a", Some("yd".to_owned())));
        let event = Event::parse("event RESUME at 1.2 for domain 'a': <null>").unwrap();
        assert_eq!((event.domain, event.deleted()), ("a", None));
        for other in ["event RTC_CHANGE at 1.2 for domain 'a': {}", "events received: 1", ""] {
            assert_eq!(Event::parse(other), None);
        }
    }

    const XML: &str = "<domain type='kvm' id='3'><name>web-a</name><devices>
        <controller type='pci' index='0' model='pcie-root'/>
        <controller type='pci' index='1' model='pcie-root-port'><alias name='pci.1'/>
            <address type='pci' domain='0x0000' bus='0x00' slot='0x01'/></controller>
        <controller type='pci' index='2' model='pcie-root-port'><alias name='pci.2'/></controller>
        <controller type='pci' index='11' model='pcie-root-port'><alias name='pci.11'/></controller>
        <controller type='pci' index='12' model='pcie-root-port'/>
        <interface type='bridge'><address type='pci' bus='0x01' slot='0x00'/></interface>
        <channel type='unix'><source mode='bind' path='/a/agent'/><target name='org.qemu'/></channel>
        CHANNEL</devices></domain>";

    #[test]
    fn what_a_description_says() {
        let with = |channel| Described::parse(&XML.replace("CHANNEL", channel)).unwrap();
        let running = with("<channel><source path='/a/b'/><target name='org.yasmin.0'/></channel>");
        assert_eq!((running.name.as_str(), running.has_port), ("web-a", true));
        assert_eq!(running.port, Some("/a/b".into()));
        // The lowest that is empty is libvirt's.
        assert_eq!(running.slots, ["pci.12", "pci.11"]);
        let off = with("<channel><target name='org.yasmin.0'/></channel>");
        assert_eq!((off.has_port, off.port), (true, None));
        let without = with("");
        assert_eq!((without.has_port, without.port), (false, None));
        assert_eq!(Described::parse("<domain"), None);
        assert_eq!(Described::parse("<domain><name>a</name></domain>"), None);
    }
}
