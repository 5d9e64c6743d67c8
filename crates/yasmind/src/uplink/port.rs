//! The port to the host's broker: a virtio-serial port, which may come later than this broker, and go. In a
//! Xen guest it is a vsock connection to dom0, made again when it ends.

use super::Look;
use crate::guests::XEN_CID_BASE;
use crate::sys::vsock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, write};
use rustix::net::sockopt::socket_error;
use std::ffi::OsStr;
use std::fs::DirEntry;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use yasmin_control::guest::LAST_PRIVILEGED_PORT;
use yasmin_control::uplink::{PORT_NAME, XEN_PORT};

const DEVICES: &str = "/dev";

/// Where Linux says that it runs on Xen.
const HYPERVISOR: &str = "/sys/hypervisor/type";

/// dom0's broker is looked for after so long, then after longer.
const DOM0_AFTER: Duration = Duration::from_secs(1);
const DOM0_AFTER_MOST: Duration = Duration::from_secs(60);

pub struct Port {
    /// By the administrator; otherwise it is the one with `PORT_NAME`.
    named: Option<PathBuf>,
    fd: Option<OwnedFd>,
    /// Tells of files that come where the port's will be.
    comers: Option<OwnedFd>,
    look: Option<Look>,
    /// Where this is a Xen guest.
    dom0: Option<Dom0>,
}

/// When to connect to dom0's broker next, and how long after that again.
struct Dom0 {
    at: Instant,
    after: Duration,
    is_connected: bool,
}

/// What an attempt to read gave.
pub enum Heard {
    Bytes(usize),
    /// Nobody holds the other end, or what it sent came before the word that it is there.
    Nobody,
    Nothing,
    /// The port is there no more.
    Gone,
}

/// This machine's virtio-serial ports.
fn ports() -> impl Iterator<Item = DirEntry> {
    std::fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten()
}

/// The one with `PORT_NAME`, if there is one.
fn find() -> Option<PathBuf> {
    ports().find_map(|port| {
        let name = std::fs::read_to_string(port.path().join("name")).ok()?;
        (name.trim_end() == PORT_NAME).then(|| Path::new(DEVICES).join(port.file_name()))
    })
}

impl Port {
    /// One that is looked for from now on.
    ///
    /// # Errors
    /// The kernel's, where it does not tell of files that come.
    pub fn new(named: Option<PathBuf>, now: Instant) -> io::Result<Self> {
        let comers = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let folder = named.as_deref().map_or(Some(Path::new(DEVICES)), Path::parent);
        let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
        inotify::add_watch(&comers, folder.unwrap_or(Path::new(".")), WatchFlags::CREATE)?;
        // Of a file that comes later the kernel tells.
        let may_be_there = named.is_some() || ports().next().is_some();
        let look = Some(if may_be_there { Look::from(now) } else { Look::once(now) });
        let is_xen = std::fs::read_to_string(HYPERVISOR).is_ok_and(|kind| kind.trim_end() == "xen");
        let dom0 = (is_xen && named.is_none()).then_some(Dom0 {
            at: now,
            after: DOM0_AFTER,
            is_connected: false,
        });
        Ok(Self { named, fd: None, comers: Some(comers), look, dom0 })
    }

    /// One that is open and does not block.
    #[cfg(test)]
    pub const fn on(fd: OwnedFd) -> Self {
        Self { named: None, fd: Some(fd), comers: None, look: None, dom0: None }
    }

    pub const fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// Readable when `came` is to be asked.
    pub fn comers(&self) -> Option<BorrowedFd<'_>> {
        self.comers.as_ref().map(AsFd::as_fd)
    }

    /// Looks for it for a while, if a file has come that it may be: its name is told later.
    pub fn came(&mut self, now: Instant) {
        let Some(comers) = &self.comers else { return };
        let wanted = self.named.as_deref().and_then(Path::file_name);
        let is_wanted = |name: &OsStr| match wanted {
            Some(wanted) => name == wanted,
            None => name.as_bytes().starts_with(b"vport"),
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(comers, &mut buffer);
        while let Ok(event) = events.next() {
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            // Without a name some were not told.
            if self.fd.is_none() && name.is_none_or(is_wanted) {
                self.look = Some(Look::from(now));
            }
        }
    }

    /// When `find` has something to do next.
    pub fn next_expiry(&self) -> Option<Instant> {
        let dom0 = self.dom0.as_ref().filter(|_| self.fd.is_none()).map(|dom0| dom0.at);
        [self.look.map(|look| look.at), dom0].into_iter().flatten().min()
    }

    /// Whether it is open from now on. Asked when the time has come.
    pub fn find(&mut self, now: Instant) -> bool {
        self.find_device(now) || self.find_dom0(now)
    }

    /// Begins to connect. That nobody listens there is heard when it is read.
    fn find_dom0(&mut self, now: Instant) -> bool {
        if self.fd.is_some() {
            return false;
        }
        let Some(dom0) = self.dom0.as_mut().filter(|dom0| dom0.at <= now) else { return false };
        dom0.at = now + dom0.after;
        dom0.after = (dom0.after * 2).min(DOM0_AFTER_MOST);
        let ports = (1..=LAST_PRIVILEGED_PORT).rev().filter(|port| *port != XEN_PORT);
        // Without yasmin.ko, or with a dom0 that has not: later.
        let Ok(fd) = vsock::connect(XEN_CID_BASE, XEN_PORT, ports) else { return false };
        dom0.is_connected = true;
        self.fd = Some(fd);
        true
    }

    fn find_device(&mut self, now: Instant) -> bool {
        let Some(look) = self.look.filter(|look| look.at <= now) else { return false };
        self.look = Some(look.again(now)).filter(|_| now < look.until);
        let Some(path) = self.named.clone().or_else(find) else { return false };
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match open(&path, flags, Mode::empty()) {
            Ok(fd) => {
                (self.fd, self.look) = (Some(fd), None);
                true
            }
            // Another broker has it, which may be ending; or it comes and goes.
            Err(Errno::BUSY | Errno::NOENT | Errno::NODEV | Errno::NXIO) if self.look.is_some() => {
                false
            }
            Err(error) => {
                let path = path.display();
                tracing::warn!(
                    "cannot open {path}, so connections to other guests stay on TCP: {error}"
                );
                self.look = None;
                false
            }
        }
    }

    /// It is looked for: another one may have come before this one was seen to be gone.
    pub fn close(&mut self, now: Instant) {
        self.fd = None;
        match &mut self.dom0 {
            Some(dom0) if dom0.is_connected => dom0.is_connected = false,
            _ => self.look = Some(Look::from(now)),
        }
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> Heard {
        let Some(fd) = &self.fd else { return Heard::Nothing };
        let dom0 = self.dom0.as_mut().filter(|dom0| dom0.is_connected);
        loop {
            return match read(fd, &mut *buffer) {
                // A socket has ended then, or was refused; a device's other end may come back.
                Ok(0) if dom0.is_some() => Heard::Gone,
                Ok(0) => Heard::Nobody,
                Ok(count) => {
                    if let Some(dom0) = dom0 {
                        dom0.after = DOM0_AFTER;
                    }
                    Heard::Bytes(count)
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Heard::Nothing,
                // It is not connected yet, or nobody listens there.
                Err(Errno::NOTCONN) if socket_error(fd) == Ok(Ok(())) => Heard::Nothing,
                Err(_) if dom0.is_some() => Heard::Gone,
                Err(Errno::NODEV | Errno::NXIO | Errno::IO) => Heard::Gone,
                Err(_) => Heard::Nothing,
            };
        }
    }

    /// Bytes that went; 0: no more go now.
    pub fn write(&self, bytes: &[u8]) -> usize {
        let Some(fd) = &self.fd else { return 0 };
        loop {
            match write(fd, bytes) {
                Err(Errno::INTR) => {}
                written => return written.unwrap_or(0),
            }
        }
    }

    /// Nobody is at its other end, or there is none.
    pub fn is_hung_up(&self) -> bool {
        let Some(fd) = &self.fd else { return true };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }
}
