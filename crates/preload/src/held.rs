//! How many locks this thread holds, and the signals that wait until it holds none.
//!
//! A handler may leave by a jump (siglongjmp is safe in one that interrupted read or poll), and the
//! locks of the thread that it interrupted would be held for ever. So as long as a thread holds one, its
//! handlers do not run: the entry in front of a handler sends the signal to the thread once more and blocks
//! all of them, and who lets go of the last lock puts the mask back. The kernel does the same for a
//! thread that is inside it.
//!
//! What must stay true: a lock is held for a bounded time, and never over a return to the program.
//!
//! Storey 1: system.

use core::arch::asm;
use core::ffi::{c_int, c_void};

use crate::sys::{self, call};
use crate::thread::{by_block, thread_word};
use crate::{delayed, fault, real};

thread_word! {
    /// So many locks, and `WAITS`.
    held: u32
}

thread_word! {
    /// The thread's mask before its signals were blocked.
    mask: u64
}

/// A signal waits, and all are blocked.
const WAITS: u32 = 1 << 31;

const SIG_SETMASK: usize = 2;
pub const SIG_IGN: u64 = 1;
pub const SA_SIGINFO: u64 = 4;
/// Of struct ucontext, in words: behind the flags, the link, the stack and struct sigcontext.
const UC_SIGMASK: usize = 37;

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV and SIGSYS: what the thread itself has done.
const FAULTS: u64 = bit(4) | bit(5) | bit(7) | bit(8) | bit(11) | bit(31);

/// What libc changes the user with, in all threads: none of them jumps.
fn libcs() -> u64 {
    bit(real::LIBC.calls_all_by())
}

/// A lock is about to be taken.
#[inline]
pub fn enter() {
    // SAFETY: this thread's own word. One instruction: a handler comes before or after.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + yasmin_held@GOTTPOFF]",
            by_block!(),
            "add dword ptr fs:[{at}], 1",
            at = out(reg) _,
            options(nostack),
        );
    }
}

/// It was let go, or not had.
#[inline]
pub fn leave() {
    // SAFETY: as above. The sign is `WAITS`.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + yasmin_held@GOTTPOFF]",
            by_block!(),
            "sub dword ptr fs:[{at}], 1",
            "js {waits}",
            at = out(reg) _,
            waits = label { if held::get() == WAITS { forget() } },
            options(nostack),
        );
    }
}

/// The thread holds none. What waits is handled now.
#[cold]
pub fn forget() {
    let has_blocked = held::get() & WAITS != 0;
    held::set(0);
    if has_blocked {
        set_mask(mask::get());
    }
}

pub fn set_mask(mask: u64) {
    // SAFETY: a signal set of the kernel's is 8 bytes.
    unsafe { call!(rt_sigprocmask, SIG_SETMASK, &raw const mask, 0, 8) };
}

/// Blocks what the program may send, and returns what was blocked.
pub fn block_all() -> u64 {
    let (all, mut before) = (!(bit(32) | bit(33) | libcs()), 0u64);
    // SAFETY: as above.
    unsafe { call!(rt_sigprocmask, SIG_SETMASK, &raw const all, &raw mut before, 8) };
    before
}

/// A handler is about to run in a thread that holds a lock. False: it runs.
///
/// # Safety
/// The kernel's arguments of a handler.
pub unsafe extern "C" fn puts_off(signal: c_int, info: *const c_void, context: *mut u64) -> bool {
    if bit(signal) & (FAULTS | libcs()) != 0 {
        return false;
    }
    let Some([_, flags, ..]) = fault::kernel_action(signal).filter(|action| action[0] > SIG_IGN)
    else {
        // One that runs once: the next signal of this kind would end the program.
        return false;
    };
    // SAFETY: the kernel's struct ucontext.
    let interrupted = unsafe { &mut *context.add(UC_SIGMASK) };
    // Its own signal need not be blocked in a handler.
    set_mask(!(FAULTS | libcs()));
    // SAFETY: the kernel wrote a struct siginfo where the handler asked for one.
    let is_sent = unsafe {
        if flags & SA_SIGINFO != 0 {
            delayed::send_again(signal, info.cast())
        } else {
            call!(tgkill, sys::getpid(), sys::gettid(), signal) == 0
        }
    };
    if !is_sent {
        // The queue is full.
        set_mask(*interrupted | bit(signal));
        return false;
    }
    // Of several that came at once the kernel has put one on top of the other. The undermost comes last, and
    // it alone knows the thread's own mask.
    mask::set(*interrupted);
    held::set(held::get() | WAITS);
    *interrupted = !(FAULTS | libcs());
    true
}
