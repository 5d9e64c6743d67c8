//! Whether every system call of this process that could touch a socket comes by this library.
//!
//! **A process gets channels only while that is so.** A call that enters the kernel past libc
//! waits for, reads or writes a socket unseen: bytes in a ring wake nobody then, and come out of
//! order. So before the first offer the executable segments of all loaded objects are looked
//! through, in slices, by the calls that would offer; short programs never come so far. Where
//! such a call is found, or may be there, the process is careful for good: TCP alone.
//!
//! Excepted are libc, the loader, the vDSO and this library, by the addresses of what they hold.
//! What has no file, as a JIT makes it, is not looked at.
//!
//! Objects that come later (dlopen) are looked through before anything is offered or opened
//! again. They may act on sockets as soon as they are there, so all connections are parked
//! before; and nobody can be called back when dlopen is over, since it has to find its caller's
//! return address on top of the stack. So its place on the stack is noted: once another return
//! address lies there, it is over.
//!
//! Storey 4: life.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use yasmin_text::{Concern, Found, Scratch, Text, Unwind};

use crate::entry::{self, Entry};
use crate::lock::{self, Lock};
use crate::object::{self, Header, Object, PF_X, PT_GNU_EH_FRAME, PT_LOAD, Visit};
use crate::sys::{self, IoVec, call};
use crate::{bare, bindings, clock, config, process, real, table};

/// How long a call may look at text.
const SLICE_US: u64 = 50;
/// So much is looked through between two looks at the clock.
const STRETCH_BYTES: usize = 16 * 1024;
/// A process with more executable segments is careful.
const SEGMENTS: usize = 1024;
/// As many loads may be under way.
const LOADS: usize = 8;

const RTLD_DEEPBIND: usize = 8;

/// What is known, in the lowest bits of STATE. Above: how many objects were asked for, so that
/// nobody says of older ones that all is well.
const KIND: u64 = 3;
const UNKNOWN: u64 = 0;
const CLEAN: u64 = 1;
const CAREFUL: u64 = 2;
const ONE_LOAD: u64 = 4;

static STATE: AtomicU64 = AtomicU64::new(UNKNOWN);
/// Held while text is looked at, and while LOOKED is used.
static LOCK: Lock = Lock::new();
/// A fork is under way, and its thread holds LOCK. Forks of several threads take turns by it.
static HELD: AtomicBool = AtomicBool::new(false);
static LOOKED: Looked = Looked(UnsafeCell::new(Progress {
    done: [(0, 0); SEGMENTS],
    count: 0,
    current: (0, 0),
    offset: 0,
    scratch: Scratch::new(),
}));
static UNDER_WAY: [Load; LOADS] = [const { Load::new() }; LOADS];
/// Addresses inside what is excepted; 0: none.
static EXCEPTED: [AtomicUsize; 9] = [const { AtomicUsize::new(0) }; 9];

/// Objects from this one on, in the linker's order, may have been loaded with RTLD_DEEPBIND.
static DEEP_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// So many objects were there from the start, and stay.
static FIRST_ONES: AtomicUsize = AtomicUsize::new(0);

/// Of an instruction that enters the kernel and is never reached; 0: none.
static UNREACHED: AtomicUsize = AtomicUsize::new(0);

struct Looked(UnsafeCell<Progress>);

// SAFETY: used under LOCK alone.
unsafe impl Sync for Looked {}

/// Segments by address and length.
struct Progress {
    done: [(usize, usize); SEGMENTS],
    count: usize,
    current: (usize, usize),
    /// How far `current` was looked through.
    offset: usize,
    scratch: Scratch,
}

impl Progress {
    fn is_done(&self, segment: (usize, usize)) -> bool {
        self.done[..self.count].contains(&segment)
    }
}

/// A dlopen or dlclose that may not have returned yet.
struct Load {
    /// 0: none. The thread, by its thread pointer.
    thread: AtomicU64,
    tid: AtomicU64,
    /// Where its return address lies, and that address.
    slot: AtomicUsize,
    back: AtomicUsize,
}

impl Load {
    const fn new() -> Self {
        Self {
            thread: AtomicU64::new(0),
            tid: AtomicU64::new(0),
            slot: AtomicUsize::new(0),
            back: AtomicUsize::new(0),
        }
    }

    /// `here`: a place on the caller's stack.
    fn is_over(&self, here: usize) -> bool {
        // SAFETY: signal 0 only asks whether the thread is there.
        let is_gone = || unsafe {
            call!(tgkill, sys::getpid(), self.tid.load(Ordering::Relaxed), 0)
                == -(sys::ESRCH as isize)
        };
        self.has_left(here) || is_gone()
    }

    /// Whether its stack shows that it returned.
    fn has_left(&self, here: usize) -> bool {
        let slot = self.slot.load(Ordering::Relaxed);
        let is_own = self.thread.load(Ordering::Relaxed) == sys::thread_pointer();
        if is_own && here >= slot {
            return true;
        }
        let mut found = 0usize;
        let near = IoVec { base: (&raw mut found).cast(), len: size_of::<usize>() };
        let far = IoVec { base: slot as *mut u8, len: size_of::<usize>() };
        // The stack of a thread that ended may be gone, so the kernel looks.
        // SAFETY: one word of ours is written.
        let ret = unsafe {
            call!(process_vm_readv, sys::getpid(), &raw const near, 1, &raw const far, 1, 0)
        };
        let is_read = ret == size_of::<usize>() as isize;
        ret == -(sys::EFAULT as isize) || is_read && found != self.back.load(Ordering::Relaxed)
    }
}

/// Looks up what is needed later, where the dynamic linker must not be called.
pub fn start() {
    object::start();
    FIRST_ONES.store(object::count(), Ordering::Relaxed);
    // Before glibc 2.34 its threads and timers were objects of their own.
    let names: [&[u8]; 6] = [
        b"read\0",
        b"dl_iterate_phdr\0",
        b"pthread_create\0",
        b"timer_create\0",
        b"aio_read\0",
        b"__tls_get_addr\0",
    ];
    for (name, at) in names.iter().zip(&EXCEPTED) {
        at.store(real::next(name) as usize, Ordering::Relaxed);
    }
    EXCEPTED[6].store(start as fn() as usize, Ordering::Relaxed);
    // What comes by dlopen its users may find past this library.
    LIBURING.store(real::next(b"io_uring_queue_init_params\0") as usize, Ordering::Relaxed);
    const AT_SYSINFO_EHDR: c_long = 33;
    EXCEPTED[7].store(bare::vdso(), Ordering::Relaxed);
    let ask = real::next(b"getauxval\0");
    if !ask.is_null() {
        // SAFETY: libc's getauxval has this signature.
        let ask: unsafe extern "C" fn(c_long) -> usize = unsafe { core::mem::transmute(ask) };
        // SAFETY: as above.
        EXCEPTED[7].store(unsafe { ask(AT_SYSINFO_EHDR) }, Ordering::Relaxed);
    }
}

/// An instruction at this address that is never reached.
pub fn except(at: usize) {
    UNREACHED.store(at, Ordering::Relaxed);
}

/// The object that has this address needs no look: all of its instructions that may concern a socket have detours.
pub fn except_object(at: usize) {
    EXCEPTED[8].store(at, Ordering::Relaxed);
}

/// Before a fork, until it is over: nobody looks. A look holds the dynamic linker's lock, and
/// glibc's child would find it held for ever. Not waited for without end: this may be a thread
/// that the look waits for.
pub fn before_fork() {
    const NAPS: u32 = 1000;
    const NAP_NS: i64 = 100_000;
    for _ in 0..NAPS {
        if LOCK.hold() {
            HELD.store(true, Ordering::Relaxed);
            return;
        }
        lock::nap(&AtomicU32::new(0), 0, NAP_NS);
    }
}

pub fn after_fork() {
    if HELD.swap(false, Ordering::Relaxed) {
        LOCK.give_up();
    }
}

/// For a forked child: other threads are not here. One that was inside dlopen may have taken the
/// dynamic linker's lock with it.
pub fn forked() {
    LOCK.reset();
    HELD.store(false, Ordering::Relaxed);
    let here = 0usize;
    let mut was_inside = false;
    for load in &UNDER_WAY {
        let thread = load.thread.load(Ordering::Relaxed);
        if thread != 0 && thread != sys::thread_pointer() {
            was_inside |= !load.has_left(&raw const here as usize);
            load.thread.store(0, Ordering::Relaxed);
        }
    }
    if was_inside && STATE.load(Ordering::Relaxed) & KIND == UNKNOWN {
        STATE.fetch_or(CAREFUL, Ordering::Relaxed);
    }
}

/// Whether a direction may be offered or opened. Looks on where that is not known yet.
#[inline]
pub fn is_clean() -> bool {
    STATE.load(Ordering::Relaxed) & KIND == CLEAN || look_on()
}

/// It is known that the process makes calls of its own.
#[inline]
pub fn is_careful() -> bool {
    STATE.load(Ordering::Relaxed) & CAREFUL != 0
}

/// From now on nothing goes by ring in this process. What is unread stays readable.
#[cold]
pub fn turn_careful() {
    if config::TRUST_TEXT.load(Ordering::Relaxed) == 0 {
        STATE.fetch_or(CAREFUL, Ordering::SeqCst);
        park_all(true);
    }
}

fn park_all(for_good: bool) {
    if process::is_borrowed() {
        return;
    }
    for fd in 0..table::end() {
        let Entry::Conn(conn) = entry::get(fd) else { continue };
        if for_good {
            conn.park_for_good(fd);
            continue;
        }
        if let Ok(_rx) = conn.lock_rx(fd) {
            conn.park_rx(&conn.receiver());
        }
        if let Ok(_tx) = conn.lock_tx(fd) {
            let _ = conn.sender().park();
        }
    }
}

/// Before dlopen; `slot` is where its return address lies.
pub extern "C" fn before_dlopen(
    _: usize,
    flags: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    slot: *const usize,
) {
    let state = STATE.load(Ordering::Relaxed);
    if state & CAREFUL != 0 || config::TRUST_TEXT.load(Ordering::Relaxed) != 0 {
        return;
    }
    process::refresh();
    note_load(slot, false);
    if flags & RTLD_DEEPBIND != 0 {
        // Behind those that are there.
        DEEP_FROM.fetch_min(object::count(), Ordering::SeqCst);
    }
    // Whoever finds that all was clean until now finds this changed.
    let more = |state: u64| Some((state & !CLEAN) + ONE_LOAD);
    let before = STATE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
    if before.is_ok_and(|before| before & KIND == CLEAN) {
        park_all(false);
    }
}

/// Before dlmopen: in a namespace of its own an object has a libc that nobody is in front of.
pub extern "C" fn before_dlmopen(
    space: c_long,
    b: usize,
    flags: usize,
    d: usize,
    e: usize,
    f: usize,
    slot: *const usize,
) {
    if space == 0 {
        before_dlopen(b, flags, 0, d, e, f, slot);
    } else {
        turn_careful();
    }
}

/// Before dlclose: another object may come to lie where the one that goes was.
pub extern "C" fn before_dlclose(
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    slot: *const usize,
) {
    if !is_careful() && config::TRUST_TEXT.load(Ordering::Relaxed) == 0 {
        note_load(slot, true);
        // Those behind the one that goes move up.
        if DEEP_FROM.load(Ordering::SeqCst) != usize::MAX {
            DEEP_FROM.store(FIRST_ONES.load(Ordering::Relaxed), Ordering::SeqCst);
        }
    }
}

/// Before the program gets something that an object defines, and may call it. One that was loaded with
/// RTLD_DEEPBIND may take libc's functions out of its slots then, and keep them.
pub fn before_first_call() {
    extern "C" fn visit(object: *const Object, _: usize, walk: *mut c_void) -> c_int {
        // SAFETY: as in `visit` of a look.
        let (object, walk) = unsafe { (&*object, &mut *walk.cast::<Walk>()) };
        // SAFETY: as above.
        let headers = unsafe { object.headers() };
        finds_libc(object.base, headers);
        walk.count += 1;
        if walk.count > DEEP_FROM.load(Ordering::Relaxed) {
            // SAFETY: as above. What cannot be turned the look finds again.
            unsafe { bindings::turn(object.base, headers) };
        }
        0
    }
    if DEEP_FROM.load(Ordering::SeqCst) != usize::MAX
        && !is_careful()
        && let Some(_guard) = LOCK.acquire()
    {
        iterate(visit, &mut Walk { until: 0, seen: Seen::AllClean, count: 0 });
    }
}

fn note_load(slot: *const usize, closes: bool) {
    // Nothing is offered or opened any more.
    if process::is_sandboxed() {
        return;
    }
    let Some(_guard) = LOCK.acquire() else { return };
    if closes {
        // SAFETY: under LOCK.
        let looked = unsafe { &mut *LOOKED.0.get() };
        (looked.count, looked.current) = (0, (0, 0));
    }
    let me = sys::thread_pointer();
    let is_mine = |load: &&Load| load.thread.load(Ordering::Relaxed) == me;
    let mine = UNDER_WAY.iter().find(is_mine);
    if mine.is_some_and(|mine| !mine.is_over(slot as usize)) {
        // Inside a constructor: the outer one ends later.
        return;
    }
    let is_free =
        |load: &&Load| load.thread.load(Ordering::Relaxed) == 0 || load.is_over(slot as usize);
    let Some(load) = mine.or_else(|| UNDER_WAY.iter().find(is_free)) else {
        STATE.fetch_or(CAREFUL, Ordering::SeqCst);
        return;
    };
    load.slot.store(slot as usize, Ordering::Relaxed);
    // SAFETY: the return address of the call that this hook stands in front of.
    load.back.store(unsafe { *slot }, Ordering::Relaxed);
    load.tid.store(sys::gettid() as u64, Ordering::Relaxed);
    load.thread.store(me, Ordering::Relaxed);
}

/// Whether no load is under way. Under LOCK.
fn loads_are_over() -> bool {
    let here = 0usize;
    let mut are_over = true;
    for load in &UNDER_WAY {
        if load.thread.load(Ordering::Relaxed) != 0 {
            if load.is_over(&raw const here as usize) {
                load.thread.store(0, Ordering::Relaxed);
            } else {
                are_over = false;
            }
        }
    }
    are_over
}

/// A slice of looking; whether all is known to be clean.
#[cold]
fn look_on() -> bool {
    let state = STATE.load(Ordering::SeqCst);
    if state & CAREFUL != 0 || process::is_borrowed() {
        return false;
    }
    if config::TRUST_TEXT.load(Ordering::Relaxed) != 0 {
        return true;
    }
    // Never waited for: this may be a handler on top of whoever holds it.
    let Some(_guard) = LOCK.try_acquire() else { return false };
    if !loads_are_over() {
        return false;
    }
    let found = look();
    let known = match found {
        Seen::AllClean => CLEAN,
        Seen::Calls => CAREFUL,
        Seen::NotAll => return false,
    };
    let to = state & !KIND | known;
    let is_same = STATE.compare_exchange(state, to, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    if known == CAREFUL && !is_same {
        STATE.fetch_or(CAREFUL, Ordering::SeqCst);
    }
    is_same && known == CLEAN
}

#[derive(Clone, Copy, PartialEq)]
enum Seen {
    AllClean,
    /// Some call is there that could touch a socket.
    Calls,
    /// The time is over.
    NotAll,
}

struct Walk {
    until: u64,
    seen: Seen,
    /// Objects so far.
    count: usize,
}

/// Shows `visit` all objects, with `walk`. False: there is no linker that could.
fn iterate(visit: Visit, walk: &mut Walk) -> bool {
    object::each(visit, core::ptr::from_mut(walk).cast())
}

/// Under LOCK. The dynamic linker keeps objects loaded while it shows them.
fn look() -> Seen {
    let until = if config::is_forced() { u64::MAX } else { clock::ticks() + clock::us(SLICE_US) };
    let mut walk = Walk { until, seen: Seen::AllClean, count: 0 };
    if iterate(visit, &mut walk) { walk.seen } else { Seen::Calls }
}

unsafe extern "C" fn visit(object: *const Object, _: usize, walk: *mut c_void) -> c_int {
    // SAFETY: `look` handed its own Walk in, and the linker an object that is loaded; only the
    // first members, which are always there, are used.
    let (object, walk) = unsafe { (&*object, &mut *walk.cast::<Walk>()) };
    // SAFETY: as above.
    let headers = unsafe { object.headers() };
    let is_deep = walk.count >= DEEP_FROM.load(Ordering::Relaxed);
    walk.count += 1;
    walk.seen = look_at(object.base, headers, is_deep, walk.until);
    c_int::from(walk.seen != Seen::AllClean)
}

fn finds_libc(base: usize, headers: &[Header]) {
    // The first of them is libc's read.
    let read = EXCEPTED[0].load(Ordering::Relaxed);
    if headers.iter().any(|header| header.holds(base, read)) {
        bindings::libc_is_at(base, headers);
    }
}

fn look_at(base: usize, headers: &[Header], is_deep: bool, until: u64) -> Seen {
    // SAFETY: under LOCK, which `look_on` holds.
    let looked = unsafe { &mut *LOOKED.0.get() };
    let texts = headers.iter().filter(|header| header.kind == PT_LOAD && header.flags & PF_X != 0);
    let is_excepted = || {
        let holds = |at: usize| headers.iter().any(|header| header.holds(base, at));
        EXCEPTED.iter().any(|at| match at.load(Ordering::Relaxed) {
            0 => false,
            at => holds(at),
        })
    };
    finds_libc(base, headers);
    for header in texts {
        let segment = (base.wrapping_add(header.address), header.file_bytes);
        if looked.is_done(segment) {
            continue;
        }
        if !is_excepted() {
            // SAFETY: the dynamic linker shows it right now.
            let Some(code) = (unsafe { header.bytes(base) }) else { return Seen::Calls };
            if looked.current != segment {
                (looked.current, looked.offset) = (segment, 0);
                looked.scratch.forget();
            }
            // SAFETY: as above.
            let unwind = unsafe { unwind_of(base, headers) };
            let text = Text { code, address: segment.0 as u64, unwind };
            let is_refused = is_refused_liburing(base, headers);
            match look_through(&text, looked, is_refused, until) {
                Seen::AllClean => {}
                other => return other,
            }
            // SAFETY: as above.
            if is_deep && !unsafe { bindings::turn(base, headers) } {
                return Seen::Calls;
            }
        }
        if looked.count == SEGMENTS {
            return Seen::Calls;
        }
        looked.done[looked.count] = segment;
        looked.count += 1;
    }
    Seen::AllClean
}

/// # Safety
/// The object stays loaded.
pub unsafe fn unwind_of<'a>(base: usize, headers: &[Header]) -> Option<Unwind<'a>> {
    let table = headers.iter().find(|header| header.kind == PT_GNU_EH_FRAME)?;
    let table = base.wrapping_add(table.address);
    let around = headers.iter().find(|header| header.holds(base, table))?;
    // SAFETY: the caller vouches for it.
    let bytes = unsafe { around.bytes(base) }?;
    Unwind::new(bytes, base.wrapping_add(around.address) as u64, table as u64)
}

/// Looks from `offset` on, which moves.
fn look_through(
    text: &Text<'_>,
    looked: &mut Progress,
    is_refused_uring: bool,
    until: u64,
) -> Seen {
    let Progress { offset, scratch, .. } = looked;
    let code = text.code;
    while *offset < code.len() {
        let end = code.len().min(*offset + STRETCH_BYTES);
        // One byte more, for a pair across the border.
        let stretch = code.get(..(end + 1).min(code.len())).unwrap_or_default();
        match yasmin_text::next(stretch, *offset) {
            Some(at) if text.address as usize + at == UNREACHED.load(Ordering::Relaxed) => {
                *offset = at + 1;
            }
            Some(at) if is_for_sockets(yasmin_text::judge(text, at, scratch), is_refused_uring) => {
                return Seen::Calls;
            }
            Some(at) => *offset = at + 1,
            None => *offset = end,
        }
        if *offset < code.len() && clock::ticks() >= until {
            return Seen::NotAll;
        }
    }
    Seen::AllClean
}

/// Where the liburing begins rings that programs would find, but for this library's (`exports::uring`).
static LIBURING: AtomicUsize = AtomicUsize::new(0);

/// Whether it is that liburing, and refused.
fn is_refused_liburing(base: usize, headers: &[Header]) -> bool {
    let at = LIBURING.load(Ordering::Relaxed);
    at != 0
        && config::ALLOW_IO_URING.load(Ordering::Relaxed) == 0
        && headers.iter().any(|header| header.holds(base, at))
}

fn is_for_sockets(found: Found, is_refused_uring: bool) -> bool {
    match found {
        Found::Nothing => false,
        Found::AnyCall => true,
        Found::Call(number, second) => match yasmin_text::concern(number, second) {
            Concern::Harmless => false,
            Concern::Sockets => true,
            Concern::Uring => !is_refused_uring && can_make_uring(),
        },
    }
}

/// The program is about to set an io_uring up, through libc. What is asked for there passes this library by.
pub fn may_make_uring() {
    if can_make_uring() {
        turn_careful();
    }
}

/// Whether this process could set an io_uring up. Asked in a way that makes none.
fn can_make_uring() -> bool {
    // SAFETY: without parameters the kernel refuses.
    let ret = unsafe { call!(io_uring_setup, 0, 0) };
    const EPERM: isize = 1;
    ret != -(sys::ENOSYS as isize) && ret != -EPERM
}
