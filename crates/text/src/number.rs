//! What a system call of a known number means to a library in front of libc.

/// Whom a system call that the library does not see concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// It cannot touch a connection.
    Harmless,
    /// It can, by way of an io_uring.
    Uring,
    /// It can read, write, wait for, name or hand on a connection.
    Sockets,
}

/// The highest number that was looked at here; what comes later may do anything.
const LAST: u32 = 469;

const IOCTL: u32 = 16;
const FCNTL: u32 = 72;

/// Requests that a connection answers from its ring or takes to heart: FIONREAD, FIONBIO,
/// FIOASYNC and what sockets have (0x89..).
const fn is_for_sockets(request: u32) -> bool {
    matches!(request, 0x541b | 0x5421 | 0x5452) || request >> 8 == 0x89
}

/// What a bare system call of this number could do behind the library's back.
///
/// Harmless are also calls that refuse sockets: pread and pwrite with a position (`ESPIPE`), tee
/// and vmsplice (pipes alone), copy_file_range (regular files alone). And these:
///
/// - close: programs that close by bare calls, as Rust's rustix does with files, close what they
///   opened by bare calls. What libc's functions made for them they give back to libc.
/// - socket, accept, bind, listen: what comes of them the library never saw, and leaves alone.
/// - io_getevents and io_pgetevents: nothing to wait for without io_setup.
///
/// `second` is the call's second argument, where that is known: an ioctl's request, or what fcntl
/// is to do.
pub const fn concern(number: u32, second: Option<u32>) -> Concern {
    match (number, second) {
        (IOCTL, Some(request)) if !is_for_sockets(request) => return Concern::Harmless,
        // F_GETFD, F_SETFD, F_GETFL, F_GETLK, F_SETLK, F_SETLKW.
        (FCNTL, Some(1 | 2 | 3 | 5 | 6 | 7)) => return Concern::Harmless,
        _ => {}
    }
    match number {
        // io_uring_setup, io_uring_enter, io_uring_register.
        425..=427 => Concern::Uring,
        // read, write.
        0 | 1
        // poll.
        | 7
        | IOCTL
        // readv, writev, select.
        | 19 | 20 | 23
        // dup, dup2, sendfile, connect, sendto, recvfrom, sendmsg, recvmsg, shutdown.
        | 32 | 33 | 40 | 42 | 44..=48
        // setsockopt, getsockopt, clone, fork, vfork, execve, fcntl.
        | 54..=59 | FCNTL
        // io_setup, io_submit, epoll_ctl_old, epoll_wait_old.
        | 206 | 209 | 214 | 215
        // epoll_wait, epoll_ctl, pselect6, ppoll, splice, epoll_pwait, dup3, recvmmsg, sendmmsg.
        | 232 | 233 | 270 | 271 | 275 | 281 | 292 | 299 | 307
        // execveat, preadv2, pwritev2 (position -1), clone3, close_range, pidfd_getfd.
        | 322 | 327 | 328 | 435 | 436 | 438
        // epoll_pwait2.
        | 441 => Concern::Sockets,
        0..=LAST => Concern::Harmless,
        _ => Concern::Sockets,
    }
}

/// Whether a library that sees every call of a program's has to be asked about those of this number. Only
/// of these a detour is needed.
pub const fn is_seen(number: u32) -> bool {
    matches!(
        number,
        // read, write, close, poll, mmap, rt_sigaction, rt_sigprocmask, ioctl.
        0 | 1 | 3 | 7 | 9 | 13 | 14 | IOCTL
        // readv, writev, select, dup, dup2.
        | 19 | 20 | 23 | 32 | 33
        // sendfile, socket, connect, accept, sendto, recvfrom, sendmsg, recvmsg, shutdown.
        | 40..=48
        // getsockname, getpeername, setsockopt, getsockopt, clone, fork, vfork, execve, fcntl, mlockall, prctl.
        | 51 | 52 | 54..=59 | FCNTL | 151 | 157
        // io_submit, epoll_create, exit_group, epoll_wait, epoll_ctl, pselect6, ppoll, unshare, splice, epoll_pwait.
        | 209 | 213 | 231 | 232 | 233 | 270 | 271 | 272 | 275 | 281
        // accept4, epoll_create1, dup3, recvmmsg, sendmmsg, seccomp, execveat, preadv2, pwritev2.
        | 288 | 291 | 292 | 299 | 307 | 317 | 322 | 327 | 328
        // io_uring_setup, clone3, close_range, pidfd_getfd, epoll_pwait2.
        | 425 | 435 | 436 | 438 | 441
    )
}
