//! Which process this is, and whether the calling thread is really its own: forked children,
//! children that borrow the memory (vfork), threads that are cancelled.
//!
//! Storey 1: system.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::sys::{self, call};
use crate::thread::thread_word;
use crate::{clock, real};

/// A page that the kernel empties in every forked child (MADV_WIPEONFORK), by whatever call
/// it was forked.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(UNKNOWN_PID);
const UNKNOWN_PID: u32 = 0;
/// Tells PID namespaces apart: what is left of this one's number (namespaces(7)) in ten bits.
static SPACE: AtomicU32 = AtomicU32::new(UNKNOWN_SPACE);
/// Not 0: this process does not know its number and may not ask for it.
static ALIAS: AtomicU32 = AtomicU32::new(0);
/// No PID has more (PID_MAX_LIMIT, proc(5)).
const PID_BITS: u32 = 22;
const UNKNOWN_SPACE: u32 = 1022;
/// No connection gets a ring any more.
static LEAVES_RINGS: AtomicBool = AtomicBool::new(false);
/// The program has forbidden itself system calls, or is about to (seccomp).
static SANDBOXED: AtomicBool = AtomicBool::new(false);
/// A ring had bytes unread when it became one.
static KEEPS_UNREAD: AtomicBool = AtomicBool::new(false);
/// Forks that are under way, of several threads at once: no channel is attached until all are done.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// What puts a forked child's connections in order (`fork`).
static IN_CHILD: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

const MADV_WIPEONFORK: usize = 18;

/// `in_child` is called in every forked child, from whatever call notices it first.
pub fn start(in_child: fn()) {
    IN_CHILD.store(in_child as *mut c_void, Ordering::Release);
    PID.store(sys::getpid(), Ordering::Relaxed);
    SPACE.store(own_space(), Ordering::Relaxed);
    if let Some(page) = sys::map_private(4096) {
        // SAFETY: a page of ours.
        unsafe { call!(madvise, page, 4096, MADV_WIPEONFORK) };
        let mark = page.cast::<AtomicU32>();
        // SAFETY: inside the page.
        unsafe { (*mark).store(1, Ordering::Relaxed) };
        MARK.store(mark, Ordering::Release);
    }
}

pub fn pid() -> u32 {
    match PID.load(Ordering::Relaxed) {
        UNKNOWN_PID => {
            let pid = sys::getpid();
            PID.store(pid, Ordering::Relaxed);
            pid
        }
        pid => pid,
    }
}

/// From now on no connection of this process's gets a ring.
pub fn leaves_rings() {
    LEAVES_RINGS.store(true, Ordering::SeqCst);
}

/// See `leaves_rings`.
pub fn has_left_rings() -> bool {
    LEAVES_RINGS.load(Ordering::Relaxed)
}

/// From now on no call of the program's may lead to a system call that it does not make itself, if only
/// at a loss: where a connection is closed with ring bytes unread, say, the peer is told of the end and not
/// of a reset. `keeps_unread`: a ring has some.
pub fn enters_sandbox(keeps_unread: bool) {
    KEEPS_UNREAD.store(keeps_unread, Ordering::Relaxed);
    SANDBOXED.store(true, Ordering::SeqCst);
}

/// See `enters_sandbox`.
#[inline]
pub fn is_sandboxed() -> bool {
    SANDBOXED.load(Ordering::Relaxed)
}

/// Whether valgrind carries this process out (valgrind.h, RUNNING_ON_VALGRIND). It does not know all instructions of
/// this library's, and would take what two processes do in a ring for errors. Elsewhere this does nothing.
pub fn is_translated() -> bool {
    const RUNNING_ON_VALGRIND: u64 = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let mut depth = 0u64;
    // SAFETY: four turns that add up to two whole ones, and an exchange of a register with itself.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") depth,
            out("rdi") _,
        );
    }
    depth != 0
}

/// Names this process among those that share a connection. A fork may lead into another PID
/// namespace, where the same number means somebody else.
pub fn id() -> u32 {
    match ALIAS.load(Ordering::Relaxed) {
        0 => SPACE.load(Ordering::Relaxed) << PID_BITS | pid(),
        alias => UNKNOWN_SPACE << PID_BITS | alias,
    }
}

/// The PID here of the process that `id` names. `None`: it is of another namespace, and nothing
/// can be learnt of it.
pub fn pid_of(id: u32) -> Option<u32> {
    let space = id >> PID_BITS;
    let is_here = space == SPACE.load(Ordering::Relaxed) && space != UNKNOWN_SPACE;
    is_here.then_some(id & ((1 << PID_BITS) - 1))
}

fn own_space() -> u32 {
    // "pid:[4026531836]"
    let mut name = [0u8; 32];
    let path = c"/proc/self/ns/pid".as_ptr();
    // SAFETY: a C string and a buffer of ours.
    let len = unsafe { call!(readlink, path, name.as_mut_ptr(), name.len()) };
    let digits = name[..usize::try_from(len).unwrap_or(0)].iter().filter(|c| c.is_ascii_digit());
    let number = digits.fold(0u64, |sum, digit| sum.wrapping_mul(10) + u64::from(digit - b'0'));
    if number == 0 { UNKNOWN_SPACE } else { (number % u64::from(UNKNOWN_SPACE)) as u32 }
}

/// In a child: it is one, by now. True: nobody has noticed it before.
pub fn turns_child() -> bool {
    let mark = MARK.load(Ordering::Relaxed);
    // SAFETY: null, or the page that `start` mapped.
    if !mark.is_null() && unsafe { (*mark).swap(1, Ordering::AcqRel) } == 1 {
        return false;
    }
    if is_sandboxed() {
        // Hardly ever will anybody ask.
        PID.store(UNKNOWN_PID, Ordering::Relaxed);
        ALIAS.store(clock::ticks() as u32 & ((1 << PID_BITS) - 1) | 1, Ordering::Relaxed);
        return true;
    }
    PID.store(sys::getpid(), Ordering::Relaxed);
    // Whose parent is in another namespace sees none (getppid(2)).
    if sys::getppid() == 0 {
        SPACE.store(own_space(), Ordering::Relaxed);
    }
    true
}

#[cold]
fn became_child() {
    let in_child = IN_CHILD.load(Ordering::Acquire);
    if !in_child.is_null() {
        // SAFETY: only `start` stores there, a function of this type.
        unsafe { core::mem::transmute::<*mut c_void, fn()>(in_child)() }
    }
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

thread_word! {
    /// Not 0 from the thread's vfork until its next call that asks: its memory may be in the hands
    /// of the child, for all that it knows. The child has the thread's block as well, and runs
    /// while the thread does not.
    lends: u32
}

/// The program called vfork or clone once.
static LENDS: AtomicBool = AtomicBool::new(false);
/// A child may run beside the threads whose memory it has.
static LENDS_BESIDE: AtomicBool = AtomicBool::new(false);

/// Before vfork.
pub fn before_lending() {
    refresh();
    LENDS.store(true, Ordering::SeqCst);
    lends::set(1);
}

/// Before clone.
pub fn before_cloning(flags: c_int) {
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
    (lends::get() != 0 || LENDS_BESIDE.load(Ordering::Relaxed)) && is_a_borrower()
}

/// Whether it has other threads. False where /proc is not to be seen.
pub fn has_threads() -> bool {
    const NLINK: usize = 2;
    let mut stat = [0u64; 18];
    // SAFETY: the kernel's struct stat is 144 bytes.
    let ret = unsafe { call!(stat, c"/proc/self/task".as_ptr(), stat.as_mut_ptr()) };
    // Each folder names it, and so do its parent and itself.
    ret == 0 && stat[NLINK] > 3
}

#[cold]
fn is_a_borrower() -> bool {
    // With nothing in a ring each number means what the kernel says, and to ask may end the program.
    if is_sandboxed() && !KEEPS_UNREAD.load(Ordering::Relaxed) {
        return false;
    }
    if sys::getpid() != pid() {
        return true;
    }
    // The thread that lent it is back.
    lends::set(0);
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

/// For as long as it lives no call of libc's is a cancellation point of this thread.
pub struct Uncancelled {
    /// The cancel state before; `None`: it was left as it was.
    before: Option<c_int>,
}

impl Uncancelled {
    /// A thread that may be cancelled anywhere remains so.
    #[inline]
    pub fn new() -> Uncancelled {
        let kind = real::set_cancel_type(real::CANCEL_DEFERRED);
        if kind == Some(real::CANCEL_DEFERRED) {
            return Uncancelled { before: real::set_cancel_state(real::CANCEL_DISABLE) };
        }
        if let Some(kind) = kind {
            real::set_cancel_type(kind);
        }
        Uncancelled { before: None }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            real::set_cancel_state(before);
        }
    }
}

/// A thread is about to fork.
pub fn begins_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// The thread has forked, in the parent.
pub fn ends_fork() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// In the child: none is under way. Whether one was said to be.
pub fn forgets_forks() -> bool {
    FORKS.swap(0, Ordering::SeqCst) != 0
}

pub fn is_forking() -> bool {
    FORKS.load(Ordering::SeqCst) != 0
}

/// Whether a call comes back to the thread that began it, alone in its thread block: not in a
/// program that lends its memory or cancels threads.
#[inline]
pub fn calls_return() -> bool {
    !LENDS.load(Ordering::Relaxed) && !CANCELS.load(Ordering::Relaxed)
}

/// Whether the process that `id` names stands still for as long as others like: stopped by a signal
/// or a debugger, or frozen with its cgroup. False too if it cannot be looked at.
pub fn is_stopped(id: u32) -> bool {
    let Some(pid) = pid_of(id) else { return false };
    // The name, in brackets and at most 15 bytes long, may hold brackets too.
    let (mut stat, mut place) = ([0u8; 64], [0u8; 64]);
    let stat = read_file_of(pid, b"stat", &mut stat);
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    if matches!(stat.get(end + 2), Some(b'T' | b't')) {
        return true;
    }
    // A frozen one only seems to sleep (measured: Linux 6.18, cgroup v2 and v1).
    let frozen: [&[u8]; 3] = [b"get_signal", b"do_freezer_trap", b"__refrigerator"];
    frozen.contains(&read_file_of(pid, b"wchan", &mut place))
}

fn read_file_of<'a>(pid: u32, name: &[u8], text: &'a mut [u8; 64]) -> &'a [u8] {
    let Some(file) = open_file_of(pid, name) else { return &[] };
    // SAFETY: a buffer of ours.
    let len = unsafe { call!(read, file, text.as_mut_ptr(), text.len()) };
    sys::close(file);
    &text[..usize::try_from(len).unwrap_or(0)]
}

/// Opens a file of a process's in /proc, with a name of at most five bytes.
pub fn open_file_of(pid: u32, name: &[u8]) -> Option<c_int> {
    let mut path = *b"/proc/0000000000/.....\0";
    let mut left = pid;
    // Leading zeros would name no process: the number is written from the right, and what is
    // before it becomes slashes, which the kernel skips.
    for at in (6..16).rev() {
        path[at] = if left > 0 { b'0' + (left % 10) as u8 } else { b'/' };
        left /= 10;
    }
    let end = 17 + name.len().min(5);
    path[17..end].copy_from_slice(&name[..end - 17]);
    path[end] = 0;
    // SAFETY: a C string.
    let file = unsafe { call!(openat, sys::AT_FDCWD, path.as_ptr(), sys::O_CLOEXEC, 0) };
    c_int::try_from(file).ok().filter(|file| *file >= 0)
}

/// Whether it is root or this process's own user.
pub fn trusts(user: u32) -> bool {
    user == 0 || user == effective_ids().0
}

/// Effective user and group.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: no memory involved.
    unsafe { (call!(geteuid) as u32, call!(getegid) as u32) }
}
