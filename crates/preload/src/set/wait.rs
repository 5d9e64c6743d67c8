//! epoll_wait: rings first, the kernel now and then, parked before it sleeps.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use yasmin_ring::{Park, Phase, Room, View};
use yasmin_wire::State;

use super::{
    EDGE, IDLE_LOOKS, IN, LEFT, LOOK_US, ONESHOT, OUT, RDNORM, Set, WRNORM, note_kernel_told,
};
use crate::conn::Conn;
use crate::signals::{self, Handled};
use crate::sys::{self, EpollEvent, call};
use crate::table::{self, Entry, Watch};
use crate::timeout::Timeout;
use crate::{clock, process, real, spin, tcp};

/// One epoll_wait in any of its forms, with the program's own buffer.
pub struct Wait {
    pub fd: c_int,
    pub events: *mut EpollEvent,
    pub max: c_int,
    pub timeout: Timeout,
    pub mask: *const c_void,
    /// It was epoll_pwait2: the kernel takes nanoseconds.
    pub precise: bool,
}

impl Wait {
    /// The kernel's own wait, in libc, with `skip` events already there.
    fn kernel(&self, skip: usize, timeout: Timeout) -> c_int {
        let ret = self.libc(skip, timeout);
        note_kernel_told(ret);
        ret
    }

    fn libc(&self, skip: usize, timeout: Timeout) -> c_int {
        let (events, max) = (self.events.wrapping_add(skip), self.max - skip as c_int);
        // SAFETY: the program's buffer and mask.
        unsafe {
            if self.precise {
                let time = timeout.timespec();
                let at = if timeout.ns < 0 { core::ptr::null() } else { &raw const time };
                return real::epoll_pwait2(self.fd, events, max, at, self.mask);
            }
            if self.mask.is_null() {
                return real::epoll_wait(self.fd, events, max, timeout.ms());
            }
            real::epoll_pwait(self.fd, events, max, timeout.ms(), self.mask)
        }
    }

    /// One look that does not wait, by the kernel's own entry: no cancellation point, since
    /// the set's lock is held. Returns the count or minus errno.
    fn look(&self, skip: usize) -> c_int {
        let (events, max) = (self.events.wrapping_add(skip), self.max - skip as c_int);
        // SAFETY: the program's buffer and mask; a signal set of the kernel's is 8 bytes.
        let ret = unsafe { call!(epoll_pwait, self.fd, events, max, 0, self.mask, 8) as c_int };
        note_kernel_told(ret);
        ret
    }
}

/// Puts events of one registration that both the rings and the kernel told into one. Returns
/// how many of the `more` remain.
fn merge(events: *mut EpollEvent, found: usize, more: usize) -> usize {
    let mut kept = 0;
    for i in found..found + more {
        // SAFETY: inside the program's buffer, filled so far.
        unsafe {
            let event = events.add(i).read_unaligned();
            let twin = (0..found).find(|&at| {
                let data = events.add(at).read_unaligned().data;
                data == event.data
            });
            if let Some(at) = twin {
                let mut both = events.add(at).read_unaligned();
                both.events |= event.events;
                events.add(at).write_unaligned(both);
            } else {
                events.add(found + kept).write_unaligned(event);
                kept += 1;
            }
        }
    }
    kept
}

/// Whether a send would find room in the ring.
fn writable(conn: &'static Conn) -> bool {
    let Ok(_tx) = conn.lock_tx(conn.fd()) else { return false };
    matches!(conn.sender().room(1), Ok(Room::Ring(write)) if !write.opens())
}

/// Whether bytes came and were read that no wait has told of: TCP tells of that edge with what
/// is ready still.
fn has_past_edge(conn: &'static Conn) -> bool {
    let receiver = conn.receiver();
    let (tail, told) = (receiver.tail_seen(), conn.edge_told.load(Ordering::Relaxed));
    if told == tail || receiver.unread_bytes() > 0 {
        return false;
    }
    conn.edge_told.store(tail, Ordering::Relaxed);
    // Registered anew: the kernel tells.
    told != u64::MAX
}

impl Set {
    /// epoll_wait in all its forms. Returns as libc does.
    pub fn wait(&self, wait: &Wait) -> c_int {
        process::cancellation_point();
        self.touch();
        if self.outer.load(Ordering::Relaxed) != 0
            && LEFT.load(Ordering::Relaxed) != 0
            && let Some(found) = self.wait_for_inner(wait)
        {
            return found;
        }
        let is_plain = wait.max <= 0
            || self.hot_len.load(Ordering::Relaxed) == 0
                && self.dirty_len.load(Ordering::Relaxed) == 0;
        if is_plain {
            return self.sleep(wait, wait.timeout);
        }
        let start_ns = if wait.timeout.ns > 0 { clock::now_ns() } else { 0 };
        let handled = Handled::now();
        let mut spin_until = 0;
        if wait.timeout.is_now() {
            self.tight.try_watching(|budget| self.watch(budget));
        }
        loop {
            {
                let Some(_guard) = self.lock.acquire() else {
                    return self.sleep(wait, wait.timeout);
                };
                let is_due = self.is_kernel_due();
                if is_due && self.hot_len.load(Ordering::Relaxed) >= wait.max as u32 {
                    // Rings could fill the program's buffer each time, and nothing else be told.
                    let told = self.look_at_kernel(wait, 0);
                    if told != 0 {
                        self.add_rings(wait, told);
                        return sys::returned(told as isize) as c_int;
                    }
                }
                let found = self.collect(wait);
                if found > 0 {
                    if spin_until != 0 {
                        self.spin.won();
                    }
                    if !is_due || found as c_int == wait.max {
                        return found as c_int;
                    }
                    return (found + self.look_at_kernel(wait, found).max(0) as usize) as c_int;
                }
                if is_due || spin_until == 0 || wait.timeout.is_now() {
                    let more = self.look_at_kernel(wait, 0);
                    if more == 0 && wait.timeout.is_now() {
                        self.tight.found_nothing();
                    }
                    if more != 0 || wait.timeout.is_now() {
                        return sys::returned(more as isize) as c_int;
                    }
                }
            }
            let now = clock::ticks();
            if spin_until == 0 {
                // Which signals may interrupt under the program's mask only the kernel can tell.
                let spins = !spin::is_off() && wait.mask.is_null() && self.spin.allows();
                spin_until = if spins { now + self.budget(wait.timeout) } else { now };
            }
            if now < spin_until && !handled.is_past() {
                self.watch(spin_until - now);
                if clock::ticks() >= spin_until {
                    self.spin.lost();
                }
                continue;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            if self.park_all() {
                let ret = if handled.is_past() {
                    signals::interrupted()
                } else {
                    wait.kernel(0, wait.timeout.less(start_ns))
                };
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                let kept = self.told(wait.events, 0, ret);
                if ret > 0 && kept == 0 {
                    continue;
                }
                return kept;
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Sets in this one that have something the kernel does not know of, and what it knows.
    fn wait_for_inner(&self, wait: &Wait) -> Option<c_int> {
        let mut found = 0;
        LEFT.store(0, Ordering::SeqCst);
        for fd in 0..table::end() {
            let Entry::Set(inner) = table::get(fd) else { continue };
            if !inner.is_foreign() || inner.hot_len.load(Ordering::Relaxed) == 0 {
                continue;
            }
            LEFT.store(1, Ordering::SeqCst);
            let Some(watch) = table::watch(fd) else { continue };
            let is_here = core::ptr::eq(watch.set.load(Ordering::Relaxed), self);
            let events = watch.events.load(Ordering::Relaxed) & (IN | RDNORM);
            if is_here && events != 0 && (found as c_int) < wait.max && inner.has_unread() {
                let event = EpollEvent { events, data: watch.data.load(Ordering::Relaxed) };
                // SAFETY: the program's buffer of `max` events.
                unsafe { wait.events.add(found).write_unaligned(event) };
                found += 1;
            }
        }
        let _guard = self.lock.acquire();
        let has_room = found > 0 && (found as c_int) < wait.max;
        let more = if has_room { self.look_at_kernel(wait, found).max(0) } else { 0 };
        (found > 0).then_some(found as c_int + more)
    }

    /// Ticks to watch before sleeping, no longer than the program would wait.
    fn budget(&self, timeout: Timeout) -> u64 {
        let budget = spin::budget_ticks();
        if timeout.ns < 0 { budget } else { budget.min(clock::us(timeout.ns as u64 / 1000)) }
    }

    fn is_kernel_due(&self) -> bool {
        let gone = clock::ticks().wrapping_sub(self.looked_at.load(Ordering::Relaxed));
        self.kernel_due.load(Ordering::Relaxed) != 0 || gone > clock::us(LOOK_US)
    }

    /// Asks the kernel without waiting, behind the `found` events that are there already.
    /// Returns how many more there are, or minus errno. Under the lock.
    fn look_at_kernel(&self, wait: &Wait, found: usize) -> c_int {
        self.flush();
        self.looked_at.store(clock::ticks(), Ordering::Relaxed);
        self.kernel_due.store(0, Ordering::Relaxed);
        let more = self.told(wait.events, found, wait.look(found));
        if found == 0 || more <= 0 {
            return more;
        }
        merge(wait.events, found, more as usize) as c_int
    }

    /// Adds what their rings have to the `told` events that the kernel gave. Under the lock.
    /// Where that is a long search, the next wait tells of the rings.
    fn add_rings(&self, wait: &Wait, told: c_int) {
        const SEARCH_MAX: u32 = 1024;
        if self.hot_len.load(Ordering::Relaxed).saturating_mul(told.max(0) as u32) > SEARCH_MAX {
            return;
        }
        for at in 0..told.max(0) as usize {
            // SAFETY: filled in by the kernel.
            let mut event = unsafe { wait.events.add(at).read_unaligned() };
            let mut index = 0;
            while let Some(conn) = self.hot_at(index) {
                index += 1;
                let Some(watch) = table::watch(conn.fd()) else { continue };
                let asked = watch.events.load(Ordering::Relaxed);
                let is_it = watch.data.load(Ordering::Relaxed) == event.data;
                if !is_it || !watch.has(Watch::PRESENT) || watch.has(Watch::SPENT) {
                    continue;
                }
                let events = self.readable(conn, asked);
                event.events |= events;
                if events != 0 && asked & ONESHOT != 0 {
                    self.spend(conn.fd(), watch);
                }
            }
            // SAFETY: as above.
            unsafe { wait.events.add(at).write_unaligned(event) };
        }
    }

    /// Fills in what the hot connections have. Under the lock.
    fn collect(&self, wait: &Wait) -> usize {
        let len = self.hot_len.load(Ordering::Relaxed);
        let mut found = 0;
        let mut index = self.cursor.load(Ordering::Relaxed);
        // What is dropped on the way moves another one to its place: the bound is the length.
        for _ in 0..len {
            if found as c_int == wait.max {
                break;
            }
            let left = self.hot_len.load(Ordering::Relaxed);
            if left == 0 {
                break;
            }
            if index >= left {
                index = 0;
            }
            let Some(conn) = self.hot_at(index) else { break };
            let Some(watch) = table::watch(conn.fd()) else { break };
            let is_last = found as c_int + 1 == wait.max;
            let mut events = self.ready(conn, watch, is_last);
            if events != 0 {
                conn.idle.store(0, Ordering::Relaxed);
                let asked = watch.events.load(Ordering::Relaxed);
                if asked & ONESHOT != 0 {
                    // The kernel is asked now or never: it tells one event of this, too.
                    let kernels = sys::poll_now(conn.fd(), asked as i16);
                    events |= u32::from(kernels as u16);
                    self.spend(conn.fd(), watch);
                }
                let event = EpollEvent { events, data: watch.data.load(Ordering::Relaxed) };
                // SAFETY: the program's buffer of `max` events.
                unsafe { wait.events.add(found).write_unaligned(event) };
                found += 1;
            }
            if conn.hot.load(Ordering::Relaxed) == index + 1 {
                index += 1;
            }
        }
        self.cursor.store(index, Ordering::Relaxed);
        found
    }

    /// What a hot connection has to tell, besides what the kernel knows. `is_last`: the kernel
    /// will have no place to add to it.
    fn ready(&self, conn: &'static Conn, watch: &Watch, is_last: bool) -> u32 {
        if !watch.has(Watch::PRESENT) || watch.has(Watch::SPENT) {
            return 0;
        }
        let asked = watch.events.load(Ordering::Relaxed);
        let mut events = 0;
        if conn.receiver().stirs() || conn.idle.fetch_add(1, Ordering::Relaxed) >= IDLE_LOOKS {
            events |= self.readable(conn, asked);
        } else if conn.receiver().phase() == Phase::Offered && conn.receiver().hinted() {
            self.to_kernel(conn);
        }
        let wants_out = asked & (OUT | WRNORM) != 0;
        if wants_out && (events != 0 || asked & EDGE == 0 || has_past_edge(conn)) {
            // An edge tells of everything that is ready, and of this one the kernel knows nothing.
            let asks_kernel = || asked & EDGE != 0 && sys::poll_now(conn.fd(), sys::POLLOUT) != 0;
            if writable(conn) || asks_kernel() {
                events |= asked & (OUT | WRNORM);
            } else if events != 0 && is_last {
                if sys::poll_now(conn.fd(), sys::POLLOUT) & sys::POLLOUT != 0 {
                    events |= asked & (OUT | WRNORM);
                }
            } else {
                self.kernel_due.store(1, Ordering::Relaxed);
            }
        }
        events
    }

    fn readable(&self, conn: &'static Conn, asked: u32) -> u32 {
        let fd = conn.fd();
        let Ok(_rx) = conn.lock_rx(fd) else { return 0 };
        let receiver = conn.receiver();
        let wanted = asked & (IN | RDNORM);
        match receiver.look(|| conn.read_position()) {
            Ok(View::Ring { .. }) => {
                let tail = receiver.tail_seen();
                if asked & EDGE == 0 {
                    return wanted;
                }
                let is_new = conn.edge_told.swap(tail, Ordering::Relaxed) != tail;
                if is_new { wanted } else { 0 }
            }
            Ok(View::Tcp) => {
                self.drop_hot(conn);
                self.kernel_due.store(1, Ordering::Relaxed);
                0
            }
            Ok(View::TcpUpTo { .. }) => {
                self.kernel_due.store(1, Ordering::Relaxed);
                0
            }
            Ok(View::Empty { state }) => {
                if conn.idle.load(Ordering::Relaxed) >= IDLE_LOOKS
                    && receiver.park() == Park::Parked
                {
                    if state == State::Offered {
                        conn.offers.lost();
                    }
                    self.drop_hot(conn);
                    self.kernel_due.store(1, Ordering::Relaxed);
                }
                0
            }
            Err(_) => {
                // The kernel reports the reset.
                tcp::reset(fd);
                self.drop_hot(conn);
                self.kernel_due.store(1, Ordering::Relaxed);
                0
            }
        }
    }

    /// Bytes came by TCP to an offered direction: the kernel tells of them.
    fn to_kernel(&self, conn: &'static Conn) {
        self.kernel_due.store(1, Ordering::Relaxed);
        let Ok(_rx) = conn.lock_rx(conn.fd()) else { return };
        if conn.receiver().park() == Park::Parked {
            self.drop_hot(conn);
        }
    }

    /// Watches the hot connections for at most `budget` ticks, or until the kernel is due.
    fn watch(&self, budget: u64) -> bool {
        let peer_cpu = || {
            let Some(_guard) = self.lock.try_acquire() else { return spin::NO_CPU };
            self.hot_at(0).map_or(spin::NO_CPU, |conn| conn.receiver().block.sender_cpu())
        };
        let stirs = || {
            if self.is_kernel_due() {
                return true;
            }
            let Some(_guard) = self.lock.try_acquire() else { return false };
            (0..self.hot_len.load(Ordering::Relaxed)).filter_map(|i| self.hot_at(i)).any(|conn| {
                let receiver = conn.receiver();
                receiver.stirs() || receiver.phase() == Phase::Offered && receiver.is_hinted()
            })
        };
        spin::watch_many(budget, peer_cpu, stirs, 8)
    }

    /// Parks every hot connection, so that the thread may sleep. False: one has something.
    fn park_all(&self) -> bool {
        let Some(_guard) = self.lock.acquire() else { return true };
        self.flush();
        let mut index = 0;
        while let Some(conn) = self.hot_at(index) {
            let fd = conn.fd();
            let Some(watch) = table::watch(fd) else { return true };
            let asked = watch.events.load(Ordering::Relaxed);
            let Ok(_rx) = conn.lock_rx(fd) else {
                index += 1;
                continue;
            };
            let receiver = conn.receiver();
            let Ok(view) = receiver.look(|| conn.read_position()) else {
                tcp::reset(fd);
                self.drop_hot(conn);
                continue;
            };
            let is_armed = watch.has(Watch::PRESENT) && !watch.has(Watch::SPENT);
            let is_wanted = is_armed && asked & (IN | RDNORM) != 0;
            let is_told =
                asked & EDGE != 0 && conn.edge_told.load(Ordering::Relaxed) == receiver.tail_seen();
            if matches!(view, View::Ring { .. }) && is_wanted && !is_told {
                return false;
            }
            let phase = receiver.phase();
            if receiver.park() == Park::Moved {
                return false;
            }
            conn.note_parked(phase);
            self.drop_hot(conn);
        }
        true
    }

    fn sleep(&self, wait: &Wait, timeout: Timeout) -> c_int {
        if timeout.is_now() {
            return self.told(wait.events, 0, wait.kernel(0, timeout));
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // Under the lock, also when nothing is hot: who is about to offer either put its
        // connection into the list before, or sees this sleeper.
        let ready_to_sleep = self.park_all();
        let timeout = if ready_to_sleep { timeout } else { Timeout { ns: 0 } };
        let ret = wait.kernel(0, timeout);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        let kept = self.told(wait.events, 0, ret);
        if kept == 0 && (ret > 0 || !ready_to_sleep) && wait.max > 0 {
            return self.wait(wait);
        }
        kept
    }
}
