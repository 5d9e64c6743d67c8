//! Programs with libc that enter the kernel by instructions of their own, too: those in Rust whose crates do so
//! (rustix). These instructions get detours, all or none (`sites`); else the process is careful (`text`).
//!
//! - Only before the program's own constructors: nobody is inside what is changed.
//! - A program pays for the search when it begins, in milliseconds: all of its text is gone through. So only where
//!   that is likely to be of use: Rust's runtime is there, and sockets.
//! - The library runs on the program's own stack, as it does behind libc.
//! - The instruction keeps all registers but three, and compilers rely on it. What the library and libc
//!   do with vector registers is undone.
//!
//! Storey 7: exports.

use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cache::Cache;
use crate::detours::{Back, Heads};
use crate::environment::Strings;
use crate::exports::by_number;
use crate::object::{self, Dynamic, Object};
use crate::{bare, go, process, sites, sys};

/// Gives the program's own instructions that enter the kernel their detours. While no other thread is there.
pub fn start(environment: Strings) {
    unsafe extern "C" fn visit(object: *const Object, _: usize, environment: *mut c_void) -> c_int {
        // SAFETY: the program, which comes first and stays, and its environment.
        unsafe { divert(&*object, environment.cast_const().cast()) };
        1
    }
    if !bare::is() && !process::is_translated() {
        object::each(visit, environment.cast_mut().cast());
    }
}

/// # Safety
/// The program and its environment.
unsafe fn divert(program: &Object, environment: Strings) {
    // SAFETY: the caller's.
    let headers = unsafe { program.headers() };
    // SAFETY: as above.
    let (is_go, dynamic) =
        unsafe { (go::is_go(program.base, headers), Dynamic::of(program.base, headers)) };
    let Some(dynamic) = dynamic.filter(|_| !is_go) else { return };
    let has_sockets = dynamic.imports(c"socket");
    // Rust's runtime names these, the first of them it alone: elsewhere that is up to libstdc++.
    let is_rust = dynamic.imports(c"__cxa_thread_atexit_impl");
    let may_be = || dynamic.imports(c"gnu_get_libc_version") && dynamic.imports(c"syscall");
    if !has_sockets || !(is_rust || may_be()) || !find_registers() {
        return;
    }
    let cache = |text_bytes| {
        // SAFETY: the caller's.
        unsafe { Cache::new(environment, text_bytes) }
    };
    let calls = yasmin_direct_enter;
    let heads = Heads { calls, threads: calls, back: Back::Rcx };
    // SAFETY: the caller's; the program has not begun.
    unsafe { sites::divert(program.base, headers, &heads, cache, !is_rust) };
}

/// Parts of a thread's state that the library and libc may change, as XSAVE numbers them: SSE, AVX, and
/// AVX-512's three (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 13.1).
const PARTS: u64 = 1 << 1 | 1 << 2 | 1 << 5 | 1 << 6 | 1 << 7;
/// What comes first: the old part, and a header (13.4.1 and 13.4.2).
const OLD_BYTES: u64 = 512;
const HEADER_BYTES: u64 = 64;

/// Those of them that this machine has.
static REGISTERS: AtomicU64 = AtomicU64::new(0);
/// What they take, in bytes.
static REGISTERS_BYTES: AtomicU64 = AtomicU64::new(0);

/// Whether this machine can save them.
fn find_registers() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const STATE: u32 = 0xd;
    #[allow(unused_unsafe, reason = "needed before Rust 1.94")]
    // SAFETY: every processor of this architecture has CPUID, and `STATE` is there where XSAVE is.
    let (has_xsave, layout) =
        unsafe { (__cpuid(1).ecx & OSXSAVE != 0, |part| __cpuid_count(STATE, part)) };
    if !has_xsave {
        return false;
    }
    let (low, high): (u32, u32);
    // SAFETY: reads which parts the kernel has switched on.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    let registers = (u64::from(high) << 32 | u64::from(low)) & PARTS;
    let end = |part: u32| {
        let it = layout(part);
        u64::from(it.ebx) + u64::from(it.eax)
    };
    let has = |part: &u32| registers >> part & 1 != 0;
    let bytes = (2..8).filter(has).map(end).fold(OLD_BYTES + HEADER_BYTES, u64::max);
    REGISTERS.store(registers, Ordering::Relaxed);
    REGISTERS_BYTES.store(bytes, Ordering::Relaxed);
    true
}

/// A system call of the program's, as it lies on its stack.
#[repr(C)]
struct Call {
    /// In the end: what the kernel would return.
    number: c_long,
    arguments: [usize; 6],
}

/// Whether that was the call; else it is left to do.
extern "C" fn take(call: &mut Call) -> bool {
    let saved = sys::errno();
    // SAFETY: the program's own call.
    let answer = unsafe { by_number::answer(call.number, call.arguments) };
    if let Some(answer) = answer {
        call.number = answer;
    }
    sys::set_errno(saved);
    answer.is_some()
}

/// Where detours lead. As at a `syscall` instruction, with rcx for where to go on, two bytes behind an
/// instruction that makes the call as the program would have. Everything is as the kernel leaves it: only rax,
/// rcx and r11 change. The program's stack is used behind what a leaf function may have there (the psABI's red zone).
#[unsafe(naked)]
unsafe extern "C" fn yasmin_direct_enter() {
    core::arch::naked_asm!(
        "lea rsp, [rsp - 128]",
        "pushfq",
        "push rdx",
        "cmp rax, {numbers}",
        "jae 9f",
        "lea r11, [rip + {may_concern}]",
        "cmp byte ptr [r11 + rax], 0",
        "je 9f",
        "push rcx",
        "push rbx",
        // As struct Call.
        "push r9",
        "push r8",
        "push r10",
        "push rdx",
        "push rsi",
        "push rdi",
        "push rax",
        "mov rbx, rsp",
        "mov rdi, rsp",
        "sub rsp, [rip + {bytes}]",
        "and rsp, -64",
        "xor edx, edx",
        // The header has to be zero.
        "mov [rsp + {old} + 0], rdx",
        "mov [rsp + {old} + 8], rdx",
        "mov [rsp + {old} + 16], rdx",
        "mov [rsp + {old} + 24], rdx",
        "mov [rsp + {old} + 32], rdx",
        "mov [rsp + {old} + 40], rdx",
        "mov [rsp + {old} + 48], rdx",
        "mov [rsp + {old} + 56], rdx",
        "mov eax, [rip + {registers}]",
        "xsave64 [rsp]",
        "cld",
        "call {take}",
        "movzx r11d, al",
        "xor edx, edx",
        "mov eax, [rip + {registers}]",
        "xrstor64 [rsp]",
        "mov rsp, rbx",
        "pop rax",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop r10",
        "pop r8",
        "pop r9",
        "pop rbx",
        "pop rcx",
        "test r11d, r11d",
        "jz 9f",
        "pop rdx",
        "popfq",
        "lea rsp, [rsp + 128]",
        "jmp rcx",
        // The call, as the program would have made it.
        "9:",
        "pop rdx",
        "popfq",
        "lea rsp, [rsp + 128]",
        "lea rcx, [rcx - 2]",
        "jmp rcx",
        numbers = const by_number::NUMBERS,
        may_concern = sym by_number::MAY_CONCERN,
        bytes = sym REGISTERS_BYTES,
        registers = sym REGISTERS,
        old = const OLD_BYTES,
        take = sym take,
    )
}
