//! The program's memory: a pointer of the program's never faults here.
//!
//! Bytes are copied by `copy_in` and `copy_out`; structures (headers, vectors, sets, times,
//! lengths) are looked at after `is_readable` and `is_writable` alone, or by `get` and `put`.
//! Each answers as the kernel would. In a thread where a fault would not be caught (`fault`) the
//! kernel is asked about each page before it is used.
//!
//! Storey 1: system.

use crate::fault;
use crate::sys::{EFAULT, Ret, call};

/// From here on the kernel refuses an address before it does anything else (TASK_SIZE_MAX).
const HIGHEST: usize = (1 << 47) - 4096;

/// Most bytes that one call moves (MAX_RW_COUNT).
pub const MOST_BYTES: usize = 0x7fff_f000;

/// TCP copies all of so many bytes or none of them, as they mostly lie in one piece of its memory
/// (32 KiB, net/core/sock.c). Whoever has fewer in a ring, and the rest by TCP, does likewise.
pub const AT_ONCE: usize = 8 * PAGE;

const PAGE: usize = 4096;

/// Whether the kernel refuses the range at once, whatever it is to do with it.
pub fn is_refused(base: *const u8, len_bytes: usize) -> bool {
    (base as usize).checked_add(len_bytes).is_none_or(|end| end > HIGHEST)
}

/// From the program's memory at `from` to memory of ours.
///
/// # Errors
/// Minus EFAULT; any part of it is copied.
///
/// # Safety
/// `to` is writable for `len_bytes`, and is not the program's.
#[inline]
pub unsafe fn copy_in(to: *mut u8, from: *const u8, len_bytes: usize) -> Result<(), Ret> {
    // SAFETY: the caller's.
    unsafe { copy(to, from, len_bytes, from, can_be_read) }
}

/// From memory of ours to the program's at `to`.
///
/// # Errors
/// As `copy_in`.
///
/// # Safety
/// `from` is readable for `len_bytes`, and is not the program's.
#[inline]
pub unsafe fn copy_out(to: *mut u8, from: *const u8, len_bytes: usize) -> Result<(), Ret> {
    // SAFETY: the caller's.
    unsafe { copy(to, from, len_bytes, to, can_be_overwritten) }
}

/// `theirs` is whichever of the two is the program's; `good` tells of its pages.
#[inline]
unsafe fn copy(
    to: *mut u8,
    from: *const u8,
    len_bytes: usize,
    theirs: *const u8,
    good: fn(usize, usize) -> bool,
) -> Result<(), Ret> {
    let is_done = if fault::catches() {
        // SAFETY: the caller's; faults in the program's range are caught.
        unsafe { fault::copy(to, from, len_bytes, theirs) }
    } else {
        let is_good = are_pages(theirs, len_bytes, good);
        if is_good {
            // SAFETY: the caller's, and the program's pages are as they have to be.
            unsafe { core::ptr::copy_nonoverlapping(from, to, len_bytes) };
        }
        is_good
    };
    if is_done { Ok(()) } else { Err(-(EFAULT as Ret)) }
}

/// Whether each page's part (address, bytes) of the range is `good`.
fn are_pages(base: *const u8, len_bytes: usize, good: fn(usize, usize) -> bool) -> bool {
    let (base, end) = (base as usize, base as usize + len_bytes);
    let pages = (base & !(PAGE - 1)..end).step_by(PAGE);
    pages.map(|page| (page.max(base), end.min(page + PAGE))).all(|(at, to)| good(at, to - at))
}

/// Asks by a call that changes nothing and that sandboxes allow: it reads a signal mask, /then/
/// refuses what it is asked to do with it.
#[cold]
fn can_be_read(at: usize, _: usize) -> bool {
    const NOTHING: usize = usize::MAX;
    // SAFETY: the kernel reads at most, from the page's first word on.
    let ret = unsafe { call!(rt_sigprocmask, NOTHING, at & !(PAGE - 1), 0, MASK_BYTES) };
    // To the kernel null is no mask, which is well.
    at >= PAGE && ret != -(EFAULT as Ret)
}

const MASK_BYTES: usize = 8;

/// Has the kernel write a signal mask to what is about to be overwritten, where it has room.
#[cold]
fn can_be_overwritten(at: usize, len_bytes: usize) -> bool {
    const SIG_BLOCK: usize = 0;
    if len_bytes < MASK_BYTES {
        return can_be_read(at, len_bytes);
    }
    // SAFETY: the kernel writes 8 bytes, or finds out that it cannot.
    let ret = unsafe { call!(rt_sigprocmask, SIG_BLOCK, 0, at, MASK_BYTES) };
    at >= PAGE && ret != -(EFAULT as Ret)
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

fn is_byte_readable(at: usize, len_bytes: usize) -> bool {
    let mut byte = 0u8;
    if !fault::catches() {
        return can_be_read(at, len_bytes);
    }
    // SAFETY: a byte of ours; a fault is caught.
    unsafe { fault::copy(&raw mut byte, at as *const u8, 1, at as *const u8) }
}

fn is_byte_writable(at: usize, len_bytes: usize) -> bool {
    // Without a fault that is caught, nothing tells that changes nothing.
    if fault::catches() {
        fault::is_byte_writable(at as *mut u8)
    } else {
        can_be_read(at, len_bytes)
    }
}

/// Whether `count` of a structure of the program's can be read.
#[inline]
pub fn is_readable<T>(base: *const T, count: usize) -> bool {
    is_each(base.cast(), count.saturating_mul(size_of::<T>()), is_byte_readable)
}

/// Whether they can be written, too.
#[inline]
pub fn is_writable<T>(base: *mut T, count: usize) -> bool {
    is_each(base.cast_const().cast(), count.saturating_mul(size_of::<T>()), is_byte_writable)
}

#[inline]
fn is_each(base: *const u8, len_bytes: usize, good: fn(usize, usize) -> bool) -> bool {
    if is_on_stack(base as usize, len_bytes) || len_bytes == 0 {
        return true;
    }
    !is_refused(base, len_bytes) && are_pages(base, len_bytes, good)
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
