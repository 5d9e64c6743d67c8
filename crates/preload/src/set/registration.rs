//! Registrations: what a set was told of a number, as the kernel keys it by (open file, number).
//!
//! A number may be registered in several sets, and a socket by several numbers in one set, so
//! each registration stands for itself: what was asked of it, and what it was told.
//!
//! All registrations under a number hang together in a list that begins in the table. One whose number was closed
//! while the socket lives on by another number hangs there, as an orphan.
//!
//! Storey 3: connection.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::{EDGE, ERR, EXCLUSIVE, HUP, IN, ONESHOT, OUT, RDNORM, Set, WRNORM};
use crate::conn::{self, Conn};
use crate::lock::Lock;
use crate::slab::{Pooled, Slab};
use crate::sys::{self, EpollEvent};
use crate::{clock, table};

/// Its fields but `next` change under the set's lock.
#[repr(C, align(64))]
pub struct Registration {
    /// Null: it is in no set, and free.
    set: AtomicPtr<Set>,
    pub data: AtomicU64,
    /// What the program asked for.
    pub events: AtomicU32,
    /// What the kernel was given last.
    pub kernel_events: AtomicU32,
    /// How often this memory was used for a registration.
    uses: AtomicU32,
    flags: AtomicU32,
    /// The number that the program and the kernel know it by.
    number: AtomicI32,
    /// The number that names the socket now; another one for an orphan.
    at: AtomicI32,
    /// Its place in the set's hot list plus 1; 0: it is not there.
    pub hot: AtomicU32,
    /// The round of its set that looked at it last.
    pub round: AtomicU32,
    /// Looks at the set since something came.
    pub idle: AtomicU32,
    /// Not 0: the last look left it, since what it has was sent after that look began.
    pub left: AtomicU32,
    /// The ring tail when it was looked at last.
    pub found_tail: AtomicU64,
    /// Ring tail that an edge-triggered wait was last told of.
    pub edge_told: AtomicU64,
    /// What a sender under another kernel said of its steps elsewhere when the kernel was last asked
    /// because of them.
    pub elsewhere_seen: AtomicU64,
    /// Ticks at which it was told of last.
    pub told_at: AtomicU64,
    /// Ticks at which the program last asked for more than before.
    pub asked_at: AtomicU64,
    /// The same of bytes to read.
    asked_in_at: AtomicU64,
    /// Ticks at which the kernel was last told what it asks for.
    pub kernel_told_at: AtomicU64,
    /// Of the socket, where no number of this process names it any more.
    pub inode: AtomicU64,
    /// The next one under the same number. Under `REGISTRY`.
    next: AtomicPtr<Registration>,
    next_free: AtomicPtr<Registration>,
}

// SAFETY: atomics; all zero is a free one.
unsafe impl Pooled for Registration {
    fn next_free(&self) -> &AtomicPtr<Self> {
        &self.next_free
    }
}

/// The program has it in the set.
pub const PRESENT: u32 = 1;
/// The kernel has it in the set.
pub const IN_KERNEL: u32 = 2;
/// The kernel's idea differs from the program's.
pub const DIRTY: u32 = 4;
/// One-shot, and told of: nothing more until the program arms it again.
pub const SPENT: u32 = 8;
/// Its number was closed: the kernel has it still, and nobody can change it any more.
pub const ORPHAN: u32 = 16;
/// One-shot, and the kernel knows it by its token: so this library learns when the kernel tells of
/// it, and its ring may tell, too.
pub const TOKENED: u32 = 32;
/// The kernel has not told of it since it was given it.
pub const ARMED: u32 = 64;
/// The kernel was given a wake-up in its place, see `epoll_ctl::wake_sleepers`.
pub const WAKES: u32 = 128;
/// The kernel has the program's own data as it is now.
pub const DATA_TOLD: u32 = 256;
/// The kernel listed it just now.
pub const LISTED: u32 = 512;

/// A registration's place in the kernel's list, in ticks.
pub struct Place {
    /// When it would have come there, had the kernel known all at once.
    pub key: u64,
    /// What the kernel tells of before it came there until then. `u64::MAX`: nothing says.
    pub in_kernel_at: u64,
}

/// The kernel's idea of a registration that the program changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Idea {
    Same,
    /// It watches for more, which waits take out of its answers (`epoll_ctl::told`).
    More,
    /// Besides, it does not watch for room.
    LacksRoom,
    Other,
}

/// Over the lists of all numbers. Taken last; nothing is taken under it but by `try_acquire`.
pub static REGISTRY: Lock = Lock::new();
pub static POOL: Slab<Registration> = Slab::new();

impl Registration {
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    pub fn add(&self, flags: u32) {
        // A look costs less than a locked instruction.
        if self.flags.load(Ordering::Relaxed) & flags != flags {
            self.flags.fetch_or(flags, Ordering::Relaxed);
        }
    }

    pub fn remove(&self, flags: u32) {
        if self.has(flags) {
            self.flags.fetch_and(!flags, Ordering::Relaxed);
        }
    }

    pub fn number(&self) -> c_int {
        self.number.load(Ordering::Relaxed)
    }

    /// The number to ask the kernel about the socket by.
    pub fn at(&self) -> c_int {
        self.at.load(Ordering::Relaxed)
    }

    pub fn asked(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }

    /// The program asks for `asked` from now on. Whether that is more than before.
    pub fn note(&'static self, asked: EpollEvent) -> bool {
        let before = if self.is_armed() { self.asked() } else { 0 };
        let is_more = asked.events & !before != 0;
        // What tells once has lost its place.
        if self.tells_once() || is_more && self.listed_at().is_none() {
            let now = clock::ticks();
            self.asked_at.store(now, Ordering::Relaxed);
            if asked.events & !before & (IN | RDNORM) != 0 {
                self.asked_in_at.store(now, Ordering::Relaxed);
            }
        }
        self.events.store(asked.events, Ordering::Relaxed);
        let is_other = self.data.load(Ordering::Relaxed) != asked.data;
        if is_other {
            self.data.store(asked.data, Ordering::Relaxed);
            self.remove(DATA_TOLD);
        }
        if (is_other || !self.has(PRESENT))
            && let Some(set) = self.set()
        {
            set.know(self);
        }
        is_more
    }

    /// Ticks at which the last wait told of it, if nobody waited since and it tells as long as it
    /// lasts: there it has its place in the kernel's list still, even if nothing is ready by now.
    pub fn listed_at(&self) -> Option<u64> {
        let told = self.told_at.load(Ordering::Relaxed);
        let set = self.set().filter(|_| told != 0 && !self.tells_once())?;
        (told >= set.waited_at.load(Ordering::Relaxed)).then_some(told)
    }

    fn tells_once(&self) -> bool {
        self.asked() & (EDGE | ONESHOT) != 0
    }

    /// Its place in the kernel's list, if the kernel tells `events` of it now. Nothing says when bytes
    /// came that it had not told of before.
    pub fn place(&self, events: u32) -> Option<Place> {
        if let Some(key) = self.listed_at() {
            return Some(Place { key, in_kernel_at: u64::MAX });
        }
        if events & (OUT | WRNORM) == 0 {
            return None;
        }
        let key = self.asked_at()?;
        let told = self.kernel_told_at.load(Ordering::Relaxed);
        Some(Place { key, in_kernel_at: key.max(told) })
    }

    /// Ticks at which the program asked for more, if nothing was told since.
    fn asked_at(&self) -> Option<u64> {
        let at = self.asked_at.load(Ordering::Relaxed);
        (at > self.told_at.load(Ordering::Relaxed)).then_some(at)
    }

    /// Ticks at which bytes that were sent at `sent_at` gave it its place.
    pub fn bytes_at(&self, sent_at: u64) -> u64 {
        let told_at = self.told_at.load(Ordering::Relaxed);
        // What it was told of already gives it a new place when it is asked for again.
        let asked_at = if sent_at > told_at { &self.asked_in_at } else { &self.asked_at };
        sent_at.max(told_at).max(asked_at.load(Ordering::Relaxed))
    }

    /// Ticks at which its room, which was there, gave it its place. `None`: what tells once tells of
    /// room no more.
    pub fn room_at(&self) -> Option<u64> {
        let told_at = || self.told_at.load(Ordering::Relaxed);
        self.asked_at().or_else(|| (!self.tells_once()).then(told_at))
    }

    pub fn set(&self) -> Option<&'static Set> {
        let set = self.set.load(Ordering::Acquire);
        // SAFETY: null, or a set, whose memory stays one.
        (!set.is_null()).then(|| unsafe { &*set })
    }

    pub fn is_of(&self, set: &Set) -> bool {
        core::ptr::eq(self.set.load(Ordering::Acquire), set)
    }

    pub fn conn(&self) -> Option<&'static Conn> {
        conn::at(self.at())
    }

    /// What the kernel has to tell of the socket now; nothing of one that no number names here.
    pub fn poll_now(&self, events: i16) -> i16 {
        if table::is_ghost(self.at()) { 0 } else { sys::poll_now(self.at(), events) }
    }

    /// Whether a wait may tell of it at all.
    pub fn is_armed(&self) -> bool {
        self.has(PRESENT) && !self.has(SPENT)
    }

    /// Whether a wait may tell of bytes of it.
    pub fn waits_for_bytes(&self) -> bool {
        self.is_armed() && self.asked() & (IN | RDNORM) != 0
    }

    /// Whether its ring may not tell of it: only the kernel knows when it tells, or whom.
    pub fn is_kernels_alone(&self) -> bool {
        let asked = self.asked();
        asked & EXCLUSIVE != 0 || asked & ONESHOT != 0 && !self.has(TOKENED)
    }

    /// What the kernel knows of what the program asks for by now.
    pub fn kernels_idea(&self) -> Idea {
        let known = PRESENT | IN_KERNEL | ARMED | DATA_TOLD;
        let special = known | SPENT | TOKENED | WAKES;
        let (asked, told) = (self.asked(), self.kernel_events.load(Ordering::Relaxed));
        let is_plain = (asked | told) & (EDGE | ONESHOT | EXCLUSIVE) == 0;
        let is_known = self.flags.load(Ordering::Relaxed) & special == known;
        // The kernel always watches for those two.
        match asked & !told & !(ERR | HUP) {
            _ if !is_plain || !is_known => Idea::Other,
            0 if asked == told => Idea::Same,
            0 => Idea::More,
            lacks if lacks & !(OUT | WRNORM) == 0 => Idea::LacksRoom,
            _ => Idea::Other,
        }
    }

    fn link(&'static self, at: c_int) {
        let Some(first) = first(at) else { return };
        self.at.store(at, Ordering::Relaxed);
        self.next.store(first.load(Ordering::Relaxed), Ordering::Relaxed);
        // What it is, /then/ the list: who finds it (Acquire) finds all of it.
        first.store(core::ptr::from_ref(self).cast_mut(), Ordering::Release);
        table::reaches(at);
    }

    fn unlink(&self) {
        let Some(mut link) = first(self.at()) else { return };
        loop {
            let at = link.load(Ordering::Acquire);
            if at.is_null() {
                return;
            }
            // SAFETY: a registration, whose memory stays one.
            let one = unsafe { &*at };
            if core::ptr::eq(one, self) {
                link.store(self.next.load(Ordering::Relaxed), Ordering::Release);
                return;
            }
            link = &one.next;
        }
    }

    /// Hangs at another number of its socket from now on.
    pub fn moves(&'static self, at: c_int, is_orphan: bool) {
        let Some(_registry) = REGISTRY.acquire() else { return };
        self.unlink();
        if is_orphan {
            self.add(ORPHAN);
        } else {
            self.remove(ORPHAN);
        }
        self.link(at);
    }

    /// The set no longer has it. It is out of the hot list.
    pub fn free(&'static self) {
        {
            let Some(_registry) = REGISTRY.acquire() else { return };
            if self.set.swap(core::ptr::null_mut(), Ordering::AcqRel).is_null() {
                return;
            }
            self.unlink();
            self.flags.store(0, Ordering::Relaxed);
        }
        POOL.give(self);
    }
}

/// Where the list of those that hang at a number begins.
fn first(fd: c_int) -> Option<&'static AtomicPtr<Registration>> {
    let first = core::ptr::from_ref(table::watched(fd)?);
    // SAFETY: a pointer like this one; only this file stores there, and registrations.
    Some(unsafe { &*first.cast() })
}

/// A registration of `fd` in `set`; `None` without memory.
pub fn make(set: &'static Set, fd: c_int) -> Option<&'static Registration> {
    table::watched_of_any(fd)?;
    let one = POOL.take()?;
    let Some(_registry) = REGISTRY.acquire() else {
        POOL.give(one);
        return None;
    };
    one.flags.store(0, Ordering::Relaxed);
    one.uses.fetch_add(1, Ordering::Relaxed);
    one.number.store(fd, Ordering::Relaxed);
    one.hot.store(0, Ordering::Relaxed);
    one.idle.store(0, Ordering::Relaxed);
    one.round.store(0, Ordering::Relaxed);
    one.left.store(0, Ordering::Relaxed);
    one.told_at.store(0, Ordering::Relaxed);
    one.asked_at.store(0, Ordering::Relaxed);
    one.asked_in_at.store(0, Ordering::Relaxed);
    one.kernel_told_at.store(0, Ordering::Relaxed);
    one.edge_told.store(u64::MAX, Ordering::Relaxed);
    one.elsewhere_seen.store(0, Ordering::Relaxed);
    one.set.store(core::ptr::from_ref(set).cast_mut(), Ordering::Release);
    one.link(fd);
    Some(one)
}

/// Those that hang at a number. The next one is read before the caller has this one, which it
/// may free.
struct At(*mut Registration);

impl Iterator for At {
    type Item = &'static Registration;

    fn next(&mut self) -> Option<&'static Registration> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: a registration, whose memory stays one.
        let one = unsafe { &*self.0 };
        self.0 = one.next.load(Ordering::Acquire);
        Some(one)
    }
}

/// Under `REGISTRY`, or as a hint.
pub fn at(fd: c_int) -> impl Iterator<Item = &'static Registration> {
    At(first(fd).map_or(core::ptr::null_mut(), |first| first.load(Ordering::Acquire)))
}

/// The one that `fd` has in `set`, which the program may change. Under the set's lock.
pub fn find(set: &Set, fd: c_int) -> Option<&'static Registration> {
    let is_it = |one: &&Registration| one.is_of(set) && one.number() == fd && !one.has(ORPHAN);
    // One of this set does not change while its lock is held.
    let first = at(fd).next()?;
    if is_it(&first) {
        return Some(first);
    }
    let _registry = REGISTRY.acquire();
    at(fd).find(is_it)
}

/// Marks what the library gave the kernel in place of the program's own data.
const TOKEN: u64 = 0x59a5;

impl Registration {
    /// Of this use of its memory: the mark, the use, the number.
    pub fn token(&self) -> u64 {
        let uses = u64::from(self.uses.load(Ordering::Relaxed) as u16);
        TOKEN << 48 | uses << 32 | u64::from(self.number() as u32)
    }

    /// What the kernel is to tell the registration's events with.
    pub fn kernel_data(&self) -> u64 {
        if self.has(TOKENED) { self.token() } else { self.data.load(Ordering::Relaxed) }
    }
}

/// Whether `data` looks like a token. A set that was given such data by the program gets no tokens.
pub fn is_token(data: u64) -> bool {
    data >> 48 == TOKEN
}

/// The registration of `set` whose token is `data`; `None`: it is gone. Under the set's lock.
pub fn by_token(set: &Set, data: u64) -> Option<&'static Registration> {
    let is_it = |one: &&'static Registration| one.is_of(set) && one.token() == data;
    let _registry = REGISTRY.acquire();
    // An orphan hangs at another number.
    at(data as u32 as c_int).find(is_it).or_else(|| all(|_| true).find(is_it))
}

/// One after the other: those for which `is_it`, of the numbers from 0 on. For rare calls.
pub fn all(is_it: impl Fn(&Registration) -> bool) -> impl Iterator<Item = &'static Registration> {
    (0..table::end()).flat_map(at).filter(move |one| is_it(one))
}
