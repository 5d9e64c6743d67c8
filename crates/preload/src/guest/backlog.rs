//! Connections that wait to be accepted here while this process waits in a connect of its own.
//!
//! Programs of one thread that connect to each other at once, as MPI's ranks do, would each wait
//! for an accept that comes only when the other's connect has returned. So one of the two gives
//! way, the one with the higher address: its connection stays TCP, and its program goes on to accept.
//!
//! Storey 4: life.

use core::ffi::c_int;

use super::directory;
use crate::request;
use crate::sys::{self, POLLIN, PollFd, SOL_SOCKET, call};
use crate::{clock, table};

/// Listening sockets that are looked at.
const MOST: usize = 16;
/// So long another thread may take to accept.
const GRACE_NS: u64 = 2_000_000;

pub struct Backlog {
    /// First the descriptor that is waited for.
    fds: [PollFd; MOST + 1],
    count: usize,
}

impl Backlog {
    /// Of the process that connects `fd`.
    pub fn of(fd: c_int) -> Self {
        const SO_ACCEPTCONN: c_int = 30;
        let none = PollFd { fd: -1, events: POLLIN, revents: 0 };
        let mut backlog = Self { fds: [none; MOST + 1], count: 1 };
        if !gives_way(fd) {
            return backlog;
        }
        let listens =
            |fd: &c_int| sys::getsockopt_u64(*fd, SOL_SOCKET, SO_ACCEPTCONN, 4) == Some(1);
        for listener in (0..table::end()).filter(listens).take(MOST) {
            backlog.fds[backlog.count].fd = listener;
            backlog.count += 1;
        }
        backlog
    }

    /// Until `fd` can be read; false: the time is up, or this process is to give way.
    pub fn wait(&mut self, fd: c_int, until_ns: u64) -> bool {
        self.fds[0].fd = fd;
        while self.count > 1 && clock::now_ns() < until_ns {
            let left_ns = until_ns.saturating_sub(clock::now_ns());
            let left_ms = left_ns.div_ceil(1_000_000);
            // SAFETY: that many of ours.
            let ret = unsafe { call!(poll, self.fds.as_mut_ptr(), self.count, left_ms) };
            if ret <= 0 {
                continue;
            }
            let grace_ns = until_ns.min(clock::now_ns() + GRACE_NS);
            if self.fds[0].revents != 0 || request::wait(fd, POLLIN, grace_ns) {
                return true;
            }
            if self.fds[1..self.count].iter().any(|one| one.revents != 0 && is_called(one.fd)) {
                return false;
            }
        }
        request::wait(fd, POLLIN, until_ns)
    }
}

fn is_called(listener: c_int) -> bool {
    sys::poll_now(listener, POLLIN) & POLLIN != 0
}

/// Whether this end's address is the higher one.
fn gives_way(fd: c_int) -> bool {
    let ends = directory::own_end(fd).zip(directory::peer_end(fd));
    ends.is_some_and(|(own, peer)| own.address > peer.address)
}
