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

mod registration;
mod wait;

pub use wait::Wait;

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::conn::Conn;
use crate::lock::Lock;
use crate::process;
use crate::slab::{Pooled, Slab};
use crate::spin::{Backoff, Tight};
use crate::sys::{self};
use crate::table::{self, Entry, Watch};

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
/// It came over a fork. The parent goes on as before until this process uses it.
const INHERITED: u32 = 4;
const UNUSED: u32 = 8;

/// Not 0: a set that others look at may have connections with bytes unread in their rings.
static LEFT: AtomicU32 = AtomicU32::new(0);

#[repr(C, align(64))]
pub struct Set {
    lock: Lock,
    fd: AtomicI32,
    /// Threads that sleep on it, or are about to.
    sleepers: AtomicU32,
    /// Bits of why other eyes are on it, 0 if none: then all is parked.
    foreign: AtomicU32,
    /// Where the processes that share it over a fork say that they use it; 0: never forked.
    slot: AtomicU32,
    /// Not 0: it watched another set at some time.
    outer: AtomicU32,
    /// Not 0: its sleepers were woken by `wake_sleepers` at some time.
    woken: AtomicU32,
    hot: AtomicPtr<AtomicPtr<Conn>>,
    hot_len: AtomicU32,
    cursor: AtomicU32,
    dirty: AtomicPtr<AtomicI32>,
    dirty_len: AtomicU32,
    tight: Tight,
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
    for field in
        [&set.sleepers, &set.foreign, &set.hot_len, &set.cursor, &set.dirty_len, &set.kernel_due]
            .into_iter()
            .chain([&set.slot, &set.outer, &set.woken])
    {
        field.store(0, Ordering::Relaxed);
    }
    set.spin.reset();
    table::set_set(fd, set);
}

/// The program closes the set's descriptor, which has left the table.
pub fn closed(set: &'static Set) {
    set.make_foreign(FOR_GOOD);
    for fd in 0..table::end() {
        if let Some(watch) = table::watch(fd)
            && core::ptr::eq(watch.set.load(Ordering::Relaxed), set)
        {
            forget(watch);
        }
    }
    POOL.give(set);
}

/// The set of `watch` no longer has it. That others may have it, which the kernel alone knows
/// of, holds until the descriptor is closed.
fn forget(watch: &Watch) {
    watch.flags.fetch_and(Watch::MANY_SETS, Ordering::Relaxed);
    // The flags, /then/ the set: who finds no set here (Acquire) raises flags of its own.
    watch.set.store(core::ptr::null_mut(), Ordering::Release);
}

/// The program closes `fd`, or gives the number to something else.
pub fn descriptor_closed(fd: c_int) {
    let Some(watch) = table::watch(fd) else { return };
    let set = watch.set.load(Ordering::Relaxed);
    if set.is_null() {
        if watch.has(Watch::MANY_SETS) {
            watch.remove(Watch::MANY_SETS);
        }
        return;
    }
    // SAFETY: a set's memory stays a set's.
    let set = unsafe { &*set };
    let is_own = set.foreign.load(Ordering::Relaxed) & INHERITED == 0;
    if is_own && watch.has(Watch::DIRTY) {
        // A duplicate, or a forked child, keeps the registration alive as the kernel has it.
        set.kernel_ctl(if watch.has(Watch::PRESENT) { MOD } else { DEL }, fd, watch);
    }
    forget(watch);
    watch.remove(Watch::MANY_SETS);
}

/// The program closed `fd`, but another descriptor still names the connection: a set that was
/// told of `fd` goes on watching it, as the kernel does.
pub fn renamed(fd: c_int, other: c_int) {
    let (Some(from), Some(to)) = (table::watch(fd), table::watch(other)) else { return };
    let set = from.set.load(Ordering::Relaxed);
    if set.is_null() || !to.set.load(Ordering::Relaxed).is_null() {
        return;
    }
    if from.has(Watch::DIRTY) {
        // SAFETY: a set's memory stays a set's.
        let set = unsafe { &*set };
        set.kernel_ctl(if from.has(Watch::PRESENT) { MOD } else { DEL }, fd, from);
    }
    if !from.has(Watch::PRESENT) {
        return;
    }
    to.events.store(from.events.load(Ordering::Relaxed), Ordering::Relaxed);
    to.data.store(from.data.load(Ordering::Relaxed), Ordering::Relaxed);
    let flags = from.flags.load(Ordering::Relaxed) & !Watch::DIRTY | Watch::ORPHAN;
    to.flags.store(flags, Ordering::Relaxed);
    to.set.store(set, Ordering::Release);
}

/// Whether a set has `fd`.
pub fn watches(fd: c_int) -> bool {
    table::watch(fd).is_some_and(|watch| {
        watch.has(Watch::PRESENT) && !watch.set.load(Ordering::Relaxed).is_null()
    })
}

/// Whether connection `conn` may be offered as far as its set goes; if so it is in the set's
/// hot list. Under the receive lock.
pub fn may_offer(conn: &'static Conn, fd: c_int) -> bool {
    if conn.has_many_names() {
        return false;
    }
    let Some(watch) = table::watch(fd) else { return true };
    if watch.has(Watch::MANY_SETS) {
        return false;
    }
    let set = watch.set.load(Ordering::Acquire);
    if set.is_null() {
        return true;
    }
    // SAFETY: a set's memory stays a set's.
    let set = unsafe { &*set };
    let special = watch.events.load(Ordering::Relaxed) & (ONESHOT | EXCLUSIVE) != 0;
    if special || set.is_foreign() {
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
    !set.is_foreign() && set.sleepers.load(Ordering::SeqCst) == 0 && set.push_hot(conn)
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
    let set = unsafe { &*set };
    set.kernel_ctl(MOD, fd, watch);
    set.kernel_due.store(1, Ordering::Relaxed);
}

/// Another program's eyes are on descriptor `fd`, should it be a set.
pub fn watched_from_outside(fd: c_int) {
    if let Entry::Set(set) = table::get(fd) {
        set.touch();
        set.make_foreign(FOR_GOOD);
    }
}

/// Whether descriptor `fd` is a set with something that the kernel does not know of.
pub fn has_left(fd: c_int) -> bool {
    LEFT.load(Ordering::Relaxed) != 0
        && matches!(table::get(fd), Entry::Set(set) if set.is_foreign() && set.has_unread())
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

impl Set {
    fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Relaxed) != 0 || self.is_used_elsewhere()
    }

    fn is_used_elsewhere(&self) -> bool {
        process::is_raised(self.slot.load(Ordering::Relaxed) as usize)
    }

    /// Before a fork: what the kernel was not told yet, the child would not know either.
    pub fn before_fork(&self) {
        if let Some(_guard) = self.lock.acquire() {
            self.flush();
        }
        if self.slot.load(Ordering::Relaxed) == 0 {
            match process::take_slot() {
                Some(slot) => self.slot.store(slot as u32, Ordering::Relaxed),
                None => self.make_foreign(FOR_GOOD),
            }
        }
    }

    /// Before this process uses it: should it come over a fork, its connections stay parked
    /// from now on, in every process.
    #[inline]
    pub fn touch(&self) {
        if self.foreign.load(Ordering::Relaxed) & UNUSED != 0 {
            self.first_use();
        } else if self.foreign.load(Ordering::Relaxed) == 0 && self.is_used_elsewhere() {
            self.make_foreign(FOR_GOOD);
        }
    }

    #[cold]
    fn first_use(&self) {
        let slot = self.slot.load(Ordering::Relaxed) as usize;
        if slot != 0 {
            process::raise_slot(slot);
        }
        // Raised, /then/ parked: who offers has the receive lock, and looks.
        let Some(_guard) = self.lock.acquire() else { return };
        self.foreign.fetch_and(!UNUSED, Ordering::SeqCst);
        for fd in 0..table::end() {
            let Some(watch) = table::watch(fd) else { continue };
            if core::ptr::eq(watch.set.load(Ordering::Relaxed), self)
                && let Some(conn) = table::conn_of(fd)
                && let Ok(_rx) = conn.lock_rx(fd)
            {
                let receiver = conn.receiver();
                conn.park_rx(&receiver);
                if receiver.unread_bytes() > 0 && conn.hot.load(Ordering::Relaxed) == 0 {
                    self.push_hot(conn);
                    LEFT.store(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// Whether a connection has bytes in its ring that a wait would tell of.
    fn has_unread(&self) -> bool {
        let Some(_guard) = self.lock.acquire() else { return false };
        (0..self.hot_len.load(Ordering::Relaxed)).filter_map(|i| self.hot_at(i)).any(|conn| {
            let Some(watch) = table::watch(conn.fd()) else { return false };
            let Ok(_rx) = conn.lock_rx(conn.fd()) else { return false };
            let receiver = conn.receiver();
            let is_wanted = watch.events.load(Ordering::Relaxed) & (IN | RDNORM) != 0;
            let is_told = watch.events.load(Ordering::Relaxed) & EDGE != 0
                && conn.edge_told.load(Ordering::Relaxed) == receiver.tail_seen();
            let is_armed = watch.has(Watch::PRESENT) && !watch.has(Watch::SPENT);
            is_armed && is_wanted && !is_told && receiver.unread_bytes() > 0
        })
    }

    /// In a forked child: its parent goes on using it.
    pub fn inherited(&self) {
        self.lock.reset();
        self.foreign.store(INHERITED | UNUSED, Ordering::Relaxed);
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
            let mut index = 0;
            while let Some(conn) = self.hot_at(index) {
                let Ok(_rx) = conn.lock_rx(conn.fd()) else {
                    self.drop_hot(conn);
                    continue;
                };
                let receiver = conn.receiver();
                conn.park_rx(&receiver);
                if receiver.unread_bytes() > 0 {
                    // The kernel will not tell of these: a wait here does.
                    LEFT.store(1, Ordering::SeqCst);
                    index += 1;
                } else {
                    self.drop_hot(conn);
                }
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
}
