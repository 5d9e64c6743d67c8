//! Where a program in Go enters the kernel with calls that may concern sockets.
//!
//! Go does not call libc's functions. All of its packages come to one function of its runtime,
//! `Syscall6`, and a handful of others have an instruction of their own. They are written in
//! assembly and have been the same, to the byte, since Go 1.20
//! (src/internal/runtime/syscall/linux/asm_linux_amd64.s, src/runtime/sys_linux_amd64.s,
//! src/syscall/asm_linux_amd64.s). A later Go that writes them differently is not recognised, and
//! its instructions are found as any program's are.

use crate::find;

/// What enters the kernel here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any call, and comes back. It needs only rsp, rbp, r12, r14 and r15 as they were, and what
    /// the kernel leaves as it is of rdi, rsi, rdx, r8, r9 and r10.
    Call,
    /// `runtime.clone`, which makes a thread where there is no libc. A program with cgo has libc
    /// make its threads and never comes here.
    Thread,
}

/// An instruction that enters the kernel, and what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub kind: Kind,
    /// Where the instruction begins in the text, in bytes.
    pub at: usize,
    /// The instruction and what has to be moved with it, in bytes. What is moved neither jumps nor asks
    /// where it stands, so it does the same elsewhere; nothing jumps to it.
    pub len_bytes: usize,
}

/// One of these functions: its bytes before the instruction, and those of the next instruction.
struct Shape {
    kind: Kind,
    before: &'static [u8],
    next: &'static [u8],
    /// How many more bytes the next instruction has: a distance from the stack pointer.
    more_bytes: usize,
}

/// cmp rax, -4095
const COMPARE: &[u8] = &[0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff];
/// mov [rsp + distance], eax
const STORE: &[u8] = &[0x89, 0x44, 0x24];
/// mov [rsp + distance], rax
const STORE_LONG: &[u8] = &[0x48, 0x89, 0x44, 0x24];

/// What no compiler of another language writes: arguments in rbx, or all of them above the return address.
const SHAPES: [Shape; 7] = [
    // Syscall6: mov r10, rsi; mov rdx, rdi; mov rsi, rcx; mov rdi, rbx
    Shape {
        kind: Kind::Call,
        before: &[0x49, 0x89, 0xf2, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xce, 0x48, 0x89, 0xdf],
        next: COMPARE,
        more_bytes: 0,
    },
    // rawVforkSyscall: mov rax, [rsp + 8]; pop r12; syscall; push r12; cmp rax, -4095
    Shape {
        kind: Kind::Call,
        before: &[0x48, 0x8b, 0x44, 0x24, 0x08, 0x41, 0x5c],
        next: &[0x41, 0x54, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff],
        more_bytes: 0,
    },
    // runtime.write1: mov rdi, [rsp + 8]; mov rsi, [rsp + 16]; mov edx, [rsp + 24]; mov eax, 1
    Shape {
        kind: Kind::Call,
        before: &[
            0x48, 0x8b, 0x7c, 0x24, 8, 0x48, 0x8b, 0x74, 0x24, 16, 0x8b, 0x54, 0x24, 24, 0xb8, 1,
            0, 0, 0,
        ],
        next: STORE,
        more_bytes: 1,
    },
    // runtime.read: mov edi, [rsp + 8]; mov rsi, [rsp + 16]; mov edx, [rsp + 24]; mov eax, 0
    Shape {
        kind: Kind::Call,
        before: &[
            0x8b, 0x7c, 0x24, 8, 0x48, 0x8b, 0x74, 0x24, 16, 0x8b, 0x54, 0x24, 24, 0xb8, 0, 0, 0, 0,
        ],
        next: STORE,
        more_bytes: 1,
    },
    // syscall.rawSyscallNoError: mov rdi, rsi, rdx and rax, [rsp + distance]
    Shape {
        kind: Kind::Call,
        before: &[
            0x48, 0x8b, 0x7c, 0x24, ANY, 0x48, 0x8b, 0x74, 0x24, ANY, 0x48, 0x8b, 0x54, 0x24, ANY,
            0x48, 0x8b, 0x44, 0x24, ANY,
        ],
        next: STORE_LONG,
        more_bytes: 1,
    },
    // golang.org/x/sys/unix.SyscallNoError and RawSyscallNoError: mov r10, r8 and r9, 0;
    // mov rax, [rsp + distance]
    Shape {
        kind: Kind::Call,
        before: &[
            0x49, 0xc7, 0xc2, 0, 0, 0, 0, 0x49, 0xc7, 0xc0, 0, 0, 0, 0, 0x49, 0xc7, 0xc1, 0, 0, 0,
            0, 0x48, 0x8b, 0x44, 0x24, ANY,
        ],
        next: STORE_LONG,
        more_bytes: 1,
    },
    // runtime.clone: mov eax, 56; syscall; cmp rax, 0
    Shape {
        kind: Kind::Thread,
        before: &[0xb8, 56, 0, 0, 0],
        next: &[0x48, 0x83, 0xf8, 0],
        more_bytes: 0,
    },
];

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
        SYSCALL.len() + self.next.len() + self.more_bytes
    }
}

/// Whether this text of a Go program has the function that all packages call.
pub fn is_known(code: &[u8]) -> bool {
    let mut from = 0;
    while let Some(site) = next(code, from) {
        if SHAPES[0].is_at(code, site.at) {
            return true;
        }
        from = site.at + site.len_bytes;
    }
    false
}

/// The next such instruction of a Go program's text, at or after `from`.
pub fn next(code: &[u8], mut from: usize) -> Option<Site> {
    loop {
        let at = find::next(code, from)?;
        if code[at..].starts_with(&SYSCALL)
            && let Some(shape) = SHAPES.iter().find(|shape| shape.is_at(code, at))
        {
            return Some(Site { kind: shape.kind, at, len_bytes: shape.len_bytes() });
        }
        from = at + 1;
    }
}
