//! Questions to the broker: a connection for each, one message, one answer.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect,
    getsockopt, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use yasmin_control::segment::{
    Answer, BadSegment, Kind, MAX_BYTES, MIN_BYTES, Name, Request, Rights, Whom,
};
#[cfg(not(loom))]
use yasmin_control::uplink::Life;
use yasmin_control::{CONTROL_VERSION, FromBroker, MESSAGE_BYTES, SOCKET_ENV, status};

use crate::{Error, Segment, socket as place};

/// Longest wait for an answer, in seconds.
const PATIENCE_S: i64 = 10;

/// And for word of a member in another guest, in milliseconds: whoever waits for a lock asks again.
#[cfg(not(loom))]
const PROBE_MS: i64 = 250;

/// Longest wait to ask that a bell be rung, in milliseconds: by then its sleepers have looked.
#[cfg(not(loom))]
const RING_MS: i64 = 10;

/// Longer than any part of a list.
const TEXT_BYTES: usize = 64 << 10;

/// Where a broker listens. Nothing is kept open between two questions.
#[derive(Clone, Debug)]
pub struct Broker {
    path: PathBuf,
    /// Somebody said so, and not this library.
    is_named: bool,
}

impl Broker {
    /// The one that YASMIN_SOCKET names, or the system's, or the user's own.
    ///
    /// # Errors
    /// `ForeignFolder`: where the user's own would be is another's.
    pub fn find() -> Result<Self, Error> {
        let asked = std::env::var_os(SOCKET_ENV).filter(|path| !path.is_empty());
        let path = place::resolve(asked.as_ref().map(Path::new))
            .map_err(|place::Foreign { folder, owner }| Error::ForeignFolder { folder, owner })?;
        Ok(Self { path, is_named: asked.is_some() })
    }

    /// The one that listens there.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), is_named: true }
    }

    /// Makes a segment, all zero, which belongs to this process's user.
    ///
    /// # Errors
    /// `Name`, `Size`; `Refused` with `Taken`, a limit, or what the kernel says.
    pub fn create(&self, name: &str, size_bytes: u64, kind: Kind) -> Result<(), Error> {
        let name = checked(name)?;
        if !(MIN_BYTES..=MAX_BYTES).contains(&size_bytes) {
            return Err(Error::Size(size_bytes));
        }
        self.done(Request::Create { version: CONTROL_VERSION, name, size_bytes, kind }, &name)
    }

    /// Opens a segment. `sparse`: also where this process's control group could not hold all of it.
    ///
    /// # Errors
    /// `Refused` with `NoSegment`, `Rights`, `Group`.
    pub fn open(&self, name: &str, rights: Rights, sparse: bool) -> Result<Segment, Error> {
        let name = checked(name)?;
        if rights == Rights::None {
            return Err(Error::Flags(0));
        }
        let request = Request::Open { version: CONTROL_VERSION, name, rights, sparse };
        match self.ask(request, name.as_str())? {
            Reply { answer: Answer::Segment { place, rights: given, domain }, fds, .. }
                if given == rights =>
            {
                let (broker, fds) = (self.clone(), <[OwnedFd; 1]>::try_from(fds));
                match (domain, fds) {
                    (None, Ok([memfd])) => Segment::new(broker, name, place, rights, memfd),
                    (Some(domain), Err(fds)) => {
                        let [memory, locks] = fds.try_into().map_err(|_| too_few())?;
                        let guests = (domain, locks);
                        Ok(Segment::among_guests(broker, name, place, rights, memory, guests))
                    }
                    _ => Err(too_few()),
                }
            }
            reply => Err(off_topic(&reply)),
        }
    }

    /// What is known of a member in another guest, by its slot. It answers soon, or `Unknown`.
    #[cfg(not(loom))]
    pub(crate) fn life_of(&self, name: &Name, slot: u64) -> Life {
        let request = Request::Probe { version: CONTROL_VERSION, name: *name, slot };
        match self.ask_within(request, name.as_str(), TimeVal::milliseconds(PROBE_MS)) {
            Ok(Reply { answer: Answer::Life(life), .. }) => life,
            _ => Life::Unknown,
        }
    }

    /// Has a bell of a segment rung in these guests, a bit for each. Nothing says whether it was, or
    /// will be: a sleeper looks all the same.
    #[cfg(not(loom))]
    pub(crate) fn ring(&self, name: &Name, guests: u64, bell: usize) {
        let (domains, bell) = (guests as u8, bell as u8);
        let request = Request::Ring { version: CONTROL_VERSION, name: *name, bell, domains };
        let _ = self.tell_within(request, TimeVal::milliseconds(RING_MS));
    }

    /// Its name is free at once; its memory goes when nobody has it any more.
    ///
    /// # Errors
    /// `Refused` with `NoSegment` or `NotOwner`.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let name = checked(name)?;
        self.done(Request::Remove { version: CONTROL_VERSION, name }, &name)
    }

    /// Gives rights, in place of those that `whom` had. Who has the segment keeps what he has.
    ///
    /// # Errors
    /// `Refused` with `NoSegment`, `NotOwner` or `TooManyUsers`.
    pub fn allow(&self, name: &str, whom: Whom, rights: Rights) -> Result<(), Error> {
        let name = checked(name)?;
        self.done(Request::Allow { version: CONTROL_VERSION, name, whom, rights }, &name)
    }

    /// What there is to know of a segment, with who has it.
    ///
    /// # Errors
    /// `Refused` with `NoSegment` or `Rights`.
    pub fn about(&self, name: &str) -> Result<status::Segment, Error> {
        let name = checked(name)?;
        let reply = self.ask(Request::About { version: CONTROL_VERSION, name }, name.as_str())?;
        parsed(&reply)
    }

    /// All that this user may read, by name.
    ///
    /// # Errors
    /// The broker's silence.
    pub fn list(&self) -> Result<Vec<status::Segment>, Error> {
        let mut all: Vec<status::Segment> = Vec::new();
        loop {
            let after = all.last().and_then(|last| Name::new(&last.name));
            let reply = self.ask(Request::List { version: CONTROL_VERSION, after }, "")?;
            let mut part: Vec<status::Segment> = parsed(&reply)?;
            // What does not go on would never end.
            let goes_on = part.first().is_some_and(|first| Name::new(&first.name) > after);
            if !goes_on {
                return Ok(all);
            }
            all.append(&mut part);
        }
    }

    fn done(&self, request: Request, name: &Name) -> Result<(), Error> {
        match self.ask(request, name.as_str())? {
            Reply { answer: Answer::Done, .. } => Ok(()),
            reply => Err(off_topic(&reply)),
        }
    }

    fn ask(&self, request: Request, name: &str) -> Result<Reply, Error> {
        self.ask_within(request, name, TimeVal::seconds(PATIENCE_S))
    }

    fn ask_within(&self, request: Request, name: &str, limit: TimeVal) -> Result<Reply, Error> {
        let socket = self.tell_within(request, limit)?;
        let reply = self.receive(&socket)?;
        match reply.answer {
            Answer::Refused(why) => Err(Error::Refused { name: name.to_owned(), why }),
            _ => Ok(reply),
        }
    }

    /// Sends it, on a connection of its own.
    fn tell_within(&self, request: Request, limit: TimeVal) -> Result<OwnedFd, Error> {
        let socket = self.connect(limit)?;
        let raw = request.encode();
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent =
            retry(|| sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&raw)], &[], flags, None));
        match sent {
            Ok(_) => Ok(socket),
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(Error::HungUp(self.path.clone())),
            Err(Errno::EAGAIN) => Err(Error::Silent(self.path.clone())),
            Err(errno) => Err(Error::System { doing: "cannot ask the broker", errno }),
        }
    }

    fn connect(&self, timeout: TimeVal) -> Result<OwnedFd, Error> {
        let failed = |doing| move |errno| Error::System { doing, errno };
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
            .map_err(failed("cannot make a socket"))?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &timeout)
            .and_then(|()| setsockopt(&socket, sockopt::SendTimeout, &timeout))
            .map_err(failed("cannot set a socket's timeout"))?;
        let address = UnixAddr::new(&self.path)
            .map_err(failed("the path of the broker's socket is too long"))?;
        match retry(|| connect(socket.as_raw_fd(), &address)) {
            Ok(()) => {}
            Err(Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR) => {
                return Err(Error::NoBroker(self.path.clone()));
            }
            Err(Errno::EAGAIN) => return Err(Error::Silent(self.path.clone())),
            Err(errno) => {
                return Err(Error::System { doing: "cannot connect to the broker", errno });
            }
        }
        // Whoever called listen.
        let uid = getsockopt(&socket, sockopt::PeerCredentials)
            .map_err(failed("cannot tell whose the broker is"))?
            .uid();
        let is_believed =
            uid == 0 || uid == nix::unistd::geteuid().as_raw() || self.is_named && is_unmapped(uid);
        if !is_believed {
            return Err(Error::ForeignBroker { path: self.path.clone(), uid });
        }
        Ok(socket)
    }

    fn receive(&self, socket: &OwnedFd) -> Result<Reply, Error> {
        let mut raw = vec![0; MESSAGE_BYTES + TEXT_BYTES];
        let mut space = nix::cmsg_space!([i32; 2]);
        let mut fds: Vec<OwnedFd> = Vec::new();
        let received = retry(|| {
            let mut parts = [IoSliceMut::new(&mut raw)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
            for control in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(numbers) = control {
                    // SAFETY: the kernel has just made them for this process, and nobody else
                    // owns them.
                    fds.extend(numbers.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                }
            }
            Ok(message.bytes)
        });
        let len_bytes = match received {
            Ok(0) | Err(Errno::ECONNRESET) => return Err(Error::HungUp(self.path.clone())),
            Err(Errno::EAGAIN) => return Err(Error::Silent(self.path.clone())),
            Err(errno) => return Err(Error::System { doing: "cannot hear the broker", errno }),
            Ok(len_bytes) => len_bytes,
        };
        raw.truncate(len_bytes);
        let text = raw.split_off(len_bytes.min(MESSAGE_BYTES));
        if let Ok(FromBroker::Refused { version }) = FromBroker::decode(&raw) {
            return Err(Error::Version { path: self.path.clone(), theirs: version });
        }
        let answer = Answer::decode(&raw)
            .map_err(|error: BadSegment| Error::Nonsense(format!("{error:?}")))?;
        Ok(Reply { answer, fds, text })
    }
}

struct Reply {
    answer: Answer,
    fds: Vec<OwnedFd>,
    text: Vec<u8>,
}

/// Whether this user namespace has no number for that user: he may be root outside. Who is in one
/// and names a broker has been told by whoever made it.
fn is_unmapped(uid: u32) -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let is_everybody = read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    !is_everybody && read("/proc/sys/kernel/overflowuid").trim().parse() == Ok(uid)
}

fn checked(name: &str) -> Result<Name, Error> {
    Name::new(name).ok_or_else(|| Error::Name(name.to_owned()))
}

fn too_few() -> Error {
    Error::Nonsense("another number of descriptors than there should be".to_owned())
}

fn off_topic(reply: &Reply) -> Error {
    Error::Nonsense(format!("{:?}", reply.answer))
}

fn parsed<T: serde::de::DeserializeOwned>(reply: &Reply) -> Result<T, Error> {
    match reply.answer {
        Answer::Text { len_bytes } if len_bytes == reply.text.len() as u64 => {
            serde_json::from_slice(&reply.text).map_err(|error| Error::Nonsense(error.to_string()))
        }
        _ => Err(off_topic(reply)),
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}
