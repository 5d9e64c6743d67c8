//! poll and ppoll; select turns into the same.
//!
//! Storey 6: waits.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use yasmin_ring::{Room, View};
use yasmin_wire::State;

use crate::conn::{Conn, Parked, Unlocked};
use crate::entry::{self, Entry};
use crate::set;
use crate::signals::{self, Handled};
use crate::spin::{Budget, Found, Interests, NO_CPU, Peers, Polling, Watched};
use crate::sys::{
    self, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM, PollFd,
    call,
};
use crate::timeout::Timeout;
use crate::{clock, in_flight, process, real, spin, table};

/// How often a poll that is served by rings asks the kernel all the same, in microseconds.
const LOOK_US: u64 = 20;

/// So often at most one look asks the kernel again, since more came by ring meanwhile.
const LOOKS_MAX: u32 = 4;

/// Of longer lists the rest is taken to be what it was.
const REMEMBERED: usize = 64;

static POLLING: Polling = Polling::new();
/// Ticks at which the kernel was last asked.
static LOOKED_AT: AtomicU64 = AtomicU64::new(0);

/// One poll in any of its forms.
pub struct Poll<'a> {
    pub fds: &'a mut [PollFd],
    pub timeout: Timeout,
    pub mask: *const c_void,
    /// It was ppoll: the kernel takes nanoseconds and a mask.
    pub precise: bool,
}

impl Poll<'_> {
    fn conns(&self) -> impl Iterator<Item = (usize, &'static Conn)> {
        self.fds
            .iter()
            .enumerate()
            .filter_map(|(at, one)| entry::conn_of(one.fd).map(|conn| (at, conn)))
    }

    /// libc's own, which may sleep.
    fn kernel(&mut self, timeout: Timeout) -> c_int {
        let (at, count) = (self.fds.as_mut_ptr(), self.fds.len() as u64);
        // SAFETY: the program's own arguments.
        unsafe {
            if self.precise {
                let time = timeout.timespec();
                let limit = if timeout.ns < 0 { core::ptr::null() } else { &raw const time };
                return real::ppoll(at, count, limit, self.mask);
            }
            real::poll(at, count, timeout.ms())
        }
    }

    /// One look that does not wait. Returns the count or minus errno.
    fn look(&mut self) -> c_int {
        let now = sys::TimeSpec::default();
        LOOKED_AT.store(clock::ticks(), Ordering::Relaxed);
        // What is ready comes before the signals that the mask lets through.
        let is_ready = !self.mask.is_null() && self.any_ring();
        let mask = if is_ready { core::ptr::null() } else { self.mask };
        let (at, count) = (self.fds.as_mut_ptr(), self.fds.len());
        // SAFETY: the program's own arguments; a signal set of the kernel's is 8 bytes.
        let ret = unsafe { call!(ppoll, at, count, &raw const now, mask, 8) as c_int };
        set::kernel::note_kernel_told(ret);
        self.note_ready();
        ret
    }

    /// What the kernel has told of a connection it tells again until it is dealt with.
    fn note_ready(&self) {
        let told = POLLIN | POLLPRI | POLLERR | POLLHUP | POLLRDHUP;
        for (at, conn) in self.conns() {
            let is_ready = self.fds[at].revents & told != 0;
            if self.fds[at].revents & (POLLERR | POLLHUP | POLLRDHUP) != 0 {
                set::kernel::note_end_told();
            }
            conn.rx.kernel_ready.store(u32::from(is_ready), Ordering::Relaxed);
        }
    }

    /// The whole call. Returns as libc does.
    pub fn wait(mut self) -> c_int {
        let mut has_conn = false;
        let mut has_candidate = false;
        let mut has_telling_set = false;
        for one in self.fds.iter() {
            match entry::after_leaving(one.fd) {
                Entry::Conn(_) => has_conn = true,
                Entry::Candidate(_) => has_candidate = true,
                Entry::Set(_) => {
                    set::numbers::watched_from_outside(one.fd);
                    has_telling_set |= set::numbers::tells_unshown(one.fd);
                }
                _ => {}
            }
        }
        if has_telling_set {
            return self.look_at_sets_too();
        }
        if !has_conn {
            if !has_candidate || self.timeout.is_now() {
                return self.kernel(self.timeout);
            }
            return self.sleep_on_candidates(self.timeout);
        }
        process::cancellation_point();
        if process::is_sandboxed() {
            return self.wait_in_sandbox();
        }
        self.wait_on_conns()
    }

    /// By the program's own system call alone. Nothing comes by ring any more but what is unread.
    fn wait_in_sandbox(&mut self) -> c_int {
        let limit = if self.any_ring() { Timeout::from_ms(0) } else { self.timeout };
        let ret = self.kernel(limit);
        if ret < 0 { ret } else { self.add_rings().0 }
    }

    /// A set's rings have something of which the kernel knows nothing: there is nothing to wait for.
    fn look_at_sets_too(self) -> c_int {
        let Self { fds, mask, precise, .. } = self;
        let mut others = Poll { fds: &mut *fds, timeout: Timeout::from_ms(0), mask, precise };
        let ret = if others.conns().next().is_some() {
            others.wait_on_conns()
        } else {
            others.kernel(others.timeout)
        };
        if ret < 0 {
            return ret;
        }
        for one in fds.iter_mut().filter(|one| set::numbers::tells_unshown(one.fd)) {
            one.revents |= one.events & (POLLIN | POLLRDNORM);
        }
        fds.iter().filter(|one| one.revents != 0).count() as c_int
    }

    /// A candidate must not get its channel while a thread sleeps on it here.
    fn sleep_on_candidates(&mut self, timeout: Timeout) -> c_int {
        for one in self.fds.iter() {
            if matches!(entry::get(one.fd), Entry::Candidate(_)) {
                in_flight::enter_counted(one.fd);
            }
        }
        let ret = self.kernel(timeout);
        set::kernel::note_kernel_told(ret);
        self.note_ready();
        let saved = sys::errno();
        for one in self.fds.iter() {
            if matches!(entry::get(one.fd), Entry::Candidate(_)) {
                in_flight::leave_counted(one.fd);
            }
        }
        sys::set_errno(saved);
        ret
    }

    fn wait_on_conns(self) -> c_int {
        if self.timeout.is_now() {
            spin::try_polling(&POLLING, |budget| self.watch(budget));
        }
        spin::wait(&mut Waiting {
            poll: self,
            start: clock::Since::now(),
            handled: Handled::now(),
            counted: 0,
            slept: None,
            naps: false,
        })
    }

    /// Whether the ring of the only one has something to read, and the kernel was asked just now. Only where it
    /// knows all that is asked of it.
    fn rings_alone_do(&self) -> bool {
        let gone = clock::ticks().wrapping_sub(LOOKED_AT.load(Ordering::Relaxed));
        gone < clock::us(LOOK_US)
            && self.is_alone()
            && self.conns().all(|(at, conn)| ring_knows(conn, &self.fds[at]))
            && self.conns().any(|(at, conn)| {
                let one = &self.fds[at];
                one.events & (POLLIN | POLLRDNORM) != 0 && is_readable(conn, one.fd)
            })
    }

    /// Nothing else is asked about.
    fn is_alone(&self) -> bool {
        self.fds.len() == 1
    }

    /// Rings that have something to read of what is asked for.
    fn readable_rings(&self) -> usize {
        let asks_in = |one: &PollFd| one.events & (POLLIN | POLLRDNORM) != 0;
        let conns = self.conns();
        conns
            .filter(|(at, conn)| asks_in(&self.fds[*at]) && is_readable(conn, self.fds[*at].fd))
            .count()
    }

    fn any_ring(&self) -> bool {
        self.conns().any(|(at, conn)| {
            let one = &self.fds[at];
            one.events & (POLLIN | POLLRDNORM) != 0 && is_readable(conn, one.fd)
                || one.events & (POLLOUT | POLLWRNORM) != 0 && is_writable(conn, one.fd)
        })
    }

    /// Whether the kernel has to be asked before the rings may answer alone.
    fn must_ask(&self, first: bool) -> bool {
        for one in self.fds.iter() {
            let Some(conn) = entry::conn_of(one.fd) else { return true };
            let asks_in = one.events & (POLLIN | POLLRDNORM) != 0;
            let Some(_pin) = conn.pin(one.fd) else { return true };
            if !ring_knows(conn, one) || asks_in && conn.receiver().state_seen() != State::Open {
                return true;
            }
            if conn.due(&conn.rx.looked_at, if first { LOOK_US } else { LOOK_US * 4 }) {
                return true;
            }
        }
        false
    }

    /// Adds what the rings have to what the kernel said; returns the count of ready ones, and of rings
    /// that have something to read.
    fn add_rings(&mut self) -> (c_int, usize) {
        let (mut found, mut rings) = (0, 0);
        for one in self.fds.iter_mut() {
            if let Some(conn) = entry::conn_of(one.fd) {
                let asks_in = one.events & (POLLIN | POLLRDNORM);
                if asks_in != 0 && is_readable(conn, one.fd) {
                    one.revents |= asks_in;
                    rings += 1;
                }
                let asks_out = one.events & (POLLOUT | POLLWRNORM);
                let is_over = one.revents & (POLLERR | POLLHUP) != 0;
                if asks_out != 0
                    && one.revents & asks_out == 0
                    && !is_over
                    && is_writable(conn, one.fd)
                {
                    one.revents |= asks_out;
                }
            }
            found += c_int::from(one.revents != 0);
        }
        (found, rings)
    }

    fn budget(&self) -> Budget {
        // Which signals may interrupt under the program's mask only the kernel can tell.
        if spin::is_off()
            || !self.mask.is_null()
            || !self.conns().any(|(_, conn)| spin::allows_watch(&conn.rx.spin))
        {
            return Budget::new(0);
        }
        spin::budget_within(self.timeout, self.conns().count() as u32)
    }

    /// Whether this wait sleeps next, and so asks the kernel: the rings are parked already and have
    /// nothing. One that is not parked the kernel's answer may save from being so.
    fn only_sleeps(&self) -> bool {
        !self.timeout.is_now() && !self.any_awake() && !self.any_ring()
    }

    fn any_awake(&self) -> bool {
        self.conns().any(|(at, conn)| {
            conn.pin(self.fds[at].fd)
                .is_some_and(|_pin| conn.receiver().state_seen() != State::Parked)
        })
    }

    fn watch(&self, budget: &mut Budget) -> Watched {
        let first = self.conns().next();
        let of = |(at, conn): (usize, &Conn)| {
            let pin = conn.pin(self.fds[at].fd);
            pin.map_or(NO_CPU, |_pin| conn.receiver().block.sender_cpu())
        };
        let peers = Peers {
            cpu: || first.map_or(NO_CPU, of),
            are_all_on: |cpu| !self.timeout.is_short() && self.conns().all(|one| of(one) == cpu),
        };
        let start = clock::ticks();
        let stirs = || {
            // Everything else in the list is the kernel's: ask it now and then.
            let is_mixed = self.fds.len() > 1 || self.fds[0].events & !(POLLIN | POLLRDNORM) != 0;
            if is_mixed && clock::ticks().wrapping_sub(start) > clock::us(LOOK_US) {
                return true;
            }
            self.conns().any(|(at, conn)| {
                let Some(_pin) = conn.pin(self.fds[at].fd) else { return true };
                let receiver = conn.receiver();
                self.fds[at].events & (POLLIN | POLLRDNORM) != 0
                    && (receiver.stirs()
                        || receiver.state_seen() == State::Offered && receiver.is_hinted())
            })
        };
        spin::watch_many(budget, &peers, stirs, 16)
    }
}

/// A wait under way.
struct Waiting<'a> {
    poll: Poll<'a>,
    start: clock::Since,
    handled: Handled,
    /// At how many descriptors this thread is counted as a sleeper.
    counted: usize,
    /// While it sleeps: whom it is counted at, since numbers may get another meaning.
    slept: Option<[Option<u64>; REMEMBERED]>,
    /// A ring has bytes behind those that TCP has yet to give.
    naps: bool,
}

impl Waiting<'_> {
    fn wakes_up(&mut self) {
        let saved = sys::errno();
        let slept = self.slept.take().unwrap_or([None; REMEMBERED]);
        for (at, one) in self.poll.fds[..self.counted].iter().enumerate() {
            let Some(conn) = entry::conn_of(one.fd) else { continue };
            let id = Some(conn.id.load(Ordering::Relaxed));
            if slept.get(at).is_none_or(|slept| *slept == id) {
                wake_up(conn, one.fd);
            }
        }
        sys::set_errno(saved);
    }
}

impl Interests for Waiting<'_> {
    type Answer = c_int;

    fn look(&mut self, budget: Option<&Budget>) -> Found<c_int> {
        let poll = &mut self.poll;
        if budget.is_none() && poll.only_sleeps() {
            return Found::Nothing;
        }
        let is_busy = poll.rings_alone_do();
        let mut turns = 0..LOOKS_MAX;
        let (found, asks) = loop {
            // One wait tells of all that is ready: what the kernel has, too, if there are ring bytes.
            let before = if poll.is_alone() { 0 } else { poll.readable_rings() };
            let asks = before > 0 || !is_busy && poll.must_ask(budget.is_none());
            if asks {
                let ret = poll.look();
                if ret < 0 && (ret != -sys::EINTR || !poll.any_ring()) {
                    return Found::Answer(sys::returned(ret as isize) as c_int);
                }
            } else {
                poll.fds.iter_mut().for_each(|one| one.revents = 0);
            }
            let (found, rings) = poll.add_rings();
            // What came into a ring since may have been sent behind what the kernel has by now.
            if poll.is_alone() || rings <= before || turns.next().is_none() {
                break (found, asks);
            }
        };
        if found > 0 {
            if budget.is_some() {
                poll.conns().for_each(|(_, conn)| conn.rx.spin.won());
            }
            return Found::Answer(found);
        }
        if !poll.timeout.is_now() {
            return Found::Nothing;
        }
        POLLING.found_nothing(clock::ticks());
        Found::Answer(if asks { 0 } else { sys::returned(poll.look() as isize) as c_int })
    }

    fn budget(&mut self) -> Budget {
        self.poll.budget()
    }

    fn is_watchable(&self) -> bool {
        self.poll.any_awake() && !self.handled.is_past()
    }

    fn watch(&mut self, budget: &mut Budget) -> Watched {
        let watched = self.poll.watch(budget);
        if watched == Watched::InVain {
            self.poll.conns().for_each(|(_, conn)| conn.rx.spin.was_vain(clock::ticks()));
        }
        watched
    }

    fn park(&mut self) -> Found<c_int> {
        self.counted = 0;
        self.naps = false;
        let slept = self.slept.insert([None; REMEMBERED]);
        for (at, one) in self.poll.fds.iter().enumerate() {
            self.counted += 1;
            let conn = match entry::get(one.fd) {
                Entry::Conn(conn) => conn,
                Entry::Leaving => {
                    table::await_leaving(one.fd);
                    self.wakes_up();
                    return Found::Nothing;
                }
                _ => continue,
            };
            if let Some(place) = slept.get_mut(at) {
                *place = Some(conn.id.load(Ordering::Relaxed));
            }
            match fall_asleep(conn, one) {
                Parked::Whole => {}
                Parked::BehindTcp => self.naps = true,
                Parked::Not => {
                    self.wakes_up();
                    return Found::Nothing;
                }
            }
        }
        Found::Asleep
    }

    fn sleep(&mut self) -> Found<c_int> {
        let left = self.poll.timeout.to_sleep(&self.start);
        let ret = if self.handled.is_past() {
            signals::interrupted()
        } else {
            self.poll.sleep_on_candidates(if self.naps { left.nap() } else { left })
        };
        self.wakes_up();
        if ret == 0 && self.naps && !left.is_now() { Found::Nothing } else { Found::Answer(ret) }
    }
}

/// Counts this thread as a sleeper on `conn` and parks it.
fn fall_asleep(conn: &'static Conn, one: &PollFd) -> Parked {
    let _rx = match conn.lock_rx(one.fd) {
        Ok(rx) => rx,
        // The number says another thing by now, or nothing.
        Err(Unlocked::Gone) => return Parked::Not,
        Err(Unlocked::Reentered) => return Parked::Whole,
    };
    conn.side().rx.sleepers.fetch_add(1, Ordering::SeqCst);
    if one.events & (POLLIN | POLLRDNORM) != 0 {
        return conn.park_to_sleep(one.fd, |receiver| conn.has_ring_next(receiver));
    }
    // With unread bytes too.
    if conn.park_rx(&conn.receiver()) { Parked::Whole } else { Parked::Not }
}

fn wake_up(conn: &'static Conn, fd: c_int) {
    if let Ok(_rx) = conn.lock_rx(fd) {
        let sleepers = &conn.side().rx.sleepers;
        let _ = sleepers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    }
}

pub fn is_readable(conn: &'static Conn, fd: c_int) -> bool {
    let Ok(_rx) = conn.lock_rx(fd) else { return false };
    let receiver = conn.receiver();
    match receiver.look(|| conn.read_position()) {
        Ok(View::Ring { unread_bytes }) => unread_bytes >= conn.low_water(),
        Ok(_) => false,
        // The next call reports the reset.
        Err(_) => true,
    }
}

/// Whether the rings know everything but the peer's end that is asked of this connection.
fn ring_knows(conn: &'static Conn, one: &PollFd) -> bool {
    let is_plain = one.events & !(POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM) == 0;
    let asks_out = one.events & (POLLOUT | POLLWRNORM) != 0;
    let is_quiet = conn.rx.kernel_ready.load(Ordering::Relaxed) == 0;
    is_plain && is_quiet && (!asks_out || is_writable(conn, one.fd))
}

fn is_writable(conn: &'static Conn, fd: c_int) -> bool {
    let Ok(_tx) = conn.lock_tx(fd) else { return false };
    matches!(conn.sender().room(1), Ok(Room::Ring(write)) if !write.opens())
}
