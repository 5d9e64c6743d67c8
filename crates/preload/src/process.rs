//! Processes: who this one is, and what forks and execs do to its connections.

use core::arch::{asm, global_asm};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use yasmin_channel::side::{MANY_WATCHERS, Rx};

use crate::conn;
use crate::guest;
use crate::set;
use crate::signals;
use crate::sys::{self, call};
use crate::table::{self, Entry};
use crate::text;
use crate::{broker, in_flight, lock, memory, real};

/// A page that the kernel empties in every forked child (MADV_WIPEONFORK), by whatever call
/// it was forked.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);
/// A fork is under way: no channel is attached until it is done.
static FORKING: AtomicBool = AtomicBool::new(false);
/// Reference counts of candidates that lived through a fork, in pages that forks share. A
/// candidate gets a channel only in a process that is the last to hold it: a sibling would
/// read and write past the ring.
static SLOTS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
const SLOT_COUNT: usize = 1 << 16;
/// In the slot of a set, which is never given back.
const RAISED: u32 = u32::MAX;

const MADV_WIPEONFORK: usize = 18;

pub fn start() {
    PID.store(sys::getpid(), Ordering::Relaxed);
    if let Some(page) = sys::map_private(4096) {
        // SAFETY: a page of ours.
        unsafe { call!(madvise, page, 4096, MADV_WIPEONFORK) };
        let mark = page.cast::<AtomicU32>();
        // SAFETY: inside the page.
        unsafe { (*mark).store(1, Ordering::Relaxed) };
        MARK.store(mark, Ordering::Release);
    }
    if let Some(slots) = sys::map_fork_shared(SLOT_COUNT * 4) {
        SLOTS.store(slots.cast(), Ordering::Release);
    }
    crate::spin::find_rseq();
    register_fork_handlers();
}

fn register_fork_handlers() {
    type Handler = extern "C" fn();
    let register = real::next(b"__register_atfork\0");
    // SAFETY: glibc's __register_atfork and POSIX pthread_atfork have these signatures. The
    // library is never unloaded, so no handle is needed.
    unsafe {
        if !register.is_null() {
            let register: unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int =
                core::mem::transmute(register);
            register(before_fork, after_fork, in_child, core::ptr::null_mut());
            return;
        }
        let register = real::next(b"pthread_atfork\0");
        if !register.is_null() {
            let register: unsafe extern "C" fn(Handler, Handler, Handler) -> c_int =
                core::mem::transmute(register);
            register(before_fork, after_fork, in_child);
        }
    }
}

pub fn pid() -> u32 {
    PID.load(Ordering::Relaxed)
}

/// Notices that this process was forked. One load when it was not.
#[inline]
pub fn refresh() {
    let mark = MARK.load(Ordering::Relaxed);
    // SAFETY: null, or the page that `start` mapped.
    if !mark.is_null() && unsafe { (*mark).load(Ordering::Relaxed) } == 0 {
        became_child();
    }
}

// Of each thread: not 0 from its vfork until its next call that asks. The child has the
// thread's block as well, and runs while the thread does not.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 2",
    ".globl yasmin_lends",
    ".hidden yasmin_lends",
    ".type yasmin_lends, @object",
    ".size yasmin_lends, 4",
    "yasmin_lends:",
    ".zero 4",
    ".popsection",
);

/// This thread's memory may be in the hands of a vfork child, for all that it knows.
#[inline]
fn lends() -> bool {
    let lends: u32;
    // SAFETY: reads this thread's own word.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + yasmin_lends@GOTTPOFF]",
            "mov {lends:e}, dword ptr fs:[{at}]",
            at = out(reg) _,
            lends = out(reg) lends,
            options(nostack, readonly, preserves_flags)
        );
    }
    lends != 0
}

fn set_lends(on: bool) {
    // SAFETY: writes this thread's own word.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + yasmin_lends@GOTTPOFF]",
            "mov dword ptr fs:[{at}], {on:e}",
            at = out(reg) _,
            on = in(reg) u32::from(on),
            options(nostack, preserves_flags)
        );
    }
}

/// The program called vfork or clone once.
static LENDS: AtomicBool = AtomicBool::new(false);
/// A child may run beside the threads whose memory it has.
static LENDS_BESIDE: AtomicBool = AtomicBool::new(false);

/// Before vfork.
pub extern "C" fn before_lending() {
    refresh();
    LENDS.store(true, Ordering::SeqCst);
    set_lends(true);
}

/// Before clone, which takes a function, a stack and flags.
pub extern "C" fn before_cloning(_: *mut c_void, _: *mut c_void, flags: c_int) {
    const CLONE_VM: c_int = 0x100;
    const CLONE_VFORK: c_int = 0x4000;
    if flags & CLONE_VM != 0 && flags & CLONE_VFORK == 0 {
        LENDS_BESIDE.store(true, Ordering::SeqCst);
    }
    before_lending();
}

/// A vfork child borrows its parent's memory, and its numbers mean what its own kernel table
/// says: to it the table has nothing (`table::get`), and nothing of its doing is entered.
/// A thread that never lent its memory pays no system call for the question.
#[inline]
pub fn is_borrowed() -> bool {
    (lends() || LENDS_BESIDE.load(Ordering::Relaxed)) && is_a_borrower()
}

#[cold]
fn is_a_borrower() -> bool {
    if sys::getpid() != pid() {
        return true;
    }
    // The thread that lent it is back.
    set_lends(false);
    false
}

/// The program cancelled a thread once.
static CANCELS: AtomicBool = AtomicBool::new(false);

/// Before pthread_cancel.
pub extern "C" fn before_cancelling() {
    CANCELS.store(true, Ordering::SeqCst);
}

/// Where libc's call would end a thread that was cancelled, a call that no libc sees does too.
#[inline]
pub fn cancellation_point() {
    if CANCELS.load(Ordering::Relaxed) {
        real::testcancel();
    }
}

pub fn is_forking() -> bool {
    FORKING.load(Ordering::SeqCst)
}

/// Whether a call comes back to the thread that began it, alone in its thread block: not in a
/// program that lends its memory or cancels threads.
#[inline]
pub fn calls_return() -> bool {
    !LENDS.load(Ordering::Relaxed) && !CANCELS.load(Ordering::Relaxed)
}

extern "C" fn before_fork() {
    refresh();
    if is_borrowed() {
        return;
    }
    FORKING.store(true, Ordering::SeqCst);
    text::before_fork();
    for fd in 0..table::end() {
        match table::get(fd) {
            Entry::Candidate(candidate) => {
                let slot = candidate.slot();
                if slot != 0 {
                    slot_refs(slot).fetch_add(1, Ordering::SeqCst);
                } else if let Some(slot) = take_slot() {
                    table::change(fd, |candidate| candidate.with_slot(slot));
                } else {
                    table::clear(fd);
                }
            }
            Entry::Conn(conn) => {
                // Another thread may close it.
                let Some(_pin) = conn.pin(fd) else { continue };
                conn.share_between_steps(fd);
                if set::watches(fd) {
                    watches_rx(&conn.side().rx);
                }
                if conn.fd() == fd {
                    conn.one_more_holds();
                }
            }
            Entry::Set(set) => set.before_fork(),
            // The child may use it before it is connected here.
            Entry::Fresh => table::clear(fd),
            Entry::Guest(_) => table::share_guest(fd),
            _ => {}
        }
    }
}

/// A fork by a call that runs no handlers.
pub fn forking(kernel: impl FnOnce() -> isize) -> isize {
    before_fork();
    let ret = kernel();
    if ret == 0 {
        became_child();
    } else {
        after_fork();
    }
    ret
}

extern "C" fn after_fork() {
    text::after_fork();
    FORKING.store(false, Ordering::SeqCst);
}

extern "C" fn in_child() {
    became_child();
}

#[cold]
fn became_child() {
    let mark = MARK.load(Ordering::Relaxed);
    if !mark.is_null() {
        // SAFETY: the page that `start` mapped.
        if unsafe { (*mark).swap(1, Ordering::AcqRel) } == 1 {
            return;
        }
    }
    PID.store(sys::getpid(), Ordering::Relaxed);
    lock::forget_thread();
    // By a call that runs no handlers: then nobody has counted this process yet.
    let is_uncounted = !FORKING.swap(false, Ordering::SeqCst);
    conn::POOL.reset_lock();
    set::forget_in_child();
    memory::forget_holder();
    signals::reset_lock();
    broker::forget_in_child();
    in_flight::forget_others();
    text::forked();
    for fd in 0..table::end() {
        match table::get(fd) {
            Entry::Candidate(_) => {
                // Calls in flight were other threads', which are not here.
                table::change(fd, |candidate| candidate.alone().with_pending(false));
            }
            Entry::Conn(conn) => {
                conn.share();
                conn.reset_locks();
                if is_uncounted && conn.fd() == fd {
                    conn.one_more_holds();
                }
            }
            Entry::Set(set) => set.inherited(),
            Entry::Fresh => table::clear(fd),
            Entry::Guest(_) => table::share_guest(fd),
            _ => {}
        }
    }
}

/// The program exits.
pub extern "C" fn exits() {
    refresh();
    if is_borrowed() {
        return;
    }
    for fd in 0..table::end() {
        match table::get(fd) {
            Entry::Conn(conn) => conn.exits(fd),
            Entry::Candidate(candidate) => drop_slot(candidate.slot()),
            Entry::Guest(behind) if !table::is_guest_shared(fd) => guest::end_unread(fd, behind),
            _ => {}
        }
    }
}

fn slot_refs(slot: usize) -> &'static AtomicU32 {
    // SAFETY: taken slots are inside the table, which is never unmapped.
    unsafe { &*SLOTS.load(Ordering::Relaxed).add(slot % SLOT_COUNT) }
}

/// A slot for a candidate that two processes are about to hold.
pub fn take_slot() -> Option<usize> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    if SLOTS.load(Ordering::Relaxed).is_null() {
        return None;
    }
    for _ in 0..1024 {
        let slot = NEXT.fetch_add(1, Ordering::Relaxed) as usize % SLOT_COUNT;
        if slot != 0
            && slot_refs(slot).compare_exchange(0, 2, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            return Some(slot);
        }
    }
    None
}

/// Says to all who share the set of `slot` that another process than its maker uses it.
pub fn raise_slot(slot: usize) {
    slot_refs(slot).store(RAISED, Ordering::SeqCst);
}

pub fn is_raised(slot: usize) -> bool {
    slot != 0 && slot_refs(slot).load(Ordering::SeqCst) == RAISED
}

/// Whether this process alone holds the candidate.
pub fn is_sole_holder(slot: usize) -> bool {
    slot == 0 || slot_refs(slot).load(Ordering::SeqCst) <= 1
}

/// This process lets go of a candidate.
pub fn drop_slot(slot: usize) {
    if slot != 0 {
        let refs = slot_refs(slot);
        let _ = refs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    }
}

/// Whether this process may offer to receive: the one that reads does, and it may change once
/// (accepted here, served there). Two that take turns stay on TCP.
pub fn owns_rx(rx: &Rx) -> bool {
    let (me, owner) = (pid(), rx.owner_pid.load(Ordering::Relaxed));
    if owner == me {
        return true;
    }
    if owner != 0 && rx.owner_moves.fetch_add(1, Ordering::Relaxed) > 0 {
        return false;
    }
    rx.owner_pid.store(me, Ordering::Relaxed);
    true
}

/// This process puts the end into an epoll set. Whether another one may have offered it.
pub fn watches_rx(rx: &Rx) -> bool {
    let me = pid();
    let watcher = &rx.watcher_pid;
    let other = watcher.compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed);
    if other.is_err_and(|other| other != me) {
        watcher.store(MANY_WATCHERS, Ordering::SeqCst);
    }
    rx.owner_pid.load(Ordering::Relaxed) != me
}

/// This process closes an end that is in no set of its own.
pub fn watches_no_more(rx: &Rx) {
    let _ = rx.watcher_pid.compare_exchange(pid(), 0, Ordering::SeqCst, Ordering::Relaxed);
}

/// Whether a set of another process would not learn of an offer of this one's.
pub fn is_watched_elsewhere(rx: &Rx) -> bool {
    let watcher = rx.watcher_pid.load(Ordering::SeqCst);
    watcher != 0 && watcher != pid()
}

/// Whether a signal or a debugger has stopped the process.
pub fn is_stopped(pid: u32) -> bool {
    let mut path = *b"/proc/\0\0\0\0\0\0\0\0\0\0/stat\0";
    const PREFIX: usize = 6;
    let (mut digits, mut left, mut count) = ([0u8; 10], pid, 0);
    while left > 0 || count == 0 {
        digits[count] = b'0' + (left % 10) as u8;
        left /= 10;
        count += 1;
    }
    for (at, digit) in digits[..count].iter().rev().enumerate() {
        path[PREFIX + at] = *digit;
    }
    path[PREFIX + count..PREFIX + count + 6].copy_from_slice(b"/stat\0");
    // The name, in brackets and at most 15 bytes long, may hold brackets too.
    let mut stat = [0u8; 64];
    const AT_CWD: c_int = -100;
    const O_CLOEXEC: c_int = 0o2_000_000;
    // SAFETY: a path and a buffer of ours.
    let len = unsafe {
        let file = call!(openat, AT_CWD, path.as_ptr(), O_CLOEXEC, 0);
        if file < 0 {
            return false;
        }
        let len = call!(read, file, stat.as_mut_ptr(), stat.len());
        sys::close(file as c_int);
        len.max(0) as usize
    };
    let stat = &stat[..len.min(64)];
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    matches!(stat.get(end + 2), Some(b'T' | b't'))
}

/// Effective user and group.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: no memory involved.
    unsafe { (call!(geteuid) as u32, call!(getegid) as u32) }
}
