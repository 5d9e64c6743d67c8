//! XenStore as user space has it: `/dev/xen/xenbus` (xen/io/xs_wire.h).
//!
//! One request at a time; watch events that come between are kept.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};

const DIRECTORY: u32 = 1;
const READ: u32 = 2;
const WATCH: u32 = 4;
const WRITE: u32 = 11;
const RM: u32 = 13;
const SET_PERMS: u32 = 14;
const WATCH_EVENT: u32 = 15;
const ERROR: u32 = 16;

/// XENSTORE_PAYLOAD_MAX.
const PAYLOAD_MAX: usize = 4096;

/// The host's daemon does not answer: then nothing is known of the other guests.
const ANSWER_WITHIN_S: i64 = 10;

/// The device, under either of its names.
const PATHS: [&str; 2] = ["/dev/xen/xenbus", "/proc/xen/xenbus"];

pub struct XenStore {
    device: File,
    request: u32,
    events: VecDeque<String>,
}

impl XenStore {
    /// `None`: this is no Xen guest, or has no xenfs.
    pub fn open() -> Option<Self> {
        let open = |path| File::options().read(true).write(true).open(path).ok();
        let device = PATHS.into_iter().find_map(open)?;
        Some(Self { device, request: 0, events: VecDeque::new() })
    }

    pub fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        self.ask(READ, &[path.as_bytes(), b"\0"])
    }

    pub fn list(&mut self, path: &str) -> io::Result<Vec<String>> {
        let names = self.ask(DIRECTORY, &[path.as_bytes(), b"\0"])?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    pub fn write(&mut self, path: &str, value: &[u8]) -> io::Result<()> {
        self.ask(WRITE, &[path.as_bytes(), b"\0", value]).map(drop)
    }

    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        self.ask(RM, &[path.as_bytes(), b"\0"]).map(drop)
    }

    /// Who owns a node, and may do all with it, and who else may read it. What is made below it later
    /// has the same.
    pub fn permit(&mut self, path: &str, owner: u32, reader: u32) -> io::Result<()> {
        let rights = format!("n{owner}\0r{reader}\0");
        self.ask(SET_PERMS, &[path.as_bytes(), b"\0", rights.as_bytes()]).map(drop)
    }

    pub fn watch(&mut self, path: &str) -> io::Result<()> {
        self.ask(WATCH, &[path.as_bytes(), b"\0", path.as_bytes(), b"\0"]).map(drop)
    }

    /// The path of the next event that is there. Call when the device is readable.
    pub fn next_event(&mut self) -> io::Result<Option<String>> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        if !self.is_readable(0)? {
            return Ok(None);
        }
        // Between requests nothing else comes.
        self.receive()?;
        Ok(self.events.pop_front())
    }

    fn ask(&mut self, kind: u32, parts: &[&[u8]]) -> io::Result<Vec<u8>> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len > PAYLOAD_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.request = self.request.wrapping_add(1);
        let request = self.request;
        let mut message = Vec::with_capacity(16 + len);
        for field in [kind, request, 0, len as u32] {
            message.extend(field.to_ne_bytes());
        }
        for part in parts {
            message.extend(*part);
        }
        self.device.write_all(&message)?;
        loop {
            if !self.is_readable(ANSWER_WITHIN_S)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let Some((answered, kind, payload)) = self.receive()? else { continue };
            // An answer to what was given up before.
            if answered != request {
                continue;
            }
            if kind != ERROR {
                return Ok(payload);
            }
            let name = payload.split(|byte| *byte == 0).next().unwrap_or_default();
            return Err(match name {
                b"ENOENT" => io::ErrorKind::NotFound.into(),
                b"EACCES" | b"EPERM" => io::ErrorKind::PermissionDenied.into(),
                other => io::Error::other(String::from_utf8_lossy(other).into_owned()),
            });
        }
    }

    /// The next message; events are put aside.
    fn receive(&mut self) -> io::Result<Option<(u32, u32, Vec<u8>)>> {
        let mut header = [0; 16];
        self.device.read_exact(&mut header)?;
        let field = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (kind, request, len) = (field(0), field(4), field(12) as usize);
        if len > PAYLOAD_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut payload = vec![0; len];
        self.device.read_exact(&mut payload)?;
        if kind != WATCH_EVENT {
            return Ok(Some((request, kind, payload)));
        }
        let path = payload.split(|byte| *byte == 0).next().unwrap_or_default();
        self.events.push_back(String::from_utf8_lossy(path).into_owned());
        Ok(None)
    }

    fn is_readable(&self, within_s: i64) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
        let limit = Timespec { tv_sec: within_s, tv_nsec: 0 };
        Ok(poll(&mut fds, Some(&limit))? > 0)
    }
}

impl AsFd for XenStore {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
