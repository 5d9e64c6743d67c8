//! The host's broker against QEMUs and guests' brokers that are played here: sockets, and no memory.

mod segments;

use super::region::Way;
use super::*;
use clap::Parser;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use yasmin_control::host::{Answer, Ask, HostStatus};
use yasmin_control::uplink::{Numbers, Slice};

/// A listener and who is connected to it.
struct Socket {
    path: PathBuf,
    listener: UnixListener,
    stream: Option<UnixStream>,
    inbox: Vec<u8>,
}

impl Socket {
    fn new(path: PathBuf) -> Self {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { path, listener, stream: None, inbox: Vec::new() }
    }

    /// Whether somebody has connected.
    fn turn(&mut self) -> bool {
        let mut is_new = false;
        if self.stream.is_none()
            && let Ok((stream, _)) = self.listener.accept()
        {
            stream.set_nonblocking(true).unwrap();
            (self.stream, is_new) = (Some(stream), true);
        }
        let Some(stream) = &mut self.stream else { return false };
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => self.inbox.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return is_new,
                _ => {
                    self.stream = None;
                    self.inbox.clear();
                    return false;
                }
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        if let Some(stream) = &mut self.stream {
            let _ = stream.write_all(bytes);
        }
    }
}

/// A QEMU and the broker in its guest.
struct Machine {
    qmp: Socket,
    port: Socket,
    devices: Vec<String>,
    objects: Vec<String>,
    /// Memory that is not freed though its object is gone, and how often that is said.
    blocks: Vec<String>,
    keeps_blocks: u32,
    /// The monitor answers.
    answers: bool,
    /// The guest's broker runs.
    is_up: bool,
    /// It does not answer when a session begins.
    is_deaf: bool,
    session: u64,
    /// Grants of this guest's, by region and offset.
    held: HashMap<(u64, u64), u64>,
    channels: Vec<(u64, Slice)>,
    declined: Vec<u64>,
    segments: segments::Guest,
}

fn region_of(device: &str) -> u64 {
    u64::from_str_radix(device.split('-').nth(1).unwrap(), 16).unwrap()
}

impl Machine {
    fn new(folder: &Path, name: &str) -> Self {
        Self {
            qmp: Socket::new(folder.join(format!("{name}.qmp"))),
            port: Socket::new(folder.join(format!("{name}.port"))),
            devices: Vec::new(),
            objects: Vec::new(),
            blocks: Vec::new(),
            keeps_blocks: 0,
            answers: true,
            is_up: true,
            is_deaf: false,
            session: 0,
            held: HashMap::new(),
            channels: Vec::new(),
            declined: Vec::new(),
            segments: segments::Guest::default(),
        }
    }

    fn turn(&mut self) {
        if self.qmp.turn() {
            self.qmp.send(b"{\"QMP\": {}}\n");
        }
        while self.answers
            && let Some(end) = self.qmp.inbox.iter().position(|&byte| byte == b'\n')
        {
            let line: Vec<u8> = self.qmp.inbox.drain(..=end).collect();
            let line: Value = serde_json::from_slice(&line).unwrap();
            let (answer, event) = self.command(&line);
            self.qmp.send(format!("{answer}\n").as_bytes());
            if let Some(device) = event {
                self.unplugged(&device);
            }
        }
        self.port.turn();
        if !self.is_up {
            return self.port.inbox.clear();
        }
        while let (used, Some(raw)) = next(&self.port.inbox) {
            let raw = *raw;
            self.port.inbox.drain(..used);
            self.understand(&raw);
        }
    }

    fn command(&mut self, line: &Value) -> (Value, Option<String>) {
        let id = &line["id"];
        let text = |key: &str| line["arguments"][key].as_str().unwrap_or("").to_owned();
        let list =
            |names: &[String]| names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
        let done = json!({ "return": {}, "id": id });
        match line["execute"].as_str().unwrap() {
            "qom-list" if text("path") == "/objects" => {
                (json!({ "return": list(&self.objects), "id": id }), None)
            }
            "qom-list" => (json!({ "return": list(&self.devices), "id": id }), None),
            "object-add" => {
                let is_read_only = line["arguments"]["readonly"] == true;
                assert_eq!(is_read_only, text("id").ends_with("-rom"));
                self.objects.push(text("id"));
                (done, None)
            }
            "object-del" => {
                self.objects.retain(|name| *name != text("id"));
                self.blocks.push(text("id"));
                (done, None)
            }
            "human-monitor-command" => {
                if self.keeps_blocks == 0 {
                    self.blocks.clear();
                }
                self.keeps_blocks = self.keeps_blocks.saturating_sub(1);
                let text: String =
                    self.blocks.iter().map(|name| format!("0000:01:00.0/{name} 4 KiB\n")).collect();
                (json!({ "return": text, "id": id }), None)
            }
            "device_add" => {
                self.devices.push(text("id"));
                (done, None)
            }
            "device_del" if self.devices.contains(&text("id")) => (done, Some(text("id"))),
            "device_del" => {
                let error = json!({ "class": "DeviceNotFound", "desc": "not found" });
                (json!({ "error": error, "id": id }), None)
            }
            _ => (done, None),
        }
    }

    fn unplugged(&mut self, device: &str) {
        self.devices.retain(|name| name != device);
        let region = region_of(device);
        self.segments.gone(region);
        self.held.retain(|key, _| key.0 != region);
        if self.is_up {
            self.say(ToHost::Gone { region });
        }
        let event = json!({ "event": "DEVICE_DELETED", "data": { "device": device } });
        self.qmp.send(format!("{event}\n").as_bytes());
    }

    fn say(&mut self, message: ToHost) {
        self.port.send(&message.encode(self.session));
    }

    fn tell(&mut self, region: u64) {
        for ((_, offset), grant) in self.held.clone().into_iter().filter(|(key, _)| key.0 == region)
        {
            self.say(ToHost::Held(Slice { region, offset, bytes: 0, grant }));
        }
        self.say(ToHost::Region { region });
    }

    fn understand(&mut self, raw: &[u8; UPLINK_BYTES]) {
        match FromHost::decode(raw).unwrap() {
            FromHost::Begin { .. } => {
                self.session = session_of(raw);
                for device in self.devices.clone() {
                    self.tell(region_of(&device));
                }
                if !self.is_deaf {
                    self.say(ToHost::Region { region: 0 });
                }
            }
            _ if session_of(raw) != self.session => {}
            FromHost::Plugged { region } => self.tell(region),
            FromHost::Channel { id, region, offset, grant, .. } => {
                assert_eq!(self.held.insert((region, offset), grant), None, "given twice");
                self.channels.push((id, Slice { region, offset, bytes: 0, grant }));
            }
            FromHost::Decline { id, .. } => self.declined.push(id),
            other => {
                for message in self.segments.understand(other) {
                    self.say(message);
                }
            }
        }
    }

    fn offer(&mut self, role: Role, number: u32) {
        let numbers = Numbers { connector: number, acceptor: number };
        self.say(ToHost::Offer { id: number.into(), role, numbers });
    }

    /// The guest's broker is killed, and starts again.
    fn broker_again(&mut self) {
        self.session = 0;
        self.port.inbox.clear();
        self.say(ToHost::Ask { version: UPLINK_VERSION });
    }

    /// QEMU ends, and starts again.
    fn again(&mut self, folder: &Path, name: &str) {
        *self = Self::new(folder, name);
    }
}

struct Lab {
    folder: PathBuf,
    args: Args,
    host: Host,
    machines: Vec<Machine>,
    now: Instant,
    next: u32,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Lab {
    fn new(name: &str) -> Self {
        Self::of(2, name)
    }

    /// Of so many guests.
    fn of(guests: usize, name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("yasmin-host-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("memory")).unwrap();
        let machines: Vec<_> =
            NAMES[..guests].iter().map(|name| Machine::new(&folder, name)).collect();
        let args = Args::parse_from(["yasmind"]);
        let host = Self::host(&folder, &args, &machines);
        Self { folder, args, host, machines, now: Instant::now(), next: 0 }
    }

    fn host(folder: &Path, args: &Args, machines: &[Machine]) -> Host {
        let guests = NAMES.iter().zip(machines).map(|(name, machine)| GuestConfig {
            name: (*name).to_owned(),
            monitor: Monitor::Socket(machine.qmp.path.clone()),
            port: Some(machine.port.path.clone()),
            // One for each other guest.
            slots: (1..machines.len()).map(|number| format!("slot{number}")).collect(),
        });
        let mut host = Host::new(args, folder.join("memory"), guests.collect(), 1 << 30);
        host.find_regions();
        host.find_segments();
        host.find_left();
        host
    }

    /// The host's broker is killed, and starts again.
    fn host_again(&mut self) {
        self.host = Self::host(&self.folder, &self.args, &self.machines);
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.now += Duration::from_millis(20);
            self.host.turn(self.now);
            for machine in &mut self.machines {
                machine.turn();
            }
        }
    }

    fn offer(&mut self) {
        self.offer_of([0, 1]);
    }

    fn offer_of(&mut self, [connector, acceptor]: [usize; 2]) {
        self.next += 1;
        self.machines[connector].offer(Role::Connector, self.next);
        self.machines[acceptor].offer(Role::Acceptor, self.next);
    }

    /// A new connection gets one slice, the same in both guests.
    fn connect(&mut self) -> Slice {
        self.offer();
        self.turns(100);
        self.channel()
    }

    /// Of the newest connection.
    fn channel(&self) -> Slice {
        self.channel_of([0, 1])
    }

    fn channel_of(&self, guests: [usize; 2]) -> Slice {
        let got = guests.map(|guest| self.machines[guest].channels.last().copied());
        assert_eq!(got[0].map(|(id, _)| id), Some(self.next.into()));
        assert_eq!(got[0], got[1]);
        got[0].unwrap().1
    }

    /// A guest lets go of a slice.
    fn free(&mut self, guest: usize, slice: Slice) {
        let machine = &mut self.machines[guest];
        assert_eq!(machine.held.remove(&(slice.region, slice.offset)), Some(slice.grant));
        machine.say(ToHost::Freed(slice));
        self.turns(3);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_slice_is_given_again_when_both_guests_have_freed_it() {
    let mut lab = Lab::new("again");
    lab.turns(100);
    let first = lab.connect();
    lab.free(0, first);
    let second = lab.connect();
    assert_ne!(second.offset, first.offset);
    lab.free(1, first);
    let third = lab.connect();
    assert_eq!(third.offset, first.offset);
    // What was said of the first grant comes again, and the third stays held.
    for machine in &mut lab.machines {
        machine.say(ToHost::Freed(first));
    }
    lab.turns(3);
    assert_ne!(lab.connect().offset, third.offset);
}

#[test]
fn ends_wait_for_a_monitor_that_does_not_answer_yet() {
    let mut lab = Lab::new("early");
    lab.machines[1].answers = false;
    lab.turns(100);
    lab.offer();
    lab.turns(100);
    assert!(lab.machines.iter().all(|m| m.channels.is_empty() && m.declined.is_empty()));
    lab.machines[1].answers = true;
    lab.turns(100);
    lab.channel();
}

#[test]
fn ends_that_waited_too_long_stay_on_tcp() {
    let mut lab = Lab::new("late");
    lab.machines[1].answers = false;
    lab.turns(100);
    lab.offer();
    lab.turns(1100);
    assert!(lab.machines.iter().all(|machine| machine.declined == [1]));
    lab.machines[1].answers = true;
    lab.turns(5);
    lab.connect();
}

#[test]
fn memory_that_somebody_unplugs_comes_back_for_the_next_connection() {
    let mut lab = Lab::new("unplugged");
    lab.turns(100);
    let mut before = lab.connect();
    for guest in [0, 1, 0] {
        let device = lab.machines[guest].devices[0].clone();
        lab.machines[guest].unplugged(&device);
        let after = lab.connect();
        assert_ne!(after.region, before.region);
        before = after;
    }
    assert_eq!(lab.host.shared.len(), 1);
    assert!(lab.machines.iter().all(|m| (m.devices.len(), m.objects.len()) == (1, 1)));
}

#[test]
fn a_connection_that_comes_while_memory_goes_gets_the_next() {
    let mut lab = Lab::new("meanwhile");
    lab.turns(100);
    let before = lab.connect();
    // The only slot of the other guest is taken until it has let go.
    let device = lab.machines[0].devices[0].clone();
    lab.machines[1].answers = false;
    lab.machines[0].unplugged(&device);
    lab.offer();
    lab.turns(100);
    lab.machines[1].answers = true;
    lab.turns(100);
    assert_ne!(lab.channel().region, before.region);
}

#[test]
fn a_guests_broker_that_is_killed_loses_nothing() {
    let mut lab = Lab::new("broker");
    lab.turns(100);
    let held = lab.connect();
    lab.machines[0].broker_again();
    lab.turns(5);
    let next = lab.connect();
    assert_eq!(next.region, held.region);
    assert_ne!(next.offset, held.offset);
    // What was freed while it was not there, nobody says again.
    lab.free(1, held);
    lab.machines[0].held.remove(&(held.region, held.offset));
    lab.machines[0].broker_again();
    lab.turns(5);
    assert_eq!(lab.connect().offset, held.offset);
}

#[test]
fn an_end_waits_again_when_the_other_guests_broker_is_killed() {
    let mut lab = Lab::new("waiting");
    lab.machines[1].answers = false;
    lab.turns(100);
    lab.offer();
    lab.turns(5);
    lab.machines[0].broker_again();
    lab.turns(5);
    lab.machines[1].answers = true;
    let number = lab.next;
    lab.machines[0].offer(Role::Connector, number);
    lab.turns(100);
    lab.channel();
}

#[test]
fn a_guest_that_ends_gets_memory_when_it_is_back() {
    let mut lab = Lab::new("ended");
    lab.turns(100);
    let before = lab.connect();
    let folder = lab.folder.clone();
    lab.machines[1].again(&folder, "b");
    lab.turns(5);
    assert!(lab.machines[0].devices.is_empty() && lab.machines[0].objects.is_empty());
    lab.turns(100);
    assert!(lab.host.is_empty());
    assert_ne!(lab.connect().region, before.region);
}

/// Guest `a` is in the file, and `b` one of libvirt's that is defined, and runs, and runs anew.
#[test]
fn guests_of_libvirt_come_and_go() {
    let mut lab = Lab::new("libvirt");
    lab.host = Lab::host(&lab.folder, &lab.args, &lab.machines[..1]);
    let domain = |name: &str, begun: Option<&Machine>| Domain {
        name: name.into(),
        monitor: Monitor::Libvirt,
        slots: vec!["pci.9".into()],
        begun: begun.map(|machine| domain::Begun {
            qemu_pid: 0,
            port: Stream::new(machine.port.path.clone(), Instant::now()),
            monitor: UnixStream::connect(&machine.qmp.path).unwrap(),
        }),
    };
    lab.host.guests[0].config.slots = vec!["slot1".into()];
    lab.host.meet(domain("b", None), lab.now);
    lab.turns(5);
    assert!(!lab.host.guests[1].qmp.is_up());
    // A broker that has nothing to say is there all the same.
    assert!(lab.host.guests[0].is_heard && !lab.host.guests[1].is_heard);
    let begins = domain("b", Some(&lab.machines[1]));
    lab.host.meet(begins, lab.now);
    lab.turns(100);
    let first = lab.connect();
    // It runs anew, and that is heard of before its monitor closes.
    let folder = lab.folder.clone();
    let before = std::mem::replace(&mut lab.machines[1], Machine::new(&folder, "b"));
    let begins = domain("b", Some(&lab.machines[1]));
    lab.host.meet(begins, lab.now);
    lab.turns(100);
    let second = lab.connect();
    assert_ne!(first.region, second.region);
    drop(before);
    lab.turns(5);
    assert_eq!(lab.connect().region, second.region);
    // Who is in the file is not libvirt's.
    let other = domain("a", Some(&lab.machines[1]));
    lab.host.meet(other, lab.now);
    lab.turns(5);
    assert_eq!((lab.host.guests.len(), lab.connect().region), (2, second.region));
}

/// Memory that is granted is there whole, and holds smaller rings.
#[test]
fn guests_of_xen_get_memory_that_stays() {
    let mut lab = Lab::new("granted");
    for guest in &mut lab.host.guests {
        guest.config.monitor = Monitor::Xen;
    }
    lab.turns(100);
    let first = lab.connect();
    let region = &lab.host.shared[0].region;
    assert_eq!((region.way, region.class), (Way::Granted, 6));
    let file = std::fs::metadata(&region.path).unwrap();
    assert_eq!(file.len(), Way::Granted.bytes());
    assert!(file.blocks() * 512 >= file.len());
    assert_eq!(lab.host.given_bytes(), Way::Granted.bytes());
    for _ in 1..63 {
        assert_eq!(lab.connect().region, first.region);
    }
    // One more than it holds.
    lab.offer();
    lab.turns(100);
    assert!(lab.machines.iter().all(|machine| machine.channels.len() == 63));
    for guest in [0, 1] {
        lab.free(guest, first);
    }
    lab.turns(5);
    assert_eq!(lab.connect().offset, first.offset);
}

#[test]
fn a_host_that_is_killed_finds_all_again() {
    let mut lab = Lab::new("killed");
    lab.turns(100);
    let held = lab.connect();
    lab.host_again();
    lab.turns(100);
    let next = lab.connect();
    assert_eq!(next.region, held.region);
    assert_ne!(next.offset, held.offset);
    lab.free(0, held);
    lab.free(1, held);
    assert_eq!(lab.connect().offset, held.offset);
}

#[test]
fn a_guest_that_missed_a_sessions_beginning_is_told_again() {
    let mut lab = Lab::new("missed");
    lab.turns(100);
    let before = lab.connect();
    // It goes on in a session that the host has left.
    lab.host.guests[1].session += 1;
    lab.turns(100);
    lab.offer();
    lab.turns(3);
    // With the session that begins now it offers its ends anew.
    assert_eq!(lab.machines[1].session, lab.host.guests[1].session);
    let number = lab.next;
    lab.machines[1].offer(Role::Acceptor, number);
    lab.turns(3);
    assert_ne!(lab.channel().offset, before.offset);
}

#[test]
fn a_guest_that_stays_in_another_session_is_told_ever_more_rarely() {
    let mut lab = Lab::new("rarely");
    lab.machines[0].is_deaf = true;
    lab.turns(100);
    for _ in 0..2 {
        // Heard in its session, it is told soon again.
        lab.machines[0].say(ToHost::Withdraw { id: 7 });
        lab.turns(100);
        let mut seconds_begun = Vec::new();
        for second in 0..=190 {
            let session = lab.host.guests[0].session;
            lab.machines[0].session = 1;
            lab.machines[0].say(ToHost::Withdraw { id: 7 });
            lab.now += Duration::from_millis(980);
            lab.turns(1);
            if lab.host.guests[0].session != session {
                seconds_begun.push(second);
            }
        }
        let gaps: Vec<_> = seconds_begun.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps, [1, 2, 4, 8, 16, 32, 60, 60]);
        lab.machines[0].session = lab.host.guests[0].session;
    }
}

#[test]
fn what_was_under_way_when_a_session_began_begins_no_other() {
    let mut lab = Lab::new("under-way");
    lab.turns(100);
    lab.machines[0].broker_again();
    lab.turns(2);
    let session = lab.machines[0].session;
    lab.machines[0].session = 1;
    for _ in 0..100 {
        lab.machines[0].say(ToHost::Withdraw { id: 7 });
    }
    lab.machines[0].session = session;
    lab.turns(3);
    assert_eq!((lab.machines[0].session, lab.host.guests[0].session), (session, session));
}

#[test]
fn a_guest_that_loses_its_memory_again_and_again_is_left_alone() {
    let mut lab = Lab::new("gone");
    lab.turns(100);
    let mut regions = std::collections::HashSet::new();
    let seconds = 300;
    for _ in 0..seconds {
        lab.offer();
        lab.turns(50);
        if let Some((_, slice)) = lab.machines[0].channels.pop() {
            regions.insert(slice.region);
            lab.machines[0].say(ToHost::Gone { region: slice.region });
        }
    }
    // Some at once, and one a minute.
    let most = 6 + seconds / 60;
    assert!((6..=most).contains(&regions.len()), "{} regions", regions.len());
    assert!(lab.machines[1].declined.len() > seconds / 2);
    // When it stops, all is as before.
    lab.turns(60 * 50);
    lab.connect();
}

#[test]
fn a_host_that_ends_takes_all_away_and_begins_again() {
    let mut lab = Lab::new("stopped");
    lab.turns(100);
    lab.connect();
    lab.host.is_ending = true;
    lab.turns(20);
    assert!(lab.host.is_empty());
    assert!(lab.machines.iter().all(|m| m.devices.is_empty() && m.objects.is_empty()));
    lab.host_again();
    lab.turns(100);
    lab.connect();
}

#[test]
fn a_guest_that_lies_frees_nothing_of_the_other_one() {
    let mut lab = Lab::new("liar");
    lab.turns(100);
    let held = lab.connect();
    for message in [
        ToHost::Freed(held),
        ToHost::Region { region: held.region },
        ToHost::Held(Slice { grant: 0, ..held }),
        ToHost::Freed(Slice { grant: 0, ..held }),
        ToHost::Region { region: held.region },
        ToHost::Region { region: held.region },
    ] {
        lab.machines[0].say(message);
    }
    lab.machines[0].held.clear();
    lab.turns(3);
    assert_ne!(lab.connect().offset, held.offset);
}

impl Lab {
    /// Somebody asks the host's broker.
    fn ask(&mut self, question: &Ask) -> UnixStream {
        let path = self.folder.join("host.sock");
        if self.host.desk.is_none() {
            self.host.desk = Some(Desk::open(&path).unwrap());
        }
        let mut socket = UnixStream::connect(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
            .write_all(format!("{}\n", serde_json::to_string(question).unwrap()).as_bytes())
            .unwrap();
        socket
    }

    fn status(&mut self) -> HostStatus {
        let mut socket = self.ask(&Ask::Status);
        self.turns(2);
        let Some(Answer::Status(status)) = answer(&mut socket) else { panic!("no status") };
        status
    }
}

/// `None`: not yet.
fn answer(socket: &mut UnixStream) -> Option<Answer> {
    let mut text = String::new();
    match socket.read_to_string(&mut text) {
        Ok(_) => Some(serde_json::from_str(&text).unwrap()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

fn leave(guests: &[&str], within_s: u32) -> Ask {
    Ask::Leave { guests: guests.iter().map(|&name| name.to_owned()).collect(), within_s }
}

#[test]
fn a_guest_that_leaves_has_no_memory_until_it_joins_again() {
    let mut lab = Lab::new("leaves");
    lab.turns(100);
    lab.connect();
    let status = lab.status();
    let region = &status.regions[0];
    assert_eq!(
        (region.guests.as_slice(), &*region.state, region.held),
        (&["a".to_owned(), "b".to_owned()][..], "ready", 1)
    );
    assert!(
        status.guests.iter().all(|guest| guest.has_qemu && guest.has_broker && !guest.has_left)
    );
    let mut socket = lab.ask(&leave(&["b"], 30));
    lab.turns(20);
    assert!(matches!(answer(&mut socket), Some(Answer::Done)));
    assert!(lab.machines.iter().all(|m| m.devices.is_empty() && m.objects.is_empty()));
    lab.offer();
    lab.turns(100);
    assert!(lab.machines.iter().all(|m| m.declined == [u64::from(lab.next)]));
    assert!(lab.status().guests[1].has_left && lab.status().regions.is_empty());
    let mut socket = lab.ask(&Ask::Join { guests: vec!["b".to_owned()] });
    lab.turns(2);
    assert!(matches!(answer(&mut socket), Some(Answer::Done)));
    lab.connect();
}

/// QEMU's memory goes some time after its object has: who moves a guest waits for that.
#[test]
fn who_leaves_has_left_when_the_memory_is_freed() {
    let mut lab = Lab::new("freed");
    lab.turns(100);
    lab.connect();
    lab.machines[1].keeps_blocks = 20;
    let mut socket = lab.ask(&leave(&["b"], 30));
    lab.turns(15);
    assert!(lab.machines[1].objects.is_empty() && !lab.machines[1].blocks.is_empty());
    assert!(answer(&mut socket).is_none());
    lab.turns(60);
    assert!(matches!(answer(&mut socket), Some(Answer::Done)));
    assert!(lab.machines[1].blocks.is_empty());
}

#[test]
fn a_pair_that_leaves_keeps_what_it_shares_with_others() {
    let mut lab = Lab::of(3, "pair-leaves");
    lab.turns(100);
    lab.offer_of([1, 2]);
    lab.turns(100);
    let kept = lab.channel_of([1, 2]);
    let mut socket = lab.ask(&leave(&["b", "a"], 30));
    lab.turns(2);
    assert!(matches!(answer(&mut socket), Some(Answer::Done)));
    assert_eq!(lab.status().pairs_left, [["a", "b"].map(str::to_owned)]);
    lab.offer();
    lab.offer_of([2, 1]);
    lab.turns(100);
    assert_eq!(lab.channel_of([1, 2]).region, kept.region);
    assert_eq!(lab.machines[0].declined.len(), 1);
}

#[test]
fn who_waits_for_memory_that_does_not_go_is_told_so() {
    let mut lab = Lab::new("keeps");
    lab.turns(100);
    lab.connect();
    lab.machines[1].answers = false;
    let mut socket = lab.ask(&leave(&["a"], 1));
    lab.turns(40);
    assert!(answer(&mut socket).is_none());
    lab.turns(20);
    let Some(Answer::Refused(why)) = answer(&mut socket) else { panic!("not refused") };
    assert!(why.starts_with("guest b still has memory"), "{why}");
    // It goes when it can.
    lab.machines[1].answers = true;
    lab.turns(20);
    assert!(lab.host.is_empty());
}

#[test]
fn a_guest_that_moved_away_and_comes_back_gets_memory() {
    let mut lab = Lab::new("moved");
    lab.turns(100);
    lab.connect();
    lab.ask(&leave(&["b"], 30));
    lab.turns(20);
    let folder = lab.folder.clone();
    lab.machines[1].again(&folder, "b");
    lab.turns(100);
    lab.connect();
}

/// The broker is killed and starts again, as often as it likes.
#[test]
fn who_has_left_is_remembered_over_a_restart() {
    let mut lab = Lab::of(3, "remembered");
    lab.turns(100);
    for guests in [&["b"][..], &["a", "c"]] {
        let mut socket = lab.ask(&leave(guests, 30));
        lab.turns(20);
        assert!(matches!(answer(&mut socket), Some(Answer::Done)));
    }
    for _ in 0..2 {
        lab.host_again();
        lab.turns(100);
        assert!(lab.status().guests[1].has_left);
        assert_eq!(lab.status().pairs_left, [["a", "c"].map(str::to_owned)]);
        lab.offer_of([0, 1]);
        lab.offer_of([2, 0]);
        lab.turns(100);
        assert!(lab.machines.iter().all(|machine| machine.channels.is_empty()));
    }
    lab.ask(&Ask::Join { guests: ["a", "c"].map(str::to_owned).to_vec() });
    lab.turns(2);
    lab.host_again();
    lab.turns(100);
    assert!(lab.status().pairs_left.is_empty() && lab.status().guests[1].has_left);
    // Another QEMU has come meanwhile: it is not the guest that left.
    let file = lab.folder.join("memory/left");
    let text = std::fs::read_to_string(&file).unwrap();
    let pid = std::process::id().to_string();
    assert!(text.contains(&pid), "{text}");
    std::fs::write(&file, text.replace(&pid, "1")).unwrap();
    lab.host_again();
    lab.turns(100);
    assert!(!lab.status().guests[1].has_left && !file.exists());
    lab.connect();
    // What cannot be read is nobody.
    std::fs::write(&file, "yasmin-left 1\nguest b").unwrap();
    lab.host_again();
    lab.turns(100);
    assert!(!lab.status().guests[1].has_left);
}

#[test]
fn what_cannot_be_asked_is_refused_and_nobody_is_waited_for() {
    let mut lab = Lab::new("asks");
    lab.turns(5);
    for (guests, wanted) in [
        (&["x"][..], "no guest is named 'x'; there are: a, b"),
        (&[], "name one guest"),
        (&["a", "a"], "name one guest"),
    ] {
        let mut socket = lab.ask(&leave(guests, 30));
        lab.turns(2);
        let Some(Answer::Refused(why)) = answer(&mut socket) else { panic!("not refused") };
        assert!(why.starts_with(wanted), "{why}");
    }
    let path = lab.folder.join("host.sock");
    // Those who say nothing, or too much, do not keep others out for good.
    let _silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let mut loud = UnixStream::connect(&path).unwrap();
    let _ = loud.write_all(&[b'x'; 100_000][..4097]);
    lab.turns(300);
    lab.status();
}

/// A guest's root says anything, as much of it as goes through the port.
#[test]
fn a_guest_that_floods_harms_nobody_else() {
    let mut lab = Lab::of(3, "flood");
    lab.turns(100);
    lab.offer_of([1, 2]);
    lab.turns(100);
    let held = lab.channel_of([1, 2]);
    let Slice { region, offset, .. } = held;
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 20
    };
    for round in 0..60 {
        let mut flood = Vec::new();
        for _ in 0..1000 {
            let numbers =
                Numbers { connector: random() as u32 % 64, acceptor: random() as u32 % 64 };
            let id = random() % 64;
            let message = match random() % 10 {
                0 => ToHost::Ask { version: UPLINK_VERSION },
                1 => ToHost::Offer { id, role: Role::Connector, numbers },
                2 => ToHost::Offer { id: random(), role: Role::Acceptor, numbers },
                3 => ToHost::Withdraw { id },
                4 => ToHost::Held(held),
                5 => ToHost::Region { region },
                6 => ToHost::Freed(held),
                7 => ToHost::Gone { region },
                8 => ToHost::Held(Slice { region, offset: offset + random(), ..held }),
                _ => {
                    flood.extend((0..random() % 100).map(|at| b"YMUP"[at as usize % 4]));
                    continue;
                }
            };
            flood.extend(message.encode(lab.machines[0].session));
        }
        lab.machines[0].port.send(&flood);
        lab.offer_of([1, 2]);
        lab.turns(5);
        let slice = lab.channel_of([1, 2]);
        assert_eq!(slice.region, region);
        assert_ne!(slice.offset, offset);
        lab.free(1, slice);
        lab.free(2, slice);
        // What waits for it stays bounded as well.
        lab.machines[0].channels.clear();
        assert!(lab.host.pending.len() <= 1024, "round {round}");
    }
    assert_eq!(lab.host.shared.iter().filter(|shared| shared.guests() == [1, 2]).count(), 1);
    assert_eq!(lab.machines[1].declined.len() + lab.machines[2].declined.len(), 0);
    // It is served again, when it speaks as it should. What it said last may have swallowed the first word.
    for _ in 0..2 {
        lab.machines[0].broker_again();
        lab.turns(100);
    }
    lab.connect();
}
