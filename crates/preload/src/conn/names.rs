//! The descriptors that name a connection in this process, and how the program gives them up.
//!
//! Storey 3: connection.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::Conn;
use crate::{lock, sys, table, tcp, twins};

/// How the program gives up a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Goes {
    /// By a call that ends where this library does not see it.
    Unseen,
    /// Until `table::has_left`.
    Closed,
    /// The same, and the number names another socket then.
    Replaced,
}

impl Goes {
    /// Nobody finds it by its number any more.
    pub fn clear(self, fd: c_int) {
        match self {
            Self::Unseen => table::clear(fd),
            Self::Closed | Self::Replaced => table::set_leaving(fd),
        }
    }

    /// With the entry cleared: a thread that was about to sleep in the kernel by this number gets there
    /// before the number names another connection, whose bytes it would take uncounted. If it
    /// has no CPU for so long, that one's counters find it.
    pub fn await_sleepers(self) {
        const ENTRY_NS: i64 = 100_000;
        if self != Self::Unseen {
            lock::nap(&AtomicU32::new(0), 0, ENTRY_NS);
        }
    }
}

impl Conn {
    /// Whether more than one descriptor of this process names it.
    pub fn has_many_names(&self) -> bool {
        self.fds.load(Ordering::Relaxed) > 1
    }

    /// Whether `fd` names it.
    #[inline]
    pub fn is_at(&self, fd: c_int) -> bool {
        table::is_of_conn(table::raw(fd), self.address())
    }

    /// Whether the kernel has its socket at `fd`, in this very process: a child that borrows the memory may
    /// have put another file there, which the table does not say.
    pub fn is_behind(&self, fd: c_int) -> bool {
        tcp::cookie(fd) == Some(self.cookie.load(Ordering::Relaxed))
    }

    /// The lower half of the connection's `id`, the number, and 1 bit: another socket takes the number.
    fn left_word(fd: c_int, is_replaced: bool, id: u64) -> u64 {
        id << 32 | u64::from(fd as u32) << 1 | u64::from(is_replaced)
    }

    /// The program closes `fd`, which still is in the table.
    pub fn number_goes(&self, fd: c_int, goes: Goes) {
        let id = self.id.load(Ordering::Relaxed);
        let left = Self::left_word(fd, goes == Goes::Replaced, id);
        self.left.store(left, Ordering::Release);
    }

    /// Whether a thread of this process is in the kernel on it, or about to be.
    pub fn is_slept_on(&self) -> bool {
        let side = self.side();
        let sleepers = side.rx.sleepers.load(Ordering::SeqCst);
        let senders = side.tx.kernel_senders.load(Ordering::SeqCst);
        (sleepers != 0 || senders != 0) && !self.is_shared()
    }

    /// Minus errno for a call by `fd` that began on the connection `id` and finds it gone, if the program
    /// closed the number meanwhile. It must not go on in the kernel: the number may name the socket
    /// still, but its ring is gone, or another socket by now.
    pub fn number_went(&self, fd: c_int, id: u64) -> Option<isize> {
        let left = self.left.load(Ordering::Acquire);
        if left == Self::left_word(fd, false, id) {
            Some(-(sys::EBADF as isize))
        } else if left == Self::left_word(fd, true, id) {
            // The next call is on the other socket.
            Some(-(sys::EINTR as isize))
        } else {
            None
        }
    }

    /// `fd` is about to name it, too.
    pub fn one_more_name(&self, fd: c_int) {
        self.left.store(0, Ordering::Release);
        self.fds.fetch_add(1, Ordering::Relaxed);
        // Of several that begin to name it at once none is in the table yet.
        let is_new = |at: &&AtomicI32| at.load(Ordering::Relaxed) < 0;
        let is_left = |at: &&AtomicI32| !self.is_at(at.load(Ordering::Relaxed));
        let place = self.others.iter().find(is_new).or_else(|| self.others.iter().find(is_left));
        if let Some(place) = place {
            place.store(fd, Ordering::Relaxed);
        }
    }

    /// The numbers that name it in this process, `fd` first. `None`: they are too many, or change just now.
    pub fn names(&self, fd: c_int) -> Option<impl Iterator<Item = c_int> + Clone + use<>> {
        let mut names = [fd; twins::MOST];
        let mut count = 1;
        let known = [&self.fd].into_iter().chain(&self.others);
        for at in known.map(|at| at.load(Ordering::Relaxed)) {
            if !names[..count].contains(&at) && self.is_at(at) {
                *names.get_mut(count)? = at;
                count += 1;
            }
        }
        let are_all = self.fds.load(Ordering::Acquire) as usize == count;
        are_all.then_some(names.into_iter().take(count))
    }

    /// One descriptor less names it. False: it is the last one, and remains.
    pub fn gives_up_name(&self) -> bool {
        let less = |count: u32| (count > 1).then_some(count.wrapping_sub(1));
        self.fds.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok()
    }

    /// The descriptor for asking the kernel is another one from now on; -1: none.
    pub fn set_fd(&self, fd: c_int) {
        self.fd.store(fd, Ordering::Relaxed);
    }
}
