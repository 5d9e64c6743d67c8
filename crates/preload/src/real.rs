//! libc's own entries, behind the ones that this library puts in front of them.
//!
//! Storey 1: system.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::bare;
use crate::sys::{
    self, AioRequest, EpollEvent, IoVec, MMsgHdr, MsgHdr, PollFd, SigAction, TimeSpec,
};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// What the library is linked with: each name stands for libc's, and is null where a program has the
/// library and no libc. (Go's linker makes such programs. Without this the dynamic linker would end them.)
macro_rules! linked {
    ($($name:ident)*) => {
        $(core::arch::global_asm!(
            concat!(".weak __real_", stringify!($name)),
            concat!(".globl __wrap_", stringify!($name)),
            concat!(".hidden __wrap_", stringify!($name)),
            concat!(".type __wrap_", stringify!($name), ", @function"),
            concat!("__wrap_", stringify!($name), ":"),
            concat!("jmp qword ptr [rip + __real_", stringify!($name), "@GOTPCREL]"),
        );)*
    };
}

linked! { memcpy memmove memset bcmp strlen __errno_location }

/// Whether there is a libc. Without one nothing of this library can run.
pub fn is_there() -> bool {
    let at: usize;
    // SAFETY: an address; null where there is none.
    unsafe {
        core::arch::asm!(
            "mov {at}, [rip + __real_memcpy@GOTPCREL]",
            at = out(reg) at,
            options(nostack, pure, readonly),
        );
    }
    at != 0
}

const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

/// The next definition of `name` (NUL-terminated) after this library's; null if there is none.
pub fn next(name: &[u8]) -> *mut c_void {
    debug_assert!(name.last() == Some(&0));
    // SAFETY: `name` is NUL-terminated.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr().cast()) }
}

/// The first definition of `name`, in the program itself for variables that it copied.
pub fn anywhere(name: &[u8]) -> *mut c_void {
    debug_assert!(name.last() == Some(&0));
    // SAFETY: `name` is NUL-terminated; null is RTLD_DEFAULT.
    unsafe { dlsym(core::ptr::null_mut(), name.as_ptr().cast()) }
}

static TESTCANCEL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// libc's pthread_testcancel; does not return in a thread that was cancelled.
#[cold]
pub fn testcancel() {
    let at = TESTCANCEL.load(Ordering::Relaxed);
    if !at.is_null() {
        // SAFETY: libc's function of this signature.
        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn()>(at)() }
    }
}

static FREE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Gives back what a function of libc's allocated for its caller: by the program's own `free`, as its malloc is called.
pub fn free(memory: *mut c_void) {
    let mut at = FREE.load(Ordering::Relaxed);
    if at.is_null() {
        at = anywhere(b"free\0");
        FREE.store(at, Ordering::Relaxed);
    }
    if !at.is_null() {
        // SAFETY: `free` of the malloc that it is from.
        unsafe {
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(at)(memory)
        }
    }
}

static SETCANCELSTATE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static SETCANCELTYPE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// PTHREAD_CANCEL_DISABLE.
pub const CANCEL_DISABLE: c_int = 1;
/// PTHREAD_CANCEL_DEFERRED.
pub const CANCEL_DEFERRED: c_int = 0;

/// libc's function at `slot`, which sets something of this thread and gives what it was. `None`: libc
/// has no threads loaded.
fn set_of_thread(slot: &AtomicPtr<c_void>, value: c_int) -> Option<c_int> {
    let at = slot.load(Ordering::Relaxed);
    let mut before = 0;
    if at.is_null() {
        return None;
    }
    // SAFETY: libc's function of this signature.
    let set: unsafe extern "C-unwind" fn(c_int, *mut c_int) -> c_int =
        unsafe { core::mem::transmute(at) };
    // SAFETY: it writes to a variable of ours.
    (unsafe { set(value, &raw mut before) } == 0).then_some(before)
}

/// libc's function of this name, or what stands for it where there is no libc.
fn entry(name: &[u8]) -> *mut c_void {
    if bare::is() { bare::function(name) } else { next(name) }
}

/// Which libc it is.
pub struct Libc {
    is_musl: AtomicBool,
}

pub static LIBC: Libc = Libc { is_musl: AtomicBool::new(false) };

impl Libc {
    fn find(&self) {
        let is_musl = !bare::is() && next(b"gnu_get_libc_version\0").is_null();
        self.is_musl.store(is_musl, Ordering::Relaxed);
    }

    pub fn is_musl(&self) -> bool {
        self.is_musl.load(Ordering::Relaxed)
    }

    /// The signal that it cancels threads with.
    pub fn cancels_by(&self) -> c_int {
        if self.is_musl() { 33 } else { 32 }
    }

    /// The signal that has all threads do something.
    pub fn calls_all_by(&self) -> c_int {
        self.cancels_by() + 1
    }
}

/// libc's pthread_setcancelstate. Gives the state before.
pub fn set_cancel_state(state: c_int) -> Option<c_int> {
    set_of_thread(&SETCANCELSTATE, state)
}

/// libc's pthread_setcanceltype. Gives the type before.
pub fn set_cancel_type(kind: c_int) -> Option<c_int> {
    set_of_thread(&SETCANCELTYPE, kind)
}

/// Makes a thread and has libc cancel it, so that libc's handler for cancelling is installed: it does so
/// when it cancels the first. Whether it has done that.
#[cold]
pub fn cancels_one() -> bool {
    type Create = unsafe extern "C" fn(
        *mut usize,
        *const c_void,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    extern "C" fn run(pause: *mut c_void) -> *mut c_void {
        // SAFETY: libc's pause.
        let pause: unsafe extern "C-unwind" fn() -> c_int = unsafe { core::mem::transmute(pause) };
        loop {
            // SAFETY: as above; it is a cancellation point.
            unsafe { pause() };
        }
    }
    let (create, cancel) = (next(b"pthread_create\0"), next(b"pthread_cancel\0"));
    let (join, pause) = (next(b"pthread_join\0"), next(b"pause\0"));
    if create.is_null() || cancel.is_null() || join.is_null() || pause.is_null() {
        return false;
    }
    let mut thread = 0usize;
    // SAFETY: libc's functions have these signatures, and the thread is joined once.
    unsafe {
        let create: Create = core::mem::transmute(create);
        let cancel: unsafe extern "C" fn(usize) -> c_int = core::mem::transmute(cancel);
        let join: unsafe extern "C" fn(usize, *mut *mut c_void) -> c_int =
            core::mem::transmute(join);
        create(&raw mut thread, core::ptr::null(), run, pause) == 0
            && cancel(thread) == 0
            && join(thread, core::ptr::null_mut()) == 0
    }
}

macro_rules! entries {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        mod slots {
            use super::*;
            $(#[allow(non_upper_case_globals)]
            pub static $name: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());)*
        }

        /// Looks all of them up, so that no lookup happens in a signal handler later.
        pub fn resolve() {
            LIBC.find();
            TESTCANCEL.store(next(b"pthread_testcancel\0"), Ordering::Relaxed);
            SETCANCELSTATE.store(next(b"pthread_setcancelstate\0"), Ordering::Relaxed);
            SETCANCELTYPE.store(next(b"pthread_setcanceltype\0"), Ordering::Relaxed);
            $(slots::$name.store(entry(concat!(stringify!($name), "\0").as_bytes()), Ordering::Relaxed);)*
        }

        $(
        /// libc's function of this name.
        ///
        /// # Safety
        /// As for libc's function.
        #[allow(non_snake_case)]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            let mut at = slots::$name.load(Ordering::Relaxed);
            if at.is_null() {
                // Called before this library's constructor ran.
                at = entry(concat!(stringify!($name), "\0").as_bytes());
                if at.is_null() {
                    sys::set_errno(sys::ENOSYS);
                    return -1 as _;
                }
                slots::$name.store(at, Ordering::Relaxed);
            }
            // SAFETY: libc's definition has this signature.
            unsafe {
                let entry: unsafe extern "C" fn($($ty),*) -> $ret = core::mem::transmute(at);
                entry($($arg),*)
            }
        }
        )*
    };
}

entries! {
    read(fd: c_int, buf: *mut u8, len: usize) -> isize;
    write(fd: c_int, buf: *const u8, len: usize) -> isize;
    readv(fd: c_int, iov: *const IoVec, count: c_int) -> isize;
    writev(fd: c_int, iov: *const IoVec, count: c_int) -> isize;
    preadv2(fd: c_int, iov: *const IoVec, count: c_int, offset: i64, flags: c_int) -> isize;
    pwritev2(fd: c_int, iov: *const IoVec, count: c_int, offset: i64, flags: c_int) -> isize;
    recv(fd: c_int, buf: *mut u8, len: usize, flags: c_int) -> isize;
    send(fd: c_int, buf: *const u8, len: usize, flags: c_int) -> isize;
    recvfrom(fd: c_int, buf: *mut u8, len: usize, flags: c_int, addr: *mut c_void, addrlen: *mut u32) -> isize;
    sendto(fd: c_int, buf: *const u8, len: usize, flags: c_int, addr: *const c_void, addrlen: u32) -> isize;
    recvmsg(fd: c_int, msg: *mut MsgHdr, flags: c_int) -> isize;
    sendmsg(fd: c_int, msg: *const MsgHdr, flags: c_int) -> isize;
    recvmmsg(fd: c_int, msgs: *mut MMsgHdr, count: u32, flags: c_int, timeout: *mut TimeSpec) -> c_int;
    sendmmsg(fd: c_int, msgs: *mut MMsgHdr, count: u32, flags: c_int) -> c_int;
    sendfile(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize;
    splice(from: c_int, off_in: *mut i64, to: c_int, off_out: *mut i64, len: usize, flags: u32) -> isize;
    poll(fds: *mut PollFd, count: u64, timeout: c_int) -> c_int;
    ppoll(fds: *mut PollFd, count: u64, timeout: *const TimeSpec, mask: *const c_void) -> c_int;
    select(count: c_int, read: *mut u64, write: *mut u64, except: *mut u64, timeout: *mut TimeSpec) -> c_int;
    pselect(count: c_int, read: *mut u64, write: *mut u64, except: *mut u64, timeout: *const TimeSpec, mask: *const c_void) -> c_int;
    epoll_create(size: c_int) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    epoll_ctl(set: c_int, op: c_int, fd: c_int, event: *mut EpollEvent) -> c_int;
    epoll_wait(set: c_int, events: *mut EpollEvent, max: c_int, timeout: c_int) -> c_int;
    epoll_pwait(set: c_int, events: *mut EpollEvent, max: c_int, timeout: c_int, mask: *const c_void) -> c_int;
    epoll_pwait2(set: c_int, events: *mut EpollEvent, max: c_int, timeout: *const TimeSpec, mask: *const c_void) -> c_int;
    fileno(stream: *mut c_void) -> c_int;
    fflush(stream: *mut c_void) -> c_int;
    vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
    __vasprintf_chk(text: *mut *mut c_char, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    kill(process: c_int, signal: c_int) -> c_int;
    sigqueue(process: c_int, signal: c_int, value: *mut c_void) -> c_int;
    eventfd_write(fd: c_int, value: u64) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: u32, last: u32, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(from: c_int, to: c_int) -> c_int;
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int;
    ioctl(fd: c_int, request: usize, arg: usize) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut u32) -> c_int;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    connect(fd: c_int, addr: *const c_void, len: u32) -> c_int;
    getsockname(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int;
    getpeername(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int;
    accept(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int;
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execveat(folder: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
    posix_spawn(child: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawnp(child: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawnattr_getflags(attributes: *const c_void, flags: *mut i16) -> c_int;
    accept4(fd: c_int, addr: *mut c_void, len: *mut u32, flags: c_int) -> c_int;
    aio_read(request: *mut AioRequest) -> c_int;
    aio_read64(request: *mut AioRequest) -> c_int;
    aio_write(request: *mut AioRequest) -> c_int;
    aio_write64(request: *mut AioRequest) -> c_int;
    lio_listio(mode: c_int, list: *const *mut AioRequest, count: c_int, event: *const u8) -> c_int;
    lio_listio64(mode: c_int, list: *const *mut AioRequest, count: c_int, event: *const u8) -> c_int;
    _Fork() -> c_int;
    clone(run: Option<extern "C" fn(*mut c_void) -> c_int>, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_int, block: *mut c_void, child: *mut c_int) -> c_int;
    sigaction(signal: c_int, new: *const SigAction, old: *mut SigAction) -> c_int;
    signal(signal: c_int, handler: usize) -> usize;
    bsd_signal(signal: c_int, handler: usize) -> usize;
    ssignal(signal: c_int, handler: usize) -> usize;
    sysv_signal(signal: c_int, handler: usize) -> usize;
    __sysv_signal(signal: c_int, handler: usize) -> usize;
    sigset(signal: c_int, handler: usize) -> usize;
    siginterrupt(signal: c_int, interrupts: c_int) -> c_int;
}
