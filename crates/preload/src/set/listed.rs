//! What the kernel has in a set, as it lists it: /proc/self/fdinfo (proc(5)).
//!
//! What must stay true: a wait tells of ring bytes by what the kernel has, wherever that may differ
//! from what this process asked for. Another process may have changed the registrations of a set
//! that both use; and a number that was closed, while another process holds the socket, goes on
//! telling until that one closes it, of which nothing is heard here.
//!
//! Storey 3: connection.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use super::kernel::UNTOLD;
use super::registration::{
    self, ARMED, DIRTY, IN_KERNEL, LISTED, PRESENT, REGISTRY, Registration, SPENT, WAKES,
};
use super::{EDGE, ERR, FOR_GOOD, HUP, INHERITED, ONESHOT, Set, UNUSED};
use crate::conn::{self, Conn};
use crate::sys::{self, EpollEvent, call};
use crate::table;

/// What tells a file from all others.
#[derive(Clone, Copy, PartialEq)]
pub struct File {
    /// As the kernel has it: the major number from bit 20 on.
    device: u64,
    pub inode: u64,
}

/// A registration as the kernel has it.
pub struct Listed {
    pub number: c_int,
    event: EpollEvent,
    file: File,
}

impl Listed {
    /// From `tfd: 5 events: 19 data: 5  pos:0 ino:1e sdev:8`; all but the first are hexadecimal.
    fn parse(line: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(line).ok()?;
        let mut words = text.split([' ', ':']).filter(|word| !word.is_empty());
        let mut after = |name| {
            words.find(|word| *word == name)?;
            words.next()
        };
        let number = after("tfd")?.parse().ok()?;
        let events = u32::from_str_radix(after("events")?, 16).ok()?;
        let data = u64::from_str_radix(after("data")?, 16).ok()?;
        let inode = u64::from_str_radix(after("ino")?, 16).ok()?;
        let device = u64::from_str_radix(after("sdev")?, 16).ok()?;
        Some(Self { number, event: EpollEvent { events, data }, file: File { device, inode } })
    }

    /// What the program asked for.
    pub fn asked(&self) -> EpollEvent {
        let EpollEvent { events, data } = self.event;
        EpollEvent { events: events & !(ERR | HUP | UNTOLD), data }
    }

    /// Whether the program before left ring bytes that an edge is to tell of.
    pub fn is_untold(&self) -> bool {
        self.event.events & UNTOLD != 0
    }

    /// `None`: the file at `fd` is another one. Else whether it is a socket: all of some other kinds of files have
    /// one inode.
    pub fn is_of(&self, fd: c_int) -> Option<bool> {
        let stat = stat(fd).filter(|stat| stat.file == self.file)?;
        Some(stat.is_a(S_IFSOCK))
    }
}

/// Below this the sockets lie that a program may begin with and use by ring.
pub const INHERITED_BELOW: c_int = 64;

/// The kernel's list of the set at `fd`, one by one, as long as `each` is true. False: it was not once, or the list
/// cannot be read, or not all of it (Linux before 4.13 names no inodes).
pub fn for_each(fd: c_int, mut each: impl FnMut(&Listed) -> bool) -> bool {
    let Some(file) = open(fd) else { return false };
    let mut text = [0u8; 1024];
    let mut held = 0;
    loop {
        let (at, room) = (text[held..].as_mut_ptr(), text.len() - held);
        // SAFETY: a buffer of ours.
        let len = unsafe { call!(read, file, at, room) };
        if len <= 0 {
            sys::close(file);
            return len == 0;
        }
        held += len as usize;
        let mut done = 0;
        while let Some(len) = text[done..held].iter().position(|byte| *byte == b'\n') {
            let line = &text[done..done + len];
            match Listed::parse(line) {
                Some(listed) if !each(&listed) => {
                    sys::close(file);
                    return false;
                }
                Some(_) => {}
                None if line.starts_with(b"tfd") => {
                    sys::close(file);
                    return false;
                }
                // The file's own position, flags and the like.
                None => {}
            }
            done += len + 1;
        }
        if done == 0 && held == text.len() {
            // No line is as long as that.
            held = 0;
        }
        text.copy_within(done..held, 0);
        held -= done;
    }
}

/// `path` ends in ten zeros and a NUL, in place of which `fd` stands then.
fn with_number<const N: usize>(mut path: [u8; N], fd: c_int) -> [u8; N] {
    let (last, mut left) = (N - 2, fd);
    // Without leading zeros, which name nothing: slashes, which the kernel skips.
    for at in (last - 9..=last).rev() {
        path[at] = if left > 0 || at == last { b'0' + (left % 10) as u8 } else { b'/' };
        left /= 10;
    }
    path
}

fn open(fd: c_int) -> Option<c_int> {
    let path = with_number(*b"/proc/self/fdinfo/0000000000\0", fd);
    // SAFETY: a C string.
    let file = unsafe { call!(openat, sys::AT_FDCWD, path.as_ptr(), sys::O_CLOEXEC, 0) } as c_int;
    (file >= 0).then_some(file)
}

/// Whether `fd` is a set. `None`: nobody says (no /proc).
pub fn is_set(fd: c_int) -> Option<bool> {
    let path = with_number(*b"/proc/self/fd/0000000000\0", fd);
    let mut name = [0u8; 32];
    // SAFETY: a C string, and the kernel writes into the array only.
    let ret =
        unsafe { call!(readlinkat, sys::AT_FDCWD, path.as_ptr(), name.as_mut_ptr(), name.len()) };
    (ret > 0).then(|| name.starts_with(b"anon_inode:[eventpoll]"))
}

/// What fstat(2) says of a file.
pub struct Stat {
    pub file: File,
    mode: u32,
}

impl Stat {
    /// `kind`: S_IFSOCK and the like; 0: neither of them.
    pub fn is_a(&self, kind: u32) -> bool {
        const S_IFMT: u32 = 0o170000;
        self.mode & S_IFMT == kind
    }
}

pub const S_IFSOCK: u32 = 0o140000;

pub fn stat(fd: c_int) -> Option<Stat> {
    // struct stat: st_dev at 0, st_ino at 8, st_mode at 24.
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes 144 bytes.
    let ret = unsafe { call!(fstat, fd, stat.as_mut_ptr()) };
    // The minor number in bits 0-7 and 20-31, the major one between them (`new_encode_dev`).
    let minor = stat[0] & 0xff | stat[0] >> 12 & 0xfff00;
    let device = (stat[0] >> 8 & 0xfff) << 20 | minor;
    (ret == 0).then_some(Stat { file: File { device, inode: stat[1] }, mode: stat[3] as u32 })
}

/// The inode of the file at `fd`, by which the kernel lists it.
pub fn inode_at(fd: c_int) -> Option<u64> {
    stat(fd).map(|stat| stat.file.inode)
}

impl Registration {
    fn is(&self, listed: &Listed) -> bool {
        self.number() == listed.number
            && (self.has(IN_KERNEL) && !self.has(DIRTY | WAKES))
            && self.inode() == Some(listed.file.inode)
    }

    fn inode(&self) -> Option<u64> {
        if table::is_ghost(self.at()) {
            Some(self.inode.load(Ordering::Relaxed))
        } else {
            inode_at(self.at())
        }
    }
}

impl Set {
    /// Whether the kernel may have other registrations than this process asked for.
    fn may_differ(&self) -> bool {
        let why = self.foreign.load(Ordering::Relaxed);
        why & UNUSED == 0 && why & (FOR_GOOD | INHERITED) != 0
            || table::has_ghosts() && self.each_hot().any(|one| table::is_ghost(one.at()))
    }

    /// Whether a ring that other processes share has bytes, and nothing here says that it is in the set.
    pub fn may_lack(&self) -> bool {
        let is_lacking = |fd| conn::at(fd).is_some_and(|conn| self.lacks(fd, conn));
        self.may_differ() && conn::any_is_shared() && (0..table::end()).any(is_lacking)
    }

    fn lacks(&self, fd: c_int, conn: &Conn) -> bool {
        // Another thread may close it.
        conn.is_shared()
            && conn.pin(fd).is_some_and(|_pin| conn.receiver().unread_bytes() != 0)
            && !self.has_at(fd)
    }

    fn has_at(&self, fd: c_int) -> bool {
        let _registry = REGISTRY.acquire();
        registration::at(fd).any(|one| one.is_of(self))
    }

    /// The program has it here, with its socket at `at`: a number of its own, or another one where that was closed.
    /// `None` without memory. Under the lock.
    pub fn knows(&'static self, listed: &Listed, at: c_int) -> Option<&'static Registration> {
        let one = registration::make(self, listed.number)?;
        if at != listed.number {
            one.inode.store(listed.file.inode, Ordering::Relaxed);
            one.moves(at, true);
        }
        one.note(listed.asked());
        one.add(PRESENT | IN_KERNEL | ARMED);
        one.kernel_events.store(0, Ordering::Relaxed);
        Some(one)
    }

    /// Another process has put it there.
    fn takes_over(&'static self, listed: &Listed) {
        let lacks = |&fd: &c_int| conn::at(fd).is_some_and(|conn| self.lacks(fd, conn));
        let mut lacking = (0..table::end()).filter(lacks);
        let Some(fd) = lacking.find(|&fd| listed.is_of(fd) == Some(true)) else { return };
        let Some(conn) = conn::at(fd) else { return };
        let Some(one) = self.knows(listed, fd) else { return };
        one.add(LISTED);
        if let Ok(_rx) = conn.lock_rx(fd) {
            self.push_hot(one);
        }
    }

    /// Takes over what the kernel has, of those registrations whose rings are looked at. Under the
    /// lock.
    pub fn reread(&'static self) {
        if !self.may_differ() || self.hot.is_empty() && !self.may_lack() {
            return;
        }
        self.each_hot().for_each(|one| one.remove(LISTED));
        let is_read = for_each(self.fd.load(Ordering::Relaxed), |listed| {
            if self.each_hot().all(|one| one.number() != listed.number) {
                self.takes_over(listed);
            }
            if let Some(one) = self.each_hot().find(|one| one.is(listed)) {
                one.add(LISTED);
                let EpollEvent { events, data } = listed.asked();
                if one.asked() & !(ERR | HUP) != events || one.data.load(Ordering::Relaxed) != data
                {
                    one.note(EpollEvent { events, data });
                    one.edge_told.store(u64::MAX, Ordering::Relaxed);
                }
                // Told of, it has nothing left but how it is told.
                if events & !(ONESHOT | EDGE) != 0 {
                    one.remove(SPENT);
                } else if events & ONESHOT != 0 {
                    one.add(SPENT);
                }
            }
            true
        });
        if !is_read {
            return;
        }
        let mut index = 0;
        while let Some(one) = self.hot.get(index) {
            if one.has(LISTED) || !one.has(IN_KERNEL) || one.has(DIRTY | WAKES) {
                index += 1;
                continue;
            }
            // Another process took it out, or closed the socket.
            self.drop_hot(one);
            one.free();
        }
    }
}
