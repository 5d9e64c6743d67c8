//! What the broker is asked for one connection of the program, or one set.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_control::{CONTROL_VERSION, FromBroker, Role, ToBroker};

use crate::broker::{self, Passed};
use crate::sys::{self, EINTR, POLLIN, call};
use crate::{clock, config};

/// Beyond what the broker was given, for its answer to arrive.
const ANSWER_MORE_MS: u64 = 50;

/// What the broker says to a question.
pub enum Answer {
    Message(FromBroker, Passed),
    /// It is not there, or gone: nothing that was asked holds.
    None,
    /// It may still come to do what it was asked.
    Late,
}

/// A connection to the broker for one question; closed at the end.
pub struct Request {
    fd: c_int,
}

impl Drop for Request {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

impl Request {
    pub fn open() -> Option<Self> {
        broker::open().map(|fd| Self { fd })
    }

    pub fn ask(
        &self,
        message: ToBroker,
        passed: &[c_int],
        until_ns: u64,
    ) -> Option<(FromBroker, Passed)> {
        match self.hear(message, passed, until_ns) {
            Answer::Message(message, passed) => Some((message, passed)),
            Answer::None | Answer::Late => None,
        }
    }

    /// As `ask`, where it matters why there is no answer.
    pub fn hear(&self, message: ToBroker, passed: &[c_int], until_ns: u64) -> Answer {
        self.hear_by(message, passed, |fd| wait_readable(fd, until_ns))
    }

    fn hear_by(
        &self,
        message: ToBroker,
        passed: &[c_int],
        wait: impl FnOnce(c_int) -> bool,
    ) -> Answer {
        if !broker::send_once(self.fd, message, passed) {
            return Answer::None;
        }
        if !wait(self.fd) {
            return Answer::Late;
        }
        match broker::receive_once(self.fd) {
            Some((message, passed)) => Answer::Message(message, passed),
            None => Answer::None,
        }
    }

    /// The vsock connection that the broker has for `fd`, and the proof to send on it. `wait`: until
    /// a descriptor can be read; false: no longer.
    pub fn join(
        &self,
        fd: c_int,
        role: Role,
        until_ns: u64,
        wait: impl FnOnce(c_int, u64) -> bool,
    ) -> Option<(c_int, u64)> {
        let left_ns = until_ns.saturating_sub(clock::now_ns());
        let wait_ms = u32::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        let socket = broker::named(fd)?;
        let message = ToBroker::Join { version: CONTROL_VERSION, role, wait_ms, socket };
        let until_ns = until_ns + ANSWER_MORE_MS * 1_000_000;
        match self.hear_by(message, &[], |fd| wait(fd, until_ns)) {
            Answer::Message(FromBroker::Joined { proof }, mut passed) => {
                passed.take(0).map(|vsock| (vsock, proof))
            }
            _ => None,
        }
    }
}

/// How many references there are to the epoll set at `fd`. `None`: nobody says.
pub fn references(fd: c_int, until_ns: u64) -> Option<u64> {
    if !broker::is_there() {
        return None;
    }
    let message = ToBroker::Count { version: CONTROL_VERSION, number: fd as u32 };
    match Request::open()?.ask(message, &[], until_ns)? {
        (FromBroker::Counted { references }, _) => Some(references),
        _ => None,
    }
}

/// Waits until `fd` can be read, as `wait`.
pub fn wait_readable(fd: c_int, until_ns: u64) -> bool {
    wait(fd, POLLIN, until_ns)
}

/// Waits for `fd`, through signals; false: the time is up.
pub fn wait(fd: c_int, events: i16, until_ns: u64) -> bool {
    loop {
        let left_ns = until_ns.saturating_sub(clock::now_ns());
        let mut one = sys::PollFd { fd, events, revents: 0 };
        // SAFETY: one pollfd of ours.
        let ret = unsafe { call!(poll, &raw mut one, 1, left_ns.div_ceil(1_000_000)) };
        if ret != -(EINTR as isize) {
            return ret > 0;
        }
        if left_ns == 0 {
            return false;
        }
    }
}

/// How long connect and accept may wait for another guest.
pub fn wait_ns() -> u64 {
    u64::from(config::GUEST_WAIT_MS.load(Ordering::Relaxed)) * 1_000_000
}
