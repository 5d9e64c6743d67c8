//! Programs of any language that are linked statically, with libc (musl) or without one: all their system calls
//! that may concern this library get detours (`detours`). It has been injected (`injected`), and begins before them.
//!
//! - All or none: a program of whose calls one cannot be seen, or not be moved, has this library for nothing.
//! - The library runs on the program's own stacks, as it does behind libc.
//! - A thread begins without a block (`stacks`), and gets one with its first call that concerns the library.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_long, c_void};

use crate::cache::Cache;
use crate::detours::{Back, Heads};
use crate::exports::by_number;
use crate::object::{self, Object};
use crate::stacks::{self, Block, map_block};
use crate::sys::{self, Sysno};
use crate::thread::by_block;
use crate::{bare, environment, go, memory, process, sites, text};

/// A block of words alone.
const PAGE: usize = 4096;

/// Gives the program's instructions that enter the kernel their detours. While no other thread is there.
pub fn start() {
    unsafe extern "C" fn visit(object: *const Object, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: the program, which comes first and stays.
        unsafe {
            let object = &*object;
            let headers = object.headers();
            let calls = yasmin_alone_enter;
            let heads = Heads { calls, threads: calls, back: Back::Rcx };
            let cache = |text: &[u8]| Cache::new(environment::own(), c"/proc/self/exe", text);
            if !go::is_go(object.base, headers)
                && let Some(at) = sites::divert(object.base, headers, &heads, cache, false)
            {
                text::except_object(at);
                bare::sees();
            }
        }
        1
    }
    if bare::is() {
        object::each(visit, core::ptr::null_mut());
    }
}

/// A system call of the program's, as it lies on its stack.
#[repr(C)]
struct Call {
    /// In the end: what the kernel would return.
    number: c_long,
    arguments: [usize; 6],
    /// Where to go on.
    back: usize,
}

/// What is left to do when the library has seen a call.
#[repr(u32)]
enum Left {
    Nothing = 0,
    /// The call itself, by the program's own instruction.
    Call = 1,
    /// The call, which makes a child in this memory, on a stack that has `Call::back` in its first word. A thread
    /// gets the block of nobody there.
    Child = 2,
}

const CLONE_VM: usize = 0x100;
const CLONE_VFORK: usize = 0x4000;

/// A child in this memory with a stack of its own.
struct Child {
    stack: usize,
    /// It runs while this thread waits for its end or its exec, in this thread's block, and its stack may be
    /// small: posix_spawn makes such.
    is_lent: bool,
}

/// The child that `call` makes.
fn child(number: c_long, [a, b, ..]: [usize; 6]) -> Option<Child> {
    const CLONE: c_long = Sysno::clone as c_long;
    const CLONE3: c_long = Sysno::clone3 as c_long;
    let (flags, stack) = match number {
        CLONE => (a, b),
        CLONE3 => {
            // struct clone_args: flags first, stack and its size behind four more words.
            let word = |at: usize| memory::get((a as *const usize).wrapping_add(at)).unwrap_or(0);
            (word(0), word(5).wrapping_add(word(6)))
        }
        _ => return None,
    };
    let is_lent = flags & CLONE_VFORK != 0;
    (flags & CLONE_VM != 0 && stack != 0).then_some(Child { stack, is_lent })
}

/// Before it begins. What cannot be written is its own affair.
fn prepare(child: &Child, back: usize, block: &Block) -> Option<Left> {
    let place = child.stack.checked_sub(size_of::<usize>())?;
    if child.is_lent {
        block.lend_stack();
    }
    memory::put(place as *mut usize, back).then_some(Left::Child)
}

/// `block` holds the thread's words.
extern "C" fn take(call: &mut Call, block: &Block) -> Left {
    let saved = sys::errno();
    // It may ask the kernel what the program never asks.
    if !process::is_sandboxed() {
        stacks::note(core::ptr::from_ref(block).cast_mut());
    }
    let Call { number, arguments, back } = *call;
    // SAFETY: the program's own call.
    let left = if let Some(answer) = unsafe { by_number::answer(number, arguments) } {
        call.number = answer;
        Left::Nothing
    } else {
        let child = child(number, arguments);
        child.and_then(|child| prepare(&child, back, block)).unwrap_or(Left::Call)
    };
    sys::set_errno(saved);
    left
}

/// Where detours lead. As at a `syscall` instruction, with rcx for where to go on, two bytes behind an
/// instruction that makes the call as the program would have. Everything is as the kernel leaves it: only rax,
/// rcx and r11 change. The program's stack is used behind what a leaf function may have there (the psABI's red zone).
#[unsafe(naked)]
unsafe extern "C" fn yasmin_alone_enter() {
    core::arch::naked_asm!(
        "lea rsp, [rsp - 128]",
        "pushfq",
        "push rdx",
        "cmp rax, {numbers}",
        "jae 9f",
        "lea r11, [rip + {may_concern}]",
        "cmp byte ptr [r11 + rax], 0",
        "je 9f",
        // As struct Call.
        "push rcx",
        "push r9",
        "push r8",
        "push r10",
        "push rdx",
        "push rsi",
        "push rdi",
        "push rax",
        "mov r11, qword ptr [rip + yasmin_go_word@GOTTPOFF]",
        "2:",
        by_block!(),
        "cmp qword ptr fs:[r11], 0",
        "je 5f",
        by_block!(),
        "mov rsi, qword ptr fs:[0]",
        "sub rsi, {own}",
        "mov rdi, rsp",
        "mov rdx, rsp",
        // A child that this block is lent to has a stack for it.
        "xor r11d, r11d",
        "cmp qword ptr [rsi + {lent}], 0",
        "jne 11f",
        "10:",
        "sub rsp, 288",
        "and rsp, -16",
        "mov [rsp + 256], rdx",
        "mov [rsp + 264], rsi",
        "mov [rsp + 272], r11",
        "movaps [rsp], xmm0",
        "movaps [rsp + 16], xmm1",
        "movaps [rsp + 32], xmm2",
        "movaps [rsp + 48], xmm3",
        "movaps [rsp + 64], xmm4",
        "movaps [rsp + 80], xmm5",
        "movaps [rsp + 96], xmm6",
        "movaps [rsp + 112], xmm7",
        "movaps [rsp + 128], xmm8",
        "movaps [rsp + 144], xmm9",
        "movaps [rsp + 160], xmm10",
        "movaps [rsp + 176], xmm11",
        "movaps [rsp + 192], xmm12",
        "movaps [rsp + 208], xmm13",
        "movaps [rsp + 224], xmm14",
        "movaps [rsp + 240], xmm15",
        "cld",
        "call {take}",
        "mov r11d, eax",
        "movaps xmm0, [rsp]",
        "movaps xmm1, [rsp + 16]",
        "movaps xmm2, [rsp + 32]",
        "movaps xmm3, [rsp + 48]",
        "movaps xmm4, [rsp + 64]",
        "movaps xmm5, [rsp + 80]",
        "movaps xmm6, [rsp + 96]",
        "movaps xmm7, [rsp + 112]",
        "movaps xmm8, [rsp + 128]",
        "movaps xmm9, [rsp + 144]",
        "movaps xmm10, [rsp + 160]",
        "movaps xmm11, [rsp + 176]",
        "movaps xmm12, [rsp + 192]",
        "movaps xmm13, [rsp + 208]",
        "movaps xmm14, [rsp + 224]",
        "movaps xmm15, [rsp + 240]",
        "mov rsi, [rsp + 264]",
        "mov rdx, [rsp + 272]",
        "test rdx, rdx",
        "jz 12f",
        "mov [rsi + {lent}], rdx",
        "12:",
        "mov rsp, [rsp + 256]",
        "pop rax",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop r10",
        "pop r8",
        "pop r9",
        "pop rcx",
        "cmp r11d, 1",
        "je 9f",
        "ja 3f",
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
        // A thread. Its maker goes on as after any call.
        "3:",
        "pop rdx",
        "popfq",
        "push rcx",
        "syscall",
        "test rax, rax",
        "jz 4f",
        by_block!(),
        "mov r11, qword ptr fs:[0]",
        "mov qword ptr [r11 - {own} + {lent}], 0",
        "pop rcx",
        "lea rsp, [rsp + 128]",
        "jmp rcx",
        // It begins with its maker's gs.
        "4:",
        by_block!(),
        "mov r11, qword ptr fs:[0]",
        "cmp qword ptr [r11 - {own} + {lent}], 0",
        "jne 13f",
        "mov [rsp - 16], rdi",
        "mov [rsp - 24], rsi",
        "mov eax, {arch_prctl}",
        "mov edi, {set_gs}",
        "lea rsi, [rip + yasmin_go_nobody_at]",
        "syscall",
        "mov rdi, [rsp - 16]",
        "mov rsi, [rsp - 24]",
        "xor eax, eax",
        "13:",
        "jmp [rsp - 8]",
        // Not twice at once: a handler makes its call without the library.
        "11:",
        "mov r11d, 1",
        "xchg [rsi + {lent}], r11",
        "cmp r11, 1",
        "je 14f",
        "mov rsp, r11",
        "jmp 10b",
        "14:",
        "pop rax",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop r10",
        "pop r8",
        "pop r9",
        "pop rcx",
        "jmp 9b",
        // A block. A handler that comes meanwhile makes it, and this one is given back.
        "5:",
        map_block!(),
        "ja 7f",
        "mov [rax], rax",
        "mov qword ptr [rax + {bytes}], {mapped}",
        "lea rsi, [rax + {own}]",
        "mov [rsi], rsi",
        "mov r11, qword ptr [rip + yasmin_go_word@GOTTPOFF]",
        "mov [rsi + r11], rsi",
        by_block!(),
        "cmp qword ptr fs:[r11], 0",
        "jne 8f",
        "mov eax, {arch_prctl}",
        "mov edi, {set_gs}",
        "syscall",
        "test eax, eax",
        "jnz 7f",
        "6:",
        "mov r11, qword ptr [rip + yasmin_go_word@GOTTPOFF]",
        "jmp 2b",
        "8:",
        "mov rdi, rax",
        "mov esi, {mapped}",
        "mov eax, {munmap}",
        "syscall",
        "jmp 6b",
        // Without memory: as if this library were not there, and could be no more.
        "7:",
        "ud2",
        numbers = const by_number::NUMBERS,
        may_concern = sym by_number::MAY_CONCERN,
        take = sym take,
        mmap = const Sysno::mmap as usize,
        munmap = const Sysno::munmap as usize,
        arch_prctl = const Sysno::arch_prctl as usize,
        set_gs = const stacks::ARCH_SET_GS,
        mapped = const PAGE,
        bytes = const core::mem::offset_of!(Block, bytes),
        lent = const core::mem::offset_of!(Block, lent),
        own = const stacks::OWN,
    )
}
