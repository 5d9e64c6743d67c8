//! The one table: what this process knows of each descriptor.
//!
//! An entry is 64 bits, changed by compare-and-swap:
//!
//! ```text
//! bits 0-2  kind: 0 nothing, 1 candidate, 2 connection, 3 set, 4 the broker's socket,
//!           5 a TCP socket just made, 6 moved to vsock, 7 a TCP socket behind one
//! kind 2, 3: the rest is the address of a Conn or a Set (64-byte aligned)
//! kind 2:   3 a ghost: no number of this process names the connection any more
//! kind 5:   3 not that: what it named was let go of, and the kernel is about to give the number up
//! kind 6:   3 other processes may hold it   4 its end was told   8-39 the TCP socket behind
//! kind 7:   8-39 how many descriptors it is behind
//! kind 1:   3 role   4 offer out   5 gate   6 handed over   7 it had a channel   8-23 fork slot
//!           24-25 times that it was held elsewhere too   26-48 how long it is not offered (`Pause`)
//!           49 so long unless its thread is busy   50 so long since the kernel counted another holder
//!           51 the kernel's count decides
//!           52 nobody met its offer   53 locked: who wants to change it waits for `ENTRIES`
//!           54-63 calls in flight (`in_flight`)
//! ```
//!
//! Storey 2: table.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};

use yasmin_wait::Pause;

use crate::lock::{self, Lock};
use crate::{process, sys};

/// Descriptors at or above this are left to libc.
pub const CAPACITY: usize = 1 << 20;

const KIND: u64 = 7;
const KIND_CANDIDATE: u64 = 1;
const KIND_CONN: u64 = 2;
const KIND_SET: u64 = 3;
const KIND_BROKER: u64 = 4;
const KIND_FRESH: u64 = 5;
const KIND_GUEST: u64 = 6;
const KIND_BEHIND: u64 = 7;

const GHOST: u64 = 1 << 3;

const LEAVING: u64 = KIND_FRESH | 1 << 3;

const GUEST_SHARED: u64 = 1 << 3;
const GUEST_ENDED: u64 = 1 << 4;
const BEHIND_SHIFT: u32 = 8;

const ACCEPTOR: u64 = 1 << 3;
const PENDING: u64 = 1 << 4;
const GATE: u64 = 1 << 5;
const HANDED: u64 = 1 << 6;
const AGAIN: u64 = 1 << 7;
const SLOT_SHIFT: u32 = 8;
const SLOT_MASK: u64 = 0xffff << SLOT_SHIFT;
const SHARED_ONCE: u64 = 1 << 24;
const SHARED_MASK: u64 = 3 << 24;
const PAUSE_SHIFT: u32 = 26;
const PAUSE_MASK: u64 = (Pause::MOST_BITS as u64) << PAUSE_SHIFT;
const SELDOM: u64 = 1 << 49;
const HELD: u64 = 1 << 50;
const BY_KERNEL: u64 = 1 << 51;
const UNMET: u64 = 1 << 52;
const LOCKED: u64 = 1 << 53;
const IN_FLIGHT: u64 = 1 << 54;

/// So many descriptors, one after the other, share a piece.
pub const PIECE: usize = 1024;

/// The table's memory comes in pieces, each mapped when the first of its descriptors is entered:
/// a program that locks its memory, or may have little, pays for the numbers that it uses.
#[repr(C)]
pub struct Piece {
    /// First: assembly looks there (`direct`).
    entries: [AtomicU64; PIECE],
    counts: [Counts; PIECE],
    /// Identifiers of the offers that are out.
    offers: [AtomicU64; PIECE],
    /// What epoll sets hang at a number; see `registration`.
    watched: [AtomicPtr<c_void>; PIECE],
}

/// By a descriptor's number divided by PIECE; null: it has no entry.
pub static PIECES: [AtomicPtr<Piece>; CAPACITY / PIECE] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; CAPACITY / PIECE];
/// One more than the highest descriptor that ever had an entry or was watched.
static END: AtomicU32 = AtomicU32::new(0);

/// What an entry says.
pub enum Kind {
    Nothing,
    Candidate(Candidate),
    /// The address of a connection.
    Conn(usize),
    /// The address of a connection that this process closed, and a set tells of.
    Ghost(usize),
    /// The address of an epoll set.
    Set(usize),
    /// A descriptor of the library's own: the broker's, a residue, a TCP socket behind.
    Own,
    /// A TCP socket, made by this process and not used yet.
    Fresh,
    /// Another thread is about to close it, or to replace it.
    Leaving,
    /// A connection that goes by vsock, with the TCP socket behind it.
    Guest(c_int),
}

#[inline]
pub fn kind(raw: u64) -> Kind {
    match raw & KIND {
        KIND_CANDIDATE => Kind::Candidate(Candidate(raw)),
        KIND_CONN if raw & GHOST != 0 => Kind::Ghost((raw & !(KIND | GHOST)) as usize),
        KIND_CONN => Kind::Conn((raw & !KIND) as usize),
        KIND_SET => Kind::Set((raw & !KIND) as usize),
        KIND_BROKER | KIND_BEHIND => Kind::Own,
        KIND_FRESH if raw == LEAVING => Kind::Leaving,
        KIND_FRESH => Kind::Fresh,
        KIND_GUEST => Kind::Guest((raw >> BEHIND_SHIFT) as u32 as c_int),
        _ => Kind::Nothing,
    }
}

/// A candidate's entry as it was when loaded.
#[derive(Clone, Copy)]
pub struct Candidate(pub u64);

impl Candidate {
    pub fn new(acceptor: bool) -> Self {
        Self(KIND_CANDIDATE | if acceptor { ACCEPTOR } else { 0 })
    }

    /// This process got the socket from another one, and does not know who else holds it.
    pub fn with_handed(self) -> Self {
        Self(self.0 | HANDED)
    }

    pub fn is_handed(self) -> bool {
        self.0 & HANDED != 0
    }

    /// Its slot may count numbers that went with their process: the broker asks the kernel who holds it.
    pub fn with_by_kernel(self, is_by_kernel: bool) -> Self {
        Self(if is_by_kernel { self.0 | BY_KERNEL } else { self.0 & !BY_KERNEL })
    }

    pub fn is_by_kernel(self) -> bool {
        self.0 & BY_KERNEL != 0
    }

    /// It is paused because the kernel counted another holder, or could not: who lets go of it by close
    /// ends the pause.
    pub fn with_held(self, is_held: bool) -> Self {
        Self(if is_held { self.0 | HELD } else { self.0 & !HELD })
    }

    pub fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    /// A program is started that may have it, too: it is not offered as long as that takes, and then the kernel is
    /// asked who has it.
    pub fn lent(self, second: u64) -> Self {
        self.with_handed().with_pause(Pause::NONE.longer(second).longer(second), 0)
    }

    /// It gave its channel back for the `nth` time in a row, since it talked too seldom: it is paused unless it talks
    /// much.
    pub fn seldom(self, second: u64, nth: u32) -> Self {
        self.with_pause(Pause::longest(second, nth), SELDOM)
    }

    pub fn is_seldom(self) -> bool {
        self.0 & SELDOM != 0
    }

    /// How often in a row it did so, as far as that is counted.
    pub fn times_seldom(self) -> u32 {
        if self.is_seldom() { self.pause().count() } else { 0 }
    }

    /// It was found held elsewhere too. `None`: once too often.
    pub fn shared_once_more(self) -> Option<Self> {
        let is_full = self.0 & SHARED_MASK == SHARED_MASK;
        (!is_full).then_some(Self(self.0.wrapping_add(SHARED_ONCE)))
    }

    /// The memory of its channel went: what becomes of an offer may be another thing the next time.
    pub fn with_again(self) -> Self {
        Self(self.0 | AGAIN)
    }

    pub fn is_again(self) -> bool {
        self.0 & AGAIN != 0
    }

    /// Declined for now: it is not offered for a while, and for longer each time.
    pub fn paused(self, second: u64) -> Self {
        let is_another = self.is_seldom() || self.is_unmet();
        let pause = if is_another { Pause::NONE } else { self.pause() };
        self.with_pause(pause.longer(second), 0)
    }

    /// The other end was not offered as long as the offer stood. From then on what makes a connection busy has to
    /// come within a short time, at both ends. `None`: so often that there will be no other end.
    pub fn unmet_once_more(self, second: u64) -> Option<Self> {
        let pause = if self.is_unmet() { self.pause() } else { Pause::NONE };
        let next = pause.longer(second).window(second);
        (!pause.is_last()).then(|| self.with_pause(next, UNMET))
    }

    pub fn is_unmet(self) -> bool {
        self.0 & UNMET != 0
    }

    /// It begins to prove busy, from this second on.
    pub fn with_window(self, second: u64) -> Self {
        self.with_pause(self.pause().window(second), UNMET)
    }

    /// `why`: which bit says what the pause is for, if one does.
    fn with_pause(self, pause: Pause, why: u64) -> Self {
        let bits = u64::from(pause.bits()) << PAUSE_SHIFT;
        Self(self.0 & !(PAUSE_MASK | SELDOM | UNMET) | bits | why)
    }

    pub fn pause(self) -> Pause {
        Pause::of_bits(((self.0 & PAUSE_MASK) >> PAUSE_SHIFT) as u32)
    }

    pub fn is_acceptor(self) -> bool {
        self.0 & ACCEPTOR != 0
    }

    pub fn is_pending(self) -> bool {
        self.0 & PENDING != 0
    }

    pub fn slot(self) -> usize {
        ((self.0 & SLOT_MASK) >> SLOT_SHIFT) as usize
    }

    pub fn is_in_flight(self) -> bool {
        self.0 >= IN_FLIGHT
    }

    pub fn enter(self) -> Self {
        Self(self.0.wrapping_add(IN_FLIGHT))
    }

    pub fn leave(self) -> Self {
        Self(if self.is_in_flight() { self.0 - IN_FLIGHT } else { self.0 })
    }

    /// Closed while a channel is being attached: calls are not marked then but counted.
    pub fn with_gate(self, closed: bool) -> Self {
        Self(if closed { self.0 | GATE } else { self.0 & !GATE })
    }

    /// It is about to become a connection's: nobody but who has `ENTRIES` changes it.
    pub fn locked(self) -> Self {
        Self(self.0 | LOCKED)
    }

    pub fn with_pending(self, pending: bool) -> Self {
        Self(if pending { self.0 | PENDING } else { self.0 & !PENDING })
    }

    pub fn with_slot(self, slot: usize) -> Self {
        Self(self.0 & !SLOT_MASK | (slot as u64) << SLOT_SHIFT & SLOT_MASK)
    }

    /// As another number or process has it: calls in flight, and what the kernel counted, are the first's.
    pub fn alone(self) -> Self {
        Self(self.0 & (LOCKED - 1)).with_gate(false).with_by_kernel(false)
    }
}

/// Had by the thread that locks candidates' entries.
pub static ENTRIES: Lock = Lock::new();

/// Waits until no candidate is locked.
#[cold]
fn await_unlocked() {
    // A child of a fork that nobody saw has the entries as they were, and not the thread.
    process::refresh();
    drop(ENTRIES.acquire());
}

/// In a forked child: the thread that had it locked is not here.
pub fn unlock(fd: c_int) {
    if is_candidate(fd)
        && let Some(cell) = cell(fd)
    {
        cell.fetch_and(!LOCKED, Ordering::AcqRel);
    }
}

/// What a candidate has sent and received. Threads that count at the same moment may count
/// one for two.
#[repr(C)]
pub struct Counts {
    messages: AtomicU16,
    kib: AtomicU16,
    /// Bytes since it was connected, modulo 2^32, of several numbers together: the kernel's counters tell
    /// whether they are all.
    pub sent: AtomicU32,
    pub received: AtomicU32,
}

/// Where the bytes of a call went.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Out,
    In,
    /// They stay where they are, or are none of the stream's.
    Nowhere,
}

impl Counts {
    /// Far above what makes a connection busy, far below where a sum overflows.
    const MOST: u16 = 0x4000;

    pub fn add(&self, len_bytes: usize, way: Way) {
        let total = match way {
            Way::Out => Some(&self.sent),
            Way::In => Some(&self.received),
            Way::Nowhere => None,
        };
        if let Some(total) = total {
            let sum = total.load(Ordering::Relaxed).wrapping_add(len_bytes as u32);
            total.store(sum, Ordering::Relaxed);
        }
        let kib = (len_bytes / 1024).min(Self::MOST as usize) as u16;
        for (count, more) in [(&self.messages, 1), (&self.kib, kib)] {
            count.store(count.load(Ordering::Relaxed).min(Self::MOST) + more, Ordering::Relaxed);
        }
    }

    pub fn messages(&self) -> u32 {
        self.messages.load(Ordering::Relaxed).into()
    }

    pub fn bytes(&self) -> u32 {
        u32::from(self.kib.load(Ordering::Relaxed)) * 1024
    }

    /// What went by another number of the same socket, which is closed.
    pub fn take_over(&self, other: &Self) {
        for (sum, more) in [(&self.sent, &other.sent), (&self.received, &other.received)] {
            sum.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// It has to prove busy again.
    pub fn forget(&self) {
        self.messages.store(0, Ordering::Relaxed);
        self.kib.store(0, Ordering::Relaxed);
    }

    /// A connection on which so many bytes were sent and received, modulo 2^32, before.
    pub fn begin(&self, sent: u32, received: u32) {
        self.forget();
        self.sent.store(sent, Ordering::Relaxed);
        self.received.store(received, Ordering::Relaxed);
    }
}

/// The descriptor's piece; `None` where none of its descriptors was entered, and outside.
#[inline]
fn piece(fd: c_int) -> Option<&'static Piece> {
    let at = PIECES.get(fd as u32 as usize / PIECE)?.load(Ordering::Acquire);
    // SAFETY: null, or a piece, which is never unmapped; all zero is a valid one.
    unsafe { at.as_ref() }
}

/// The same, mapped if it is not yet. `None` outside and without memory: such a descriptor is
/// left to libc.
#[cold]
fn mapped_piece(fd: c_int) -> Option<&'static Piece> {
    let place = PIECES.get(fd as u32 as usize / PIECE)?;
    let fresh = sys::map_private(size_of::<Piece>())?;
    let null = core::ptr::null_mut();
    let placed = place.compare_exchange(null, fresh.cast(), Ordering::AcqRel, Ordering::Acquire);
    if placed.is_err() {
        // SAFETY: mapped just now, and known to nobody.
        unsafe { sys::unmap(fresh, size_of::<Piece>()) };
    }
    piece(fd)
}

/// The descriptor's entry; `None`: it has none.
#[inline]
pub fn cell(fd: c_int) -> Option<&'static AtomicU64> {
    Some(&piece(fd)?.entries[fd as usize % PIECE])
}

#[inline]
pub fn counts(fd: c_int) -> Option<&'static Counts> {
    Some(&piece(fd)?.counts[fd as usize % PIECE])
}

/// Identifier of the offer that is out for the descriptor.
pub fn offer(fd: c_int) -> Option<&'static AtomicU64> {
    Some(&piece(fd)?.offers[fd as usize % PIECE])
}

/// For a descriptor that may never have been entered.
pub fn offer_of_any(fd: c_int) -> Option<&'static AtomicU64> {
    piece(fd).or_else(|| mapped_piece(fd))?;
    offer(fd)
}

pub fn watched(fd: c_int) -> Option<&'static AtomicPtr<c_void>> {
    Some(&piece(fd)?.watched[fd as usize % PIECE])
}

/// For a descriptor that may never have been entered.
pub fn watched_of_any(fd: c_int) -> Option<&'static AtomicPtr<c_void>> {
    piece(fd).or_else(|| mapped_piece(fd))?;
    watched(fd)
}

#[inline]
pub fn raw(fd: c_int) -> u64 {
    cell(fd).map_or(0, |cell| cell.load(Ordering::Acquire))
}

#[inline]
pub fn is_candidate(fd: c_int) -> bool {
    raw(fd) & KIND == KIND_CANDIDATE
}

/// Whether it is a candidate or a connection.
pub fn is_stream(fd: c_int) -> bool {
    matches!(raw(fd) & KIND, KIND_CANDIDATE | KIND_CONN) && !is_ghost(fd)
}

/// Whether it is a candidate whose gate is open.
#[inline]
pub fn is_open_candidate(fd: c_int) -> bool {
    raw(fd) & (KIND | GATE) == KIND_CANDIDATE
}

/// Numbers of the library's own lie below this one, though high. The kernel sizes a process's
/// table by the highest number, copies it at fork, and cuts the sets of select by it.
pub fn own_below() -> usize {
    sys::descriptor_limit().min(OWN_BELOW_MOST)
}

/// Of every process, whatever its limit.
pub const OWN_BELOW_MOST: usize = 1024;

/// The entry of a descriptor that names the connection at `address`.
pub fn conn_raw(address: usize) -> u64 {
    address as u64 | KIND_CONN
}

/// Whether `raw` is the entry of a number, or of a ghost, of the connection at `address`.
#[inline]
pub fn is_of_conn(raw: u64, address: usize) -> bool {
    raw & !GHOST == conn_raw(address)
}

/// Whether there is a ghost at `fd`.
pub fn is_ghost(fd: c_int) -> bool {
    raw(fd) & (KIND | GHOST) == KIND_CONN | GHOST
}

/// So many of them at most.
const MOST_GHOSTS: c_int = 64;
/// How many there are.
static GHOSTS: AtomicU32 = AtomicU32::new(0);

pub fn has_ghosts() -> bool {
    GHOSTS.load(Ordering::Relaxed) != 0
}

/// Where ghosts are: above what descriptors the program may have now.
pub fn ghosts() -> impl Iterator<Item = c_int> {
    let end = if has_ghosts() { end() } else { 0 };
    (0..end).filter(|&at| is_ghost(at))
}

/// Gives the connection at `address` a place that no descriptor has. `None`: there is none.
pub fn set_ghost(address: usize) -> Option<c_int> {
    let first = sys::descriptor_limit().min(CAPACITY - MOST_GHOSTS as usize) as c_int;
    let at = (first..first + MOST_GHOSTS).find(|&at| raw(at) == 0)?;
    store(at, conn_raw(address) | GHOST);
    if raw(at) == 0 {
        return None;
    }
    GHOSTS.fetch_add(1, Ordering::Relaxed);
    Some(at)
}

pub fn clear_ghost(at: c_int) {
    clear(at);
    GHOSTS.fetch_sub(1, Ordering::Relaxed);
}

/// The entry of a descriptor that names the epoll set at `address`.
pub fn set_raw(address: usize) -> u64 {
    address as u64 | KIND_SET
}

/// `fd` has an entry, or a set watches it: loops over the table reach it.
pub fn reaches(fd: c_int) {
    if fd as u32 >= END.load(Ordering::Relaxed) {
        END.fetch_max(fd as u32 + 1, Ordering::Relaxed);
    }
}

fn store(fd: c_int, raw: u64) {
    if raw != 0 && piece(fd).is_none() {
        mapped_piece(fd);
    }
    if let Some(cell) = cell(fd) {
        if raw != 0 {
            reaches(fd);
        }
        cell.store(raw, Ordering::Release);
    }
}

pub fn clear(fd: c_int) {
    if raw(fd) != 0 {
        store(fd, 0);
    }
}

/// What `fd` names is let go of, and the thread that does so has yet to tell the kernel: nobody may use the
/// number before it called `has_left`.
pub fn set_leaving(fd: c_int) {
    store(fd, LEAVING);
}

/// The kernel knows. Another thread may have the number already.
pub fn has_left(fd: c_int) {
    if let Some(cell) = cell(fd) {
        let _ = cell.compare_exchange(LEAVING, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Waits for `has_left`, or for a while: in a handler of the thread that is to call it, for nothing.
pub fn await_leaving(fd: c_int) {
    const NAP_NS: i64 = 50_000;
    const NAPS: u32 = 200;
    for _ in 0..NAPS {
        match cell(fd) {
            Some(cell) if cell.load(Ordering::Acquire) == LEAVING => {
                // SAFETY: the lower half of the entry; the processor is little-endian.
                let word = unsafe { &*cell.as_ptr().cast::<AtomicU32>() };
                lock::nap(word, LEAVING as u32, NAP_NS);
            }
            _ => return,
        }
    }
    has_left(fd);
}

pub fn set_candidate(fd: c_int, candidate: Candidate) {
    set_candidate_at(fd, candidate, 0, 0);
}

/// The same of a connection that has sent and received so many bytes, modulo 2^32.
pub fn set_candidate_at(fd: c_int, candidate: Candidate, sent: u32, received: u32) {
    if process::is_borrowed() || piece(fd).or_else(|| mapped_piece(fd)).is_none() {
        return;
    }
    if let Some(counts) = counts(fd) {
        counts.begin(sent, received);
    }
    store(fd, candidate.0);
}

pub fn set_conn(fd: c_int, address: usize) {
    store(fd, conn_raw(address));
}

pub fn set_set(fd: c_int, address: usize) {
    if process::is_borrowed() {
        return;
    }
    store(fd, set_raw(address));
}

pub fn set_broker(fd: c_int) {
    store(fd, KIND_BROKER);
}

pub fn set_fresh(fd: c_int) {
    store(fd, KIND_FRESH);
}

/// `fd` goes by vsock, with the TCP socket `behind`.
pub fn set_guest(fd: c_int, behind: c_int) {
    store(behind, KIND_BEHIND | 1 << BEHIND_SHIFT);
    store(fd, KIND_GUEST | (behind as u64) << BEHIND_SHIFT);
}

/// `to` names the connection that `from` names.
pub fn name_guest(from: c_int, to: c_int, behind: c_int) {
    store(to, raw(from));
    if let Some(cell) = cell(behind) {
        cell.fetch_add(1 << BEHIND_SHIFT, Ordering::AcqRel);
    }
}

/// One descriptor less; true: it was the last, and `behind` is nobody's any more.
pub fn unname_behind(behind: c_int) -> bool {
    let Some(cell) = cell(behind) else { return false };
    let last = KIND_BEHIND | 1 << BEHIND_SHIFT;
    let before = cell.load(Ordering::Acquire);
    if before & KIND != KIND_BEHIND {
        return false;
    }
    cell.store(if before <= last { 0 } else { before - (1 << BEHIND_SHIFT) }, Ordering::Release);
    before <= last
}

fn mark_guest(fd: c_int, mark: u64) -> bool {
    match cell(fd) {
        Some(cell) if cell.load(Ordering::Acquire) & KIND == KIND_GUEST => {
            cell.fetch_or(mark, Ordering::AcqRel) & mark != 0
        }
        _ => false,
    }
}

/// A fork: other processes may hold it too.
pub fn share_guest(fd: c_int) {
    mark_guest(fd, GUEST_SHARED);
}

pub fn is_guest_shared(fd: c_int) -> bool {
    raw(fd) & (KIND | GUEST_SHARED) == KIND_GUEST | GUEST_SHARED
}

/// Its end is told of now; whether it was before.
pub fn guest_ended(fd: c_int) -> bool {
    mark_guest(fd, GUEST_ENDED)
}

/// One more than the highest descriptor that ever had an entry.
pub fn end() -> c_int {
    END.load(Ordering::Relaxed) as c_int
}

/// Replaces a candidate's entry, unless it changed since it was loaded.
pub fn swap(fd: c_int, from: Candidate, to: u64) -> bool {
    cell(fd).is_some_and(|cell| {
        cell.compare_exchange(from.0, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Changes a candidate's entry by `f`, and gives the entry before; does nothing when it is no candidate any
/// more.
pub fn change(fd: c_int, f: impl Fn(Candidate) -> Candidate) -> Option<Candidate> {
    replace(fd, |candidate| f(candidate).0)
}

/// It is a candidate no more; gives its last entry. `None`: it was none. A connection that another thread
/// has made of it meanwhile stays.
pub fn take_candidate(fd: c_int) -> Option<Candidate> {
    replace(fd, |_| 0)
}

/// The connection at `address` is named by `fd` no more. False: it was not, or another thread was first.
pub fn take_conn(fd: c_int, address: usize) -> bool {
    cell(fd).is_some_and(|cell| {
        let from = conn_raw(address);
        cell.compare_exchange(from, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

fn replace(fd: c_int, f: impl Fn(Candidate) -> u64) -> Option<Candidate> {
    let cell = cell(fd)?;
    loop {
        let raw = cell.load(Ordering::Acquire);
        if raw & KIND != KIND_CANDIDATE {
            return None;
        }
        if raw & LOCKED != 0 {
            await_unlocked();
            continue;
        }
        let next = f(Candidate(raw));
        if cell.compare_exchange_weak(raw, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Some(Candidate(raw));
        }
    }
}
