//! epoll sets.
//!
//! A set is the kernel's open file, whatever numbers name it. It keeps a list of its hot
//! registrations: those of connections whose receiving direction is offered, open or unread,
//! which the kernel cannot tell about. A wait looks at these, asks the kernel about all others
//! now and then, and parks the hot ones before it sleeps. So a wait costs what is hot, not what
//! is registered.
//!
//! Registrations of connections that change stay in user space until the kernel is asked again:
//! programs change them several times a request.
//!
//! What must stay true:
//! - While a connection is offered or open, each of its registrations is in its set's hot list,
//!   and nobody sleeps on these sets. While it has ring bytes unread, it is there too.
//! - A registration leaves a hot list when its connection is parked and drained, under the
//!   receive lock, or with its number, its set or its connection, for good.
//! - A hot list changes under the set's lock. A connection that is in one stays mapped as long
//!   as that lock is held.
//! - Nothing points at a set that was closed: its registrations go with it, and its memory
//!   serves no other set before the last thread that sleeps on it is back.
//!
//! Storey 3: connection.

pub mod adopted;
mod followed;
pub mod hot;
pub mod kernel;
mod list;
pub mod listed;
pub mod numbers;
mod places;
pub mod registration;
pub mod shown;

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::lock::Lock;
use crate::slab::{Pooled, Slab};
use crate::spin::{Backoff, Polling};
use crate::sys::EpollEvent;
use crate::{clock, holders, process, table};
use list::List;
use registration::{REGISTRY, Registration};

pub const IN: u32 = 1;
pub const PRI: u32 = 2;
pub const OUT: u32 = 4;
pub const ERR: u32 = 8;
pub const HUP: u32 = 0x10;
pub const RDNORM: u32 = 0x40;
pub const RDBAND: u32 = 0x80;
pub const WRNORM: u32 = 0x100;
pub const RDHUP: u32 = 0x2000;
pub const EXCLUSIVE: u32 = 1 << 28;
pub const ONESHOT: u32 = 1 << 30;
pub const EDGE: u32 = 1 << 31;

pub const ADD: c_int = 1;
pub const DEL: c_int = 2;
pub const MOD: c_int = 3;

/// How long a busy set may leave the kernel unasked, in microseconds.
pub const LOOK_US: u64 = 20;

/// A hot connection that stayed silent for so many looks is parked.
pub const IDLE_LOOKS: u32 = 4096;

/// Passed on, closed, or shared over fork.
pub const FOR_GOOD: u32 = 1;
/// Another set watches it, as long as that asks for any events.
pub const NESTED: u32 = 2;
/// It came over a fork. The parent goes on as before until this process uses it.
pub const INHERITED: u32 = 4;
pub const UNUSED: u32 = 8;
/// A poll or select looks at it, or a set that this library does not know.
pub const POLLED: u32 = 16;
/// Another set of this process watches it, and waits on that look at its rings: the one bit that
/// does not make it foreign.
pub const FOLLOWED: u32 = 32;

/// What a look found that a registration has to tell.
#[derive(Clone, Copy)]
pub struct Ready {
    pub one: &'static Registration,
    /// By which it has its place among the others.
    pub key: u64,
    pub events: u32,
    /// The sender did something by TCP before, of which the kernel was not asked yet.
    pub follows: bool,
}

/// In a key: behind all that the kernel tells.
pub const BEHIND: u64 = 1 << 63;

#[repr(C, align(64))]
pub struct Set {
    pub lock: Lock,
    /// One of its numbers, and how many there are in this process.
    pub fd: AtomicI32,
    pub names: AtomicU32,
    /// Raised with each use of this memory for another set.
    pub serial: AtomicU32,
    /// Threads that sleep on it, or are about to.
    pub sleepers: AtomicU32,
    /// Not 0: a thread would have offered, had nobody slept on it. The next wait watches before it
    /// sleeps, so that others can.
    pub wanted: AtomicU32,
    /// Not 0: closed, and its memory not given back yet.
    pub closed: AtomicU32,
    /// Bits of why other eyes are on it, 0 if none: then all is parked.
    pub foreign: AtomicU32,
    /// Where the processes that share it over a fork are counted, and say that they use it; 0: never
    /// forked.
    pub slot: AtomicU32,
    /// Not 0: what the program changed had to be told to the kernel at once, as another process may
    /// hold the set. The next wait asks the broker who does.
    pub doubted: AtomicU32,
    /// `Pause` between two such questions.
    pub doubts: AtomicU32,
    /// Not 0: the program that follows by exec does not get it.
    pub let_go: AtomicU32,
    /// Not 0: it holds sets that are followed, or did.
    pub has_sets: AtomicU32,
    /// Not 0: a program that was started has it, and nothing says when that ends.
    pub lent: AtomicU32,
    /// Not 0: the kernel knows that its rings have something, see `shown`.
    pub showing: AtomicU32,
    /// Not 0: the kernel was given tokens at some time, and its answers may have some.
    pub tokens: AtomicU32,
    /// Not 0: the program's own data looks like tokens.
    pub tokenless: AtomicU32,
    /// Not 0: it was passed on over a Unix socket, and may come back as another number.
    pub passed: AtomicU32,
    pub hot: List<&'static Registration>,
    /// What the look under way found.
    pub ready: List<Ready>,
    /// Events of one answer with their places.
    pub placed: List<(u64, EpollEvent)>,
    pub cursor: AtomicU32,
    /// How often the list was gone through.
    pub round: AtomicU32,
    pub dirty: List<&'static Registration>,
    pub polling: Polling,
    /// Not 0: something only the kernel knows is wanted now.
    pub kernel_due: AtomicU32,
    /// Not 0: the kernel was asked before the rings the last time that their events filled the
    /// program's buffer.
    pub kernel_first: AtomicU32,
    /// Ticks: what the last wait told of was told then or later.
    pub waited_at: AtomicU64,
    /// The same of the rings in the answer under way, and not 0 if the kernel told some of it.
    pub emits_at: AtomicU64,
    pub is_mixed: AtomicU32,
    /// Not 0: the kernel's list of what is ready may be in another order than what was told.
    pub differs: AtomicU32,
    /// Registrations by the data that the program gave them; of several one.
    known: [AtomicPtr<Registration>; places::KNOWN],
    /// Ticks at which the kernel was last asked, and at which it was and had room for all it knew.
    pub looked_at: AtomicU64,
    pub known_at: AtomicU64,
    pub spin: Backoff,
    pub next_free: AtomicPtr<Set>,
}

// SAFETY: atomics, lists and a lock; all zero is a set without lists, which no entry names.
unsafe impl Pooled for Set {
    fn next_free(&self) -> &AtomicPtr<Self> {
        &self.next_free
    }
}

pub static POOL: Slab<Set> = Slab::new();

/// # Safety
/// The table has or had a set with this address.
pub unsafe fn of_address(address: usize) -> &'static Set {
    // SAFETY: sets lie in a slab that is never unmapped.
    unsafe { &*(address as *const Set) }
}

/// The set that the calling process has at `fd`.
pub fn of(fd: c_int) -> Option<&'static Set> {
    match table::kind(table::raw(fd)) {
        table::Kind::Set(address) if !process::is_borrowed() => {
            // SAFETY: the table's.
            Some(unsafe { of_address(address) })
        }
        _ => None,
    }
}

/// epoll_create made `fd`.
pub fn created(fd: c_int) {
    let Some(set) = POOL.take() else { return };
    set.fd.store(fd, Ordering::Relaxed);
    set.names.store(1, Ordering::Relaxed);
    set.serial.fetch_add(1, Ordering::Relaxed);
    set.hot.clear();
    set.dirty.clear();
    for field in [
        &set.sleepers,
        &set.wanted,
        &set.closed,
        &set.foreign,
        &set.slot,
        &set.doubted,
        &set.doubts,
        &set.let_go,
        &set.has_sets,
        &set.lent,
        &set.showing,
        &set.tokens,
        &set.tokenless,
        &set.passed,
        &set.cursor,
        &set.kernel_due,
        &set.kernel_first,
        &set.is_mixed,
        &set.differs,
    ] {
        field.store(0, Ordering::Relaxed);
    }
    set.waited_at.store(0, Ordering::Relaxed);
    // What was ready before has its place from when it is added.
    set.known_at.store(clock::ticks(), Ordering::Relaxed);
    set.spin.reset();
    table::set_set(fd, set.address());
}

/// Each set of this process once.
fn all() -> impl Iterator<Item = &'static Set> {
    (0..table::end()).filter_map(|fd| of(fd).filter(|set| set.fd.load(Ordering::Relaxed) == fd))
}

/// The next program may look at this one's sets, and knows no tokens. `closes`: which numbers it
/// does not inherit.
pub fn before_exec(closes: impl Fn(c_int) -> bool) {
    for set in all() {
        if let Some(_guard) = set.lock.acquire() {
            set.leaves_to_kernel(true);
            set.marks_untold();
        }
        if (0..table::end()).all(|fd| !set.is_at(fd) || closes(fd)) {
            set.lets_go();
            set.let_go.store(1, Ordering::Relaxed);
        }
    }
}

/// A program is about to be started, which may look at this one's sets: from now on the kernel
/// knows them as they are.
pub fn before_start(closes: impl Fn(c_int) -> bool) {
    let numbers = || 0..table::end();
    for set in all() {
        if numbers().any(|fd| set.is_at(fd) && !closes(fd))
            && let Some(_guard) = set.lock.acquire()
        {
            set.lent.store(1, Ordering::SeqCst);
            set.show();
            set.leaves_to_kernel(false);
            set.marks_untold();
        }
    }
}

/// The program is about to forbid itself system calls: the kernel knows all sets as they are, and hears of
/// changes by the program's own calls.
pub fn enter_sandbox() {
    for set in all() {
        if let Some(_guard) = set.lock.acquire() {
            set.doubted.store(0, Ordering::Relaxed);
            set.leaves_to_kernel(true);
        }
    }
}

/// The exec failed: this program goes on.
pub fn exec_failed() {
    for set in all() {
        let slot = set.slot.load(Ordering::Relaxed) as usize;
        if set.let_go.swap(0, Ordering::Relaxed) != 0 && slot != 0 {
            holders::hold_slot(slot);
        }
    }
}

/// The program exits.
pub fn exits() {
    all().for_each(Set::lets_go);
}

/// In a forked child: the lists are its own copies, and nobody else holds their locks.
pub fn forget_in_child() {
    POOL.reset_lock();
    registration::POOL.reset_lock();
    REGISTRY.reset();
    for one in registration::all(|_| true) {
        one.hot.store(0, Ordering::Relaxed);
    }
}

impl Set {
    pub fn address(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Whether `fd` names it.
    pub fn is_at(&self, fd: c_int) -> bool {
        table::raw(fd) == table::set_raw(self.address())
    }

    pub fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Relaxed) & !FOLLOWED != 0 || self.is_used_elsewhere()
    }

    /// Whether nobody but this process looks at it.
    pub fn is_own(&self) -> bool {
        let why = self.foreign.load(Ordering::SeqCst);
        why & !(NESTED | POLLED | FOLLOWED) == 0 && !self.is_used_elsewhere()
    }

    pub fn is_used_elsewhere(&self) -> bool {
        holders::is_raised(self.slot.load(Ordering::Relaxed) as usize)
    }

    /// Whether nobody looks at it but waits that look at rings.
    pub fn may_offer(&self) -> bool {
        !self.is_foreign() && self.sleepers.load(Ordering::SeqCst) == 0
    }

    pub fn falls_asleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// The last thread that was asleep on a closed set gives its memory back.
    pub fn wakes_up(&'static self) {
        let was_last = self.sleepers.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && self.closed.swap(0, Ordering::SeqCst) != 0 {
            POOL.give(self);
        }
    }

    /// Its last number goes.
    pub fn close(&'static self) {
        self.becomes_foreign(FOR_GOOD);
        {
            let Some(_guard) = self.lock.acquire() else { return };
            self.serial.fetch_add(1, Ordering::SeqCst);
            for one in registration::all(|one| one.is_of(self)) {
                self.drop_hot(one);
                one.free();
            }
        }
        self.lets_go();
        self.closed.store(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) == 0 && self.closed.swap(0, Ordering::SeqCst) != 0 {
            POOL.give(self);
        }
    }

    /// Before a fork: what the kernel was not told yet, the child would not know either.
    pub fn before_fork(&'static self) {
        if self.is_followed() {
            self.make_foreign(NESTED);
        }
        if let Some(_guard) = self.lock.acquire() {
            self.leaves_to_kernel(false);
        }
        match self.slot.load(Ordering::Relaxed) as usize {
            0 => match holders::take_slot() {
                Some(slot) => self.slot.store(slot as u32, Ordering::Relaxed),
                None => self.make_foreign(FOR_GOOD),
            },
            slot => holders::hold_slot(slot),
        }
    }

    /// Whether another process may hold it, though it has not used it yet. What the program changes
    /// the kernel is told at once then, with the program's own data: the other one would see.
    pub fn is_shared(&self) -> bool {
        self.lent.load(Ordering::Relaxed) != 0
            || !holders::is_sole_holder(self.slot.load(Ordering::Relaxed) as usize)
    }

    /// The kernel said so: who was counted is gone, and never said it.
    pub fn is_left_alone(&self) {
        holders::is_left_alone(self.slot.load(Ordering::Relaxed) as usize);
    }

    /// This process holds it no more.
    pub fn lets_go(&self) {
        holders::drop_slot(self.slot.load(Ordering::Relaxed) as usize);
    }

    /// Before this process uses it: should it come over a fork, its connections stay parked
    /// from now on, in every process.
    #[inline]
    pub fn touch(&'static self) {
        if self.foreign.load(Ordering::Relaxed) & UNUSED != 0 {
            self.first_use();
        } else if self.foreign.load(Ordering::Relaxed) & !FOLLOWED == 0 && self.is_used_elsewhere()
        {
            self.make_foreign(FOR_GOOD);
        }
    }

    #[cold]
    pub fn first_use(&'static self) {
        let slot = self.slot.load(Ordering::Relaxed) as usize;
        if slot != 0 {
            holders::raise_slot(slot);
        }
        // Raised, /then/ parked: who offers has the receive lock, and looks.
        let Some(_guard) = self.lock.acquire() else { return };
        self.foreign.fetch_and(!UNUSED, Ordering::SeqCst);
        for one in registration::all(|one| one.is_of(self)) {
            if let Some(conn) = one.conn()
                && let Ok(_rx) = conn.lock_rx(one.at())
            {
                let receiver = conn.receiver();
                conn.park_rx(&receiver);
                if !receiver.is_drained() {
                    self.push_hot(one);
                }
            }
        }
        self.show();
    }

    /// In a forked child: its parent goes on using it.
    pub fn inherited(&self) {
        self.lock.reset();
        let why = self.foreign.load(Ordering::Relaxed) & (NESTED | POLLED);
        let why = if self.is_followed() { why | NESTED } else { why };
        self.foreign.store(why | INHERITED | UNUSED, Ordering::Relaxed);
        self.hot.clear();
        self.dirty.clear();
        self.sleepers.store(0, Ordering::Relaxed);
    }

    /// Others see what the kernel knows of this set: no ring may know more than the kernel was
    /// shown. `why` is a bit.
    pub fn make_foreign(&'static self, why: u32) {
        if self.becomes_foreign(why) && self.has_sets.load(Ordering::Relaxed) != 0 {
            // They look at what it holds, too.
            for inner in registration::all(|one| one.is_of(self)).filter_map(Self::followed) {
                inner.becomes_foreign(NESTED);
            }
        }
    }

    /// False: it is for this reason already.
    fn becomes_foreign(&'static self, why: u32) -> bool {
        if self.foreign.fetch_or(why, Ordering::SeqCst) & why != 0 {
            return false;
        }
        if let Some(_guard) = self.lock.acquire() {
            self.flush();
            self.take_tokens_back();
            self.park_hot();
            self.show();
        }
        true
    }
}
