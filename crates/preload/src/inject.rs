//! A Go program without libc, or a static one, which this process is about to become, has nothing that could load
//! the library.
//! `yasmin-inject`, from the library's own folder, does: it traces this thread until its exec is over.
//!
//! Storey 1: system.

use core::ffi::{CStr, c_char, c_int};

use crate::image::{self, Name, PATH_BYTES};
use crate::sys::{self, Sysno, call};
use crate::{environment, held, memory, process};

const STACK_BYTES: usize = 16 * 1024;
type Strings = *const *const c_char;

/// For so long the program waits at most.
const PATIENCE_MS: c_int = 2000;

/// The process that waits for the exec.
#[derive(Clone, Copy)]
pub struct Tracer(u32);

impl Tracer {
    /// The exec failed.
    pub fn cancel(self) {
        const SIGKILL: c_int = 9;
        // SAFETY: no memory involved.
        unsafe { call!(kill, self.0, SIGKILL) };
    }
}

/// Before this thread becomes the program `name`. `None`: it needs no such help, or cannot have it.
///
/// # Safety
/// As for exec.
pub unsafe fn before_exec(name: Name, environment: Strings) -> Option<Tracer> {
    // SAFETY: the caller's.
    if process::is_sandboxed() || !unsafe { image::is_alone(name, environment) } {
        return None;
    }
    // SAFETY: as above.
    unsafe { attend(environment) }
}

/// In a frame of its own: other programs come with little stack.
///
/// # Safety
/// As `before_exec`.
#[cold]
#[inline(never)]
unsafe fn attend(environment: Strings) -> Option<Tracer> {
    let (mut injector, mut library) = ([0u8; PATH_BYTES], [0u8; PATH_BYTES]);
    // SAFETY: the caller's.
    let own = unsafe { name_injector(environment, &mut injector) }?;
    put(&mut library, &[own])?;
    start(&injector, &library)
}

/// The injector's path, with a NUL, beside the library's, which is given.
///
/// # Safety
/// As for `environment::variable`.
unsafe fn name_injector<'a>(
    environment: Strings,
    injector: &mut [u8; PATH_BYTES],
) -> Option<&'a [u8]> {
    // SAFETY: the caller's.
    let own = unsafe { environment::preloaded(environment) }.and_then(image::own_path)?;
    let folder = &own[..own.iter().rposition(|byte| *byte == b'/')? + 1];
    put(injector, &[folder, b"yasmin-inject"])?;
    Some(own)
}

/// What is started in the place of a program that `is_alone`: `yasmin-inject --exec PATH ARGUMENTS...`, which becomes it
/// by a call that the library sees.
pub struct Stand {
    paths: *mut Paths,
    bytes: usize,
}

/// The arguments follow.
#[repr(C)]
struct Paths {
    injector: [u8; PATH_BYTES],
    path: [u8; PATH_BYTES],
}

impl Stand {
    /// `None`: the program is started as it is. It gets the library by itself, or nobody can give it to it.
    /// `searches`: as posix_spawnp. `moves`: the new process may look for relative paths elsewhere.
    ///
    /// # Safety
    /// As for posix_spawn.
    pub unsafe fn of(
        name: &CStr,
        searches: bool,
        moves: bool,
        arguments: Strings,
        environment: Strings,
    ) -> Option<Self> {
        const OWN: usize = 3;
        if process::is_sandboxed() {
            return None;
        }
        let given = |at: usize| memory::get(arguments.wrapping_add(at)).filter(|it| !it.is_null());
        let count = (0..).take_while(|&at| given(at).is_some()).count();
        let bytes = size_of::<Paths>() + (OWN + count + 1) * size_of::<*const c_char>();
        let stand = Self { paths: sys::map_private(bytes)?.cast(), bytes };
        // SAFETY: a mapping of ours, zeroed; the caller's strings.
        let (paths, all) = unsafe {
            let all = core::slice::from_raw_parts_mut(stand.arguments(), OWN + count);
            (&mut *stand.paths, all)
        };
        // SAFETY: the caller's strings.
        unsafe {
            if !image::finds_alone(name, searches, environment, &mut paths.path) {
                return None;
            }
            name_injector(environment, &mut paths.injector)?;
        }
        let is_elsewhere = moves && paths.path[0] != b'/';
        // SAFETY: a C string.
        let is_there =
            unsafe { call!(faccessat, sys::AT_FDCWD, paths.injector.as_ptr(), image::X_OK) } == 0;
        if is_elsewhere || !is_there {
            return None;
        }
        all[0] = paths.injector.as_ptr().cast();
        all[1] = c"--exec".as_ptr();
        all[2] = paths.path.as_ptr().cast();
        for (at, to) in all[OWN..].iter_mut().enumerate() {
            *to = given(at)?;
        }
        Some(stand)
    }

    pub fn path(&self) -> *const c_char {
        self.paths.cast()
    }

    pub fn arguments(&self) -> *mut *const c_char {
        // SAFETY: the mapping goes on behind the paths.
        unsafe { self.paths.add(1).cast() }
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { sys::unmap(self.paths.cast(), self.bytes) };
    }
}

/// Puts `parts` one behind the other, with a NUL.
fn put(to: &mut [u8; PATH_BYTES], parts: &[&[u8]]) -> Option<usize> {
    let mut len = 0;
    for part in parts {
        to.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    (len < PATH_BYTES).then_some(len)
}

/// What the child needs: it runs in this memory, on a stack of its own.
#[repr(C)]
struct Start {
    injector: *const u8,
    arguments: *const *const u8,
    environment: *const *const u8,
    pipe: c_int,
}

fn start(injector: &[u8], library: &[u8]) -> Option<Tracer> {
    // Any, as nobody knows the tracer's number yet; no more once it is there (Yama's ptrace_scope).
    const PR_SET_PTRACER: u32 = 0x5961_6d61;
    const ANYBODY: usize = usize::MAX;
    const NOBODY: usize = 0;
    let stack = sys::map_private(STACK_BYTES)?;
    let mut pipe = [0 as c_int; 2];
    // SAFETY: two numbers of ours; a mapping that nobody uses.
    unsafe {
        if call!(pipe2, pipe.as_mut_ptr(), sys::O_CLOEXEC) != 0 {
            sys::unmap(stack, STACK_BYTES);
            return None;
        }
    }
    let thread = decimal(sys::gettid());
    let arguments = [injector.as_ptr(), thread.as_ptr(), library.as_ptr(), core::ptr::null()];
    let environment = [core::ptr::null()];
    let start = Start {
        injector: injector.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        pipe: pipe[1],
    };
    // The child would run this process's handlers in its memory.
    let mask = held::block_all();
    // SAFETY: the child has what it needs until it is another program or gone.
    unsafe {
        call!(prctl, PR_SET_PTRACER, ANYBODY);
        let child = spawn(&raw const start, stack.add(STACK_BYTES));
        if child > 0 {
            wait_for(child);
        }
    }
    sys::close(pipe[1]);
    let tracer = answer(pipe[0]);
    sys::close(pipe[0]);
    held::set_mask(mask);
    // SAFETY: the child is gone.
    unsafe {
        call!(prctl, PR_SET_PTRACER, NOBODY);
        sys::unmap(stack, STACK_BYTES);
    }
    tracer
}

/// Its number, once it traces.
fn answer(pipe: c_int) -> Option<Tracer> {
    let mut poll = sys::PollFd { fd: pipe, events: sys::POLLIN, revents: 0 };
    let mut pid = 0u32;
    // SAFETY: variables of ours.
    let len = unsafe {
        call!(poll, &raw mut poll, 1, PATIENCE_MS);
        if poll.revents == 0 { 0 } else { call!(read, pipe, &raw mut pid, size_of::<u32>()) }
    };
    (len == 4).then_some(Tracer(pid))
}

/// It tells nobody of its end, so no wait of the program's finds it.
fn wait_for(child: isize) {
    const WAIT_CLONE: u32 = 0x8000_0000;
    // SAFETY: nothing is written.
    while unsafe { call!(wait4, child, 0, WAIT_CLONE, 0) } == -(sys::EINTR as isize) {}
}

/// With a NUL.
fn decimal(number: u32) -> [u8; 11] {
    let mut digits = [b'0'; 11];
    digits[10] = 0;
    let mut left = number;
    for digit in digits[..10].iter_mut().rev() {
        *digit += (left % 10) as u8;
        left /= 10;
    }
    digits
}

/// A child in this memory that makes another one, which becomes the injector with the pipe as its output: a
/// child that calls exec would tell of its end, and this one does not.
#[unsafe(naked)]
unsafe extern "C" fn spawn(start: *const Start, stack: *mut u8) -> isize {
    core::arch::naked_asm!(
        "mov r9, rdi",
        "mov eax, {clone}",
        "mov edi, {vm_and_vfork}",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        // The same stack, of which neither uses anything.
        "2:",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jnz 3f",
        "mov eax, {dup3}",
        "mov edi, [r9 + {pipe}]",
        "mov esi, 1",
        "xor edx, edx",
        "syscall",
        "mov eax, {execve}",
        "mov rdi, [r9 + {injector}]",
        "mov rsi, [r9 + {arguments}]",
        "mov rdx, [r9 + {environment}]",
        "syscall",
        "3:",
        "mov eax, {exit}",
        "xor edi, edi",
        "syscall",
        "ud2",
        clone = const Sysno::clone as usize,
        vm_and_vfork = const 0x4100,
        dup3 = const Sysno::dup3 as usize,
        execve = const Sysno::execve as usize,
        exit = const Sysno::exit_group as usize,
        pipe = const core::mem::offset_of!(Start, pipe),
        injector = const core::mem::offset_of!(Start, injector),
        arguments = const core::mem::offset_of!(Start, arguments),
        environment = const core::mem::offset_of!(Start, environment),
    )
}
