//! The program's memory, where a plain copy may fault.
//!
//! The kernel answers EFAULT where a copy of this library's would end the program. Most memory
//! cannot fault, and to ask each time costs more than the copy. So what may fault is known
//! beforehand: the lowest addresses, and the areas that the program mapped from a file (which
//! can be cut under its mapping) or without access (guard pages). Copies from and to these go
//! through the kernel. An address where nothing was ever mapped is not among them.
//!
//! Structures (headers, vectors, sets, times, lengths) are small: there the kernel is asked
//! about each page that it was not asked about before. So no pointer of the program's to one of
//! them faults here: `is_readable`, `is_writable`, `get` and `put` come before every look.
//!
//! Storey 1: system.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::lock::Lock;
use crate::sys::{self, EFAULT, IoVec, Ret, call};

/// Nothing is mapped below this, but by root on purpose.
const LOWEST: usize = 1 << 16;
/// From here on the kernel refuses an address before it does anything else (TASK_SIZE_MAX).
const HIGHEST: usize = (1 << 47) - 4096;

/// Most bytes that one call moves (MAX_RW_COUNT).
pub const MOST_BYTES: usize = 0x7fff_f000;

/// Areas beyond so many are not known.
const AREAS_MAX: usize = 64;

struct Area {
    start: AtomicUsize,
    /// 0: no area.
    end: AtomicUsize,
    /// Not 0: of a file, and so whatever access the program gives.
    file: AtomicU32,
}

/// Why a copy may fault in an area.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    File,
    NoAccess,
}

static AREAS: [Area; AREAS_MAX] = [const {
    Area { start: AtomicUsize::new(0), end: AtomicUsize::new(0), file: AtomicU32::new(0) }
}; AREAS_MAX];
/// One more than the highest place in AREAS that was ever used.
static USED: AtomicU32 = AtomicU32::new(0);
/// Held for changes of AREAS.
static LOCK: Lock = Lock::new();

/// Whether the kernel refuses the range at once, whatever it is to do with it.
pub fn is_refused(base: *const u8, len_bytes: usize) -> bool {
    (base as usize).checked_add(len_bytes).is_none_or(|end| end > HIGHEST)
}

/// Whether a plain copy may fault there.
#[inline]
pub fn may_fault(base: *const u8, len_bytes: usize) -> bool {
    let used = USED.load(Ordering::Relaxed);
    (base as usize) < LOWEST || used != 0 && is_in_area(base as usize, len_bytes, used)
}

#[inline(never)]
fn is_in_area(base: usize, len_bytes: usize, used: u32) -> bool {
    AREAS[..used as usize].iter().any(|area| {
        base < area.end.load(Ordering::Relaxed)
            && base.saturating_add(len_bytes) > area.start.load(Ordering::Relaxed)
    })
}

/// Copies by the kernel, which finds out: all of it, or minus errno.
#[cold]
fn by_kernel(from: &[IoVec], to: &[IoVec], reads: bool, len_bytes: usize) -> Result<(), Ret> {
    let pid = sys::getpid();
    let (near, far) = if reads { (to, from) } else { (from, to) };
    // SAFETY: the kernel checks every address of both sides.
    let ret = unsafe {
        if reads {
            call!(process_vm_readv, pid, near.as_ptr(), near.len(), far.as_ptr(), far.len(), 0)
        } else {
            call!(process_vm_writev, pid, near.as_ptr(), near.len(), far.as_ptr(), far.len(), 0)
        }
    };
    if ret == len_bytes as Ret { Ok(()) } else { Err(-(EFAULT as Ret)) }
}

/// From the program's memory at `from`, which may fault, into memory of ours.
pub fn take(from: *const u8, to: &[IoVec], len_bytes: usize) -> Result<(), Ret> {
    let far = [IoVec { base: from.cast_mut(), len: len_bytes }];
    by_kernel(&far, to, true, len_bytes)
}

/// From memory of ours to the program's at `to`, which may fault.
pub fn give(from: &[IoVec], to: *mut u8, len_bytes: usize) -> Result<(), Ret> {
    let far = [IoVec { base: to, len: len_bytes }];
    by_kernel(from, &far, false, len_bytes)
}

const PAGE: usize = 4096;

/// Pages that the kernel could read, by the low bits of their numbers; empty again whenever the
/// program unmaps or protects something. What libc unmaps by itself is not seen: then a pointer
/// to where something was faults, as a pointer that is used after free does anywhere.
static SEEN: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
static HAS_SEEN: AtomicBool = AtomicBool::new(false);

fn forget_seen() {
    if HAS_SEEN.swap(false, Ordering::Relaxed) {
        SEEN.iter().for_each(|page| page.store(0, Ordering::Relaxed));
    }
}

/// Whether it lies in the callers' frames.
#[inline]
fn is_on_stack(base: usize, len_bytes: usize) -> bool {
    let sp: usize;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags));
    }
    base.wrapping_sub(sp) < PAGE && len_bytes < PAGE
}

#[inline]
fn is_page_readable(page: usize) -> bool {
    let seen = &SEEN[(page / PAGE) % SEEN.len()];
    page != 0 && (seen.load(Ordering::Relaxed) == page || can_be_read(page, seen))
}

/// Asks by a call that changes nothing and that sandboxes allow: it reads a signal mask, /then/
/// refuses what it is asked to do with it.
#[cold]
fn can_be_read(page: usize, seen: &AtomicUsize) -> bool {
    const NOTHING: usize = usize::MAX;
    const MASK_BYTES: usize = 8;
    // SAFETY: the kernel reads at most.
    let ret = unsafe { call!(rt_sigprocmask, NOTHING, page, 0, MASK_BYTES) };
    let can = ret != -(EFAULT as Ret);
    // A file may be cut at any time.
    if can && !may_fault(page as *const u8, PAGE) {
        seen.store(page, Ordering::Relaxed);
        HAS_SEEN.store(true, Ordering::Relaxed);
    }
    can
}

/// Whether `count` of a structure of the program's can be read.
#[inline]
pub fn is_readable<T>(base: *const T, count: usize) -> bool {
    let (at, len) = (base as usize, count.saturating_mul(size_of::<T>()));
    if is_on_stack(at, len) || len == 0 {
        return true;
    }
    !is_refused(base.cast(), len)
        && (at & !(PAGE - 1)..at + len).step_by(PAGE).all(is_page_readable)
}

/// Whether it can be written, too. An area that the loader mapped without write access, such as
/// constants of the program's, passes for one that can.
#[inline]
pub fn is_writable<T>(base: *mut T, count: usize) -> bool {
    let (at, len) = (base as usize, count.saturating_mul(size_of::<T>()));
    is_readable(base, count)
        && (is_on_stack(at, len) || !may_fault(base.cast(), len) || can_be_written(at, len))
}

/// Writes a byte of each page as it was.
#[cold]
fn can_be_written(base: usize, len_bytes: usize) -> bool {
    let pages = (base & !(PAGE - 1)..base + len_bytes).step_by(PAGE);
    pages.map(|page| page.max(base)).all(|at| {
        let mut byte = 0u8;
        let one = [IoVec { base: &raw mut byte, len: 1 }];
        take(at as *const u8, &one, 1).and_then(|()| give(&one, at as *mut u8, 1)).is_ok()
    })
}

/// A variable of the program's; `None` where the kernel would say EFAULT.
#[inline]
pub fn get<T: Copy>(from: *const T) -> Option<T> {
    // SAFETY: readable; all that is read this way is plain numbers.
    is_readable(from, 1).then(|| unsafe { from.read_unaligned() })
}

/// Writes a variable of the program's; false where the kernel would say EFAULT.
#[inline]
pub fn put<T>(to: *mut T, value: T) -> bool {
    let can = is_writable(to, 1);
    if can {
        // SAFETY: writable.
        unsafe { to.write_unaligned(value) };
    }
    can
}

/// The program mapped `len_bytes` at `start`, or unmapped them (`None`: nothing may fault).
pub fn mapped(start: usize, len_bytes: usize, why: Option<Why>) {
    forget_seen();
    if why.is_none() && USED.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(_guard) = LOCK.acquire() else { return };
    let end = start.saturating_add(len_bytes.next_multiple_of(4096));
    cut(start, end, |_| true);
    if let Some(why) = why {
        note(start, end, why);
    }
}

/// The program gave or took access to `len_bytes` at `start`.
pub fn protected(start: usize, len_bytes: usize, gives: bool) {
    forget_seen();
    if gives && USED.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(_guard) = LOCK.acquire() else { return };
    let end = start.saturating_add(len_bytes.next_multiple_of(4096));
    cut(start, end, |why| why == Why::NoAccess);
    let used = USED.load(Ordering::Relaxed);
    if !gives && !is_in_area(start, len_bytes, used) {
        note(start, end, Why::NoAccess);
    }
}

/// Takes the range out of the areas that `which` names. Under the lock.
fn cut(start: usize, end: usize, which: impl Fn(Why) -> bool) {
    for area in &AREAS {
        let (from, to) = (area.start.load(Ordering::Relaxed), area.end.load(Ordering::Relaxed));
        let is_file = area.file.load(Ordering::Relaxed) != 0;
        let why = if is_file { Why::File } else { Why::NoAccess };
        if to == 0 || end <= from || start >= to || !which(why) {
            continue;
        }
        // What is left of it on both sides.
        area.end.store(if from < start { start } else { 0 }, Ordering::Relaxed);
        if end < to {
            note(end, to, why);
        }
    }
}

/// Under the lock.
fn note(start: usize, end: usize, why: Why) {
    for (at, area) in AREAS.iter().enumerate() {
        if area.end.load(Ordering::Relaxed) == 0 {
            area.start.store(start, Ordering::Relaxed);
            area.file.store(u32::from(why == Why::File), Ordering::Relaxed);
            area.end.store(end, Ordering::Relaxed);
            USED.fetch_max(at as u32 + 1, Ordering::Relaxed);
            return;
        }
    }
}

/// In a forked child: whoever held the lock is not here.
pub fn forget_holder() {
    LOCK.reset();
}
