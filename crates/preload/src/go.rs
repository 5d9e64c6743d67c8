//! Programs in Go that are linked with libc (cgo). Go makes its system calls by instructions of
//! its own, so before such a program begins, these get a detour through this library.
//!
//! A detour is a jump in place of the instruction. It leads to `yasmin_go_enter`, which asks
//! `by_number`, as libc's syscall(2) does: what concerns nothing of ours is then made as the
//! program would have made it, with every register as it was.
//!
//! - Only while one thread is there, before the program's first instruction: nobody is inside
//!   what is changed.
//! - Only where libc makes the program's threads (it imports pthread_create): in Go without cgo, a
//!   thread's block is not libc's, and this library cannot run in it.
//! - Goroutines have small stacks, so the library gets one of its own in each thread (`stacks`).
//! - A function that is not as `yasmin_text::go` knows it stays, and is found when the text is
//!   looked through: the process is careful then.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_long, c_void};

use yasmin_text::go::{self, Kind, Site};

use crate::exports::by_number;
use crate::object::{self, Dynamic, Header, Object, PF_X, PT_LOAD, PT_NOTE};
use crate::stacks::{self, Block};
use crate::sys::{self, Sysno, call};
use crate::{process, text};

const PAGE: usize = 4096;
/// A detour: seven bytes for where to come back to, six to jump, at most ten that were moved, five
/// to jump back.
const DETOUR: usize = 32;
/// The page's first word is where all detours lead.
const DETOURS: usize = PAGE / DETOUR - 1;
/// A relative jump.
const JUMP: usize = 5;

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

/// # Safety
/// The program's own base and headers.
unsafe fn divert(base: usize, headers: &'static [Header]) {
    let is_loaded = |header: &&Header| {
        let at = base.wrapping_add(header.address);
        headers.iter().any(|segment| segment.holds(base, at))
    };
    let mut notes = headers.iter().filter(|header| header.kind == PT_NOTE).filter(is_loaded);
    let is_go = notes.any(|header| {
        // SAFETY: the program stays.
        unsafe { header.bytes(base) }.is_some_and(has_go_note)
    });
    // SAFETY: as above.
    let program = unsafe { Dynamic::of(base, headers) };
    if !is_go || !program.is_some_and(|it| it.imports(c"pthread_create")) {
        return;
    }
    for header in headers.iter().filter(|one| one.kind == PT_LOAD && one.flags & PF_X != 0) {
        // SAFETY: as above.
        let Some(code) = (unsafe { header.bytes(base) }) else { continue };
        if let Some(page) = page_before(code.as_ptr() as usize, code.len()) {
            divert_text(code, page);
        }
    }
}

/// Whether one of these notes (elf(5), Nhdr) is the Go linker's, with the program's build ID.
fn has_go_note(mut notes: &[u8]) -> bool {
    const HEAD: usize = 12;
    const GO: (u32, &[u8]) = (4, b"Go\0\0");
    loop {
        let word = |at: usize| {
            let bytes = notes.get(at..at + 4)?;
            bytes.try_into().ok().map(u32::from_le_bytes)
        };
        let (Some(name_bytes), Some(text_bytes), Some(kind)) = (word(0), word(4), word(8)) else {
            return false;
        };
        let name = notes.get(HEAD..HEAD + GO.1.len());
        if (kind, name) == (GO.0, Some(GO.1)) {
            return true;
        }
        let padded = |bytes: u32| (bytes as usize).next_multiple_of(4);
        match notes.get(HEAD + padded(name_bytes) + padded(text_bytes)..) {
            Some(rest) => notes = rest,
            None => return false,
        }
    }
}

const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const PROT_EXEC: c_int = 4;

/// A page of ours that jumps reach from all of the text. Below it: the heap grows above.
fn page_before(text: usize, len_bytes: usize) -> Option<usize> {
    const PRIVATE_ANONYMOUS_NOREPLACE: c_int = 0x02 | 0x20 | 0x10_0000;
    const FAR: usize = 1 << 30;
    const STEP: usize = 1 << 16;
    if len_bytes > FAR {
        return None;
    }
    let top = text & !(STEP - 1);
    (1..FAR / STEP).map_while(|i| top.checked_sub(i * STEP)).find(|&at| {
        // SAFETY: at an address where nothing is; an older kernel takes it for a hint.
        let got = unsafe {
            call!(mmap, at, PAGE, PROT_READ | PROT_WRITE, PRIVATE_ANONYMOUS_NOREPLACE, -1_isize, 0)
        };
        if got > 0 && got as usize != at {
            // SAFETY: just mapped.
            unsafe { sys::unmap(got as *mut u8, PAGE) };
        }
        got as usize == at
    })
}

/// Detours in `page` for this text. Nothing changes where the system refuses pages that were written and
/// may then be run (MemoryDenyWriteExecute, SELinux's execmem).
fn divert_text(code: &'static [u8], page: usize) {
    let at = |site: &Site| code.as_ptr() as usize + site.at;
    let sites = || {
        let mut from = 0;
        core::iter::from_fn(move || {
            let site = go::next(code, from)?;
            from = site.at + site.len_bytes;
            Some(site)
        })
    };
    let calls = || sites().filter(|site| site.kind == Kind::Call).take(DETOURS);
    let detours = || (1..).map(|nth| page + nth * DETOUR);
    // SAFETY: a fresh page of ours.
    unsafe { (page as *mut usize).write(yasmin_go_enter as *const () as usize) };
    for (site, detour) in calls().zip(detours()) {
        write_detour(at(&site), &site, detour, page);
    }
    // SAFETY: our page, and instructions of the program's, which nobody runs yet.
    unsafe {
        if call!(mprotect, page, PAGE, PROT_READ | PROT_EXEC) != 0 {
            sys::unmap(page as *mut u8, PAGE);
            return;
        }
        for (site, detour) in calls().zip(detours()) {
            put_jump(at(&site), site.len_bytes, detour);
        }
    }
    sites().filter(|site| site.kind == Kind::Thread).for_each(|site| text::except(at(&site)));
}

/// The detour for the instruction at `at`, in `page`, which is writable.
fn write_detour(at: usize, site: &Site, detour: usize, page: usize) {
    let moved_bytes = site.len_bytes - SYSCALL_BYTES;
    let mut to = Writer(detour as *mut u8);
    // lea rbx, [rip + behind the jump]
    to.bytes(&[0x48, 0x8d, 0x1d]);
    to.word(6);
    // jmp [page]
    to.bytes(&[0xff, 0x25]);
    to.distance(page);
    // SAFETY: the program's text.
    to.bytes(unsafe {
        core::slice::from_raw_parts((at + SYSCALL_BYTES) as *const u8, moved_bytes)
    });
    to.bytes(&[0xe9]);
    to.distance(at + site.len_bytes);
}

/// Puts a jump to `detour` at `at`: on a copy of the pages, which then takes their place. Text is never
/// writable, and stays as it is where anything fails.
///
/// # Safety
/// Text of the program's, of which no thread is inside these bytes.
unsafe fn put_jump(at: usize, len_bytes: usize, detour: usize) {
    const MREMAP_MAYMOVE_FIXED: c_int = 1 | 2;
    let first = at & !(PAGE - 1);
    let pages_bytes = (at + len_bytes - first).next_multiple_of(PAGE);
    let Some(copy) = sys::map_private(pages_bytes) else { return };
    // SAFETY: the segment's pages, whole as they are mapped, and a copy of them.
    unsafe {
        core::ptr::copy_nonoverlapping(first as *const u8, copy, pages_bytes);
        let mut to = Writer(copy.add(at - first));
        to.bytes(&[0xe9]);
        to.word((detour as isize - (at + JUMP) as isize) as i32);
        for _ in JUMP..len_bytes {
            to.bytes(&[NOP]);
        }
        let is_put = call!(mprotect, copy, pages_bytes, PROT_READ | PROT_EXEC) == 0
            && call!(mremap, copy, pages_bytes, pages_bytes, MREMAP_MAYMOVE_FIXED, first) > 0;
        if !is_put {
            sys::unmap(copy, pages_bytes);
        }
    }
}

const SYSCALL_BYTES: usize = 2;
const NOP: u8 = 0x90;

struct Writer(*mut u8);

impl Writer {
    /// How far it is from behind these four bytes to `target`.
    fn distance(&mut self, target: usize) {
        self.word((target as isize - (self.0 as usize + 4) as isize) as i32);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // SAFETY: `write_detour` writes less than DETOUR into a detour, `put_jump` a site's own bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len());
            self.0 = self.0.add(bytes.len());
        }
    }

    fn word(&mut self, word: i32) {
        self.bytes(&word.to_le_bytes());
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

/// Where detours lead. As at a `syscall` instruction: rax, rdi, rsi, rdx, r10, r8, r9. rbx: where to go
/// on. Changes rax as the kernel does, and rbx, rcx, r11, r13 and the vector registers, which no caller of
/// these functions keeps; but Go wants xmm15 to be zero. Touches nothing of the program's stack.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn yasmin_go_enter() {
    core::arch::naked_asm!(
        "cmp rax, {numbers}",
        "jae 9f",
        "lea r11, [rip + {may_concern}]",
        "cmp byte ptr [r11 + rax], 0",
        "je 9f",
        "mov r13, qword ptr [rip + yasmin_go_word@GOTTPOFF]",
        "2:",
        "mov rcx, qword ptr fs:[r13]",
        "cmp rcx, 1",
        "jb 5f",
        "je 9f",
        "test ecx, {block} - 1",
        "jz 9f",
        // A level. From now on a handler has the next one.
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
        "mov rcx, qword ptr fs:[r13]",
        "and rcx, -{block}",
        "mov rcx, [rcx + {word}]",
        "mov qword ptr fs:[r13], rcx",
        "jmp rbx",
        // The call, as the program would have made it.
        "9:",
        "syscall",
        "jmp rbx",
        // A block for this thread. No stack is needed for that.
        "5:",
        "mov ecx, 1",
        "xchg qword ptr fs:[r13], rcx",
        "test rcx, rcx",
        "jz 6f",
        // A handler was faster.
        "mov qword ptr fs:[r13], rcx",
        "jmp 2b",
        "6:",
        "mov qword ptr fs:[r13 + 8], rax",
        "mov qword ptr fs:[r13 + 16], rdi",
        "mov qword ptr fs:[r13 + 24], rsi",
        "mov qword ptr fs:[r13 + 32], rdx",
        "mov qword ptr fs:[r13 + 40], r10",
        "mov qword ptr fs:[r13 + 48], r8",
        "mov qword ptr fs:[r13 + 56], r9",
        "mov eax, {mmap}",
        "xor edi, edi",
        "mov esi, {mapped}",
        // PROT_READ, PROT_WRITE; MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE.
        "mov edx, 3",
        "mov r10d, 0x4022",
        "mov r8, -1",
        "xor r9d, r9d",
        "syscall",
        "cmp rax, -4096",
        // Without memory no Go program goes on either.
        "ja 7f",
        "lea rcx, [rax + {block} - 1]",
        "and rcx, -{block}",
        "mov [rcx], rax",
        "add rcx, {block}",
        "mov rax, qword ptr fs:[r13 + 8]",
        "mov rdi, qword ptr fs:[r13 + 16]",
        "mov rsi, qword ptr fs:[r13 + 24]",
        "mov rdx, qword ptr fs:[r13 + 32]",
        "mov r10, qword ptr fs:[r13 + 40]",
        "mov r8, qword ptr fs:[r13 + 48]",
        "mov r9, qword ptr fs:[r13 + 56]",
        "sub rcx, {level}",
        "mov qword ptr fs:[r13], rcx",
        "jmp 2b",
        "7:",
        "ud2",
        numbers = const by_number::NUMBERS,
        may_concern = sym by_number::MAY_CONCERN,
        level = const stacks::LEVEL,
        block = const stacks::BLOCK,
        mapped = const stacks::MAPPED,
        word = const core::mem::offset_of!(Block, word),
        mmap = const Sysno::mmap as usize,
        take = sym take,
    )
}

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
        stacks::note(core::ptr::from_ref(call) as usize);
    }
    let Call { number, arguments: [a, b, c, d, e, f] } = *call;
    let left = if by_number::concerns(number, a as c_long, b as c_long, c as c_long) {
        // SAFETY: the program's own arguments.
        let ret = unsafe { by_number::take(number, a, b, c, d, e, f) };
        call.number = if ret == -1 { -(sys::errno() as c_long) } else { ret as c_long };
        Left::Nothing
    } else if matches!(number, CLONE | CLONE3) {
        Left::Child
    } else {
        Left::Call
    };
    sys::set_errno(saved);
    left
}
