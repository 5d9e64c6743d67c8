//! A process without libc: a Go program without cgo, into which `yasmin-inject` has put this library before the
//! program's first instruction.
//!
//! - fs is the program's own. The library's block of each thread is at gs instead: the injector turns
//!   each instruction that goes by fs (`thread::by_block`) into one that goes by gs.
//! - What libc does elsewhere is done here: its functions of the same names as system calls, and copies
//!   of memory.
//! - The dynamic linker has nothing to tell. What is loaded the kernel has said to the program.
//!
//! Storey 1: system.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::sys::{self, SigAction, TimeSpec, call};

static IS_BARE: AtomicBool = AtomicBool::new(false);
static ENVIRONMENT: AtomicPtr<*const c_char> = AtomicPtr::new(core::ptr::null_mut());
static HEADERS: AtomicUsize = AtomicUsize::new(0);
static HEADER_COUNT: AtomicUsize = AtomicUsize::new(0);
static VDSO: AtomicUsize = AtomicUsize::new(0);

/// Whether this process is one.
#[inline]
pub fn is() -> bool {
    IS_BARE.load(Ordering::Relaxed)
}

/// What the kernel left for the program on its stack (the x86-64 psABI, "Process Initialization"): the
/// environment.
///
/// # Safety
/// The stack pointer of a program at its first instruction.
pub unsafe fn begin(stack: *const usize) -> *const *const c_char {
    const AT_PHDR: usize = 3;
    const AT_PHNUM: usize = 5;
    const AT_SYSINFO_EHDR: usize = 33;
    IS_BARE.store(true, Ordering::Relaxed);
    // SAFETY: a count, as many arguments, a null, the environment up to its null, pairs up to one of 0.
    let environment = unsafe {
        let environment = stack.add(2 + *stack);
        let mut at = environment;
        while *at != 0 {
            at = at.add(1);
        }
        let mut pair = at.add(1).cast::<[usize; 2]>();
        loop {
            let [kind, value] = *pair;
            match kind {
                0 => break,
                AT_PHDR => HEADERS.store(value, Ordering::Relaxed),
                AT_PHNUM => HEADER_COUNT.store(value, Ordering::Relaxed),
                AT_SYSINFO_EHDR => VDSO.store(value, Ordering::Relaxed),
                _ => {}
            }
            pair = pair.add(1);
        }
        environment.cast_mut().cast::<*const c_char>()
    };
    ENVIRONMENT.store(environment, Ordering::Relaxed);
    environment
}

static IS_SEEING: AtomicBool = AtomicBool::new(false);

/// The program's calls have detours.
pub fn sees() {
    IS_SEEING.store(true, Ordering::Relaxed);
}

/// Whether this is a process without libc that makes its calls past this library.
pub fn is_blind() -> bool {
    is() && !IS_SEEING.load(Ordering::Relaxed)
}

/// As the program was given it.
pub fn environment() -> *const *const c_char {
    ENVIRONMENT.load(Ordering::Relaxed)
}

/// Where the program's headers are (elf(5), Elf64_Phdr), and how many.
pub fn headers() -> (usize, usize) {
    (HEADERS.load(Ordering::Relaxed), HEADER_COUNT.load(Ordering::Relaxed))
}

/// The kernel's own object (vdso(7)).
pub fn vdso() -> usize {
    VDSO.load(Ordering::Relaxed)
}

macro_rules! functions {
    (calls: $($name:ident)*; own: $($own:ident)*) => {
        mod calls {
            use super::{call, sys};
            $(pub extern "C" fn $name(
                a: usize,
                b: usize,
                c: usize,
                d: usize,
                e: usize,
                f: usize,
            ) -> isize {
                // SAFETY: the program's own arguments; the kernel does not look at more than it takes.
                sys::returned(unsafe { call!($name, a, b, c, d, e, f) })
            })*
        }

        /// What `real` calls libc's `name` (NUL-terminated); null: no program comes to it without libc.
        pub fn function(name: &[u8]) -> *mut c_void {
            $(if name == concat!(stringify!($name), "\0").as_bytes() {
                return calls::$name as *mut c_void;
            })*
            $(if name == concat!(stringify!($own), "\0").as_bytes() {
                return $own as *mut c_void;
            })*
            core::ptr::null_mut()
        }
    };
}

functions! {
    calls:
        read write readv writev recvfrom sendto recvmsg sendmsg recvmmsg sendmmsg sendfile splice
        poll select epoll_create epoll_create1 epoll_ctl epoll_wait
        shutdown close close_range dup dup2 dup3 fcntl ioctl setsockopt getsockopt
        socket connect getsockname getpeername accept accept4 execve execveat;
    own: recv send preadv2 pwritev2 ppoll pselect epoll_pwait epoll_pwait2 sigaction
}

/// Bytes of the kernel's signal set.
const MASK_BYTES: usize = 8;

unsafe extern "C" fn recv(fd: c_int, to: *mut u8, len: usize, flags: c_int) -> isize {
    // SAFETY: the caller's.
    sys::returned(unsafe { call!(recvfrom, fd, to, len, flags, 0, 0) })
}

unsafe extern "C" fn send(fd: c_int, from: *const u8, len: usize, flags: c_int) -> isize {
    // SAFETY: the caller's.
    sys::returned(unsafe { call!(sendto, fd, from, len, flags, 0, 0) })
}

/// The kernel takes the offset in two halves, of which the lower one is whole here.
unsafe extern "C" fn preadv2(fd: c_int, iov: usize, count: c_int, at: i64, flags: c_int) -> isize {
    // SAFETY: the caller's.
    sys::returned(unsafe { call!(preadv2, fd, iov, count, at, 0, flags) })
}

unsafe extern "C" fn pwritev2(fd: c_int, iov: usize, count: c_int, at: i64, flags: c_int) -> isize {
    // SAFETY: the caller's.
    sys::returned(unsafe { call!(pwritev2, fd, iov, count, at, 0, flags) })
}

/// A copy, as the kernel writes to it what is left.
///
/// # Safety
/// Null, or readable.
unsafe fn copy_of(timeout: *const TimeSpec) -> Option<TimeSpec> {
    // SAFETY: the caller's.
    unsafe { timeout.as_ref() }.copied()
}

fn address(timeout: &mut Option<TimeSpec>) -> *mut TimeSpec {
    timeout.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut)
}

unsafe extern "C" fn ppoll(fds: usize, count: u64, timeout: *const TimeSpec, mask: usize) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let mut left = copy_of(timeout);
        sys::returned(call!(ppoll, fds, count, address(&mut left), mask, MASK_BYTES))
    }
}

unsafe extern "C" fn pselect(
    count: c_int,
    read: usize,
    write: usize,
    except: usize,
    timeout: *const TimeSpec,
    mask: usize,
) -> isize {
    let mask = [mask, MASK_BYTES];
    // SAFETY: the caller's.
    unsafe {
        let mut left = copy_of(timeout);
        let left = address(&mut left);
        sys::returned(call!(pselect6, count, read, write, except, left, mask.as_ptr()))
    }
}

unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: usize,
    most: c_int,
    timeout: c_int,
    mask: usize,
) -> isize {
    // SAFETY: the caller's.
    sys::returned(unsafe { call!(epoll_pwait, set, events, most, timeout, mask, MASK_BYTES) })
}

unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: usize,
    most: c_int,
    timeout: usize,
    mask: usize,
) -> isize {
    // SAFETY: the caller's.
    sys::returned(unsafe { call!(epoll_pwait2, set, events, most, timeout, mask, MASK_BYTES) })
}

/// With a way back of this library's own where the program gives none.
unsafe extern "C" fn sigaction(signal: c_int, new: *const SigAction, old: *mut SigAction) -> isize {
    const SA_RESTORER: c_int = 0x0400_0000;
    // SAFETY: the caller's, and the kernel's struct sigaction: handler, flags, way back, mask.
    unsafe {
        let action = new.as_ref().map(|new| {
            let has_own = new.flags & SA_RESTORER != 0;
            let back =
                if has_own { new.restorer } else { yasmin_bare_return as *const () as usize };
            let flags = (new.flags | SA_RESTORER) as u32;
            [new.handler as u64, u64::from(flags), back as u64, new.mask[0]]
        });
        let mut before = [0u64; 4];
        let action = action.as_ref().map_or(core::ptr::null(), |action| action.as_ptr());
        let ret = call!(rt_sigaction, signal, action, before.as_mut_ptr(), MASK_BYTES);
        if let (0, Some(old)) = (ret, old.as_mut()) {
            let [handler, flags, restorer, mask] = before;
            let (handler, restorer) = (handler as usize, restorer as usize);
            *old = SigAction { handler, mask: [0; 16], flags: flags as c_int, restorer };
            old.mask[0] = mask;
        }
        sys::returned(ret)
    }
}

core::arch::global_asm!(
    // From a handler (rt_sigreturn). Unwinders know these very bytes.
    ".pushsection .text.yasmin_bare,\"ax\",@progbits",
    ".hidden yasmin_bare_return",
    ".globl yasmin_bare_return",
    "yasmin_bare_return:",
    "mov rax, 15",
    "syscall",
    // Where the block of a thread is, errno is behind its own address.
    ".hidden yasmin_bare_errno",
    ".globl yasmin_bare_errno",
    "yasmin_bare_errno:",
    "mov rax, gs:[0]",
    "add rax, 8",
    "ret",
    ".hidden yasmin_bare_memmove",
    ".globl yasmin_bare_memmove",
    "yasmin_bare_memmove:",
    "mov rax, rdi",
    "sub rax, rsi",
    "cmp rax, rdx",
    "jae yasmin_bare_memcpy",
    "mov rax, rdi",
    "test rdx, rdx",
    "jz 3f",
    // The destination begins inside the source: from the end on.
    "2:",
    "mov cl, [rsi + rdx - 1]",
    "mov [rdi + rdx - 1], cl",
    "dec rdx",
    "jnz 2b",
    "3:",
    "ret",
    ".hidden yasmin_bare_memcpy",
    ".globl yasmin_bare_memcpy",
    ".p2align 4",
    "yasmin_bare_memcpy:",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jb 5f",
    // The last 16 bytes, of which some were copied before.
    "movups xmm4, [rsi + rdx - 16]",
    "lea r8, [rdi + rdx - 16]",
    "cmp rdx, 64",
    "jbe 3f",
    ".p2align 4",
    "2:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "cmp rdx, 64",
    "ja 2b",
    "3:",
    "cmp rdx, 16",
    "jbe 4f",
    "movups xmm0, [rsi]",
    "movups [rdi], xmm0",
    "add rsi, 16",
    "add rdi, 16",
    "sub rdx, 16",
    "jmp 3b",
    "4:",
    "movups [r8], xmm4",
    "ret",
    "5:",
    "cmp edx, 8",
    "jb 6f",
    "mov rcx, [rsi]",
    "mov r8, [rsi + rdx - 8]",
    "mov [rdi], rcx",
    "mov [rdi + rdx - 8], r8",
    "ret",
    "6:",
    "cmp edx, 4",
    "jb 7f",
    "mov ecx, [rsi]",
    "mov r8d, [rsi + rdx - 4]",
    "mov [rdi], ecx",
    "mov [rdi + rdx - 4], r8d",
    "ret",
    "7:",
    "test edx, edx",
    "jz 8f",
    "mov cl, [rsi]",
    "mov [rdi], cl",
    "inc rsi",
    "inc rdi",
    "dec edx",
    "jmp 7b",
    "8:",
    "ret",
    ".hidden yasmin_bare_memset",
    ".globl yasmin_bare_memset",
    "yasmin_bare_memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    ".hidden yasmin_bare_bcmp",
    ".globl yasmin_bare_bcmp",
    "yasmin_bare_bcmp:",
    "xor eax, eax",
    "2:",
    "test rdx, rdx",
    "jz 3f",
    "mov al, [rsi + rdx - 1]",
    "xor al, [rdi + rdx - 1]",
    "jnz 3f",
    "dec rdx",
    "jmp 2b",
    "3:",
    "ret",
    ".hidden yasmin_bare_strlen",
    ".globl yasmin_bare_strlen",
    "yasmin_bare_strlen:",
    "xor eax, eax",
    "2:",
    "cmp byte ptr [rdi + rax], 0",
    "je 3f",
    "inc rax",
    "jmp 2b",
    "3:",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn yasmin_bare_return();
    pub fn yasmin_bare_errno();
    pub fn yasmin_bare_memcpy();
    pub fn yasmin_bare_memmove();
    pub fn yasmin_bare_memset();
    pub fn yasmin_bare_bcmp();
    pub fn yasmin_bare_strlen();
}
