//! Copies of the program's memory that may fault, and the faults.
//!
//! The kernel answers EFAULT where a copy of this library's would end the program. There is one
//! copy routine. It leaves word, in its thread, where it stands and which of its two ranges is
//! the program's. The entry that stands in front of every handler of SIGSEGV and SIGBUS
//! (`signals`) asks here first: a page fault of that very routine in that range goes on at the
//! routine's exit, which says so. Everything else is the program's, as it was. Where the program
//! has no handler, one of the library's own stands there; to the program it is SIG_DFL, and
//! what is not the routine's fault it leaves to the default action.
//!
//! A thread that blocks one of the two signals would be killed instead, and so would a program
//! that ignores them: `catches` says so.
//!
//! Storey 1: system.

use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::real;
use crate::sys::{self, SigAction, call};
use crate::thread::{by_block, thread_word};

pub const SIGBUS: c_int = 7;
pub const SIGSEGV: c_int = 11;

const SIG_DFL: usize = 0;
const SA_SIGINFO: c_int = 4;

thread_word! {
    /// Where the routine's frame is; 0 outside it.
    copying: u64
}

thread_word! {
    /// Whether the thread lets both signals through: 0 not known, 1 it does, 2 it does not, 3 not while a
    /// handler runs, which is not seen to return.
    admits: u32
}

// The routine's frame, from its lowest word on: the program's address, the length, the frame
// that it is nested in (a handler may copy while its thread copies), the caller's registers.
// memcpy is libc's own; it and the loop may be left at any instruction, as all that a caller may
// rely on is in the frame.
global_asm!(
    r#"
    .pushsection .text.yasmin_copy,"ax",@progbits
    .p2align 4
    .globl yasmin_copy
    .hidden yasmin_copy
    .type yasmin_copy, @function
    yasmin_copy:
    .cfi_startproc
    .irp register, rbp, rbx, r12, r13, r14, r15
    push \register
    .cfi_adjust_cfa_offset 8
    .endr
    mov rax, qword ptr [rip + yasmin_copying@GOTTPOFF]
    "#,
    by_block!(),
    r#"
    push qword ptr fs:[rax]
    .cfi_adjust_cfa_offset 8
    push rdx
    .cfi_adjust_cfa_offset 8
    push rcx
    .cfi_adjust_cfa_offset 8
    "#,
    by_block!(),
    r#"
    mov qword ptr fs:[rax], rsp
    cmp rdi, -1
    je 2f
    cmp rdx, {loop_bytes}
    jb 1f
    cmp byte ptr [rip + {loops}], 0
    jne 4f
    1:
    call memcpy@PLT
    .globl yasmin_copy_called
    .hidden yasmin_copy_called
    yasmin_copy_called:
    jmp 3f
    // 16 bytes anywhere, then whole cache lines from an aligned address on, then the last 64 bytes,
    // of which some were copied before.
    4:
    movups xmm0, [rsi]
    movups [rdi], xmm0
    lea rax, [rdi + 16]
    and rax, -16
    sub rax, rdi
    add rsi, rax
    add rdi, rax
    sub rdx, rax
    lea r8, [rsi + rdx - 64]
    lea r9, [rdi + rdx - 64]
    .p2align 4
    5:
    movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups xmm2, [rsi + 32]
    movups xmm3, [rsi + 48]
    movaps [rdi], xmm0
    movaps [rdi + 16], xmm1
    movaps [rdi + 32], xmm2
    movaps [rdi + 48], xmm3
    add rsi, 64
    add rdi, 64
    sub rdx, 64
    cmp rdx, 64
    ja 5b
    movups xmm0, [r8]
    movups xmm1, [r8 + 16]
    movups xmm2, [r8 + 32]
    movups xmm3, [r8 + 48]
    movups [r9], xmm0
    movups [r9 + 16], xmm1
    movups [r9 + 32], xmm2
    movups [r9 + 48], xmm3
    jmp 3f
    // Nowhere: the byte is touched as if it were written.
    2:
    lock or byte ptr [rsi], 0
    3:
    xor eax, eax
    .globl yasmin_copy_ends
    .hidden yasmin_copy_ends
    yasmin_copy_ends:
    cld
    mov rdx, qword ptr [rip + yasmin_copying@GOTTPOFF]
    add rsp, 16
    .cfi_adjust_cfa_offset -16
    "#,
    by_block!(),
    r#"
    pop qword ptr fs:[rdx]
    .cfi_adjust_cfa_offset -8
    .irp register, r15, r14, r13, r12, rbx, rbp
    pop \register
    .cfi_adjust_cfa_offset -8
    .endr
    ret
    .cfi_endproc
    .size yasmin_copy, . - yasmin_copy
    .popsection
    "#,
    loop_bytes = const LOOP_BYTES,
    loops = sym LOOPS,
);

/// Below, libc's memcpy uses no `rep movsb` (glibc's threshold for registers of 16 bytes), and is good.
const LOOP_BYTES: usize = 2048;

/// Not 0: longer copies go by the routine's own loop. On AMD's processors `rep movsb`, by which Debian
/// 12's glibc copies them, was measured 20 times as slow where the destination begins 1 to 31 bytes
/// behind the source within a page.
static LOOPS: AtomicU8 = AtomicU8::new(0);

/// Of an AMD processor, or one that Hygon makes after it.
fn is_amds() -> bool {
    let vendor = core::arch::x86_64::__cpuid(0);
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    [*b"AuthenticAMD", *b"HygonGenuine"].iter().any(|amds| name.as_flattened() == amds)
}

unsafe extern "C" {
    /// Copies `len` bytes; `theirs` is whichever of the two is the program's. To
    /// `NOWHERE`: touches one byte at `from`. Not 0: a fault in the program's range, and any part of it is copied.
    fn yasmin_copy(to: *mut u8, from: *const u8, len: usize, theirs: *const u8) -> usize;
    fn yasmin_copy_called();
    fn yasmin_copy_ends();
}

/// The kernel's struct ucontext, to the end of struct sigcontext.
#[repr(C)]
pub struct Context {
    flags_link_stack: [u64; 5],
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags, segments, err, trapno,
    /// oldmask, cr2.
    registers: [u64; 23],
}

const RAX: usize = 13;
const RSP: usize = 15;
const RIP: usize = 16;
const TRAPNO: usize = 20;
const CR2: usize = 22;

const PAGE_FAULT: u64 = 14;
/// memcpy's own frame is no larger. A handler's frame on top of it is.
const FRAME_MOST: u64 = 256;

/// Bit n: of the n-th of SIGSEGV and SIGBUS an entry of this library's is installed.
static CAUGHT: AtomicU32 = AtomicU32::new(0);
const BOTH: u32 = 3;
/// What the kernel has for each, for handlers that are installed for one time.
static INSTALLED: [Kept; 2] = [const { Kept::new() }; 2];
/// What the program set for each when it asked for the default action last.
static DEFAULTS: [Kept; 2] = [const { Kept::new() }; 2];

/// The kernel's struct sigaction: handler, flags, restorer, mask.
struct Kept([AtomicU64; 4]);

impl Kept {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 4])
    }

    fn keep(&self, action: [u64; 4]) {
        for (word, now) in self.0.iter().zip(action) {
            word.store(now, Ordering::Relaxed);
        }
    }

    fn get(&self) -> [u64; 4] {
        core::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }
}

fn index_of(signal: c_int) -> Option<usize> {
    match signal {
        SIGSEGV => Some(0),
        SIGBUS => Some(1),
        _ => None,
    }
}

/// What the kernel has for `signal`: the handler, flags, the way back, the mask.
pub fn kernel_action(signal: c_int) -> Option<[u64; 4]> {
    let mut action = [0u64; 4];
    // SAFETY: the kernel's struct sigaction is 32 bytes.
    let ret =
        unsafe { call!(rt_sigaction, signal, core::ptr::null::<c_void>(), action.as_mut_ptr(), 8) };
    (ret == 0).then_some(action)
}

pub fn set_kernel_action(signal: c_int, action: [u64; 4]) {
    // SAFETY: as above.
    unsafe { call!(rt_sigaction, signal, action.as_ptr(), core::ptr::null::<c_void>(), 8) };
}

/// When the library is loaded: a sandbox that the program sets up later may forbid it.
pub fn start() {
    LOOPS.store(u8::from(is_amds()), Ordering::Relaxed);
    for signal in [SIGSEGV, SIGBUS] {
        installed(signal, |_| false);
    }
}

/// Something was installed for `signal`. `is_entry`: whether a handler is one of `signals`'.
pub fn installed(signal: c_int, is_entry: impl Fn(usize) -> bool) {
    let Some(index) = index_of(signal) else { return };
    let handler = |action: [u64; 4]| action[0] as usize;
    let mut action = kernel_action(signal);
    if let Some(action) = action.as_mut().filter(|action| handler(**action) == SIG_DFL) {
        DEFAULTS[index].keep(*action);
        let own = SigAction {
            handler: by_default as *const () as usize,
            mask: [0; 16],
            flags: SA_SIGINFO,
            restorer: 0,
        };
        // SAFETY: a handler of three arguments, as SA_SIGINFO says.
        unsafe { real::sigaction(signal, &raw const own, core::ptr::null_mut()) };
        *action = kernel_action(signal).unwrap_or(*action);
    }
    let is_ours = |action: [u64; 4]| is_default(handler(action)) || is_entry(handler(action));
    match action.filter(|action| is_ours(*action)) {
        Some(action) => {
            INSTALLED[index].keep(action);
            CAUGHT.fetch_or(1 << index, Ordering::SeqCst);
        }
        None => {
            CAUGHT.fetch_and(!(1 << index), Ordering::SeqCst);
        }
    }
}

/// Whether `handler` stands where the program has none.
pub fn is_default(handler: usize) -> bool {
    handler == by_default as *const () as usize
}

/// `old` as the program knows it, where the handler of `signal` is the one that stands where the
/// program has none.
pub fn as_the_programs(signal: c_int, old: &mut SigAction) {
    if let Some(index) = index_of(signal) {
        let [_, flags, restorer, mask] = DEFAULTS[index].get();
        old.flags = flags as c_int;
        old.restorer = restorer as usize;
        old.mask[0] = mask;
    }
}

/// Whether a fault of the routine in this thread is caught.
#[inline]
pub fn catches() -> bool {
    let known = admits::get();
    (known == 1 || known != 2 && ask()) && CAUGHT.load(Ordering::Relaxed) == BOTH
}

#[cold]
fn ask() -> bool {
    const THESE: u64 = 1 << (SIGSEGV - 1) | 1 << (SIGBUS - 1);
    let catches = sys::blocked_signals().is_some_and(|blocked| blocked & THESE == 0);
    if catches {
        admits::set(1);
    } else if admits::get() == 0 {
        admits::set(2);
    }
    catches
}

/// Whether a fault of the routine is not caught while a handler of `signal` with these flags and this mask
/// runs.
pub fn is_masked(signal: c_int, flags: u64, mask: u64) -> bool {
    const SA_NODEFER: u64 = 0x4000_0000;
    let is_own = index_of(signal).is_some() && flags & SA_NODEFER == 0;
    is_own || mask & (1 << (SIGSEGV - 1) | 1 << (SIGBUS - 1)) != 0
}

/// Before the program changes which signals the thread blocks.
pub extern "C" fn before_masking() {
    admits::set(0);
}

/// Copies `len_bytes`; `theirs` is whichever of the two is the program's. False: it faults.
///
/// # Safety
/// As memcpy, but for the program's range. This thread `catches`.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len_bytes: usize, theirs: *const u8) -> bool {
    // SAFETY: the caller's.
    unsafe { yasmin_copy(to, from, len_bytes, theirs) == 0 }
}

/// No address of the program's.
const NOWHERE: *mut u8 = core::ptr::without_provenance_mut(usize::MAX);

/// Whether the byte at `at` can be written. This thread `catches`.
#[inline]
pub fn is_byte_writable(at: *mut u8) -> bool {
    // SAFETY: the byte stays what it is; a fault is caught.
    unsafe { yasmin_copy(NOWHERE, at, 1, at) == 0 }
}

/// A signal that may be a fault of the routine's: whether it was, and the thread goes on at the
/// routine's exit.
///
/// # Safety
/// `context` is what the kernel passed to the handler.
pub unsafe extern "C" fn goes_on(signal: c_int, _: *const c_void, context: *mut Context) -> bool {
    let Some(index) = index_of(signal) else { return false };
    let frame = copying::get() as *const [u64; 2];
    if frame.is_null() {
        return false;
    }
    // SAFETY: the kernel's, which this handler alone has.
    let registers = unsafe { &mut (*context).registers };
    let depth = (frame as u64).wrapping_sub(registers[RSP]);
    if registers[TRAPNO] != PAGE_FAULT || depth > FRAME_MOST {
        return false;
    }
    // A frame that a handler left by a jump is nobody's: then memcpy was not called from there.
    // SAFETY: the thread stands at this word or below it.
    let is_inside = depth == 0
        || unsafe { *frame.cast::<u64>().sub(1) } == yasmin_copy_called as *const () as u64;
    // SAFETY: as above, at most one small frame below.
    let [theirs, len] = unsafe { *frame };
    if !is_inside || registers[CR2].wrapping_sub(theirs) >= len {
        return false;
    }
    registers[RSP] = frame as u64;
    registers[RIP] = yasmin_copy_ends as *const () as u64;
    registers[RAX] = 1;
    stays_installed(signal, index);
    true
}

/// A handler that was to run once has not run: it is installed still.
fn stays_installed(signal: c_int, index: usize) {
    if kernel_action(signal).is_some_and(|action| action[0] as usize == SIG_DFL) {
        set_kernel_action(signal, INSTALLED[index].get());
    }
}

/// Stands where the program has no handler.
unsafe extern "C" fn by_default(signal: c_int, info: *const c_int, context: *mut Context) {
    const SI_USER_MOST: c_int = 0;
    const BUS_MCEERR_AO: c_int = 5;
    // SAFETY: the kernel's own arguments.
    if unsafe { goes_on(signal, info.cast(), context) } {
        return;
    }
    // What faulted faults again, and the default action comes.
    set_kernel_action(signal, [0; 4]);
    // SAFETY: struct siginfo: signal, errno, code.
    let code = unsafe { *info.add(2) };
    if code <= SI_USER_MOST || signal == SIGBUS && code == BUS_MCEERR_AO {
        // This one was sent, and is sent once more: it comes when this handler is over.
        // SAFETY: the kernel reads a struct siginfo.
        unsafe {
            let (pid, thread) = (sys::getpid(), sys::gettid());
            if call!(rt_tgsigqueueinfo, pid, thread, signal, info) < 0 {
                call!(tgkill, pid, thread, signal);
            }
        }
    }
}
