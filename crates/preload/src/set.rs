//! epoll sets.
//!
//! A set keeps a list of its hot connections: those whose receiving direction is offered, open
//! or unread, which the kernel cannot tell about. A wait looks at them, asks the kernel about
//! all others now and then, and parks the hot ones before it sleeps. So a wait costs what is
//! hot, not what is registered.
//!
//! Registrations of connections that change stay in user space until the kernel is asked again:
//! programs change them several times a request.
//!
//! A hot list changes under the set's lock; an entry leaves it, but for its close, also under
//! its receive lock. Whoever offers holds the receive lock and sees it in the list, so a thread
//! that goes to sleep either parks it or was seen as a sleeper.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use yasmin_ring::{Park, Phase, Room, View};
use yasmin_wire::State;

use crate::conn::Conn;
use crate::lock::Lock;
use crate::slab::{Pooled, Slab};
use crate::spin::{self, Backoff};
use crate::sys::{self, EpollEvent, TimeSpec, call};
use crate::table::{self, Entry, Watch};
use crate::{clock, real, tcp};

const IN: u32 = 1;
const OUT: u32 = 4;
const RDNORM: u32 = 0x40;
const WRNORM: u32 = 0x100;
const EXCLUSIVE: u32 = 1 << 28;
const ONESHOT: u32 = 1 << 30;
const EDGE: u32 = 1 << 31;

const ADD: c_int = 1;
const DEL: c_int = 2;
const MOD: c_int = 3;

/// Entries of a hot list and of a list of changed registrations.
const LIST_MAX: usize = 1 << 16;

/// How long a busy set may leave the kernel unasked, in microseconds.
const LOOK_US: u64 = 20;

/// A hot connection that stayed silent for so many looks is parked.
const IDLE_LOOKS: u32 = 4096;

/// Polled, duplicated, closed, or shared over fork.
const FOR_GOOD: u32 = 1;
/// Another set watches it, as long as that asks for any events.
const NESTED: u32 = 2;

#[repr(C, align(64))]
pub struct Set {
    lock: Lock,
    fd: AtomicI32,
    /// Threads that sleep on it, or are about to.
    sleepers: AtomicU32,
    /// Bits of why other eyes are on it, 0 if none: then all is parked.
    foreign: AtomicU32,
    hot: AtomicPtr<AtomicPtr<Conn>>,
    hot_len: AtomicU32,
    cursor: AtomicU32,
    dirty: AtomicPtr<AtomicI32>,
    dirty_len: AtomicU32,
    /// Ticks at which a wait that must not last last found nothing.
    empty_at: AtomicU64,
    /// Not 0: something only the kernel knows is wanted now.
    kernel_due: AtomicU32,
    looked_at: AtomicU64,
    spin: Backoff,
    next_free: AtomicPtr<Set>,
}

// SAFETY: atomics and a lock; all zero is a set without lists, which no table entry names.
unsafe impl Pooled for Set {
    fn next_free(&self) -> &AtomicPtr<Self> {
        &self.next_free
    }
}

pub static POOL: Slab<Set> = Slab::new();

/// epoll_create made `fd`.
pub fn created(fd: c_int) {
    let Some(set) = POOL.take() else { return };
    if set.hot.load(Ordering::Relaxed).is_null() {
        let (Some(hot), Some(dirty)) =
            (sys::map_private(LIST_MAX * 8), sys::map_private(LIST_MAX * 4))
        else {
            return;
        };
        set.hot.store(hot.cast(), Ordering::Relaxed);
        set.dirty.store(dirty.cast(), Ordering::Relaxed);
    }
    set.fd.store(fd, Ordering::Relaxed);
    for field in [
        &set.sleepers,
        &set.foreign,
        &set.hot_len,
        &set.cursor,
        &set.dirty_len,
        &set.kernel_due,
    ] {
        field.store(0, Ordering::Relaxed);
    }
    set.spin.reset();
    table::set_set(fd, set);
}

/// The program closes the set's descriptor, which has left the table.
pub fn closed(set: &'static Set) {
    set.make_foreign(FOR_GOOD);
    for fd in 0..table::end() {
        if let Some(watch) = table::watch(fd) {
            if core::ptr::eq(watch.set.load(Ordering::Relaxed), set) {
                forget(watch);
            }
        }
    }
    POOL.give(set);
}

fn forget(watch: &Watch) {
    watch.set.store(core::ptr::null_mut(), Ordering::Relaxed);
    watch.flags.store(0, Ordering::Relaxed);
}

/// The program closes `fd`, or gives the number to something else.
pub fn descriptor_closed(fd: c_int) {
    let Some(watch) = table::watch(fd) else { return };
    let set = watch.set.load(Ordering::Relaxed);
    if set.is_null() {
        return;
    }
    // SAFETY: a set's memory stays a set's.
    let set = unsafe { &*set };
    if watch.has(Watch::DIRTY) && !watch.has(Watch::PRESENT) {
        // A duplicate would keep the registration alive that the program took back.
        set.kernel_ctl(DEL, fd, watch);
    }
    forget(watch);
}

/// The program closed `fd`, but another descriptor still names the connection: a set that was
/// told of `fd` goes on watching it, as the kernel does.
pub fn renamed(fd: c_int, other: c_int) {
    let (Some(from), Some(to)) = (table::watch(fd), table::watch(other)) else { return };
    let set = from.set.load(Ordering::Relaxed);
    if set.is_null() || !to.set.load(Ordering::Relaxed).is_null() {
        return;
    }
    to.events.store(from.events.load(Ordering::Relaxed), Ordering::Relaxed);
    to.data.store(from.data.load(Ordering::Relaxed), Ordering::Relaxed);
    to.flags.store(from.flags.load(Ordering::Relaxed), Ordering::Relaxed);
    to.set.store(set, Ordering::Release);
}

/// Whether connection `conn` may be offered as far as its set goes; if so it is in the set's
/// hot list. Under the receive lock.
pub fn may_offer(conn: &'static Conn, fd: c_int) -> bool {
    if conn.has_many_names() {
        return false;
    }
    let Some(watch) = table::watch(fd) else { return true };
    let set = watch.set.load(Ordering::Acquire);
    if set.is_null() {
        return true;
    }
    // SAFETY: a set's memory stays a set's.
    let set = unsafe { &*set };
    let special = watch.events.load(Ordering::Relaxed) & (ONESHOT | EXCLUSIVE) != 0;
    if special || watch.has(Watch::MANY_SETS) || set.is_foreign() {
        return false;
    }
    if set.sleepers.load(Ordering::SeqCst) != 0 {
        return false;
    }
    if conn.hot.load(Ordering::Relaxed) != 0 {
        return true;
    }
    // The sleeper's order is set, then receive lock: here it may only be tried.
    let Some(_guard) = set.lock.try_acquire() else { return false };
    set.sleepers.load(Ordering::SeqCst) == 0 && set.push_hot(conn)
}

/// The connection closes, or goes to another set: out of the hot list that holds it.
pub fn leave(conn: &Conn) {
    let set = conn.hot_set.load(Ordering::Acquire);
    if set.is_null() || conn.hot.load(Ordering::Relaxed) == 0 {
        return;
    }
    // SAFETY: a set's memory stays a set's.
    let set = unsafe { &*set };
    if let Some(_guard) = set.lock.acquire() {
        set.drop_hot(conn);
    }
}

/// A write was cut short by a full ring: an edge-triggered writer waits for an edge that TCP
/// does not have. Registering again makes the kernel report it.
pub fn write_cut_short(conn: &Conn) {
    let fd = conn.fd();
    let Some(watch) = table::watch(fd) else { return };
    let set = watch.set.load(Ordering::Acquire);
    let events = watch.events.load(Ordering::Relaxed);
    if set.is_null() || events & EDGE == 0 || events & (OUT | WRNORM) == 0 {
        return;
    }
    // SAFETY: a set's memory stays a set's.
    unsafe { &*set }.kernel_ctl(MOD, fd, watch);
    unsafe { &*set }.kernel_due.store(1, Ordering::Relaxed);
}

/// Another program's eyes are on descriptor `fd`, should it be a set.
pub fn watched_from_outside(fd: c_int) {
    if let Entry::Set(set) = table::get(fd) {
        set.make_foreign(FOR_GOOD);
    }
}

/// Counts the kernel's answers to waits that were not empty.
static KERNEL_TOLD: AtomicU32 = AtomicU32::new(0);

pub fn kernel_told() -> u32 {
    KERNEL_TOLD.load(Ordering::Relaxed)
}

/// The kernel told a wait of `count` ready descriptors.
pub fn note_kernel_told(count: c_int) {
    if count > 0 {
        KERNEL_TOLD.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long a wait may take.
#[derive(Clone, Copy)]
pub struct Timeout {
    /// Negative: for ever.
    pub ns: i64,
}

impl Timeout {
    pub fn from_ms(ms: c_int) -> Self {
        Self { ns: if ms < 0 { -1 } else { i64::from(ms) * 1_000_000 } }
    }

    /// # Safety
    /// `at` is null (for ever) or readable.
    pub unsafe fn from_timespec(at: *const TimeSpec) -> Option<Self> {
        if at.is_null() {
            return Some(Self { ns: -1 });
        }
        // SAFETY: the caller's promise.
        let time = unsafe { *at };
        if time.sec < 0 || !(0..1_000_000_000).contains(&time.nsec) {
            return None;
        }
        Some(Self { ns: time.sec.saturating_mul(1_000_000_000).saturating_add(time.nsec) })
    }

    pub fn is_now(self) -> bool {
        self.ns == 0
    }

    /// What is left of it after the time since `start_ns`.
    pub fn less(self, start_ns: u64) -> Self {
        if self.ns <= 0 {
            return self;
        }
        let gone = clock::now_ns().saturating_sub(start_ns).min(i64::MAX as u64) as i64;
        Self { ns: (self.ns - gone).max(0) }
    }

    /// Rounded up, as a wait must not end early.
    pub fn ms(self) -> c_int {
        if self.ns < 0 {
            return -1;
        }
        ((self.ns + 999_999) / 1_000_000).min(i64::from(c_int::MAX)) as c_int
    }

    pub fn timespec(self) -> TimeSpec {
        TimeSpec { sec: self.ns / 1_000_000_000, nsec: self.ns % 1_000_000_000 }
    }
}

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

impl Set {
    fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Relaxed) != 0
    }

    /// In a forked child: its parent goes on using it.
    pub fn inherited(&self) {
        self.lock.reset();
        self.foreign.store(FOR_GOOD, Ordering::Relaxed);
        self.hot_len.store(0, Ordering::Relaxed);
        self.sleepers.store(0, Ordering::Relaxed);
    }

    /// Others see what the kernel knows of this set: no ring may know more. `why` is a bit.
    fn make_foreign(&self, why: u32) {
        if self.foreign.fetch_or(why, Ordering::SeqCst) != 0 {
            return;
        }
        if let Some(_guard) = self.lock.acquire() {
            self.flush();
            while let Some(conn) = self.hot_at(0) {
                if let Ok(_rx) = conn.lock_rx(conn.fd()) {
                    conn.park_rx(&conn.receiver());
                }
                self.drop_hot(conn);
            }
        }
    }

    fn hot_at(&self, index: u32) -> Option<&'static Conn> {
        if index >= self.hot_len.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the list holds hot_len connections, and their memory stays theirs.
        unsafe {
            let at = self.hot.load(Ordering::Relaxed).add(index as usize);
            Some(&*(*at).load(Ordering::Relaxed))
        }
    }

    fn put_hot(&self, index: u32, conn: &Conn) {
        // SAFETY: callers stay below LIST_MAX.
        unsafe {
            let at = self.hot.load(Ordering::Relaxed).add(index as usize);
            (*at).store(core::ptr::from_ref(conn).cast_mut(), Ordering::Relaxed);
        }
        conn.hot.store(index + 1, Ordering::Relaxed);
    }

    fn push_hot(&self, conn: &Conn) -> bool {
        let len = self.hot_len.load(Ordering::Relaxed);
        if len as usize >= LIST_MAX {
            return false;
        }
        conn.idle.store(0, Ordering::Relaxed);
        conn.hot_set.store(core::ptr::from_ref(self).cast_mut(), Ordering::Release);
        self.put_hot(len, conn);
        self.hot_len.store(len + 1, Ordering::Relaxed);
        true
    }

    fn drop_hot(&self, conn: &Conn) {
        let place = conn.hot.load(Ordering::Relaxed);
        let len = self.hot_len.load(Ordering::Relaxed);
        let is_here = core::ptr::eq(conn.hot_set.load(Ordering::Relaxed), self);
        if !is_here || place == 0 || place > len {
            return;
        }
        if let Some(last) = self.hot_at(len - 1) {
            self.put_hot(place - 1, last);
        }
        conn.hot.store(0, Ordering::Relaxed);
        self.hot_len.store(len - 1, Ordering::Relaxed);
    }

    fn mark_dirty(&self, fd: c_int, watch: &Watch) {
        if watch.has(Watch::DIRTY) {
            return;
        }
        let len = self.dirty_len.load(Ordering::Relaxed);
        if len as usize >= LIST_MAX {
            self.flush();
            return self.mark_dirty(fd, watch);
        }
        // SAFETY: below LIST_MAX.
        unsafe { (*self.dirty.load(Ordering::Relaxed).add(len as usize)).store(fd, Ordering::Relaxed) };
        self.dirty_len.store(len + 1, Ordering::Relaxed);
        watch.add(Watch::DIRTY);
    }

    /// Tells the kernel what changed. Under the lock, before the kernel is asked.
    fn flush(&self) {
        let len = self.dirty_len.swap(0, Ordering::Relaxed);
        for i in 0..len {
            // SAFETY: below LIST_MAX.
            let fd = unsafe {
                (*self.dirty.load(Ordering::Relaxed).add(i as usize)).load(Ordering::Relaxed)
            };
            let Some(watch) = table::watch(fd) else { continue };
            let is_ours = core::ptr::eq(watch.set.load(Ordering::Relaxed), self);
            if !is_ours || !watch.has(Watch::DIRTY) {
                continue;
            }
            watch.remove(Watch::DIRTY);
            if watch.has(Watch::PRESENT) {
                self.kernel_ctl(MOD, fd, watch);
            } else {
                self.kernel_ctl(DEL, fd, watch);
                self.let_go(fd, watch);
            }
        }
    }

    /// The set no longer watches `fd`. Under the lock.
    fn let_go(&self, fd: c_int, watch: &Watch) {
        if let Some(conn) = table::conn_of(fd) {
            self.drop_hot(conn);
        }
        forget(watch);
    }

    fn kernel_ctl(&self, op: c_int, fd: c_int, watch: &Watch) {
        let mut event = EpollEvent {
            events: watch.events.load(Ordering::Relaxed),
            data: watch.data.load(Ordering::Relaxed),
        };
        let set = self.fd.load(Ordering::Relaxed);
        // SAFETY: event is ours.
        unsafe { call!(epoll_ctl, set, op, fd, &raw mut event) };
    }

    /// epoll_ctl. Returns as libc does.
    ///
    /// # Safety
    /// `event` as the program passed it.
    pub unsafe fn ctl(
        &'static self,
        set_fd: c_int,
        op: c_int,
        fd: c_int,
        event: *mut EpollEvent,
    ) -> c_int {
        // SAFETY: the program's own arguments.
        let kernel = || unsafe { real::epoll_ctl(set_fd, op, fd, event) };
        let Some(watch) = table::watch(fd) else { return kernel() };
        if event.is_null() && op != DEL {
            return kernel();
        }
        let asked = if op == DEL {
            EpollEvent { events: 0, data: 0 }
        } else {
            // SAFETY: not null; a bad pointer faults here as it would give EFAULT there.
            unsafe { event.read_unaligned() }
        };
        let conn = table::conn_of(fd);
        let ret = {
            let Some(_guard) = self.lock.acquire() else { return kernel() };
            self.ctl_locked(op, fd, watch, asked, conn, kernel)
        };
        if let (Entry::Set(inner), 0) = (table::get(fd), ret) {
            if op == DEL || asked.events == 0 {
                inner.foreign.fetch_and(!NESTED, Ordering::SeqCst);
            } else {
                inner.make_foreign(NESTED);
            }
        }
        if let Some(conn) = conn.filter(|_| ret == 0 && op != DEL) {
            self.registered(conn, fd, watch, asked.events);
        }
        ret
    }

    fn ctl_locked(
        &self,
        op: c_int,
        fd: c_int,
        watch: &Watch,
        asked: EpollEvent,
        conn: Option<&'static Conn>,
        kernel: impl Fn() -> c_int,
    ) -> c_int {
        let owner = watch.set.load(Ordering::Relaxed);
        let is_ours = core::ptr::eq(owner, self);
        let is_present = is_ours && watch.has(Watch::PRESENT);
        let is_special = asked.events & (ONESHOT | EXCLUSIVE) != 0;
        let stays_here = conn.is_some() && is_ours && !is_special && !self.is_foreign();
        match op {
            ADD if stays_here && watch.has(Watch::IN_KERNEL) && !is_present => {
                watch.add(Watch::PRESENT);
                self.note(watch, asked);
                self.mark_dirty(fd, watch);
                0
            }
            MOD if stays_here && is_present => {
                self.note(watch, asked);
                self.mark_dirty(fd, watch);
                0
            }
            DEL if stays_here && is_present => {
                watch.remove(Watch::PRESENT);
                self.mark_dirty(fd, watch);
                0
            }
            ADD => {
                if !owner.is_null() && !watch.has(Watch::PRESENT) {
                    // Taken back from that set, which has not told the kernel yet.
                    // SAFETY: a set's memory stays a set's.
                    unsafe { &*owner }.kernel_ctl(DEL, fd, watch);
                    forget(watch);
                }
                let ret = kernel();
                if ret != 0 {
                    return ret;
                }
                if watch.has(Watch::PRESENT) {
                    watch.add(Watch::MANY_SETS);
                    return ret;
                }
                self.note(watch, asked);
                watch.flags.store(Watch::PRESENT | Watch::IN_KERNEL, Ordering::Relaxed);
                watch.set.store(core::ptr::from_ref(self).cast_mut(), Ordering::Release);
                table::reaches(fd);
                ret
            }
            _ => {
                if is_ours && watch.has(Watch::DIRTY) {
                    self.flush();
                }
                let ret = kernel();
                if ret == 0 && is_ours {
                    if op == DEL {
                        let many = watch.flags.load(Ordering::Relaxed) & Watch::MANY_SETS;
                        self.let_go(fd, watch);
                        watch.add(many);
                    } else {
                        self.note(watch, asked);
                    }
                }
                ret
            }
        }
    }

    fn note(&self, watch: &Watch, asked: EpollEvent) {
        watch.events.store(asked.events, Ordering::Relaxed);
        watch.data.store(asked.data, Ordering::Relaxed);
    }

    /// A connection was registered, or registered anew.
    fn registered(&self, conn: &'static Conn, fd: c_int, watch: &Watch, events: u32) {
        if watch.has(Watch::MANY_SETS) || events & (ONESHOT | EXCLUSIVE) != 0 {
            conn.park_rx_for_good(fd);
        }
        if !core::ptr::eq(conn.hot_set.load(Ordering::Acquire), self) {
            leave(conn);
        }
        let Some(_guard) = self.lock.acquire() else { return };
        let Ok(_rx) = conn.lock_rx(fd) else { return };
        let receiver = conn.receiver();
        // Told again, as the kernel does after MOD.
        conn.edge_told.store(u64::MAX, Ordering::Relaxed);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            conn.park_rx(&receiver);
        }
        let is_hot = receiver.phase() != Phase::Parked || receiver.unread_bytes() > 0;
        if is_hot && conn.hot.load(Ordering::Relaxed) == 0 {
            self.push_hot(conn);
        }
    }

    /// epoll_wait in all its forms. Returns as libc does.
    pub fn wait(&self, wait: &Wait) -> c_int {
        let is_plain = self.is_foreign()
            || wait.max <= 0
            || self.hot_len.load(Ordering::Relaxed) == 0
                && self.dirty_len.load(Ordering::Relaxed) == 0;
        if is_plain {
            return self.sleep(wait, wait.timeout);
        }
        let start_ns = if wait.timeout.ns > 0 { clock::now_ns() } else { 0 };
        let mut spin_until = 0;
        loop {
            {
                let Some(guard) = self.lock.acquire() else {
                    return self.sleep(wait, wait.timeout);
                };
                let found = self.collect(wait);
                let is_due = self.is_kernel_due();
                if found > 0 {
                    if spin_until > 1 {
                        self.spin.won();
                    }
                    if !is_due || found as c_int == wait.max {
                        return found as c_int;
                    }
                    return (found + self.look_at_kernel(wait, found).max(0) as usize) as c_int;
                }
                if wait.timeout.is_now() && spin_until == 0 && spin::is_tight(&self.empty_at) {
                    spin_until = 1;
                    drop(guard);
                    self.watch(clock::us(spin::TIGHT_US));
                    continue;
                }
                if is_due || spin_until == 0 || wait.timeout.is_now() {
                    let more = self.look_at_kernel(wait, 0);
                    if more == 0 && wait.timeout.is_now() {
                        self.empty_at.store(clock::ticks(), Ordering::Relaxed);
                    }
                    if more != 0 || wait.timeout.is_now() {
                        return sys::returned(more as isize) as c_int;
                    }
                }
            }
            let now = clock::ticks();
            if spin_until == 0 {
                let spins = !spin::is_off() && self.spin.allows();
                spin_until = if spins { now + self.budget(wait.timeout) } else { now };
            }
            if now < spin_until {
                self.watch(spin_until - now);
                if clock::ticks() >= spin_until {
                    self.spin.lost();
                }
                continue;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            if self.park_all() {
                let ret = wait.kernel(0, wait.timeout.less(start_ns));
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                return ret;
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
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
        let more = wait.look(found);
        if found == 0 || more <= 0 {
            return more;
        }
        merge(wait.events, found, more as usize) as c_int
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
            let events = self.ready(conn, watch);
            if events != 0 {
                conn.idle.store(0, Ordering::Relaxed);
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

    /// What a hot connection has to tell, besides what the kernel knows.
    fn ready(&self, conn: &'static Conn, watch: &Watch) -> u32 {
        if !watch.has(Watch::PRESENT) {
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
        if wants_out && (events != 0 || asked & EDGE == 0) {
            if writable(conn) {
                events |= asked & (OUT | WRNORM);
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
                if conn.idle.load(Ordering::Relaxed) >= IDLE_LOOKS && receiver.park() == Park::Parked
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
    fn watch(&self, budget: u64) {
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
        spin::watch_many(budget, peer_cpu, stirs, 8);
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
            let is_wanted = watch.has(Watch::PRESENT) && asked & (IN | RDNORM) != 0;
            let is_told = asked & EDGE != 0
                && conn.edge_told.load(Ordering::Relaxed) == receiver.tail_seen();
            if matches!(view, View::Ring { .. }) && is_wanted && !is_told {
                return false;
            }
            let was_offered = receiver.phase() == Phase::Offered;
            if receiver.park() == Park::Moved {
                return false;
            }
            if was_offered {
                conn.offers.lost();
            }
            self.drop_hot(conn);
        }
        true
    }

    fn sleep(&self, wait: &Wait, timeout: Timeout) -> c_int {
        if timeout.is_now() {
            return wait.kernel(0, timeout);
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let ready_to_sleep = self.hot_len.load(Ordering::SeqCst) == 0 || self.park_all();
        let timeout = if ready_to_sleep { timeout } else { Timeout { ns: 0 } };
        let ret = wait.kernel(0, timeout);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        if ret == 0 && !ready_to_sleep && !self.is_foreign() && wait.max > 0 {
            return self.wait(wait);
        }
        ret
    }
}
