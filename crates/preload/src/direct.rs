//! Programs with libc, and objects, that enter the kernel by instructions of their own, too: those in Rust whose crates
//! do so (rustix). These instructions get detours, all or none (`sites`); else the process is careful (`text`).
//!
//! - Only before the first of its own constructors: nobody is inside what is changed. (Objects: see `arrivals`.)
//! - A program pays for the search when it begins, in milliseconds: all of its text is gone through. So only where
//!   that is likely to be of use: Rust's runtime is there, and sockets.
//! - The library runs on the program's own stack, as it does behind libc.
//! - The instruction keeps all registers but three, and compilers rely on it. What the library and libc
//!   do with vector registers is undone.
//!
//! Storey 7: exports.

use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::ffi::{CStr, c_int, c_long, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cache::Cache;
use crate::detours::{Back, Heads};
use crate::exports::by_number;
use crate::object::{self, Dynamic, Object};
use crate::{bare, environment, go, process, real, sites, sys, table, text};

/// Gives the program's own instructions that enter the kernel their detours. While no other thread is there.
pub fn start() {
    unsafe extern "C" fn visit(object: *const Object, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: the program, which comes first and stays. It has not begun.
        unsafe { divert_program(&*object) };
        1
    }
    if !bare::is() && !process::is_translated() {
        object::each(visit, core::ptr::null_mut());
    }
}

/// # Safety
/// The program, before it begins.
unsafe fn divert_program(program: &Object) {
    // SAFETY: the caller's.
    let (is_go, dynamic) = unsafe {
        let headers = program.headers();
        (go::is_go(program.base, headers), Dynamic::of(program.base, headers))
    };
    let Some(dynamic) = dynamic.filter(|it| !is_go && it.imports(c"socket")) else { return };
    // These Rust's runtime names, too, as others do. Without libraries of its own a program has all in itself.
    let may_be = || {
        dynamic.imports(c"gnu_get_libc_version")
            && dynamic.imports(c"syscall")
            && dynamic.needs_only(is_libcs)
    };
    let is_rust = dynamic.imports(RUNTIME);
    if (is_rust || may_be()) && find_registers() {
        // SAFETY: the caller's.
        let diverted = unsafe { divert(program, own_file(), !is_rust) };
        if let Some(at) = diverted {
            text::except_object(at);
        }
    }
}

/// The program's. An empty name where that is not known: the loader was called by name, and is what the kernel calls the program.
fn own_file() -> &'static CStr {
    // getauxval(3): where the interpreter is.
    const AT_BASE: usize = 7;
    let ask = real::next(b"getauxval\0");
    if ask.is_null() {
        return c"";
    }
    // SAFETY: libc's getauxval has this signature.
    let ask: unsafe extern "C" fn(usize) -> usize = unsafe { core::mem::transmute(ask) };
    // SAFETY: as above.
    if unsafe { ask(AT_BASE) } == 0 { c"" } else { c"/proc/self/exe" }
}

/// Rust's runtime names it. So does C++'s, of which most programs have a library.
const RUNTIME: &CStr = c"__cxa_thread_atexit_impl";
/// What C++'s defines by it.
const OF_CPP: &CStr = c"__cxa_thread_atexit";

/// Whether the object may be in Rust.
///
/// # Safety
/// It stays loaded.
pub unsafe fn is_rust(object: &Object) -> bool {
    // SAFETY: the caller's.
    let dynamic = unsafe { Dynamic::of(object.base, object.headers()) };
    dynamic.is_some_and(|it| it.imports(RUNTIME) && it.definition(OF_CPP).is_none())
}

/// Gives an object's instructions detours, where registers were found (`find_registers`).
///
/// # Safety
/// The object, before anything of it runs. It stays loaded meanwhile.
pub unsafe fn divert_object(object: &Object) {
    // SAFETY: the caller's; the name is the linker's.
    unsafe { divert(object, CStr::from_ptr(object.name), false) };
}

/// `path`: its file.
///
/// # Safety
/// As for `divert_object`.
unsafe fn divert(object: &Object, path: &CStr, needs_cache: bool) -> Option<usize> {
    let cache = |text: &[u8]| {
        // SAFETY: the program's environment.
        unsafe { Cache::new(environment::own(), path, text) }
    };
    let calls = yasmin_direct_enter;
    let heads = Heads { calls, threads: calls, back: Back::Rcx };
    // SAFETY: the caller's.
    unsafe { sites::divert(object.base, object.headers(), &heads, cache, needs_cache) }
}

/// Whether an object of this name is a part of libc.
fn is_libcs(name: &[u8]) -> bool {
    const PARTS: [&[u8]; 6] =
        [b"libc.", b"libm.", b"libdl.", b"libpthread.", b"librt.", b"ld-linux-x86-64."];
    PARTS.iter().any(|part| name.starts_with(part))
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
pub fn find_registers() -> bool {
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
        "movzx r11d, byte ptr [r11 + rax]",
        "test r11d, r11d",
        "jz 9f",
        "cmp r11d, {by_entry}",
        "jne 2f",
        // Of what has no entry nobody has to be asked, and no registers are saved.
        "mov edx, edi",
        "cmp edx, {capacity}",
        "jae 9f",
        "shr edx, {piece_bits}",
        "lea r11, [rip + {pieces}]",
        "mov r11, [r11 + rdx * 8]",
        "test r11, r11",
        "jz 9f",
        "mov edx, edi",
        "and edx, {piece} - 1",
        "cmp qword ptr [r11 + rdx * 8], 0",
        "je 9f",
        "mov rdx, [rsp]",
        "2:",
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
        by_entry = const by_number::BY_ENTRY,
        capacity = const table::CAPACITY,
        pieces = sym table::PIECES,
        piece = const table::PIECE,
        piece_bits = const table::PIECE.trailing_zeros(),
        bytes = sym REGISTERS_BYTES,
        registers = sym REGISTERS,
        old = const OLD_BYTES,
        take = sym take,
    )
}
