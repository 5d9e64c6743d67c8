//! Every call with an argument that points to bad memory: what each answers.

use std::io::{Error, Result};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};

use super::{Fd, check_int, errno_name, header_of, pipe};
use crate::sys::libc::{self, c_int, c_void};

const AGAIN: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const PEEK: c_int = AGAIN | libc::MSG_PEEK;

/// Memory of that kind, for ever; `None`: there is no such kind.
pub fn bad_memory(kind: &str) -> Result<Option<*mut c_void>> {
    if kind != "unmapped" {
        let part = super::memory::Part::new(kind, 4096)?;
        return Ok(match part {
            Some(super::memory::Part::Raw(at, _)) => Some(at),
            _ => None,
        });
    }
    let (both, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
    // SAFETY: a mapping that nobody uses, and that goes at once.
    unsafe {
        let at = libc::mmap(null_mut(), 4096, both, private, -1, 0);
        check_int(libc::munmap(at, 4096))?;
        Ok(Some(at))
    }
}

/// Calls on `fd`, a socket with something to read, each with `at` as one of its pointers. What
/// they gave, by name.
#[expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "bad addresses are what the kernel is asked about"
)]
pub fn call_with(fd: Fd, at: *mut c_void) -> Result<Vec<String>> {
    let mut told = Vec::new();
    let mut note = |name: &str, ret: i64| {
        let result =
            if ret < 0 { errno_name(&Error::last_os_error()) } else { ret.min(1).to_string() };
        told.push(format!("{name} {result}"));
    };
    macro_rules! calls {
        ($($name:literal = $call:expr;)*) => {$( note($name, $call as i64); )*};
    }
    let mut byte = [0u8; 8];
    let buf = byte.as_mut_ptr().cast::<c_void>();
    let (mut name, mut len) = ([0u8; 128], 128u32);
    let name = name.as_mut_ptr().cast::<libc::sockaddr>();
    let mut vector = libc::iovec { iov_base: buf, iov_len: 1 };
    let mut negative = u32::MAX;
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut instant = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
    let (read_end, write_end) = pipe()?;
    let file = super::anonymous_file()?;
    let on = 1u32;
    // SAFETY: what is bad memory here is for the kernel to refuse, and for whoever stands before
    // it; all else outlives the calls.
    unsafe {
        let mut set: libc::fd_set = zeroed();
        libc::FD_SET(fd, &raw mut set);
        let fresh_set = set;
        let sets = check_int(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
        let mut odd = header_of(std::slice::from_mut(&mut vector));
        let mut messages: libc::mmsghdr = zeroed();
        calls! {
            "readv" = libc::readv(fd, at.cast(), 1);
            "writev" = libc::writev(fd, at.cast(), 1);
            "preadv2" = libc::preadv2(fd, at.cast(), 1, -1, 0);
            "pwritev2" = libc::pwritev2(fd, at.cast(), 1, -1, 0);
            "recvfrom" = libc::recvfrom(fd, buf, 1, PEEK, name, at.cast());
            "recvfrom negative" = libc::recvfrom(fd, buf, 1, PEEK, name, &raw mut negative);
            "sendto" = libc::sendto(fd, buf, 1, AGAIN, at.cast(), 16);
            "sendto negative" = libc::sendto(fd, buf, 1, AGAIN, name, u32::MAX);
            "sendto long" = libc::sendto(fd, buf, 1, AGAIN, name, 1000);
            "recvmsg" = libc::recvmsg(fd, at.cast(), PEEK);
            "sendmsg" = libc::sendmsg(fd, at.cast(), AGAIN);
            "recvmmsg" = libc::recvmmsg(fd, at.cast(), 1, PEEK, null_mut());
            "sendmmsg" = libc::sendmmsg(fd, at.cast(), 1, AGAIN);
        }
        odd.msg_name = at;
        odd.msg_namelen = 16;
        calls! { "sendmsg name" = libc::sendmsg(fd, &raw const odd, AGAIN); }
        odd.msg_name = name.cast();
        odd.msg_namelen = u32::MAX;
        calls! {
            "sendmsg negative" = libc::sendmsg(fd, &raw const odd, AGAIN);
            "recvmsg negative" = libc::recvmsg(fd, &raw mut odd, PEEK);
        }
        odd = header_of(std::slice::from_mut(&mut vector));
        odd.msg_iov = at.cast();
        calls! {
            "sendmsg parts" = libc::sendmsg(fd, &raw const odd, AGAIN);
            "recvmsg parts" = libc::recvmsg(fd, &raw mut odd, PEEK);
        }
        messages.msg_hdr = header_of(std::slice::from_mut(&mut vector));
        if !at.is_null() {
            calls! { "recvmmsg time" = libc::recvmmsg(fd, &raw mut messages, 1, PEEK, at.cast()); }
        }
        calls! {
            "poll" = libc::poll(at.cast(), 1, 0);
            "ppoll" = libc::ppoll(at.cast(), 1, &raw const now, null());
            "ppoll time" = libc::syscall(libc::SYS_ppoll, &raw mut one, 1, at, 0_usize, 8);
            "ppoll mask" = libc::ppoll(&raw mut one, 1, &raw const now, at.cast());
            "select" = libc::select(fd + 1, at.cast(), null_mut(), null_mut(), &raw mut instant);
            "select write" = libc::select(fd + 1, null_mut(), at.cast(), null_mut(), &raw mut instant);
            "pselect" = libc::pselect(fd + 1, at.cast(), null_mut(), null_mut(), &raw const now, null());
        }
        calls! {
            "select time" = libc::syscall(libc::SYS_select, fd + 1, &raw mut set, 0_usize, 0_usize, at);
        }
        set = fresh_set;
        calls! {
            "select by number" = libc::syscall(libc::SYS_select, fd + 1, at, 0_usize, 0_usize, &raw mut instant);
            "pselect by number" = libc::syscall(
                libc::SYS_pselect6, fd + 1, &raw mut set, 0_usize, 0_usize, &raw const now, at
            );
            "epoll_ctl" = libc::epoll_ctl(sets, libc::EPOLL_CTL_ADD, fd, at.cast());
            "epoll_ctl good" = libc::epoll_ctl(sets, libc::EPOLL_CTL_ADD, fd, &raw mut event);
            "epoll_ctl again" = libc::epoll_ctl(sets, libc::EPOLL_CTL_MOD, fd, at.cast());
            "epoll_wait" = libc::epoll_wait(sets, at.cast(), 1, 0);
            "epoll_pwait" = libc::epoll_pwait(sets, at.cast(), 1, 0, null());
            "epoll_pwait mask" = libc::epoll_pwait(sets, &raw mut event, 1, 0, at.cast());
            "epoll_pwait2" = libc::syscall(libc::SYS_epoll_pwait2, sets, &raw mut event, 1, at, 0_usize, 8);
            "epoll_wait good" = libc::epoll_wait(sets, &raw mut event, 1, 1000);
            "connect" = libc::connect(fd, at.cast(), 16);
            "connect by number" = libc::syscall(libc::SYS_connect, fd, at, 16);
            "accept" = libc::accept(fd, name, at.cast());
            "getsockname" = libc::getsockname(fd, name, at.cast());
            "getpeername" = libc::getpeername(fd, at.cast(), &raw mut len);
            "getsockopt" = libc::getsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY, at, &raw mut len);
            "getsockopt len" = libc::getsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY, buf, at.cast());
            "getsockopt zero copy" = libc::getsockopt(fd, libc::SOL_TCP, 35, buf, at.cast());
            "setsockopt" = libc::setsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY, at, 4);
            "setsockopt cork" = libc::setsockopt(fd, libc::SOL_TCP, libc::TCP_CORK, at, 4);
            "setsockopt good" = libc::setsockopt(
                fd, libc::SOL_TCP, libc::TCP_NODELAY, (&raw const on).cast(), size_of::<u32>() as u32
            );
            "FIONREAD" = libc::ioctl(fd, libc::FIONREAD, at);
            "FIONBIO" = libc::ioctl(fd, libc::FIONBIO, at);
            "SIOCATMARK" = libc::ioctl(fd, 0x8905, at);
            "SIOCOUTQ" = libc::ioctl(fd, libc::TIOCOUTQ, at);
            "sendfile" = libc::sendfile64(fd, file, at.cast(), 10);
            "splice" = libc::splice(fd, at.cast(), write_end, null_mut(), 0, libc::SPLICE_F_NONBLOCK);
            "execve" = libc::execve(at.cast(), null(), null());
            "execve environment" = libc::execve(c"/nonexistent".as_ptr(), null(), at.cast());
            "execveat" = libc::syscall(libc::SYS_execveat, -1, at, 0_usize, 0_usize, 0);
        }
        for fd in [sets, read_end, write_end, file] {
            libc::close(fd);
        }
    }
    Ok(told)
}
