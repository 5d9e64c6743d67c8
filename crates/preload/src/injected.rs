//! How the library begins in a program that no dynamic linker gave it to: `yasmin-inject` mapped it, did what
//! `yasmin_bare` says, and has the program's first thread begin here.
//!
//! Storey 7: exports.

use core::ffi::{c_char, c_int};

use crate::stacks::{self, Block, map_block};
use crate::sys::Sysno;
use crate::{bare, init};

core::arch::global_asm!(".hidden __start_yasmin_by_block", ".hidden __stop_yasmin_by_block");

unsafe extern "C" {
    #[link_name = "__start_yasmin_by_block"]
    static FIRST_BY_BLOCK: c_int;
    #[link_name = "__stop_yasmin_by_block"]
    static BEHIND_BY_BLOCK: c_int;
}

/// What the injector has to know of this library; it reads these words in this order.
#[repr(C)]
pub struct Bare {
    /// Where the program's first thread begins, with the program's first instruction in r13.
    enter: unsafe extern "C" fn(),
    /// Of each instruction that goes by fs, how far it is from here: from the first to behind the last.
    by_block: [*const c_int; 2],
    /// Of the block of a thread, how many bytes below gs may be this library's words.
    own_bytes: usize,
    /// For memcpy, memmove, memset, bcmp, strlen and __errno_location.
    linked: [unsafe extern "C" fn(); 6],
}

// SAFETY: never written.
unsafe impl Sync for Bare {}

#[unsafe(no_mangle)]
pub static yasmin_bare: Bare = Bare {
    enter,
    by_block: [&raw const FIRST_BY_BLOCK, &raw const BEHIND_BY_BLOCK],
    own_bytes: stacks::OWN_BYTES,
    linked: [
        bare::yasmin_bare_memcpy,
        bare::yasmin_bare_memmove,
        bare::yasmin_bare_memset,
        bare::yasmin_bare_bcmp,
        bare::yasmin_bare_strlen,
        bare::yasmin_bare_errno,
    ],
};

/// Makes the first thread's block, begins, and leaves the program everything as it was.
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    core::arch::naked_asm!(
        "mov r12, rsp",
        map_block!(),
        "ja 2f",
        "lea rdx, [rax + {block} - 1]",
        "and rdx, -{block}",
        "mov [rdx], rax",
        "lea rsi, [rdx + {own}]",
        "mov [rsi], rsi",
        "mov rax, qword ptr [rip + yasmin_go_word@GOTTPOFF]",
        "add rdx, {block} - {level}",
        "mov [rsi + rax], rdx",
        "mov eax, {arch_prctl}",
        "mov edi, {set_gs}",
        "syscall",
        "test eax, eax",
        "jnz 2f",
        "mov rdi, r12",
        "and rsp, -16",
        "call {begin}",
        // The kernel begins a program with nothing in its registers.
        "2:",
        "mov rsp, r12",
        "mov r11, r13",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ecx, ecx",
        "xor edx, edx",
        "xor esi, esi",
        "xor edi, edi",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "jmp r11",
        mmap = const Sysno::mmap as usize,
        mapped = const stacks::MAPPED,
        block = const stacks::BLOCK,
        level = const stacks::LEVEL,
        own = const stacks::OWN,
        arch_prctl = const Sysno::arch_prctl as usize,
        set_gs = const stacks::ARCH_SET_GS,
        begin = sym begin,
    )
}

const _: () = assert!(core::mem::offset_of!(Block, mapping) == 0);

unsafe extern "C" fn begin(stack: *const usize) {
    // SAFETY: the program's first stack pointer.
    let environment: *const *const c_char = unsafe { bare::begin(stack) };
    init(0, core::ptr::null(), environment);
}
