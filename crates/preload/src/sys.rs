//! System calls, made directly, and the few numbers of the kernel's ABI that are needed.
//!
//! Storey 1: system.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

pub use syscalls::Sysno;
use syscalls::raw;
use yasmin_channel::region::{self, Filling};

use crate::thread::by_block;

/// Result of a raw system call: 0 or more, or minus errno.
pub type Ret = isize;

pub const ESRCH: i32 = 3;
pub const EINTR: i32 = 4;
pub const EBADF: i32 = 9;
pub const EAGAIN: i32 = 11;
pub const EFAULT: i32 = 14;
pub const EEXIST: i32 = 17;
pub const EINVAL: i32 = 22;
pub const ENOSYS: i32 = 38;
pub const ECONNRESET: i32 = 104;
pub const ETIMEDOUT: i32 = 110;

pub const MSG_OOB: c_int = 1;
pub const MSG_PEEK: c_int = 2;
pub const MSG_CTRUNC: c_int = 8;
pub const MSG_TRUNC: c_int = 0x20;
pub const MSG_DONTWAIT: c_int = 0x40;
pub const MSG_WAITALL: c_int = 0x100;
pub const MSG_ERRQUEUE: c_int = 0x2000;
pub const MSG_NOSIGNAL: c_int = 0x4000;
pub const MSG_MORE: c_int = 0x8000;
pub const MSG_WAITFORONE: c_int = 0x10000;
pub const MSG_ZEROCOPY: c_int = 0x0400_0000;
pub const MSG_FASTOPEN: c_int = 0x2000_0000;
pub const MSG_CMSG_CLOEXEC: c_int = 0x4000_0000;

pub const POLLIN: i16 = 1;
pub const POLLPRI: i16 = 2;
pub const POLLOUT: i16 = 4;
pub const POLLERR: i16 = 8;
pub const POLLHUP: i16 = 0x10;
pub const POLLRDNORM: i16 = 0x40;
pub const POLLWRNORM: i16 = 0x100;
pub const POLLRDHUP: i16 = 0x2000;

pub const SOL_SOCKET: c_int = 1;
pub const SO_RCVLOWAT: c_int = 18;
pub const SO_PEEK_OFF: c_int = 42;
pub const SO_LINGER: c_int = 13;
/// struct linger { l_onoff: 1, l_linger: 0 }: the close is a reset.
pub const LINGER_0: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];
pub const SO_RCVTIMEO: c_int = 20;
pub const SO_SNDTIMEO: c_int = 21;
pub const SO_PEERCRED: c_int = 17;
pub const SO_ATTACH_FILTER: c_int = 26;
pub const SO_DETACH_FILTER: c_int = 27;
pub const SO_PROTOCOL: c_int = 38;
pub const SO_DOMAIN: c_int = 39;
pub const SO_COOKIE: c_int = 57;
pub const SOL_TCP: c_int = 6;
pub const TCP_NODELAY: c_int = 1;
pub const TCP_CORK: c_int = 3;
pub const TCP_INFO: c_int = 11;
pub const TCP_ULP: c_int = 31;
pub const TCP_ZEROCOPY_RECEIVE: c_int = 35;
pub const TCP_INQ: c_int = 36;
pub const IPPROTO_TCP: c_int = 6;

pub const F_DUPFD: c_int = 0;
pub const F_GETFD: c_int = 1;
pub const F_SETFD: c_int = 2;
pub const F_GETFL: c_int = 3;
pub const F_SETFL: c_int = 4;
pub const F_DUPFD_CLOEXEC: c_int = 1030;
pub const O_NONBLOCK: c_int = 0o4000;
pub const FD_CLOEXEC: c_int = 1;
pub const FIONREAD: usize = 0x541b;
pub const FIONBIO: usize = 0x5421;
pub const SIOCATMARK: usize = 0x8905;
pub const SIOCOUTQ: usize = 0x5411;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct IoVec {
    pub base: *mut u8,
    pub len: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MsgHdr {
    pub name: *mut c_void,
    pub namelen: u32,
    pub iov: *mut IoVec,
    pub iovlen: usize,
    pub control: *mut c_void,
    pub controllen: usize,
    pub flags: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MMsgHdr {
    pub hdr: MsgHdr,
    pub len: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PollFd {
    pub fd: c_int,
    pub events: i16,
    pub revents: i16,
}

#[repr(C, packed)]
#[derive(Clone, Copy)]
pub struct EpollEvent {
    pub events: u32,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct TimeSpec {
    pub sec: i64,
    pub nsec: i64,
}

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

pub fn set_errno(errno: i32) {
    // SAFETY: libc's thread-local errno, valid for the thread's life.
    unsafe { *__errno_location() = errno }
}

pub fn errno() -> i32 {
    // SAFETY: as above.
    unsafe { *__errno_location() }
}

/// Turns a raw result into what libc's functions return.
pub fn returned(ret: Ret) -> isize {
    if ret < 0 {
        set_errno(-ret as i32);
        return -1;
    }
    ret
}

macro_rules! call {
    ($nr:ident) => { $crate::sys::call6($crate::sys::Sysno::$nr, 0, 0, 0, 0, 0, 0) };
    ($nr:ident, $a:expr) => { $crate::sys::call6($crate::sys::Sysno::$nr, $a as usize, 0, 0, 0, 0, 0) };
    ($nr:ident, $a:expr, $b:expr) => { $crate::sys::call6($crate::sys::Sysno::$nr, $a as usize, $b as usize, 0, 0, 0, 0) };
    ($nr:ident, $a:expr, $b:expr, $c:expr) => { $crate::sys::call6($crate::sys::Sysno::$nr, $a as usize, $b as usize, $c as usize, 0, 0, 0) };
    ($nr:ident, $a:expr, $b:expr, $c:expr, $d:expr) => { $crate::sys::call6($crate::sys::Sysno::$nr, $a as usize, $b as usize, $c as usize, $d as usize, 0, 0) };
    ($nr:ident, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => { $crate::sys::call6($crate::sys::Sysno::$nr, $a as usize, $b as usize, $c as usize, $d as usize, $e as usize, 0) };
    ($nr:ident, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => { $crate::sys::call6($crate::sys::Sysno::$nr, $a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize) };
}
pub(crate) use call;

/// A system call with its arguments as they are.
///
/// # Safety
/// As the system call demands of its pointers.
pub unsafe fn call6(nr: Sysno, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Ret {
    // SAFETY: the caller vouches for what the call does.
    unsafe { raw::syscall6(nr, a, b, c, d, e, f) as Ret }
}

pub fn abort() -> ! {
    loop {
        // SAFETY: kill and exit_group touch no memory.
        unsafe {
            let pid = call!(getpid);
            call!(kill, pid, 6);
            call!(exit_group, 134);
        }
    }
}

/// 0: the parent is in another PID namespace.
pub fn getppid() -> u32 {
    // SAFETY: no memory involved.
    unsafe { call!(getppid) as u32 }
}

/// Whether two numbers of process `me`, this one, name one open file. False as well where nobody says so.
pub fn is_same_file(me: u32, one: c_int, other: c_int) -> bool {
    const KCMP_FILE: usize = 0;
    // SAFETY: no memory involved.
    unsafe { call!(kcmp, me as usize, me as usize, KCMP_FILE, one, other) == 0 }
}

pub fn getpid() -> u32 {
    // SAFETY: no memory involved.
    unsafe { call!(getpid) as u32 }
}

pub fn gettid() -> u32 {
    // SAFETY: no memory involved.
    unsafe { call!(gettid) as u32 }
}

/// A bit for each signal that this thread blocks. Signal 1 is the lowest.
pub fn blocked_signals() -> Option<u64> {
    let mut blocked = 0u64;
    // SAFETY: eight bytes of ours; nothing changes.
    let ret = unsafe { call!(rt_sigprocmask, 0, 0, &raw mut blocked, size_of::<u64>()) };
    (ret == 0).then_some(blocked)
}

pub fn sched_yield() {
    // SAFETY: no memory involved.
    unsafe { call!(sched_yield) };
}

/// How often this thread has lost its CPU to another one that was ready.
pub fn involuntary_switches() -> u64 {
    const RUSAGE_THREAD: c_int = 1;
    /// struct rusage: two times of two words, and fourteen counters; the last one is ru_nivcsw.
    const WORDS: usize = 18;
    let mut usage = [0_u64; WORDS];
    // SAFETY: the kernel fills `usage`.
    unsafe { call!(getrusage, RUSAGE_THREAD, &raw mut usage) };
    usage[WORDS - 1]
}

pub fn close(fd: c_int) -> Ret {
    // SAFETY: closes a descriptor; nothing else.
    unsafe { call!(close, fd) }
}

/// Zeroed private pages, touched lazily; `None` when the kernel has none.
pub fn map_private(len_bytes: usize) -> Option<*mut u8> {
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
    map_anonymous(len_bytes, PRIVATE_ANONYMOUS_NORESERVE)
}

/// Zeroed pages that children of fork share.
pub fn map_fork_shared(len_bytes: usize) -> Option<*mut u8> {
    const SHARED_ANONYMOUS: usize = 0x01 | 0x20;
    map_anonymous(len_bytes, SHARED_ANONYMOUS)
}

fn map_anonymous(len_bytes: usize, flags: usize) -> Option<*mut u8> {
    // SAFETY: no file, and no fixed address.
    let at = unsafe { region::map_pages(len_bytes, flags, -1, 0, filling(len_bytes)) };
    at.ok().map(NonNull::as_ptr)
}

/// The program has all that is mapped from now on locked (MCL_FUTURE).
static LOCKS_ALL: AtomicBool = AtomicBool::new(false);

/// The program called mlockall.
pub fn locks_all(flags: c_int) {
    const MCL_FUTURE: c_int = 2;
    LOCKS_ALL.store(flags & MCL_FUTURE != 0, Ordering::Relaxed);
}

/// How so much memory is mapped. Where the program has its memory locked, a large mapping is
/// neither filled at once nor locked: it takes memory as it is used, as TCP's buffers do, and
/// nothing of what the program may lock.
pub fn filling(len_bytes: usize) -> Filling {
    /// What is larger would cost a program that locks its memory more than it uses.
    const LOCKED_MAX_BYTES: usize = 64 * 1024;
    if len_bytes > LOCKED_MAX_BYTES && LOCKS_ALL.load(Ordering::Relaxed) {
        Filling::AsUsed
    } else {
        Filling::Usual
    }
}

/// The soft limit on descriptors' numbers.
pub fn descriptor_limit() -> usize {
    limits(RLIMIT_NOFILE)[0] as usize
}

/// The soft limit on bytes of the process's mappings.
pub fn address_space_limit() -> u64 {
    limits(RLIMIT_AS)[0]
}

pub const O_CLOEXEC: c_int = 0o2000000;
/// Where a path that is not absolute begins: the working directory.
pub const AT_FDCWD: c_int = -100;

const RLIMIT_NOFILE: c_int = 7;
const RLIMIT_AS: c_int = 9;
const RLIMIT_FSIZE: c_int = 1;

/// Soft and hard.
fn limits(which: c_int) -> [u64; 2] {
    let mut limits = [0u64; 2];
    // SAFETY: two words of ours.
    unsafe { call!(prlimit64, 0, which, 0, limits.as_mut_ptr()) };
    limits
}

/// The hard limit on the size of a file that the process writes.
pub fn file_limit() -> u64 {
    limits(RLIMIT_FSIZE)[1]
}

/// Whether the process may write a file of so many bytes. Beyond its limit the kernel would end the program
/// (SIGXFSZ).
pub fn allows_file_of(len_bytes: usize) -> bool {
    len_bytes as u64 <= limits(RLIMIT_FSIZE)[0]
}

/// Makes a file of `len_bytes`, where the limit on files' sizes allows that or may be raised so far.
/// Beyond it the kernel would end the program (SIGXFSZ).
pub fn with_file_of<T>(len_bytes: usize, make: impl FnOnce() -> Option<T>) -> Option<T> {
    let before = limits(RLIMIT_FSIZE);
    if len_bytes as u64 <= before[0] {
        return make();
    }
    let set = |limits: [u64; 2]| {
        // SAFETY: two words of ours.
        unsafe { call!(prlimit64, 0, RLIMIT_FSIZE, limits.as_ptr(), 0) == 0 }
    };
    // The hard limit root alone may raise.
    let raised = [len_bytes as u64, before[1].max(len_bytes as u64)];
    if !set(raised) {
        return None;
    }
    let made = make();
    set(before);
    made
}

/// # Safety
/// Nobody uses the range any more.
pub unsafe fn unmap(at: *mut u8, len_bytes: usize) {
    // SAFETY: the caller vouches for the range.
    unsafe { call!(munmap, at, len_bytes) };
}

pub fn getsockopt_u64(fd: c_int, level: c_int, name: c_int, len_bytes: u32) -> Option<u64> {
    let mut value = 0u64;
    let mut len = len_bytes;
    // SAFETY: value and len are ours and outlive the call; len_bytes <= 8.
    let ret = unsafe { call!(getsockopt, fd, level, name, &raw mut value, &raw mut len) };
    (ret >= 0).then_some(value)
}

pub fn setsockopt_bytes(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Ret {
    // SAFETY: the kernel reads `value` only.
    unsafe { call!(setsockopt, fd, level, name, value.as_ptr(), value.len()) }
}

/// An ioctl that gives an int; 0 where it fails.
pub fn int_ioctl(fd: c_int, request: usize) -> c_int {
    let mut value: c_int = 0;
    // SAFETY: the kernel writes one int.
    unsafe { call!(ioctl, fd, request, &raw mut value) };
    value
}

/// poll of one descriptor that does not wait; returns revents.
pub fn poll_now(fd: c_int, events: i16) -> i16 {
    let mut one = PollFd { fd, events, revents: 0 };
    // SAFETY: one pollfd of ours.
    let ret = unsafe { call!(poll, &raw mut one, 1, 0) };
    if ret > 0 { one.revents } else { 0 }
}

/// The thread pointer: a number that no other thread of the process has.
pub fn thread_pointer() -> u64 {
    let me: u64;
    // SAFETY: the first word of the thread block points to itself on x86-64 (psABI TLS).
    unsafe {
        core::arch::asm!(
            by_block!(),
            "mov {}, fs:[0]",
            out(reg) me,
            options(nostack, readonly, preserves_flags)
        );
    };
    me
}

/// libc's struct aiocb, as glibc and musl have it.
#[repr(C)]
pub struct AioRequest {
    pub fd: c_int,
    pub opcode: c_int,
    pub priority: c_int,
    pub buf: *mut u8,
    pub len: usize,
    pub value: usize,
    pub signal: c_int,
    pub notify: c_int,
    pub _notify: [u64; 6],
    pub _private: [u64; 2],
    pub error: c_int,
    pub ret: isize,
}

const _: () = assert!(core::mem::offset_of!(AioRequest, error) == 112);

/// libc's struct sigaction.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SigAction {
    pub handler: usize,
    pub mask: [u64; 16],
    pub flags: c_int,
    pub restorer: usize,
}
