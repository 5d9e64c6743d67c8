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

use super::registration::{
    self, ARMED, DIRTY, IN_KERNEL, LISTED, PRESENT, Registration, SPENT, WAKES,
};
use super::{EDGE, ERR, FOR_GOOD, HUP, INHERITED, ONESHOT, Set, UNUSED};
use crate::conn::{self, Conn};
use crate::sys::{self, EpollEvent, call};
use crate::table;

/// A registration as the kernel has it.
struct Listed {
    number: c_int,
    event: EpollEvent,
    inode: u64,
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
        Some(Self { number, event: EpollEvent { events, data }, inode })
    }
}

/// The kernel's list of the set at `fd`, one by one. False: it cannot be read, or not all of it
/// (Linux before 4.13 names no inodes).
fn for_each(fd: c_int, mut each: impl FnMut(&Listed)) -> bool {
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
                Some(listed) => each(&listed),
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

fn open(fd: c_int) -> Option<c_int> {
    let mut path = *b"/proc/self/fdinfo/0000000000\0";
    let mut left = fd;
    // Without leading zeros, which name nothing: slashes, which the kernel skips.
    for at in (18..28).rev() {
        path[at] = if left > 0 || at == 27 { b'0' + (left % 10) as u8 } else { b'/' };
        left /= 10;
    }
    // SAFETY: a C string.
    let file = unsafe { call!(openat, sys::AT_FDCWD, path.as_ptr(), sys::O_CLOEXEC, 0) } as c_int;
    (file >= 0).then_some(file)
}

/// The inode of the file at `fd`, by which the kernel lists it.
pub fn inode_at(fd: c_int) -> Option<u64> {
    // struct stat: st_ino at 8.
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes 144 bytes.
    (unsafe { call!(fstat, fd, stat.as_mut_ptr()) } == 0).then_some(stat[1])
}

impl Registration {
    fn is(&self, listed: &Listed) -> bool {
        self.number() == listed.number
            && (self.has(IN_KERNEL) && !self.has(DIRTY | WAKES))
            && self.inode() == Some(listed.inode)
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
            && registration::find(self, fd).is_none()
    }

    /// Another process has put it there.
    fn takes_over(&'static self, listed: &Listed) {
        let fd = listed.number;
        let Some(conn) = conn::at(fd).filter(|conn| self.lacks(fd, conn)) else { return };
        if inode_at(fd) != Some(listed.inode) {
            return;
        }
        let Some(one) = registration::make(self, fd) else { return };
        one.note(listed.event);
        one.add(PRESENT | IN_KERNEL | ARMED | LISTED);
        one.kernel_events.store(0, Ordering::Relaxed);
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
                let events = listed.event.events & !(ERR | HUP);
                let data = listed.event.data;
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
