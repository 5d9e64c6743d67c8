//! syscall(2): a call by its number that concerns a descriptor of ours goes where the call by
//! its name goes. libuv closes everything that way.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::Ordering;

use super::{aio, descriptor, mapping, program, signal, stream, wait};
use crate::process::Uncancelled;
use crate::sys::{self, F_DUPFD, F_DUPFD_CLOEXEC, Sysno, call};
use crate::{bare, config, elsewhere, fault, fork, handover, memory, promote, table, text};

macro_rules! numbers {
    ($($name:ident = $call:ident;)*) => {
        $(const $name: c_long = Sysno::$call as c_long;)*

        /// For each number: 0 where `concerns` need not be asked, `BY_ENTRY`, or another one.
        pub static MAY_CONCERN: [u8; NUMBERS] = {
            let mut may = [0; NUMBERS];
            $(may[$name as usize] = if is_by_entry($name) { BY_ENTRY } else { 1 };)*
            may
        };
    };
}

/// One more than the highest number that anybody asks for.
pub const NUMBERS: usize = 512;

numbers! {
    READ = read;
    RT_SIGACTION = rt_sigaction;
    RT_SIGPROCMASK = rt_sigprocmask;
    WRITE = write;
    CLOSE = close;
    POLL = poll;
    MMAP = mmap;
    IOCTL = ioctl;
    READV = readv;
    WRITEV = writev;
    SELECT = select;
    DUP = dup;
    DUP2 = dup2;
    SENDFILE = sendfile;
    SOCKET = socket;
    CONNECT = connect;
    ACCEPT = accept;
    SENDTO = sendto;
    RECVFROM = recvfrom;
    SENDMSG = sendmsg;
    RECVMSG = recvmsg;
    SHUTDOWN = shutdown;
    GETSOCKNAME = getsockname;
    GETPEERNAME = getpeername;
    SETSOCKOPT = setsockopt;
    GETSOCKOPT = getsockopt;
    EXECVE = execve;
    FCNTL = fcntl;
    EPOLL_CREATE = epoll_create;
    EPOLL_WAIT = epoll_wait;
    EPOLL_CTL = epoll_ctl;
    PPOLL = ppoll;
    EPOLL_PWAIT = epoll_pwait;
    ACCEPT4 = accept4;
    EPOLL_CREATE1 = epoll_create1;
    DUP3 = dup3;
    RECVMMSG = recvmmsg;
    SENDMMSG = sendmmsg;
    EXECVEAT = execveat;
    SPLICE = splice;
    PSELECT = pselect6;
    IO_SUBMIT = io_submit;
    PIDFD_GETFD = pidfd_getfd;
    FORK = fork;
    VFORK = vfork;
    CLONE = clone;
    CLONE3 = clone3;
    PREADV2 = preadv2;
    PWRITEV2 = pwritev2;
    CLOSE_RANGE = close_range;
    EPOLL_PWAIT2 = epoll_pwait2;
    IO_URING_SETUP = io_uring_setup;
    PRCTL = prctl;
    SECCOMP = seccomp;
    UNSHARE = unshare;
    MLOCKALL = mlockall;
    EXIT_GROUP = exit_group;
}

/// Where there is libc, such a call concerns the library if its first argument is a descriptor with an entry.
pub const BY_ENTRY: u8 = 2;

const fn is_by_entry(number: c_long) -> bool {
    matches!(
        number,
        READ | WRITE
            | READV
            | WRITEV
            | PREADV2
            | PWRITEV2
            | SENDTO
            | RECVFROM
            | SENDFILE
            | IOCTL
            | SHUTDOWN
            | GETSOCKNAME
            | GETPEERNAME
            | SETSOCKOPT
            | GETSOCKOPT
            | EPOLL_WAIT
            | EPOLL_PWAIT
            | EPOLL_PWAIT2
    )
}

const SECCOMP_SET_MODE_STRICT: c_long = 0;
const SECCOMP_SET_MODE_FILTER: c_long = 1;

/// Whether `take` is to carry out call `number` with these first arguments.
pub extern "C" fn concerns(number: c_long, first: c_long, second: c_long, third: c_long) -> bool {
    match number {
        // Its requests would pass this library by.
        IO_URING_SETUP => {
            let is_refused = config::ALLOW_IO_URING.load(Ordering::Relaxed) == 0;
            if !is_refused {
                text::may_make_uring();
            }
            is_refused
        }
        SECCOMP => {
            // What can only fail asks for what the kernel knows.
            let may_be = match first {
                SECCOMP_SET_MODE_STRICT => second == 0,
                SECCOMP_SET_MODE_FILTER => third != 0,
                _ => false,
            };
            if may_be {
                promote::enter_sandbox();
            }
            false
        }
        UNSHARE => {
            handover::before_unshare(first as c_int);
            false
        }
        PRCTL => {
            program::before_prctl(first as c_int, second, third);
            false
        }
        // Written elsewhere, it is a step that receivers of ring bytes are told of.
        WRITE | WRITEV | SENDTO if bare::is() && elsewhere::is_told() => true,
        _ if is_by_entry(number) => table::raw(first as c_int) != 0,
        RT_SIGPROCMASK => {
            fault::before_masking();
            false
        }
        // Whatever the descriptor is: messages carry others, and what is no connection may be in a set.
        SENDMSG | RECVMSG | SENDMMSG | RECVMMSG | CLOSE | DUP | DUP2 | DUP3 => true,
        FCNTL => {
            table::raw(first as c_int) != 0 || matches!(second as c_int, F_DUPFD | F_DUPFD_CLOEXEC)
        }
        // Text: see `mapping`.
        MMAP => bare::is() && third as c_int & mapping::PROT_EXEC != 0,
        EXIT_GROUP => {
            fork::exits();
            false
        }
        VFORK => {
            handover::before_vfork();
            false
        }
        // Flags and stack: a thread, and a child that borrows this memory, go on where they are.
        CLONE => is_fork(first as u64, second as u64),
        CLONE3 => {
            let word = |at: usize| memory::get((first as *const u64).wrapping_add(at)).unwrap_or(0);
            is_fork(word(0), word(5))
        }
        // Elsewhere handlers come by name.
        RT_SIGACTION | MLOCKALL => bare::is(),
        POLL | SELECT | PSELECT | SPLICE | IO_SUBMIT | PIDFD_GETFD | FORK | SOCKET | CONNECT
        | ACCEPT | EXECVE | EPOLL_CREATE | EPOLL_CREATE1 | EPOLL_CTL | PPOLL | ACCEPT4
        | EXECVEAT | CLOSE_RANGE => true,
        _ => false,
    }
}

const _: () = {
    let mut number = 0;
    while number < NUMBERS {
        assert!((MAY_CONCERN[number] != 0) == yasmin_text::is_seen(number as u32));
        number += 1;
    }
};

/// Before a clone; whether it is a fork, by its flags and the child's stack.
fn is_fork(flags: u64, stack: u64) -> bool {
    const CLONE_VM: u64 = 0x100;
    const CLONE_FILES: u64 = 0x400;
    const CLONE_VFORK: u64 = 0x4000;
    // posix_spawn, where this library does not see it begin.
    if flags & (CLONE_VM | CLONE_FILES | CLONE_VFORK) == CLONE_VM | CLONE_VFORK {
        handover::before_vfork();
    } else if flags & CLONE_VM != 0 {
        handover::before_clone(flags as c_int);
    } else {
        handover::before_unshare(flags as c_int);
    }
    flags & CLONE_VM == 0 && stack == 0
}

/// The set and its size that pselect6 takes as one argument.
fn mask_of(at: usize) -> Option<*const c_void> {
    if at == 0 {
        return Some(core::ptr::null());
    }
    let [mask, len] = memory::get(at as *const [usize; 2])?;
    (mask == 0 || len == 8).then_some(mask as *const c_void)
}

/// What the kernel would return to the instruction that makes this call, if that concerns this library. Changes
/// errno.
///
/// # Safety
/// As the program called.
pub unsafe fn answer(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    if !concerns(number, a as c_long, b as c_long, c as c_long) {
        return None;
    }
    // SAFETY: the program's own arguments.
    let ret = unsafe { take(number, a, b, c, d, e, f) };
    Some(if ret == -1 { -(sys::errno() as c_long) } else { ret as c_long })
}

/// Carries out a call that `concerns` named. Returns as libc does. Unlike the call by its name it
/// is no cancellation point.
///
/// # Safety
/// As the program called.
pub unsafe extern "C" fn take(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the program's own arguments.
    unsafe { carry_out(number, a, b, c, d, e, f) }
}

/// # Safety
/// As the program called.
unsafe fn carry_out(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let fd = a as c_int;
    // SAFETY: the program's own arguments, of the types that the call by its name has. Where the
    // kernel takes the size of a signal mask, the name does not.
    unsafe {
        let ret = match number {
            READ => return stream::read(fd, b as *mut u8, c),
            WRITE => return stream::write(fd, b as *const u8, c),
            READV => return stream::readv(fd, b as *const _, c as c_int),
            WRITEV => return stream::writev(fd, b as *const _, c as c_int),
            PREADV2 => return stream::preadv2(fd, b as *const _, c as c_int, d as i64, f as c_int),
            PWRITEV2 => {
                return stream::pwritev2(fd, b as *const _, c as c_int, d as i64, f as c_int);
            }
            SENDTO => {
                let (to, len) = (e as *const c_void, f as u32);
                return stream::sendto(fd, b as *const u8, c, d as c_int, to, len);
            }
            RECVFROM => {
                let (from, len) = (e as *mut c_void, f as *mut u32);
                return stream::recvfrom(fd, b as *mut u8, c, d as c_int, from, len);
            }
            SENDMSG => return stream::sendmsg(fd, b as *const _, c as c_int),
            RECVMSG => return stream::recvmsg(fd, b as *mut _, c as c_int),
            MMAP => return mapping::mmap(a, b, c, d, e, f),
            SPLICE => {
                let (to, len) = (c as c_int, e);
                return stream::splice(fd, b as *mut i64, to, d as *mut i64, len, f as u32);
            }
            IO_SUBMIT => return aio::io_submit(a, b as c_long, c as *const *mut u8),
            FORK => return fork::forking(|| sys::returned(call!(fork))),
            CLONE | CLONE3 => {
                let kernel = || {
                    sys::returned(if number == CLONE {
                        call!(clone, a, b, c, d, e)
                    } else {
                        call!(clone3, a, b)
                    })
                };
                return fork::forking(kernel);
            }
            PSELECT => {
                let Some(mask) = mask_of(f) else {
                    return sys::returned(call!(pselect6, a, b, c, d, e, f));
                };
                wait::pselect(fd, b as *mut u64, c as *mut u64, d as *mut u64, e as *const _, mask)
            }
            PIDFD_GETFD => descriptor::pidfd_getfd(fd, b as c_int, c as u32),
            SENDFILE => return stream::sendfile(fd, b as c_int, c as *mut i64, d),
            RECVMMSG => stream::recvmmsg(fd, b as *mut _, c as u32, d as c_int, e as *mut _),
            SENDMMSG => stream::sendmmsg(fd, b as *mut _, c as u32, d as c_int),
            CLOSE => descriptor::close(fd),
            CLOSE_RANGE => descriptor::close_range(a as u32, b as u32, c as c_int),
            DUP => descriptor::dup(fd),
            DUP2 => descriptor::dup2(fd, b as c_int),
            DUP3 => descriptor::dup3(fd, b as c_int, c as c_int),
            FCNTL => descriptor::fcntl(fd, b as c_int, c),
            IOCTL => descriptor::ioctl(fd, b, c),
            SHUTDOWN => descriptor::shutdown(fd, b as c_int),
            GETSOCKNAME => descriptor::getsockname(fd, b as *mut c_void, c as *mut u32),
            GETPEERNAME => descriptor::getpeername(fd, b as *mut c_void, c as *mut u32),
            SETSOCKOPT => {
                descriptor::setsockopt(fd, b as c_int, c as c_int, d as *const c_void, e as u32)
            }
            GETSOCKOPT => {
                descriptor::getsockopt(fd, b as c_int, c as c_int, d as *mut c_void, e as *mut u32)
            }
            IO_URING_SETUP => sys::returned(-(sys::ENOSYS as sys::Ret)) as c_int,
            SOCKET => descriptor::socket(fd, b as c_int, c as c_int),
            CONNECT => descriptor::connect(fd, b as *const c_void, c as u32),
            ACCEPT => descriptor::accept(fd, b as *mut c_void, c as *mut u32),
            ACCEPT4 => descriptor::accept4(fd, b as *mut c_void, c as *mut u32, d as c_int),
            EXECVE => program::execve(a as *const _, b as *const _, c as *const _),
            EXECVEAT => {
                program::execveat(fd, b as *const _, c as *const _, d as *const _, e as c_int)
            }
            MLOCKALL => mapping::mlockall(fd),
            RT_SIGACTION => signal::by_number(fd, b as *const _, c as *mut _, d),
            POLL => wait::poll(a as *mut _, b as u64, c as c_int),
            PPOLL => wait::ppoll(a as *mut _, b as u64, c as *const _, d as *const c_void),
            SELECT => wait::select(fd, b as *mut u64, c as *mut u64, d as *mut u64, e as *mut _),
            EPOLL_CREATE => wait::epoll_create(fd),
            EPOLL_CREATE1 => wait::epoll_create1(fd),
            EPOLL_CTL => wait::epoll_ctl(fd, b as c_int, c as c_int, d as *mut _),
            EPOLL_WAIT => wait::epoll_wait(fd, b as *mut _, c as c_int, d as c_int),
            EPOLL_PWAIT => {
                wait::epoll_pwait(fd, b as *mut _, c as c_int, d as c_int, e as *const c_void)
            }
            EPOLL_PWAIT2 => {
                wait::epoll_pwait2(fd, b as *mut _, c as c_int, d as *const _, e as *const c_void)
            }
            _ => -1,
        };
        ret as isize
    }
}
