//! Handlers that ran while a call watched awake.
//!
//! A signal interrupts a call that sleeps in the kernel. One that comes while the call watches
//! its rings is handled before the call sleeps, so the kernel has nothing to interrupt, and a
//! program that leaves recv or epoll_wait by way of a signal would sleep for ever. So whoever
//! is about to sleep asks here whether a handler ran in its thread since the call began.
//!
//! The program's handlers are installed behind one of two small entries, which count and jump
//! on: same stack, same arguments, no frame of their own. The kernel tells of a handler in no
//! other way: rseq's critical sections end at a preemption as well.
//!
//! Storey 1: system.

use core::arch::naked_asm;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::lock::Lock;
use crate::sys;
use crate::thread::{by_block, thread_word};
use crate::{delayed, fault, held, process, real, tcp};

const SIGNALS: usize = 65;
const SA_RESTART: u64 = 0x1000_0000;
const SIG_IGN: usize = 1;
/// SIG_DFL, SIG_IGN, SIG_HOLD.
const LAST_SPECIAL: usize = 2;

thread_word! {
    /// Handlers that ran (lower half), and those of them that restart no call (upper half).
    handled: u64
}

/// The program's handlers. Two of each signal: the one that is being installed must not take
/// the place of the one that may be called meanwhile.
static HANDLERS: [[AtomicUsize; SIGNALS]; 2] =
    [const { [const { AtomicUsize::new(0) }; SIGNALS] }; 2];
/// Bit n: the handler of signal n was installed with SA_RESTART.
static RESTARTS: [[AtomicU64; 2]; 2] = [const { [const { AtomicU64::new(0) }; 2] }; 2];
/// Bit n: while the handler of signal n runs, a fault of the library's copy routine may not be handled.
static MASKS: [[AtomicU64; 2]; 2] = [const { [const { AtomicU64::new(0) }; 2] }; 2];
/// Which of the two was used last.
static LAST: [AtomicU8; SIGNALS] = [const { AtomicU8::new(0) }; SIGNALS];
static LOCK: Lock = Lock::new();

macro_rules! entry {
    ($name:ident, $which:literal) => {
        /// A signal's entry: counts, then is the program's handler.
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                "mov rax, qword ptr [rip + yasmin_copying@GOTTPOFF]",
                by_block!(),
                "cmp qword ptr fs:[rax], 0",
                "jne 4f",
                "3:",
                "mov rax, qword ptr [rip + yasmin_held@GOTTPOFF]",
                by_block!(),
                "cmp dword ptr fs:[rax], 0",
                "jne 5f",
                "6:",
                "mov rax, qword ptr [rip + yasmin_delayed@GOTTPOFF]",
                by_block!(),
                "cmp dword ptr fs:[rax], 0",
                "jne 8f",
                "9:",
                "lea rcx, [rip + {masks}]",
                "bt dword ptr [rcx + 16 * {which}], edi",
                "jnc 7f",
                "mov rax, qword ptr [rip + yasmin_admits@GOTTPOFF]",
                by_block!(),
                "mov dword ptr fs:[rax], 3",
                "7:",
                "mov rax, qword ptr [rip + yasmin_handled@GOTTPOFF]",
                "lea rcx, [rip + {restarts}]",
                "bt dword ptr [rcx + 16 * {which}], edi",
                "mov ecx, 1",
                "jc 2f",
                "movabs rcx, 0x100000001",
                "2:",
                // One instruction: a signal on top of this one comes before or after.
                by_block!(),
                "add qword ptr fs:[rax], rcx",
                "mov ecx, edi",
                "lea rax, [rip + {handlers}]",
                "jmp qword ptr [rax + 8 * rcx + 8 * {signals} * {which}]",
                // A copy of this library's is under way in this thread.
                "4:",
                "push rdi", "push rsi", "push rdx",
                "call {goes_on}",
                "test al, al",
                "pop rdx", "pop rsi", "pop rdi",
                "jz 3b",
                "ret",
                // A lock of this library's is held by this thread.
                "5:",
                "push rdi", "push rsi", "push rdx",
                "call {puts_off}",
                "test al, al",
                "pop rdx", "pop rsi", "pop rdi",
                "jz 6b",
                "ret",
                // Siginfos of signals that were put off are kept for this thread.
                "8:",
                "push rdi", "push rsi", "push rdx",
                "call {take_turn}",
                "pop rdx", "pop rsi", "pop rdi",
                "jmp 9b",
                take_turn = sym delayed::take_turn,
                puts_off = sym held::puts_off,
                goes_on = sym fault::goes_on,
                restarts = sym RESTARTS,
                masks = sym MASKS,
                handlers = sym HANDLERS,
                signals = const SIGNALS,
                which = const $which,
            )
        }
    };
}

entry!(first, 0);
entry!(second, 1);

fn entry_of(which: usize) -> usize {
    let entry: extern "C" fn() = if which == 0 { first } else { second };
    entry as usize
}

/// How many handlers ran in this thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Handled(u64);

/// What ran since then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Since {
    Nothing,
    /// Handlers with SA_RESTART alone.
    Restarting,
    Breaking,
}

impl Handled {
    pub fn now() -> Self {
        Self(handled::get())
    }

    pub fn since(self) -> Since {
        let now = Self::now();
        if now == self {
            Since::Nothing
        } else if now.0 >> 32 == self.0 >> 32 {
            Since::Restarting
        } else {
            Since::Breaking
        }
    }

    /// Whether a handler ran: poll, select and epoll_wait end with EINTR, restart or not.
    pub fn is_past(self) -> bool {
        Self::now() != self
    }

    /// Whether a send or receive that moved `done` bytes and would sleep now on `fd` ends
    /// instead. Such a call restarts if it has moved nothing and has no timeout (`option`).
    pub fn ends_call(&mut self, fd: c_int, done: usize, option: c_int) -> bool {
        match self.since() {
            Since::Nothing => false,
            Since::Breaking => true,
            Since::Restarting => {
                *self = Self::now();
                done > 0 || tcp::timeout(fd, option).ns > 0
            }
        }
    }
}

/// Calls `install` with what is to stand in the place of `handler`, and turns what was
/// installed before (`install`'s answer) into what the program calls it.
///
/// `restarts`: what is known of SA_RESTART before the kernel is asked; `None` asks it after.
pub fn replace(
    signal: c_int,
    handler: usize,
    restarts: Option<bool>,
    install: impl FnOnce(usize) -> usize,
) -> usize {
    let at = signal as usize;
    let is_handler = handler > LAST_SPECIAL && handler != usize::MAX;
    if !(1..SIGNALS).contains(&at) || !is_handler || process::is_borrowed() {
        // A vfork child has handlers of its own, but its parent's memory.
        let before = translate(signal, install(handler));
        if !process::is_borrowed() {
            fault::installed(signal, |handler| which_of(handler).is_some());
            if handler == SIG_IGN {
                delayed::flushed(signal);
            }
        }
        return before;
    }
    let _guard = LOCK.acquire();
    let which = 1 - usize::from(LAST[at].load(Ordering::Relaxed) & 1);
    HANDLERS[which][at].store(handler, Ordering::Relaxed);
    note(&RESTARTS, which, at, restarts.unwrap_or(true));
    LAST[at].store(which as u8, Ordering::Relaxed);
    let before = install(entry_of(which));
    fault::installed(signal, |handler| which_of(handler).is_some());
    refresh(signal);
    translate(signal, before)
}

const ASYNCHRONOUS: c_int = 1;

/// Before pthread_setcanceltype. A thread that may be cancelled at any instruction must not be while it
/// holds a lock: libc's handler, too, is installed behind an entry.
pub extern "C" fn before_canceltype(kind: c_int) {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    if kind != ASYNCHRONOUS || process::is_borrowed() || HAS_BEGUN.swap(true, Ordering::SeqCst) {
        return;
    }
    let saved = sys::errno();
    // The thread that is made has nothing to do with the program's signals.
    let before = held::block_all();
    let is_installed = real::cancels_one();
    let signal = real::LIBC.cancels_by();
    if let Some(mut action) = fault::kernel_action(signal).filter(|_| is_installed) {
        let handler = action[0] as usize;
        replace(signal, handler, Some(action[1] & SA_RESTART != 0), |entry| {
            if entry != handler {
                action[0] = entry as u64;
                fault::set_kernel_action(signal, action);
            }
            handler
        });
    }
    held::set_mask(before);
    sys::set_errno(saved);
}

fn note(bits: &[[AtomicU64; 2]; 2], which: usize, at: usize, is_so: bool) {
    let (word, bit) = (&bits[which][at / 64], 1u64 << (at % 64));
    if is_so {
        word.fetch_or(bit, Ordering::SeqCst);
    } else {
        word.fetch_and(!bit, Ordering::SeqCst);
    }
}

/// The handler of `signal` was installed, or something of libc's changed whether it restarts calls.
pub fn refresh(signal: c_int) {
    let at = signal as usize;
    let Some(action) = fault::kernel_action(signal) else { return };
    if let Some(which) = which_of(action[0] as usize) {
        note(&RESTARTS, which, at, action[1] & SA_RESTART != 0);
        note(&MASKS, which, at, fault::is_masked(signal, action[1], action[3]));
    }
}

fn which_of(handler: usize) -> Option<usize> {
    (0..2).find(|&which| entry_of(which) == handler)
}

/// What the program calls the handler that the kernel has.
pub fn translate(signal: c_int, handler: usize) -> usize {
    if fault::is_default(handler) {
        return 0;
    }
    let Some(which) = which_of(handler) else { return handler };
    HANDLERS[which].get(signal as usize).map_or(handler, |at| at.load(Ordering::Relaxed))
}

/// Whether `flags` of a struct sigaction ask for interrupted calls to go on.
pub fn restarts(flags: c_int) -> bool {
    flags as u32 as u64 & SA_RESTART != 0
}

/// In a forked child.
pub fn reset_lock() {
    LOCK.reset();
}

/// EINTR, as libc returns it.
pub fn interrupted() -> c_int {
    sys::set_errno(sys::EINTR);
    -1
}
