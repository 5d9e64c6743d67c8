//! Whose a socket is, and how two ends are proven to be the ends of one connection.
//!
//! A process names a socket by its number and cookie, and the broker looks whether it has it.
//! The broker never has a program's socket itself, not for a moment: whoever has a duplicate, and
//! is stopped, starved or held up, holds back the connection's end.

use crate::diag::Diag;
use crate::facts::{Facts, plain_end};
use crate::pairing::Key;
use crate::sight::Sight;
use crate::sys::sockopt::{self, Credentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, open, readlinkat, statat};
use yasmin_control::{Decline, Role, Socket};

/// Either both initial sequence numbers, or the addresses inside one namespace.
pub enum Proof {
    /// Read by BPF: 64 bits that both ends share, in whatever namespaces, through whatever
    /// address translation. Whoever forges them (TCP_REPAIR) has to know them: SECURITY.md says
    /// who may.
    Numbers(Box<Sight>),
    /// Without BPF: mirrored addresses of sockets in the broker's own namespace, between which
    /// packets stay there.
    Addresses(Diag),
}

impl Proof {
    /// As `status` names it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Numbers(_) => "bpf",
            Self::Addresses(_) => "addresses",
        }
    }

    /// The socket that the process at the other end of `connection` names.
    ///
    /// # Errors
    /// Why it is not believed, or gets no channel. It may be of a connection that ends.
    pub fn look(
        &mut self,
        connection: impl AsFd,
        namer: Credentials,
        socket: &Socket,
    ) -> Result<Facts, Decline> {
        let facts = match self {
            Self::Numbers(sight) => sight.look(namer, socket),
            Self::Addresses(diag) => look_without_bpf(diag, namer, socket),
        }?;
        // Afterwards: then the process was there all along, and its number no other's.
        if !is_alive(connection) {
            return Err(Decline::NoProof);
        }
        Ok(facts)
    }

    /// How many references there are to the epoll set that the process at the other end of a
    /// connection names. Only BPF sees them.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn count(
        &mut self,
        connection: impl AsFd,
        namer: Credentials,
        number: u32,
    ) -> Result<u64, Decline> {
        let Self::Numbers(sight) = self else { return Err(Decline::NoProof) };
        let references = sight.count(namer, number)?;
        if !is_alive(connection) {
            return Err(Decline::NoProof);
        }
        Ok(references)
    }

    /// Whether somebody beside the broker has this socket of its own, be it in a message on its way.
    /// Only BPF sees it: without, no.
    pub fn is_held_elsewhere(&mut self, socket: &OwnedFd) -> bool {
        let Self::Numbers(sight) = self else { return false };
        sight.references(socket).is_some_and(|references| references > 1)
    }

    /// What the end shares with its peer; `None` when nothing can prove it.
    pub fn key(&self, facts: &Facts, role: Role) -> Option<Key> {
        match self {
            Self::Numbers(_) => Some(Key::from_numbers(facts.numbers?, role)),
            Self::Addresses(diag) => {
                if facts.bound || !diag.stays_here(facts.local, facts.peer) {
                    return None;
                }
                Some(Key::from_addresses(facts.local, facts.peer, role))
            }
        }
    }

    /// Whether two ends of one key are the ends of one connection, and still are. The numbers are a
    /// connection's for ever, and another one's only where addresses are equal; addresses may
    /// have changed hands since they were offered.
    pub fn holds(&self, ends: [&Facts; 2]) -> bool {
        ends[0].cookie != ends[1].cookie
            && match self {
                Self::Numbers(_) => !ends[0].contradicts(ends[1]),
                Self::Addresses(diag) => ends.into_iter().all(|facts| diag.holds(facts)),
            }
    }
}

/// Whether the process that connected is still there. Before Linux 6.5 nobody can say; there
/// another process can have its number only if it is the same user's, which the callers check.
fn is_alive(connection: impl AsFd) -> bool {
    match sockopt::peer_pidfd(connection) {
        Ok(pidfd) => {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&now)) == Ok(0)
        }
        Err(error) => error.raw_os_error() == Some(libc::ENOPROTOOPT),
    }
}

/// By /proc, which shows the process's table to root and to its own user, and by the kernel's
/// list of sockets. What /proc shows as root's though the process is not runs with more rights
/// than whoever started it.
fn look_without_bpf(diag: &Diag, namer: Credentials, socket: &Socket) -> Result<Facts, Decline> {
    let not_shown = |_| Decline::NoProof;
    let uid = namer.uid;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = format!("/proc/{}", namer.pid);
    let process = open(path, flags, Mode::empty()).map_err(not_shown)?;
    let shown = statat(&process, "", AtFlags::EMPTY_PATH).map_err(not_shown)?;
    if shown.st_uid != uid {
        return Err(Decline::NoProof);
    }
    let inode = inode_of(&process, &format!("fd/{}", socket.number), "socket")?;
    let pid_namespace = inode_of(&process, "ns/pid", "pid").unwrap_or(0);
    let (local, peer) = (plain_end(socket.local), plain_end(socket.peer));
    let found = diag.find(socket.cookie, local, peer).ok_or(Decline::NoProof)?;
    if found.inode != inode {
        return Err(Decline::NotTcp);
    }
    // Inodes come round again after 2^32 sockets: at least it is this user's.
    if found.uid != uid {
        return Err(Decline::NoProof);
    }
    Ok(Facts {
        cookie: socket.cookie,
        netns: diag.netns,
        local,
        peer,
        is_plain: found.is_established,
        bound: found.bound,
        pid_namespace,
        references: None,
        numbers: None,
        beyond: None,
    })
}

/// What a link of the form "kind:[inode]" says.
fn inode_of(process: &OwnedFd, link: &str, kind: &str) -> Result<u64, Decline> {
    let target = readlinkat(process, link, Vec::new()).map_err(|error| match error {
        rustix::io::Errno::NOENT => Decline::NotTcp,
        _ => Decline::NoProof,
    })?;
    let target = target.to_str().map_err(|_| Decline::NotTcp)?;
    let inode = target.strip_prefix(kind).and_then(|rest| rest.strip_prefix(":["));
    inode.and_then(|rest| rest.strip_suffix(']')?.parse().ok()).ok_or(Decline::NotTcp)
}
