//! Keeps descriptors for the broker's successor, under names: `memory-7`, `record-7`, `creator-7`.
//!
//! A service manager does so (systemd's file descriptor store, FDSTORE=1 of sd_notify(3)). Where
//! there is none a process of the broker's own does, the keeper, which understands the same
//! messages. It is started with the first segment, and ends when it has nothing and nobody to
//! keep it for, or nobody can find it any more. Files would do without it, but a file's size
//! cannot be sealed; and processes that have a segment could bring it back, but then one that
//! nobody has at that time would be lost, and the broker would have to believe them.

use crate::sys::sockopt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const MEMORY: &str = "memory";
pub const RECORD: &str = "record";
pub const CREATOR: &str = "creator";
/// Of a segment of the host, by the number of its region.
pub const LOCKS: &str = "locks";

/// How long the keeper may take for each descriptor that it hands over when the broker starts.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than any message.
const TEXT_BYTES: usize = 256;

/// How often a keeper without a broker looks whether one could find it still, in seconds.
const LOOK_EVERY_S: i64 = 5;

/// What the keeper says when it has handed over everything.
const ALL: &[u8] = b"ALL=1";

enum Where {
    Manager(UnixDatagram),
    Keeper(OwnedFd),
    /// A keeper is started when it is needed.
    Nowhere,
}

pub struct Store {
    to: Where,
    /// Where the keeper listens.
    path: PathBuf,
    recovered: Vec<(String, OwnedFd)>,
    /// What was not heard yet, the oldest first: a name, with a descriptor to keep or none. Grows with the
    /// segments that there are, not with those that come and go: what nobody has heard of is not said to have gone.
    unsaid: VecDeque<(String, Option<OwnedFd>)>,
    /// The names of what is kept.
    heard: BTreeSet<String>,
    /// When a keeper was started last.
    started: Option<Instant>,
    /// Nobody watches what keeps them yet.
    is_unwatched: bool,
}

impl Store {
    /// `kept`: what the service manager kept. `socket`: the broker's own; the keeper's lies
    /// beside it, in a folder where nobody else can put one.
    pub fn open(kept: Vec<(String, OwnedFd)>, socket: &Path) -> Self {
        let mut path = socket.as_os_str().to_owned();
        path.push(".segments");
        let path = PathBuf::from(path);
        if let Some(manager) = manager() {
            let mut store = Self::new(Where::Manager(manager), path);
            store.heard = kept.iter().map(|(name, _)| name.clone()).collect();
            (store.recovered, store.is_unwatched) = (kept, true);
            return store;
        }
        let mut store = Self::new(Where::Nowhere, path);
        match store.meet() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Its keeper has ended.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = std::fs::remove_file(&store.path);
            }
            Err(error) => tracing::warn!("segments of an earlier broker are not found: {error}"),
        }
        store
    }

    fn new(to: Where, path: PathBuf) -> Self {
        Self {
            to,
            path,
            recovered: Vec::new(),
            unsaid: VecDeque::new(),
            heard: BTreeSet::new(),
            started: None,
            is_unwatched: false,
        }
    }

    /// What an earlier broker gave it to keep.
    pub fn recover(&mut self) -> Vec<(String, OwnedFd)> {
        std::mem::take(&mut self.recovered)
    }

    /// # Errors
    /// The keeper has gone, or does not read: `start_again`, and everything anew.
    pub fn keep(&mut self, part: &str, number: u64, fd: BorrowedFd) -> io::Result<()> {
        if matches!(self.to, Where::Nowhere) {
            self.start()?;
        }
        self.say(format!("{part}-{number}"), Some(fd))
    }

    pub fn forget_all(&mut self, number: u64) {
        for part in [RECORD, MEMORY, CREATOR] {
            self.forget(part, number);
        }
    }

    pub fn forget(&mut self, part: &str, number: u64) {
        let name = format!("{part}-{number}");
        self.unsaid.retain(|(unsaid, _)| *unsaid != name);
        if self.heard.contains(&name) {
            // Where that fails everything is kept anew with the next one.
            let _ = self.say(name, None);
        }
    }

    /// What keeps them, where nobody watches it yet: readable when it has gone, writable when it
    /// hears again.
    pub fn unwatched(&mut self) -> Option<BorrowedFd<'_>> {
        if !std::mem::take(&mut self.is_unwatched) {
            return None;
        }
        match &self.to {
            Where::Manager(manager) => Some(manager.as_fd()),
            Where::Keeper(keeper) => Some(keeper.as_fd()),
            Where::Nowhere => None,
        }
    }

    /// Whether the keeper has gone, when it is readable.
    pub fn has_gone(&self) -> bool {
        let Where::Keeper(keeper) = &self.to else { return false };
        let mut text = [0; TEXT_BYTES];
        loop {
            match rustix::net::recv(keeper, &mut text, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                // A new one says that it has nothing.
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return error != Errno::AGAIN,
            }
        }
    }

    /// Whether one was started a moment ago: if that goes at once, so will the next.
    pub fn is_fresh(&self) -> bool {
        self.started.is_some_and(|at| at.elapsed() < Duration::from_secs(1))
    }

    /// There is none any more.
    pub fn give_up(&mut self) {
        if let Where::Keeper(_) = self.to {
            self.to = Where::Nowhere;
        }
    }

    pub const fn is_nowhere(&self) -> bool {
        matches!(self.to, Where::Nowhere)
    }

    /// Another keeper.
    pub fn start_again(&mut self) -> io::Result<()> {
        if let Where::Manager(_) = self.to {
            return Err(io::Error::other("the service manager does not listen"));
        }
        self.to = Where::Nowhere;
        self.unsaid.clear();
        self.heard.clear();
        self.start()
    }

    /// Says it now, or when whoever is to hear it reads again: nobody waits for that.
    fn say(&mut self, name: String, fd: Option<BorrowedFd>) -> io::Result<()> {
        let fd = fd.map(|fd| fd.try_clone_to_owned()).transpose()?;
        self.unsaid.push_back((name, fd));
        self.go_on()
    }

    /// Whether something waits for `go_on`.
    pub fn is_behind(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// Says what was not heard yet.
    pub fn go_on(&mut self) -> io::Result<()> {
        while let Some((name, fd)) = self.unsaid.front() {
            let socket = match &self.to {
                Where::Manager(manager) => manager.as_fd(),
                Where::Keeper(keeper) => keeper.as_fd(),
                Where::Nowhere => {
                    self.unsaid.clear();
                    self.heard.clear();
                    return Ok(());
                }
            };
            let text = match fd {
                Some(_) => format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"),
                None => format!("FDSTOREREMOVE=1\nFDNAME={name}"),
            };
            let fds = fd.as_ref().map(AsFd::as_fd);
            match send(socket, text.as_bytes(), fds.as_slice(), SendFlags::DONTWAIT) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            match self.unsaid.pop_front() {
                Some((name, Some(_))) => drop(self.heard.insert(name)),
                Some((name, None)) => drop(self.heard.remove(&name)),
                None => {}
            }
        }
        Ok(())
    }

    fn meet(&mut self) -> io::Result<()> {
        let keeper = seqpacket()?;
        connect(&keeper, &SocketAddrUnix::new(&self.path)?)?;
        let own = rustix::process::geteuid().as_raw();
        let uid = sockopt::peer_credentials(&keeper)?.uid;
        if uid != own && uid != 0 {
            return Err(io::Error::other(format!("user {uid} listens on {}", self.path.display())));
        }
        let timeout = rustix::net::sockopt::Timeout::Recv;
        rustix::net::sockopt::set_socket_timeout(&keeper, timeout, Some(PATIENCE))?;
        loop {
            let (text, fd) = receive(keeper.as_fd())?;
            if text == ALL {
                break;
            }
            let name = String::from_utf8_lossy(&text).into_owned();
            let fd = fd.ok_or_else(|| io::Error::other("the keeper sent nothing"))?;
            self.heard.insert(name.clone());
            self.recovered.push((name, fd));
        }
        self.to = Where::Keeper(keeper);
        self.is_unwatched = true;
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        let listener = seqpacket()?;
        let _ = std::fs::remove_file(&self.path);
        bind(&listener, &SocketAddrUnix::new(&self.path)?)?;
        std::fs::set_permissions(&self.path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        listen(&listener, 1)?;
        // What runs may have been replaced on disk: the keeper is of its version.
        Command::new("/proc/self/exe")
            .arg("--keep-segments")
            .stdin(Stdio::from(listener))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()?;
        let keeper = seqpacket()?;
        connect(&keeper, &SocketAddrUnix::new(&self.path)?)?;
        self.to = Where::Keeper(keeper);
        (self.is_unwatched, self.started) = (true, Some(Instant::now()));
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if matches!(self.to, Where::Nowhere) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// $NOTIFY_SOCKET.
fn manager() -> Option<UnixDatagram> {
    let path = std::env::var_os("NOTIFY_SOCKET")?;
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}

fn seqpacket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn send(to: BorrowedFd, text: &[u8], fds: &[BorrowedFd], flags: SendFlags) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(to, &[IoSlice::new(text)], &mut control, flags))?;
    Ok(())
}

/// A message and its descriptor. An empty one: nobody is there any more.
fn receive(from: BorrowedFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut text = vec![0; TEXT_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(from, &mut [IoSliceMut::new(&mut text)], &mut control, flags)
    })?;
    text.truncate(received.bytes);
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((text, fd))
}

/// The keeper: what `yasmind --keep-segments` does with the listener that is its standard input.
/// One broker at a time; the next one gets everything.
///
/// # Errors
/// The kernel's, for a listener that is none.
pub fn keep() -> io::Result<()> {
    // The broker's terminal, and what is typed there, are none of its business.
    let _ = rustix::process::setsid();
    let mut kept = BTreeMap::new();
    let listener = std::io::stdin();
    let found_as = file_of(&listener);
    let patience = Timespec { tv_sec: LOOK_EVERY_S, tv_nsec: 0 };
    loop {
        if poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&patience)) == Ok(0) {
            let is_found = found_as.is_some() && file_of(&listener) == found_as;
            if !is_found {
                return Ok(());
            }
            continue;
        }
        let broker = accept_with(&listener, SocketFlags::CLOEXEC)?;
        let uid = sockopt::peer_credentials(&broker)?.uid;
        let is_ours = uid == 0 || uid == rustix::process::geteuid().as_raw();
        if is_ours {
            // An error ends the connection: the next broker gets everything again.
            let _ = serve(&broker, &mut kept);
        }
        if kept.is_empty() {
            return Ok(());
        }
    }
}

/// The file by which the next broker finds a listener; without it none does.
fn file_of(listener: impl AsFd) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let address = SocketAddrUnix::try_from(rustix::net::getsockname(listener).ok()?).ok()?;
    let path = address.path()?.into_owned();
    let file = std::fs::metadata(Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()))).ok()?;
    Some((file.dev(), file.ino()))
}

fn serve(broker: &OwnedFd, kept: &mut BTreeMap<String, OwnedFd>) -> io::Result<()> {
    let tell_all = || {
        for (name, fd) in kept.iter() {
            send(broker.as_fd(), name.as_bytes(), &[fd.as_fd()], SendFlags::empty())?;
        }
        send(broker.as_fd(), ALL, &[], SendFlags::empty())
    };
    // It may have ended before it was accepted; what it said is there all the same.
    let _ = tell_all();
    loop {
        let (text, fd) = match receive(broker.as_fd()) {
            // The broker has ended without reading what was said. What it said itself comes next.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => continue,
            result => result?,
        };
        if text.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&text);
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
        match (name, fd) {
            (Some(name), Some(fd)) => drop(kept.insert(name.to_owned(), fd)),
            (Some(name), None) => drop(kept.remove(name)),
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// What it said so far.
    fn said(manager: &UnixDatagram) -> Vec<String> {
        manager.set_nonblocking(true).unwrap();
        let mut text = [0; TEXT_BYTES];
        std::iter::from_fn(|| {
            let len = manager.recv(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text[..len]).into_owned())
        })
        .collect()
    }

    #[test]
    fn what_comes_and_goes_while_nobody_reads_is_not_remembered() {
        let (manager, ours) = UnixDatagram::pair().unwrap();
        let mut store = Store::new(Where::Manager(ours), PathBuf::from("/nonexistent"));
        let file = std::fs::File::open("/dev/null").unwrap();
        store.keep(RECORD, 0, file.as_fd()).unwrap();
        for number in 1..10_000 {
            store.keep(RECORD, number, file.as_fd()).unwrap();
            store.forget(RECORD, number);
        }
        assert!(store.unsaid.len() < 1000, "{} are remembered", store.unsaid.len());
        // Who was heard of is said to have gone, though nobody reads by then.
        store.forget(RECORD, 0);
        let mut kept = BTreeSet::new();
        loop {
            let texts = said(&manager);
            for text in &texts {
                let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap();
                if text.starts_with("FDSTORE=1") {
                    kept.insert(name.to_owned());
                } else {
                    assert!(kept.remove(name), "{name} was never kept");
                }
            }
            if texts.is_empty() && !store.is_behind() {
                break;
            }
            store.go_on().unwrap();
        }
        assert_eq!(kept, BTreeSet::new());
    }
}
