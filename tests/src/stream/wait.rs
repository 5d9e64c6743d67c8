//! Waiting until a socket can be read or written, in every form that programs use.

use crate::pattern::Rng;
use crate::sys::{self, Fd, Ready, libc};

use super::{Stop, WaitForm, failed};

/// One waiter on one socket. For the blocking forms it never waits: their calls do.
pub struct Waiter {
    form: WaitForm,
    fd: Fd,
    epoll: Option<Fd>,
    /// What the epoll set looks for now.
    armed: u32,
    /// Edge-triggered: what has been announced and has not given EAGAIN since.
    standing: Ready,
    rng: Rng,
}

const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const ENDED: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

impl Waiter {
    /// # Errors
    /// When a call fails.
    pub fn new(form: WaitForm, fd: Fd, seed: u64) -> Result<Self, Stop> {
        let mut waiter = Self {
            form,
            fd,
            epoll: None,
            armed: 0,
            // Edge-triggered programs try first and wait after EAGAIN.
            standing: Ready { readable: true, writable: true },
            rng: Rng::new(seed),
        };
        match form {
            WaitForm::Block | WaitForm::DontWait => {}
            WaitForm::Timeout => {
                for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
                    sys::set_timeout(fd, option, 5).map_err(failed("setsockopt"))?;
                }
            }
            _ => sys::set_nonblocking(fd, true).map_err(failed("fcntl"))?,
        }
        let first = match form {
            WaitForm::Epoll | WaitForm::EpollPwait => IN,
            WaitForm::EpollEdge => IN | OUT | RDHUP | EDGE,
            WaitForm::EpollOneshot => ONESHOT,
            _ => return Ok(waiter),
        };
        let epoll = sys::epoll_create().map_err(failed("epoll_create"))?;
        sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, first, 1).map_err(failed("epoll_ctl"))?;
        waiter.epoll = Some(epoll);
        waiter.armed = first;
        Ok(waiter)
    }

    pub const fn flags(&self) -> i32 {
        match self.form {
            WaitForm::DontWait => libc::MSG_DONTWAIT,
            _ => 0,
        }
    }

    /// A call that was to receive, or to send, gave EAGAIN.
    pub const fn would_block(&mut self, reading: bool) {
        if reading {
            self.standing.readable = false;
        } else {
            self.standing.writable = false;
        }
    }

    /// Waits until something in `want` is worth a try, and says what. It may return early with
    /// nothing.
    ///
    /// # Errors
    /// When a call fails.
    pub fn wait(&mut self, want: Ready) -> Result<Ready, Stop> {
        // Mostly for ever; at times a look, or a wait that is too short.
        let timeout_ms = match self.rng.below(16) {
            0 => 0,
            1 => 1,
            _ => -1,
        };
        let fd = self.fd;
        match self.form {
            WaitForm::Block | WaitForm::Timeout => Ok(want),
            WaitForm::Busy => {
                std::thread::yield_now();
                Ok(want)
            }
            WaitForm::Poll | WaitForm::DontWait => {
                sys::poll(fd, want, timeout_ms).map_err(failed("poll"))
            }
            WaitForm::Ppoll => sys::ppoll(fd, want, timeout_ms).map_err(failed("ppoll")),
            WaitForm::Select => sys::select(fd, want, timeout_ms).map_err(failed("select")),
            WaitForm::Pselect => sys::pselect(fd, want, timeout_ms).map_err(failed("pselect")),
            WaitForm::Epoll | WaitForm::EpollPwait | WaitForm::EpollOneshot => {
                self.rearm(want)?;
                self.harvest(want, timeout_ms)
            }
            WaitForm::EpollEdge => {
                let standing = Ready {
                    readable: want.readable && self.standing.readable,
                    writable: want.writable && self.standing.writable,
                };
                if standing != Ready::default() {
                    return Ok(standing);
                }
                self.harvest(want, timeout_ms)
            }
        }
    }

    /// Level-triggered sets are changed when the wish changes, one-shot ones before each wait.
    fn rearm(&mut self, want: Ready) -> Result<(), Stop> {
        let mut events = 0;
        if want.readable {
            events |= IN;
        }
        if want.writable {
            events |= OUT;
        }
        if self.form == WaitForm::EpollOneshot {
            events |= ONESHOT;
        } else if events == self.armed {
            return Ok(());
        }
        let epoll = self.epoll.unwrap_or(-1);
        sys::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, self.fd, events, 1)
            .map_err(failed("epoll_ctl"))?;
        self.armed = events;
        Ok(())
    }

    fn harvest(&mut self, want: Ready, timeout_ms: i32) -> Result<Ready, Stop> {
        let epoll = self.epoll.unwrap_or(-1);
        let found = if self.form == WaitForm::EpollPwait {
            sys::epoll_pwait(epoll, 8, timeout_ms)
        } else {
            sys::epoll_wait(epoll, 8, timeout_ms)
        }
        .map_err(failed("epoll_wait"))?;
        let mut ready = Ready::default();
        for (events, data) in found {
            if data != 1 {
                return Err(failed("epoll_wait's data")(std::io::Error::other("not as given")));
            }
            ready.readable |= events & (IN | RDHUP | ENDED) != 0;
            ready.writable |= events & (OUT | ENDED) != 0;
        }
        if self.form == WaitForm::EpollEdge {
            self.standing.readable |= ready.readable;
            self.standing.writable |= ready.writable;
            ready = self.standing;
        }
        Ok(Ready {
            readable: ready.readable && want.readable,
            writable: ready.writable && want.writable,
        })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(epoll) = self.epoll {
            let _ = sys::close(epoll);
        }
    }
}
