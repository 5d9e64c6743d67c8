//! Programs in Go, with cgo or without. Go makes its system calls by instructions of
//! its own, so before such a program begins, these get a detour through this library.
//!
//! A detour is a jump in place of the instruction. It leads to `yasmin_go_enter`, which asks
//! `by_number`, as libc's syscall(2) does: what concerns nothing of ours is then made as the
//! program would have made it, with every register as it was.
//!
//! - Only while one thread is there, before the program's first instruction: nobody is inside
//!   what is changed.
//! - Only where libc makes the program's threads (it imports pthread_create), or where there is no libc
//!   at all (`bare`, which the injector sees to). One that is linked with libc statically makes threads that
//!   nobody here sees.
//! - Goroutines have small stacks, so the library gets one of its own in each thread (`stacks`).
//! - A function that is not as `yasmin_text::go` knows it stays, and is found when the text is
//!   looked through: the process is careful then.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_long, c_void};

use yasmin_image::has_go_note;
use yasmin_text::go::{self, Kind};

use crate::detours::{self, Back, Detour, Heads};
use crate::exports::by_number;
use crate::object::{self, Dynamic, Header, Object, PF_X, PT_LOAD, PT_NOTE};
use crate::stacks::{self, Block, map_block};
use crate::sys::{self, Sysno};
use crate::thread::by_block;
use crate::{bare, process, text};

/// Gives the instructions of a Go program that enter the kernel their detours. While no other thread
/// is there.
pub fn start() {
    unsafe extern "C" fn visit(object: *const Object, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: the linker shows the program, which comes first and stays.
        unsafe {
            let object = &*object;
            divert(object.base, object.headers());
        }
        1
    }
    object::each(visit, core::ptr::null_mut());
}

/// Whether the object's notes are the Go linker's.
///
/// # Safety
/// An object's own base and headers; it stays.
pub unsafe fn is_go(base: usize, headers: &'static [Header]) -> bool {
    let is_loaded = |header: &&Header| {
        let at = base.wrapping_add(header.address);
        headers.iter().any(|segment| segment.holds(base, at))
    };
    let mut notes = headers.iter().filter(|header| header.kind == PT_NOTE).filter(is_loaded);
    // SAFETY: the caller's.
    notes.any(|header| unsafe { header.bytes(base) }.is_some_and(has_go_note))
}

/// # Safety
/// The program's own base and headers.
unsafe fn divert(base: usize, headers: &'static [Header]) {
    // SAFETY: as above.
    let (is_go, program) = unsafe { (is_go(base, headers), Dynamic::of(base, headers)) };
    let makes_threads_by_libc = || program.is_some_and(|it| it.imports(c"pthread_create"));
    if !is_go || !(bare::is() || makes_threads_by_libc()) {
        return;
    }
    for header in headers.iter().filter(|one| one.kind == PT_LOAD && one.flags & PF_X != 0) {
        // SAFETY: as above.
        let Some(code) = (unsafe { header.bytes(base) }) else { continue };
        divert_text(code);
    }
}

/// As many as are given. A Go program has a dozen.
const DETOURS: usize = 128;

/// Detours for this text.
fn divert_text(code: &'static [u8]) {
    // Large programs have megabytes of text, so it is gone through once.
    let (mut detours, mut count, mut makes_threads) = ([Detour::NONE; DETOURS], 0, false);
    for go::Site { kind, site } in go::all(code) {
        let is_thread = kind == Kind::Thread;
        makes_threads |= is_thread;
        if is_thread && !bare::is() {
            text::except(code.as_ptr() as usize + site.at);
        } else if let Some(place) = detours.get_mut(count) {
            *place = Detour { site, is_thread };
            count += 1;
        }
    }
    // Threads that are not seen made would come here with the block of the one that made them.
    if bare::is() && !makes_threads {
        return;
    }
    let calls = if bare::is() { yasmin_go_enter_bare } else { yasmin_go_enter };
    let heads = Heads { calls, threads: yasmin_go_thread, back: Back::Rbx };
    if detours::divert(code, &detours[..count], &heads) {
        bare::sees();
    }
}

core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".globl yasmin_go_word",
    ".hidden yasmin_go_word",
    ".type yasmin_go_word, @object",
    ".size yasmin_go_word, 64",
    "yasmin_go_word:",
    ".zero 64",
    ".popsection",
);

/// Where detours of calls lead. As at a `syscall` instruction: rax, rdi, rsi, rdx, r10, r8, r9. rbx: where to
/// go on. Changes rax as the kernel does, and rbx, rcx, r11, r13 and the vector registers, which no caller of
/// these functions keeps; but Go wants xmm15 to be zero. Touches nothing of the program's stack.
///
/// `block` stands at 5: and gives the thread a block, without a stack: then on at 2:, or at 7: without memory.
macro_rules! enter {
    ($(#[$about:meta])* $name:ident, [$($block:expr,)*], $($operands:tt)*) => {
        $(#[$about])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            core::arch::naked_asm!(
                "cmp rax, {numbers}",
                "jae 9f",
                "lea r11, [rip + {may_concern}]",
                "cmp byte ptr [r11 + rax], 0",
                "je 9f",
                "mov r13, qword ptr [rip + yasmin_go_word@GOTTPOFF]",
                "2:",
                by_block!(),
                "mov rcx, qword ptr fs:[r13]",
                "cmp rcx, 1",
                "jb 5f",
                "je 9f",
                "test ecx, {block} - 1",
                "jz 9f",
                // A level. From now on a handler has the next one.
                by_block!(),
                "sub qword ptr fs:[r13], {level}",
                "mov [rcx - 8], rsp",
                "mov [rcx - 16], rcx",
                "lea rsp, [rcx - 16]",
                "push r9",
                "push r8",
                "push r10",
                "push rdx",
                "push rsi",
                "push rdi",
                "push rax",
                "mov rdi, rsp",
                // Ten words: rsp is aligned.
                "push rax",
                "call {take}",
                "mov r11d, eax",
                "pop rax",
                "pop rax",
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop r10",
                "pop r8",
                "pop r9",
                "pop rcx",
                "pop rsp",
                // Not added to: a child that borrowed this memory and became a program never gave its level back.
                by_block!(),
                "mov qword ptr fs:[r13], rcx",
                "xorps xmm15, xmm15",
                "cmp r11d, 1",
                "je 9f",
                "ja 4f",
                "jmp rbx",
                // The call, after which this thread's word is as it was, whatever a child did with it.
                "4:",
                "mov r11, rcx",
                "and r11, -{block}",
                "mov [r11 + {word}], rcx",
                "syscall",
                by_block!(),
                "mov rcx, qword ptr fs:[r13]",
                "and rcx, -{block}",
                "mov rcx, [rcx + {word}]",
                by_block!(),
                "mov qword ptr fs:[r13], rcx",
                "jmp rbx",
                // The call, as the program would have made it.
                "9:",
                "syscall",
                "jmp rbx",
                $($block,)*
                // Without memory no Go program goes on either.
                "7:",
                "ud2",
                numbers = const by_number::NUMBERS,
                may_concern = sym by_number::MAY_CONCERN,
                level = const stacks::LEVEL,
                block = const stacks::BLOCK,
                mapped = const stacks::MAPPED,
                word = const core::mem::offset_of!(Block, word),
                mmap = const Sysno::mmap as usize,
                $($operands)*
                take = sym take,
            )
        }
    };
}

enter! {
    /// With libc: a handler that comes meanwhile makes its call without the library.
    yasmin_go_enter,
    [
        "5:",
        "mov ecx, 1",
        by_block!(),
        "xchg qword ptr fs:[r13], rcx",
        "test rcx, rcx",
        "jz 6f",
        by_block!(),
        "mov qword ptr fs:[r13], rcx",
        "jmp 2b",
        "6:",
        by_block!(),
        "mov qword ptr fs:[r13 + 8], rax",
        by_block!(),
        "mov qword ptr fs:[r13 + 16], rdi",
        by_block!(),
        "mov qword ptr fs:[r13 + 24], rsi",
        by_block!(),
        "mov qword ptr fs:[r13 + 32], rdx",
        by_block!(),
        "mov qword ptr fs:[r13 + 40], r10",
        by_block!(),
        "mov qword ptr fs:[r13 + 48], r8",
        by_block!(),
        "mov qword ptr fs:[r13 + 56], r9",
        map_block!(),
        "ja 7f",
        "lea rcx, [rax + {block} - 1]",
        "and rcx, -{block}",
        "mov [rcx], rax",
        "add rcx, {block}",
        by_block!(),
        "mov rax, qword ptr fs:[r13 + 8]",
        by_block!(),
        "mov rdi, qword ptr fs:[r13 + 16]",
        by_block!(),
        "mov rsi, qword ptr fs:[r13 + 24]",
        by_block!(),
        "mov rdx, qword ptr fs:[r13 + 32]",
        by_block!(),
        "mov r10, qword ptr fs:[r13 + 40]",
        by_block!(),
        "mov r8, qword ptr fs:[r13 + 48]",
        by_block!(),
        "mov r9, qword ptr fs:[r13 + 56]",
        "sub rcx, {level}",
        by_block!(),
        "mov qword ptr fs:[r13], rcx",
        "jmp 2b",
    ],
}

enter! {
    /// Without libc: the block holds this library's words of the thread, too. Until there is one the thread
    /// has `yasmin_go_nobody`. A handler that comes meanwhile makes the block, and this one's is given back.
    yasmin_go_enter_bare,
    [
        "5:",
        "movq xmm0, rax",
        "movq xmm1, rdi",
        "movq xmm2, rsi",
        "movq xmm3, rdx",
        "movq xmm4, r10",
        "movq xmm5, r8",
        "movq xmm6, r9",
        map_block!(),
        "ja 7f",
        "lea rdx, [rax + {block} - 1]",
        "and rdx, -{block}",
        "mov [rdx], rax",
        // Its own address, and the word.
        "lea rsi, [rdx + {own}]",
        "mov [rsi], rsi",
        "add rdx, {block} - {level}",
        "mov [rsi + r13], rdx",
        by_block!(),
        "cmp qword ptr fs:[r13], 0",
        "jne 8f",
        "mov eax, {arch_prctl}",
        "mov edi, {set_gs}",
        "syscall",
        "test eax, eax",
        "jnz 7f",
        "12:",
        "movq rax, xmm0",
        "movq rdi, xmm1",
        "movq rsi, xmm2",
        "movq rdx, xmm3",
        "movq r10, xmm4",
        "movq r8, xmm5",
        "movq r9, xmm6",
        "jmp 2b",
        "8:",
        "mov rdi, rax",
        "mov esi, {mapped}",
        "mov eax, {munmap}",
        "syscall",
        "jmp 12b",
    ],
    munmap = const Sysno::munmap as usize,
    arch_prctl = const Sysno::arch_prctl as usize,
    set_gs = const stacks::ARCH_SET_GS,
    own = const stacks::OWN,
}

/// Where the detour of runtime.clone leads. The new thread has no block of this library's yet. It begins
/// with its maker's gs; Go blocks signals meanwhile.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn yasmin_go_thread() {
    core::arch::naked_asm!(
        "syscall",
        "test rax, rax",
        "jz 2f",
        "jmp rbx",
        "2:",
        "mov r14, rsi",
        "mov eax, {arch_prctl}",
        "mov r15, rdi",
        "mov edi, {set_gs}",
        "lea rsi, [rip + yasmin_go_nobody_at]",
        "syscall",
        "mov rsi, r14",
        "mov rdi, r15",
        "xor eax, eax",
        "jmp rbx",
        arch_prctl = const Sysno::arch_prctl as usize,
        set_gs = const stacks::ARCH_SET_GS,
    )
}

// The block of threads that never came here: all words 0. Only handlers' entries write there, what nobody
// reads.
core::arch::global_asm!(
    ".pushsection .data.yasmin_go_nobody,\"aw\",@progbits",
    ".balign 64",
    ".zero {before}",
    ".globl yasmin_go_nobody_at",
    ".hidden yasmin_go_nobody_at",
    "yasmin_go_nobody_at:",
    ".quad yasmin_go_nobody_at",
    ".zero 56",
    ".popsection",
    before = const stacks::OWN_BYTES,
);

/// A system call of the program's: its number and arguments, as they lie on the library's stack.
#[repr(C)]
struct Call {
    /// In the end: what the kernel would return.
    number: c_long,
    arguments: [usize; 6],
}

/// What is left to do when the library has seen a call.
#[repr(u32)]
enum Left {
    Nothing = 0,
    /// The call itself.
    Call = 1,
    /// The call, which may make a child that goes on in this thread's block and in its stacks.
    Child = 2,
}

extern "C" fn take(call: &mut Call) -> Left {
    const CLONE: c_long = Sysno::clone as c_long;
    const CLONE3: c_long = Sysno::clone3 as c_long;
    let saved = sys::errno();
    // It may ask the kernel what the program never asks.
    if !process::is_sandboxed() {
        let block = core::ptr::from_ref(call) as usize & !(stacks::BLOCK - 1);
        stacks::note(block as *mut Block);
    }
    let Call { number, arguments } = *call;
    // SAFETY: the program's own call.
    let left = if let Some(answer) = unsafe { by_number::answer(number, arguments) } {
        call.number = answer;
        Left::Nothing
    } else if matches!(number, CLONE | CLONE3) {
        Left::Child
    } else {
        Left::Call
    };
    sys::set_errno(saved);
    left
}
