//! The library's own stacks, in each thread of a program whose own ones are too small: Go's (`go`).
//!
//! A block is four levels long and aligned to its length, so that any address inside leads to its head, at
//! its beginning. A call runs on the highest free level, and a signal handler's calls, on top of it, on the
//! next one. (The fourth level is nobody's: its top would be outside.) The thread's word says where the
//! free levels end:
//!
//! | word | |
//! |---|---|
//! | 0 | no block yet |
//! | 1 | its block is being mapped, by what the signal handler that sees this has interrupted |
//! | the block | all levels are in use |
//! | else | the top of the highest free one |
//!
//! A handler that comes in the second and third case makes its call without the library. (Go's handlers
//! call nothing that concerns sockets.)
//!
//! Storey 1: system.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::held;
use crate::lock::Lock;
use crate::sys::{self, call};

/// So much the library needs at most, with room to spare.
pub const LEVEL: usize = 64 * 1024;
pub const BLOCK: usize = 4 * LEVEL;
/// What is mapped: a block wherever the kernel puts it.
pub const MAPPED: usize = 2 * BLOCK;

/// Where there is no libc (`bare`): in a block, where gs points to. This library's words of the thread lie
/// below, at most so many bytes.
pub const OWN: usize = 1024;

/// Maps MAPPED bytes without a stack: at the end rax is where, or above -4096 an error, and the flags say
/// which (`ja`: an error). Operands: `mmap` and `mapped`.
macro_rules! map_block {
    () => {
        // PROT_READ, PROT_WRITE; MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE.
        concat!(
            "mov eax, {mmap}\n",
            "xor edi, edi\n",
            "mov esi, {mapped}\n",
            "mov edx, 3\n",
            "mov r10d, 0x4022\n",
            "mov r8, -1\n",
            "xor r9d, r9d\n",
            "syscall\n",
            "cmp rax, -4096",
        )
    };
}
pub(crate) use map_block;

/// arch_prctl(2).
pub const ARCH_SET_GS: c_int = 0x1001;
pub const OWN_BYTES: usize = OWN - size_of::<Block>().next_multiple_of(64);

/// A block's head.
#[repr(C)]
pub struct Block {
    /// Where the mapping begins.
    pub mapping: *mut u8,
    /// How long it is; 0: MAPPED.
    pub bytes: usize,
    /// A stack for a child that goes on in this block, with a small one of its own (`alone`): its top. 0: there is no
    /// such child; 1: it is using it.
    pub lent: AtomicUsize,
    /// Where the last such stack is; 0: none yet.
    spare: AtomicUsize,
    next: *mut Self,
    /// Whose it is; 0: not noted yet.
    tid: u32,
    pid: u32,
    /// The thread's word while a child goes on in its block.
    pub word: usize,
}

impl Block {
    /// A stack for a child that is about to begin.
    pub fn lend_stack(&self) {
        if self.spare.load(Ordering::Relaxed) == 0
            && let Some(stack) = sys::map_private(LEVEL)
        {
            self.spare.store(stack as usize, Ordering::Relaxed);
        }
        match self.spare.load(Ordering::Relaxed) {
            // It makes its calls without the library.
            0 => self.lent.store(1, Ordering::Relaxed),
            spare => self.lent.store(spare + LEVEL, Ordering::Relaxed),
        }
    }

    /// # Safety
    /// Its thread is gone.
    unsafe fn unmap(&self) {
        let bytes = if self.bytes == 0 { MAPPED } else { self.bytes };
        let (mapping, spare) = (self.mapping, self.spare.load(Ordering::Relaxed));
        // SAFETY: the caller's.
        unsafe {
            if spare != 0 {
                sys::unmap(spare as *mut u8, LEVEL);
            }
            sys::unmap(mapping, bytes);
        }
    }
}

/// Has this done on a stack of its own, which is 1 MiB: for what needs more than a program or a thread may have
/// (RLIMIT_STACK). No handler of the program's runs there. `None`: without memory.
pub fn on_another<T>(work: impl FnOnce() -> T) -> Option<T> {
    const BYTES: usize = 1 << 20;
    struct Task<F, T>(Option<F>, Option<T>);
    extern "C" fn run<F: FnOnce() -> T, T>(task: &mut Task<F, T>) {
        task.1 = task.0.take().map(|work| work());
    }
    fn runner<F: FnOnce() -> T, T>(_: &Task<F, T>) -> extern "C" fn(&mut Task<F, T>) {
        run::<F, T>
    }
    let stack = sys::map_private(BYTES)?;
    let mut task = Task(Some(work), None);
    let run = runner(&task);
    let blocked = held::block_all();
    // SAFETY: a stack of our own, for a function that returns.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {stack}",
            "call {run}",
            "mov rsp, r12",
            stack = in(reg) stack.add(BYTES),
            run = in(reg) run,
            in("rdi") &raw mut task,
            out("r12") _,
            clobber_abi("C"),
        );
    }
    held::set_mask(blocked);
    // SAFETY: nobody is on it any more.
    unsafe { sys::unmap(stack, BYTES) };
    task.1
}

static LOCK: Lock = Lock::new();
static NOTED: AtomicPtr<Block> = AtomicPtr::new(core::ptr::null_mut());
/// Under LOCK: how many are noted, and with how many those of ended threads are looked for.
static COUNTS: Counts = Counts(UnsafeCell::new((0, FEW)));

const FEW: usize = 64;

struct Counts(UnsafeCell<(usize, usize)>);

// SAFETY: used under LOCK alone.
unsafe impl Sync for Counts {}

/// Notes whose this block is. Memory of threads that have ended goes back, when they are as many as those that
/// live.
pub fn note(block: *mut Block) {
    // SAFETY: the calling thread's block, whose head it alone writes.
    if unsafe { (*block).tid } != 0 {
        return;
    }
    // SAFETY: as above; NOTED's blocks are unmapped under LOCK alone.
    unsafe {
        (*block).pid = sys::getpid();
        (*block).tid = sys::gettid();
        let Some(_guard) = LOCK.acquire() else { return };
        let (count, most) = &mut *COUNTS.0.get();
        (*block).next = NOTED.load(Ordering::Relaxed);
        NOTED.store(block, Ordering::Relaxed);
        *count += 1;
        if *count >= *most {
            *count = give_back();
            *most = FEW.max(2 * *count);
        }
    }
}

/// Unmaps what ended threads had; how many are left. Those of another process, whose memory
/// this was before a fork, may be in use here.
///
/// # Safety
/// Under LOCK.
unsafe fn give_back() -> usize {
    let pid = sys::getpid();
    let mut left = 0;
    let mut kept: *mut Block = core::ptr::null_mut();
    let mut at = NOTED.load(Ordering::Relaxed);
    while !at.is_null() {
        // SAFETY: noted, so mapped; signal 0 only asks whether the thread is there.
        unsafe {
            let next = (*at).next;
            let is_over =
                (*at).pid == pid && call!(tgkill, pid, (*at).tid, 0) == -(sys::ESRCH as isize);
            if is_over {
                (*at).unmap();
            } else {
                (*at).next = kept;
                kept = at;
                left += 1;
            }
            at = next;
        }
    }
    NOTED.store(kept, Ordering::Relaxed);
    left
}

/// For a forked child.
pub fn forked() {
    LOCK.reset();
}
