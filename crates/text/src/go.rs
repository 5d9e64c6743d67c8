//! Where a program in Go enters the kernel with calls that may concern sockets.
//!
//! Go does not call libc's functions. All of its packages come to one function of its runtime,
//! `Syscall6`, and a handful of others have an instruction of their own. They are written in
//! assembly and have been the same, to the byte, since Go 1.19
//! (src/internal/runtime/syscall/linux/asm_linux_amd64.s, src/runtime/sys_linux_amd64.s,
//! src/syscall/asm_linux_amd64.s). A later Go that writes them differently is not recognised, and
//! its instructions are found as any program's are.

use crate::{find, sites};

/// What enters the kernel here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any call, and comes back. It needs only rsp, rbp, r12, r14 and r15 as they were, and what
    /// the kernel leaves as it is of rdi, rsi, rdx, r8, r9 and r10.
    Call,
    /// `runtime.clone`, which makes a thread where there is no libc. A program with cgo has libc
    /// make its threads and never comes here. It needs all that the kernel leaves as it is, but for
    /// rbx, r14, r15 and the vector registers.
    Thread,
}

/// One of these instructions. Between a jump in its place and the next one of the program nothing moves but
/// what is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub kind: Kind,
    pub site: sites::Site,
}

/// One of these functions: its bytes before the instruction, and those of the next instruction.
struct Shape {
    kind: Kind,
    before: &'static [u8],
    next: &'static [u8],
    /// How many more bytes the next instruction has: a distance from the stack pointer.
    more_bytes: usize,
    /// Of `before`, what loads the number: with it a jump has room, and the next instruction stays.
    lead_bytes: usize,
}

/// cmp rax, -4095
const COMPARE: &[u8] = &[0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff];
/// mov [rsp + distance], eax
const STORE: &[u8] = &[0x89, 0x44, 0x24];
/// mov [rsp + distance], rax
const STORE_LONG: &[u8] = &[0x48, 0x89, 0x44, 0x24];

const fn call(before: &'static [u8], next: &'static [u8], more_bytes: usize) -> Shape {
    Shape { kind: Kind::Call, before, next, more_bytes, lead_bytes: 0 }
}

/// Whose `before` ends with `mov eax, number`.
const fn numbered(kind: Kind, before: &'static [u8], next: &'static [u8]) -> Shape {
    Shape { kind, before, next, more_bytes: 0, lead_bytes: 5 }
}

/// What no compiler of another language writes: arguments in rbx, or all of them above the return address.
const SHAPES: [Shape; 13] = [
    SYSCALL6,
    // rawVforkSyscall: mov rax, [rsp + 8]; pop r12; syscall; push r12; cmp rax, -4095
    call(b"\x48\x8b\x44\x24\x08\x41\x5c", b"\x41\x54\x48\x3d\x01\xf0\xff\xff", 0),
    // runtime.write1: mov rdi, [rsp + 8]; mov rsi, [rsp + 16]; mov edx, [rsp + 24]; mov eax, 1
    call(b"\x48\x8b\x7c\x24\x08\x48\x8b\x74\x24\x10\x8b\x54\x24\x18\xb8\x01\0\0\0", STORE, 1),
    // runtime.read: mov edi, [rsp + 8]; mov rsi, [rsp + 16]; mov edx, [rsp + 24]; mov eax, 0
    call(b"\x8b\x7c\x24\x08\x48\x8b\x74\x24\x10\x8b\x54\x24\x18\xb8\0\0\0\0", STORE, 1),
    // syscall.rawSyscallNoError: mov rdi, rsi, rdx and rax, [rsp + distance]
    call(
        b"\x48\x8b\x7c\x24\xf4\x48\x8b\x74\x24\xf4\x48\x8b\x54\x24\xf4\x48\x8b\x44\x24\xf4",
        STORE_LONG,
        1,
    ),
    // golang.org/x/sys/unix.SyscallNoError and RawSyscallNoError: mov r10, r8 and r9, 0;
    // mov rax, [rsp + distance]
    call(
        b"\x49\xc7\xc2\0\0\0\0\x49\xc7\xc0\0\0\0\0\x49\xc7\xc1\0\0\0\0\x48\x8b\x44\x24\xf4",
        STORE_LONG,
        1,
    ),
    // Until Go 1.19 runtime.epollcreate and epollcreate1: mov edi, [rsp + 8]; mov eax, number
    call(b"\x8b\x7c\x24\x08\xb8\xd5\0\0\0", STORE, 1),
    call(b"\x8b\x7c\x24\x08\xb8\x23\x01\0\0", STORE, 1),
    // runtime.epollctl: mov edi, [rsp + 8]; mov esi, [rsp + 12]; mov edx, [rsp + 16];
    // mov r10, [rsp + 24]; mov eax, 233
    call(
        b"\x8b\x7c\x24\x08\x8b\x74\x24\x0c\x8b\x54\x24\x10\x4c\x8b\x54\x24\x18\xb8\xe9\0\0\0",
        STORE,
        1,
    ),
    // runtime.epollwait: mov edx, [rsp + 24]; mov r10d, [rsp + 28]; mov r8, 0; mov eax, 281
    call(b"\x8b\x54\x24\x18\x44\x8b\x54\x24\x1c\x49\xc7\xc0\0\0\0\0\xb8\x19\x01\0\0", STORE, 1),
    // runtime.rt_sigaction: mov r10, [rsp + 32]; mov eax, 13
    numbered(Kind::Call, b"\x4c\x8b\x54\x24\x20\xb8\x0d\0\0\0", STORE),
    // runtime.exit: mov edi, [rsp + 8]; mov eax, 231; syscall; ret
    numbered(Kind::Call, b"\x8b\x7c\x24\x08\xb8\xe7\0\0\0", b"\xc3"),
    // runtime.clone: mov eax, 56; syscall; cmp rax, 0
    numbered(Kind::Thread, b"\xb8\x38\0\0\0", b"\x48\x83\xf8\0"),
];

/// mov r10, rsi; mov rdx, rdi; mov rsi, rcx; mov rdi, rbx
const SYSCALL6: Shape = call(b"\x49\x89\xf2\x48\x89\xfa\x48\x89\xce\x48\x89\xdf", COMPARE, 0);

/// Stands for any byte.
const ANY: u8 = 0xf4;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

impl Shape {
    fn is_at(&self, code: &[u8], at: usize) -> bool {
        let Some(first) = at.checked_sub(self.before.len()) else { return false };
        let is_same = |(&wanted, &found): (&u8, &u8)| wanted == ANY || wanted == found;
        let is_before = code[first..at].iter().zip(self.before).all(|(f, w)| is_same((w, f)));
        let is_whole = code.len() - at >= self.len_bytes();
        is_before && is_whole && code[at + SYSCALL.len()..].starts_with(self.next)
    }

    const fn len_bytes(&self) -> usize {
        let moved_bytes = if self.lead_bytes > 0 { 0 } else { self.next.len() + self.more_bytes };
        SYSCALL.len() + moved_bytes
    }
}

/// Whether this text of a Go program has the function that all packages call.
pub fn is_known(code: &[u8]) -> bool {
    all(code).any(|site| SYSCALL6.is_at(code, site.site.at))
}

/// Whether this text of a Go program has the function that makes threads where there is no libc.
pub fn makes_threads(code: &[u8]) -> bool {
    all(code).any(|site| site.kind == Kind::Thread)
}

/// All such instructions of a Go program's text.
pub fn all(code: &[u8]) -> impl Iterator<Item = Site> {
    let mut from = 0;
    core::iter::from_fn(move || {
        let site = next(code, from)?;
        from = site.site.end();
        Some(site)
    })
}

/// The next such instruction of a Go program's text, at or after `from`.
pub fn next(code: &[u8], mut from: usize) -> Option<Site> {
    loop {
        let at = find::next(code, from)?;
        if code[at..].starts_with(&SYSCALL)
            && let Some(shape) = SHAPES.iter().find(|shape| shape.is_at(code, at))
        {
            let (lead_bytes, len_bytes) = (shape.lead_bytes, shape.len_bytes());
            let site = sites::Site { at, lead_bytes, len_bytes };
            return Some(Site { kind: shape.kind, site });
        }
        from = at + 1;
    }
}
