//! select and pselect, by way of poll.
//!
//! Storey 6: waits.

use core::ffi::{c_int, c_void};

use crate::entry::{self, Entry};
use crate::poll::{Poll, is_readable};
use crate::sys::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, PollFd};
use crate::timeout::Timeout;
use crate::{memory, table};

/// The kernel's own groups of events behind the three sets (fs/select.c).
const READ_EVENTS: i16 = POLLIN | POLLHUP | POLLERR;
const WRITE_EVENTS: i16 = POLLOUT | POLLERR;
const EXCEPT_EVENTS: i16 = POLLPRI;

/// Descriptors that one select may name here; a larger one is libc's (and what is accelerated
/// in it is parked first).
const NAMED_MAX: usize = 1024;
/// The most whose list takes less of the stack: threads may have little of it.
const NAMED_FEW: usize = 64;

/// The three bit sets of a select, any of them null.
pub struct Sets {
    pub count: c_int,
    pub read: *mut u64,
    pub write: *mut u64,
    pub except: *mut u64,
}

impl Sets {
    fn has(set: *const u64, fd: usize) -> bool {
        // SAFETY: the program's own set, at least `count` bits.
        !set.is_null() && unsafe { *set.add(fd / 64) } >> (fd % 64) & 1 != 0
    }

    fn put(set: *mut u64, fd: usize, on: bool) {
        if set.is_null() {
            return;
        }
        // SAFETY: as above.
        unsafe {
            let word = set.add(fd / 64);
            *word = *word & !(1 << (fd % 64)) | u64::from(on) << (fd % 64);
        }
    }

    /// Itself, if it can be used and any descriptor in it needs more than libc's select.
    pub fn concerning(mut self) -> Option<Self> {
        if !self.are_there() {
            // The kernel looks no further than descriptors go, whatever the count.
            self.count = self.count.min(table::end());
        }
        let concerns = self.count > 0
            && self.are_there()
            && self.named().any(|fd| !matches!(entry::get(fd as c_int), Entry::Nothing));
        concerns.then_some(self)
    }

    fn are_there(&self) -> bool {
        let words = (self.count.max(0) as usize).div_ceil(64);
        let sets = [self.read, self.write, self.except];
        sets.iter().all(|set| set.is_null() || memory::is_writable(*set, words))
    }

    fn named(&self) -> impl Iterator<Item = usize> {
        let sets = [self.read.cast_const(), self.write.cast_const(), self.except.cast_const()];
        (0..self.count.max(0) as usize)
            .filter(move |&fd| sets.iter().any(|set| Self::has(*set, fd)))
    }

    /// The whole call; `None`: too many descriptors, after what is open was parked.
    pub fn wait(&self, timeout: Timeout, mask: *const c_void) -> Option<c_int> {
        match self.named().take(NAMED_MAX + 1).count() {
            0..=NAMED_FEW => Some(self.poll::<NAMED_FEW>(timeout, mask)),
            count if count <= NAMED_MAX => Some(self.poll::<NAMED_MAX>(timeout, mask)),
            _ => {
                self.named().for_each(|fd| {
                    if let Some(conn) = entry::conn_of(fd as c_int) {
                        conn.park_rx_for_good(fd as c_int);
                    }
                });
                None
            }
        }
    }

    /// By the program's own system call alone, which is told whether it may wait. Nothing comes by ring any
    /// more but what is unread.
    pub fn wait_in_sandbox(&self, kernel: impl Fn(bool) -> c_int) -> c_int {
        let mut readable = [0u64; NAMED_MAX / 64];
        for fd in self.named().take_while(|&fd| fd < NAMED_MAX) {
            let has_ring = |conn| is_readable(conn, fd as c_int);
            let is_it =
                Self::has(self.read, fd) && entry::conn_of(fd as c_int).is_some_and(has_ring);
            Self::put(readable.as_mut_ptr(), fd, is_it);
        }
        let may_wait = readable.iter().all(|word| *word == 0);
        let ret = kernel(may_wait);
        if ret < 0 || may_wait {
            return ret;
        }
        let more = (0..NAMED_MAX).filter(|&fd| {
            let is_more = Self::has(readable.as_ptr(), fd) && !Self::has(self.read, fd);
            if is_more {
                Self::put(self.read, fd, true);
            }
            is_more
        });
        ret + more.count() as c_int
    }

    #[inline(never)]
    fn poll<const MOST: usize>(&self, timeout: Timeout, mask: *const c_void) -> c_int {
        let none = PollFd { fd: -1, events: 0, revents: 0 };
        let mut fds = [none; MOST];
        let mut count = 0;
        // Another thread may write to the sets.
        for fd in self.named().take(MOST) {
            let mut events = 0;
            for (set, bits) in [(self.read, POLLIN), (self.write, POLLOUT), (self.except, POLLPRI)]
            {
                if Self::has(set, fd) {
                    events |= bits;
                }
            }
            fds[count] = PollFd { fd: fd as c_int, events, revents: 0 };
            count += 1;
        }
        let fds = &mut fds[..count];
        let ret = Poll { fds: &mut *fds, timeout, mask, precise: true }.wait();
        if ret < 0 {
            return ret;
        }
        if fds.iter().any(|one| one.revents & 0x20 != 0) {
            // select's answer to a descriptor that is not open.
            crate::sys::set_errno(crate::sys::EBADF);
            return -1;
        }
        let mut bits = 0;
        for one in fds.iter() {
            for (set, events, kind) in [
                (self.read, POLLIN, READ_EVENTS),
                (self.write, POLLOUT, WRITE_EVENTS),
                (self.except, POLLPRI, EXCEPT_EVENTS),
            ] {
                let on = one.events & events != 0 && one.revents & kind != 0;
                Self::put(set, one.fd as usize, on);
                bits += c_int::from(on);
            }
        }
        bits
    }
}
