//! The host's broker against QEMUs and guests' brokers that are played here: sockets, and no memory.

use super::*;
use clap::Parser;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixListener;
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
    /// The monitor answers.
    answers: bool,
    /// The guest's broker runs.
    is_up: bool,
    session: u64,
    /// Grants of this guest's, by region and offset.
    held: HashMap<(u64, u64), u64>,
    channels: Vec<(u64, Slice)>,
    declined: Vec<u64>,
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
            answers: true,
            is_up: true,
            session: 0,
            held: HashMap::new(),
            channels: Vec::new(),
            declined: Vec::new(),
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
                self.objects.push(text("id"));
                (done, None)
            }
            "object-del" => {
                self.objects.retain(|name| *name != text("id"));
                (done, None)
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
            }
            _ if session_of(raw) != self.session => {}
            FromHost::Plugged { region } => self.tell(region),
            FromHost::Channel { id, region, offset, grant, .. } => {
                assert_eq!(self.held.insert((region, offset), grant), None, "given twice");
                self.channels.push((id, Slice { region, offset, bytes: 0, grant }));
            }
            FromHost::Decline { id, .. } => self.declined.push(id),
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
    machines: [Machine; 2],
    now: Instant,
    next: u32,
}

impl Lab {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("yasmin-host-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("memory")).unwrap();
        let machines = ["a", "b"].map(|name| Machine::new(&folder, name));
        let args = Args::parse_from(["yasmind"]);
        let host = Self::host(&folder, &args, &machines);
        Self { folder, args, host, machines, now: Instant::now(), next: 0 }
    }

    fn host(folder: &Path, args: &Args, machines: &[Machine; 2]) -> Host {
        let guests = ["a", "b"].into_iter().zip(machines).map(|(name, machine)| GuestConfig {
            name: name.to_owned(),
            qmp: machine.qmp.path.clone(),
            port: machine.port.path.clone(),
            slots: vec!["slot0".to_owned()],
        });
        let mut host = Host::new(args, folder.join("memory"), guests.collect(), 1 << 30);
        host.find_regions();
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
        self.next += 1;
        self.machines[0].offer(Role::Connector, self.next);
        self.machines[1].offer(Role::Acceptor, self.next);
    }

    /// A new connection gets one slice, the same in both guests.
    fn connect(&mut self) -> Slice {
        self.offer();
        self.turns(100);
        self.channel()
    }

    /// Of the newest connection.
    fn channel(&self) -> Slice {
        let got = self.machines.each_ref().map(|machine| machine.channels.last().copied());
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
