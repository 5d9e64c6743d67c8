//! QEMU's monitor (QMP): commands, each with what it was for, and their answers.
//!
//! A line is read as JSON, and what is not understood is left out.

use super::stream::{Stream, Turn};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Instant;

/// What QEMU said; `P` is what the caller asked it for.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<P> {
    /// Commands may be sent.
    Up,
    Down,
    Done(P, Value),
    Refused(P, String),
    /// The device that the command names is not there.
    Missing(P),
    /// A device has gone, by its id.
    Deleted(String),
}

pub struct Qmp<P> {
    pub stream: Stream,
    is_up: bool,
    next: u64,
    asked: HashMap<u64, P>,
}

impl<P> Qmp<P> {
    pub fn new(stream: Stream) -> Self {
        Self { stream, is_up: false, next: 0, asked: HashMap::new() }
    }

    pub const fn is_up(&self) -> bool {
        self.is_up
    }

    /// Answered by `Done` or `Refused`, or `Down`.
    pub fn ask(&mut self, purpose: P, command: &str, arguments: &Value) {
        self.next += 1;
        let line = json!({ "execute": command, "arguments": arguments, "id": self.next });
        self.asked.insert(self.next, purpose);
        self.stream.send(format!("{line}\n").as_bytes());
    }

    pub fn turn(&mut self, now: Instant) -> Vec<Heard<P>> {
        let mut heard = Vec::new();
        match self.stream.turn(now) {
            Turn::Same => {}
            Turn::Connected => {
                self.stream.send(b"{\"execute\":\"qmp_capabilities\",\"id\":0}\n");
            }
            Turn::Lost => {
                self.asked.clear();
                self.is_up = false;
                return vec![Heard::Down];
            }
        }
        while let Some(end) = self.stream.inbox.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.stream.inbox.drain(..=end).collect();
            if let Ok(value) = serde_json::from_slice::<Value>(&line) {
                heard.extend(self.understand(&value));
            }
        }
        heard
    }

    fn understand(&mut self, value: &Value) -> Option<Heard<P>> {
        if value.get("event").and_then(Value::as_str) == Some("DEVICE_DELETED") {
            let device = value.pointer("/data/device").and_then(Value::as_str)?;
            return Some(Heard::Deleted(device.to_owned()));
        }
        let id = value.get("id").and_then(Value::as_u64)?;
        if id == 0 {
            self.is_up = value.get("return").is_some();
            return self.is_up.then_some(Heard::Up);
        }
        let purpose = self.asked.remove(&id)?;
        if let Some(answer) = value.get("return") {
            return Some(Heard::Done(purpose, answer.clone()));
        }
        if value.pointer("/error/class").and_then(Value::as_str) == Some("DeviceNotFound") {
            return Some(Heard::Missing(purpose));
        }
        let why = value.pointer("/error/desc").and_then(Value::as_str).unwrap_or("no reason");
        let mut why: String = why.chars().filter(|c| !c.is_control()).take(300).collect();
        if let Some(remedy) = remedy(&why) {
            why = format!("{why} ({remedy})");
        }
        Some(Heard::Refused(purpose, why))
    }
}

/// What to do about what QEMU said, where that is known.
fn remedy(why: &str) -> Option<&'static str> {
    let has = |words: &[&str]| words.iter().all(|word| why.contains(word));
    if has(&["backing store", "Permission denied"]) {
        Some(
            "AppArmor, SELinux or its user keep this QEMU from the file: see \"Where QEMU is \
             confined\" in docs/kvm.md",
        )
    } else if has(&["ivshmem-plain", "not a valid device model name"]) {
        Some("this QEMU was built without the device: its guests stay on TCP")
    } else if has(&["Bus '", "' not found"]) {
        Some("the guest has no such pcie-root-port: name those that it has after slots=")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn answers_find_their_questions() {
        let path = std::env::temp_dir().join(format!("yasmin-qmp-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let mut qmp: Qmp<&str> = Qmp::new(Stream::new(path.clone(), Instant::now()));
        assert_eq!(qmp.turn(Instant::now()), []);
        let (mut socket, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("qmp_capabilities"));
        socket.write_all(b"{\"QMP\": {}}\n{\"return\": {}, \"id\": 0}\nnonsense\n").unwrap();
        assert_eq!(qmp.turn(Instant::now()), [Heard::Up]);
        qmp.ask("first", "one", &json!({}));
        qmp.ask("second", "two", &json!({}));
        socket
            .write_all(
                b"{\"error\": {\"desc\": \"no\"}, \"id\": 2}\n\
                  {\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"x\"}}\n\
                  {\"return\": 7, \"id\": 1}\n{\"return\": 7, \"id\": 9}\n",
            )
            .unwrap();
        let wanted = [
            Heard::Refused("second", "no".into()),
            Heard::Deleted("x".into()),
            Heard::Done("first", json!(7)),
        ];
        assert_eq!(qmp.turn(Instant::now()), wanted);
        drop((socket, lines));
        assert_eq!(qmp.turn(Instant::now()), [Heard::Down]);
        std::fs::remove_file(path).unwrap();
    }

    /// As QEMU 7.2 says it.
    #[test]
    fn what_is_refused_for_a_known_reason_comes_with_what_to_do() {
        for (why, wanted) in [
            (
                "can't open backing store /dev/shm/yasmin-host/5 for guest RAM: Permission denied",
                "AppArmor",
            ),
            ("'ivshmem-plain' is not a valid device model name", "without the device"),
            ("Bus 'slot9' not found", "pcie-root-port"),
        ] {
            assert!(remedy(why).is_some_and(|remedy| remedy.contains(wanted)), "{why}");
        }
        assert_eq!(remedy("Bus 'pcie.0' does not support hotplugging"), None);
    }
}
