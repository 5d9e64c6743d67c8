//! libc's calls on sockets, as a C program makes them, with Rust's errors.
//!
//! The peers must go through libc's entry points, because that is where the library stands;
//! std and rustix would leave the choice of the call to others. Nothing here adds a retry, a
//! flag or a default.
//!
//! Long because it is one thin wrapper for each call, and the only `unsafe` of the package.
//!
//! Descriptors are plain numbers: peers close, duplicate and share them across fork on purpose.

pub mod arguments;
pub mod bare;
pub mod borrowed;
pub mod by_number;
pub mod debugger;
pub mod extras;
pub mod memory;
pub mod past;
pub mod pointers;
pub mod scheduling;
pub mod sigio;
pub mod signals;
pub mod ways;

use std::io::{Error, Result};
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr::{null, null_mut};

pub mod interrupts;

mod handover;
pub mod stdio;

pub use handover::*;
pub use libc;
use libc::{c_int, c_void, iovec, mmsghdr, msghdr, pollfd, sockaddr_storage, socklen_t, timespec};

pub type Fd = c_int;

fn check(result: isize) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

fn check_int(result: c_int) -> Result<c_int> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// Name of the errno in `error`, as in errno(3), for those that sockets give.
pub fn errno_name(error: &Error) -> String {
    let Some(number) = error.raw_os_error() else { return error.to_string() };
    match number {
        libc::EAGAIN => "EAGAIN",
        libc::EBADF => "EBADF",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::ECONNRESET => "ECONNRESET",
        libc::ECONNABORTED => "ECONNABORTED",
        libc::EFAULT => "EFAULT",
        libc::EINPROGRESS => "EINPROGRESS",
        libc::EINTR => "EINTR",
        libc::EINVAL => "EINVAL",
        libc::EISCONN => "EISCONN",
        libc::EALREADY => "EALREADY",
        libc::ENOTCONN => "ENOTCONN",
        libc::EPIPE => "EPIPE",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENOPROTOOPT => "ENOPROTOOPT",
        libc::EMSGSIZE => "EMSGSIZE",
        libc::EDESTADDRREQ => "EDESTADDRREQ",
        libc::EMFILE => "EMFILE",
        libc::ENOENT => "ENOENT",
        other => return format!("E{other}"),
    }
    .to_owned()
}

// ---- setup ----

pub fn socket(family: c_int, flags: c_int) -> Result<Fd> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::socket(family, libc::SOCK_STREAM | flags, 0) })
}

/// `address` as the kernel takes it, for a socket of its own family.
fn encode(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let raw = (&raw mut storage).cast::<c_void>();
    match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is larger than any address and aligned for all.
            unsafe { raw.cast::<libc::sockaddr_in>().write(name) };
            (storage, size_of::<libc::sockaddr_in>() as socklen_t)
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { raw.cast::<libc::sockaddr_in6>().write(name) };
            (storage, size_of::<libc::sockaddr_in6>() as socklen_t)
        }
    }
}

fn decode(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let raw = (&raw const *storage).cast::<c_void>();
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which address is there; the storage holds and aligns it.
            let name = unsafe { raw.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { raw.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

pub fn bind(fd: Fd, address: SocketAddr) -> Result<()> {
    let (name, len) = encode(address);
    // SAFETY: `name` is `len` bytes of address and outlives the call.
    check_int(unsafe { libc::bind(fd, (&raw const name).cast(), len) }).map(drop)
}

pub fn listen(fd: Fd, backlog: c_int) -> Result<()> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::listen(fd, backlog) }).map(drop)
}

pub fn connect(fd: Fd, address: SocketAddr) -> Result<()> {
    let (name, len) = encode(address);
    // SAFETY: `name` is `len` bytes of address and outlives the call.
    check_int(unsafe { libc::connect(fd, (&raw const name).cast(), len) }).map(drop)
}

/// `accept4` when there are flags, `accept` when there are none.
pub fn accept(fd: Fd, flags: c_int) -> Result<(Fd, Option<SocketAddr>)> {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut name: sockaddr_storage = unsafe { zeroed() };
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    let at = (&raw mut name).cast();
    let new = if flags == 0 {
        // SAFETY: `name` and `len` outlive the call and `len` is the size of `name`.
        unsafe { libc::accept(fd, at, &raw mut len) }
    } else {
        // SAFETY: as above.
        unsafe { libc::accept4(fd, at, &raw mut len, flags) }
    };
    Ok((check_int(new)?, decode(&name)))
}

fn name_of(
    call: unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut socklen_t) -> c_int,
    fd: Fd,
) -> Result<SocketAddr> {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut name: sockaddr_storage = unsafe { zeroed() };
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: `name` and `len` outlive the call and `len` is the size of `name`.
    check_int(unsafe { call(fd, (&raw mut name).cast(), &raw mut len) })?;
    decode(&name).ok_or_else(|| Error::other("an address of no known family"))
}

pub fn getsockname(fd: Fd) -> Result<SocketAddr> {
    name_of(libc::getsockname, fd)
}

pub fn getpeername(fd: Fd) -> Result<SocketAddr> {
    name_of(libc::getpeername, fd)
}

pub fn shutdown(fd: Fd, how: c_int) -> Result<()> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::shutdown(fd, how) }).map(drop)
}

pub fn close(fd: Fd) -> Result<()> {
    // SAFETY: no pointers; who owns the number is the peers' business.
    check_int(unsafe { libc::close(fd) }).map(drop)
}

pub fn dup(fd: Fd) -> Result<Fd> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::dup(fd) })
}

pub fn dup2(fd: Fd, onto: Fd) -> Result<Fd> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::dup2(fd, onto) })
}

pub fn set_nonblocking(fd: Fd, on: bool) -> Result<()> {
    // SAFETY: no pointers.
    let flags = check_int(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    let flags = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    // SAFETY: no pointers.
    check_int(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }).map(drop)
}

fn set_option<T>(fd: Fd, level: c_int, option: c_int, value: &T) -> Result<()> {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: `value` is `len` bytes and outlives the call.
    check_int(unsafe { libc::setsockopt(fd, level, option, (&raw const *value).cast(), len) })
        .map(drop)
}

pub fn set_int(fd: Fd, level: c_int, option: c_int, value: c_int) -> Result<()> {
    set_option(fd, level, option, &value)
}

pub fn get_int(fd: Fd, level: c_int, option: c_int) -> Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    let at = (&raw mut value).cast();
    // SAFETY: `value` is `len` bytes and outlives the call.
    check_int(unsafe { libc::getsockopt(fd, level, option, at, &raw mut len) })?;
    Ok(value)
}

pub fn set_linger(fd: Fd, seconds: Option<c_int>) -> Result<()> {
    let linger =
        libc::linger { l_onoff: c_int::from(seconds.is_some()), l_linger: seconds.unwrap_or(0) };
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// SO_RCVTIMEO or SO_SNDTIMEO; 0 is none.
pub fn set_timeout(fd: Fd, option: c_int, timeout_ms: i64) -> Result<()> {
    let time = libc::timeval { tv_sec: timeout_ms / 1000, tv_usec: (timeout_ms % 1000) * 1000 };
    set_option(fd, libc::SOL_SOCKET, option, &time)
}

/// struct tcp_info (linux/tcp.h), of which libc's is the beginning.
fn tcp_info(fd: Fd) -> Result<[u8; 256]> {
    let mut info = [0u8; 256];
    let mut len = info.len() as socklen_t;
    let at = info.as_mut_ptr().cast();
    // SAFETY: `info` is `len` bytes and outlives the call.
    check_int(unsafe { libc::getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, at, &raw mut len) })?;
    Ok(info)
}

/// The kernel's state of the connection, as in TCP_INFO.
pub fn tcp_state(fd: Fd) -> Result<u8> {
    tcp_info(fd).map(|info| info[0])
}

/// Bytes that TCP_INFO counts: acknowledged, received, sent.
pub fn tcp_counts(fd: Fd) -> Result<[u64; 3]> {
    let info = tcp_info(fd)?;
    let at = |at: usize| u64::from_ne_bytes(core::array::from_fn(|i| info[at + i]));
    Ok([at(120), at(128), at(200)])
}

fn count_of(fd: Fd, request: libc::c_ulong) -> Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: both requests write one int.
    check_int(unsafe { libc::ioctl(fd, request as libc::Ioctl, &raw mut count) })?;
    Ok(count as usize)
}

/// Bytes that can be read: FIONREAD.
pub fn unread(fd: Fd) -> Result<usize> {
    count_of(fd, libc::FIONREAD as libc::c_ulong)
}

/// Bytes sent and not yet acknowledged: SIOCOUTQ.
pub fn unacknowledged(fd: Fd) -> Result<usize> {
    count_of(fd, libc::TIOCOUTQ as libc::c_ulong)
}

// ---- bytes ----

pub fn read(fd: Fd, out: &mut [u8]) -> Result<usize> {
    // SAFETY: `out` is writable for its length.
    check(unsafe { libc::read(fd, out.as_mut_ptr().cast(), out.len()) })
}

pub fn write(fd: Fd, data: &[u8]) -> Result<usize> {
    // SAFETY: `data` is readable for its length.
    check(unsafe { libc::write(fd, data.as_ptr().cast(), data.len()) })
}

pub fn recv(fd: Fd, out: &mut [u8], flags: c_int) -> Result<usize> {
    // SAFETY: `out` is writable for its length.
    check(unsafe { libc::recv(fd, out.as_mut_ptr().cast(), out.len(), flags) })
}

pub fn send(fd: Fd, data: &[u8], flags: c_int) -> Result<usize> {
    // SAFETY: `data` is readable for its length.
    check(unsafe { libc::send(fd, data.as_ptr().cast(), data.len(), flags) })
}

/// With room for the sender's address, which TCP leaves untouched.
pub fn recvfrom(fd: Fd, out: &mut [u8], flags: c_int) -> Result<usize> {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut name: sockaddr_storage = unsafe { zeroed() };
    let mut name_len = size_of::<sockaddr_storage>() as socklen_t;
    let (at, len) = (out.as_mut_ptr().cast(), out.len());
    // SAFETY: `out` is writable for its length, `name` for `name_len`; both outlive the call.
    check(unsafe { libc::recvfrom(fd, at, len, flags, (&raw mut name).cast(), &raw mut name_len) })
}

/// With an address where there is one (TCP ignores it on a connected socket).
pub fn sendto(fd: Fd, data: &[u8], flags: c_int, to: Option<SocketAddr>) -> Result<usize> {
    let name = to.map(encode);
    let (at, len) = match &name {
        Some((name, len)) => ((&raw const *name).cast(), *len),
        None => (null(), 0),
    };
    // SAFETY: `data` is readable for its length, the address for its; both outlive the call.
    check(unsafe { libc::sendto(fd, data.as_ptr().cast(), data.len(), flags, at, len) })
}

fn vector_of(data: &[u8]) -> iovec {
    iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() }
}

fn vector_of_mut(out: &mut [u8]) -> iovec {
    iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() }
}

fn header_of(vectors: &mut [iovec]) -> msghdr {
    // SAFETY: all-zero is a valid msghdr: no name, no vectors, no control data.
    let mut header: msghdr = unsafe { zeroed() };
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len() as _;
    header
}

pub fn readv(fd: Fd, parts: &mut [&mut [u8]]) -> Result<usize> {
    let vectors: Vec<iovec> = parts.iter_mut().map(|part| vector_of_mut(part)).collect();
    // SAFETY: each vector is one writable part, borrowed for the call.
    check(unsafe { libc::readv(fd, vectors.as_ptr(), vectors.len() as c_int) })
}

pub fn writev(fd: Fd, parts: &[&[u8]]) -> Result<usize> {
    let vectors: Vec<iovec> = parts.iter().map(|part| vector_of(part)).collect();
    // SAFETY: each vector is one readable part, borrowed for the call.
    check(unsafe { libc::writev(fd, vectors.as_ptr(), vectors.len() as c_int) })
}

pub fn recvmsg(fd: Fd, parts: &mut [&mut [u8]], flags: c_int) -> Result<usize> {
    let mut vectors: Vec<iovec> = parts.iter_mut().map(|part| vector_of_mut(part)).collect();
    let mut header = header_of(&mut vectors);
    // SAFETY: the header's vectors are writable parts, borrowed for the call.
    check(unsafe { libc::recvmsg(fd, &raw mut header, flags) })
}

/// TCP_ZEROCOPY_RECEIVE into no memory: how much was mapped, has to be read, and is unread.
pub fn zerocopy_receive(fd: Fd) -> Result<[u32; 3]> {
    const TCP_ZEROCOPY_RECEIVE: c_int = 35;
    let mut words = [0u32; 5];
    let mut len = size_of_val(&words) as libc::socklen_t;
    let at = words.as_mut_ptr().cast();
    // SAFETY: the words are writable and borrowed for the call; the address in them is null.
    let ret =
        unsafe { libc::getsockopt(fd, libc::SOL_TCP, TCP_ZEROCOPY_RECEIVE, at, &raw mut len) };
    check_int(ret)?;
    Ok([words[2], words[3], words[4]])
}

/// A control message: level, type and bytes.
pub type Control = (c_int, c_int, Vec<u8>);

/// A receive with room for control data: what came, its flags, and the control messages.
pub fn recvmsg_control(
    fd: Fd,
    buffer: &mut [u8],
    room_bytes: usize,
    flags: c_int,
) -> Result<(usize, c_int, Vec<Control>)> {
    const HEAD_BYTES: usize = 16;
    let mut vectors = [vector_of_mut(buffer)];
    let mut header = header_of(&mut vectors);
    let mut control = [0u64; 32];
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = room_bytes.min(size_of_val(&control)) as _;
    // SAFETY: the header's vector and control buffer are writable and borrowed for the call.
    let got = check(unsafe { libc::recvmsg(fd, &raw mut header, flags) })?;
    let raw: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let int_at = |at: usize| i32::from_ne_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    let mut found = Vec::new();
    let (mut at, end) = (0, header.msg_controllen);
    while at + HEAD_BYTES <= end {
        let len = (control[at / 8] as usize).clamp(HEAD_BYTES, raw.len() - at);
        found.push((int_at(at + 8), int_at(at + 12), raw[at + HEAD_BYTES..at + len].to_vec()));
        at += len.next_multiple_of(8);
    }
    Ok((got, header.msg_flags, found))
}

pub fn sendmsg(fd: Fd, parts: &[&[u8]], flags: c_int) -> Result<usize> {
    let mut vectors: Vec<iovec> = parts.iter().map(|part| vector_of(part)).collect();
    let header = header_of(&mut vectors);
    // SAFETY: the header's vectors are readable parts, borrowed for the call.
    check(unsafe { libc::sendmsg(fd, &raw const header, flags) })
}

/// One message for each part; the lengths of those that were received.
pub fn recvmmsg(fd: Fd, parts: &mut [&mut [u8]], flags: c_int) -> Result<Vec<usize>> {
    let mut vectors: Vec<iovec> = parts.iter_mut().map(|part| vector_of_mut(part)).collect();
    let mut messages: Vec<mmsghdr> = vectors
        .iter_mut()
        .map(|vector| mmsghdr { msg_hdr: header_of(std::slice::from_mut(vector)), msg_len: 0 })
        .collect();
    let (at, len) = (messages.as_mut_ptr(), messages.len() as u32);
    // SAFETY: each message has one vector, a writable part that is borrowed for the call.
    let count = check_int(unsafe { libc::recvmmsg(fd, at, len, flags as _, null_mut()) })?;
    Ok(messages[..count as usize].iter().map(|message| message.msg_len as usize).collect())
}

/// One message for each part; the lengths of those that were sent.
pub fn sendmmsg(fd: Fd, parts: &[&[u8]], flags: c_int) -> Result<Vec<usize>> {
    let mut vectors: Vec<iovec> = parts.iter().map(|part| vector_of(part)).collect();
    let mut messages: Vec<mmsghdr> = vectors
        .iter_mut()
        .map(|vector| mmsghdr { msg_hdr: header_of(std::slice::from_mut(vector)), msg_len: 0 })
        .collect();
    let (at, len) = (messages.as_mut_ptr(), messages.len() as u32);
    // SAFETY: each message has one vector, a readable part that is borrowed for the call.
    let count = check_int(unsafe { libc::sendmmsg(fd, at, len, flags as _) })?;
    Ok(messages[..count as usize].iter().map(|message| message.msg_len as usize).collect())
}

pub fn sendfile(fd: Fd, file: Fd, offset: u64, len: usize) -> Result<usize> {
    let mut offset = offset as libc::off64_t;
    // SAFETY: `offset` outlives the call.
    check(unsafe { libc::sendfile64(fd, file, &raw mut offset, len) })
}

/// From where the descriptor is, as for what has no places.
pub fn sendfile_on(fd: Fd, from: Fd, len: usize) -> Result<usize> {
    // SAFETY: no memory involved.
    check(unsafe { libc::sendfile64(fd, from, null_mut(), len) })
}

pub fn splice(from: Fd, to: Fd, len: usize, flags: u32) -> Result<usize> {
    // SAFETY: null offsets mean the descriptors' own.
    check(unsafe { libc::splice(from, null_mut(), to, null_mut(), len, flags) })
}

/// O_ASYNC, by fcntl or by ioctl, for this process.
pub fn set_async(fd: Fd, on: bool, by_ioctl: bool) -> Result<()> {
    let number = c_int::from(on);
    // SAFETY: a number of ours.
    unsafe {
        check_int(libc::fcntl(fd, libc::F_SETOWN, libc::getpid()))?;
        if by_ioctl {
            return check_int(libc::ioctl(fd, libc::FIOASYNC, &raw const number)).map(drop);
        }
        let flags = check_int(libc::fcntl(fd, libc::F_GETFL))? & !libc::O_ASYNC;
        let more = if on { libc::O_ASYNC } else { 0 };
        check_int(libc::fcntl(fd, libc::F_SETFL, flags | more)).map(drop)
    }
}

pub fn pipe() -> Result<(Fd, Fd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    check_int(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((ends[0], ends[1]))
}

/// A pipe's end as a file, which closes it. Nobody else may have the number.
pub fn file_of(fd: Fd) -> std::fs::File {
    // SAFETY: the caller has just been given the number and hands it over.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}

/// A file without a name, in memory.
pub fn anonymous_file() -> Result<Fd> {
    // SAFETY: the name is a C string.
    check_int(unsafe { libc::memfd_create(c"stream".as_ptr(), libc::MFD_CLOEXEC) })
}

/// send from, or recv into, an address that no process has.
pub fn bad_address(fd: Fd, sending: bool, len: usize) -> Result<usize> {
    let nowhere = std::ptr::without_provenance_mut::<c_void>(8);
    if sending {
        // SAFETY: the kernel checks the address; a library in between must not do worse.
        check(unsafe { libc::send(fd, nowhere, len, libc::MSG_NOSIGNAL) })
    } else {
        // SAFETY: as above.
        check(unsafe { libc::recv(fd, nowhere, len, 0) })
    }
}

/// Is the next byte the urgent one: SIOCATMARK.
pub fn at_mark(fd: Fd) -> Result<bool> {
    const SIOCATMARK: libc::c_ulong = 0x8905;
    count_of(fd, SIOCATMARK).map(|count| count != 0)
}

// ---- waiting ----

/// What a wait found, or is to look for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    pub readable: bool,
    pub writable: bool,
}

impl Ready {
    const fn events(self) -> i16 {
        let mut events = 0;
        if self.readable {
            events |= libc::POLLIN;
        }
        if self.writable {
            events |= libc::POLLOUT;
        }
        events
    }

    /// An error or a hang-up makes both calls worth trying.
    const fn from_events(events: i16) -> Self {
        let ended = events & (libc::POLLERR | libc::POLLHUP) != 0;
        Self {
            readable: ended || events & (libc::POLLIN | libc::POLLRDHUP) != 0,
            writable: ended || events & libc::POLLOUT != 0,
        }
    }
}

const fn duration(timeout_ms: i32) -> timespec {
    timespec { tv_sec: timeout_ms as i64 / 1000, tv_nsec: (timeout_ms as i64 % 1000) * 1_000_000 }
}

/// The events that poll gives for one descriptor; 0 after a timeout. -1 waits for ever.
pub fn poll_events(fd: Fd, events: i16, timeout_ms: i32) -> Result<i16> {
    let mut one = pollfd { fd, events, revents: 0 };
    // SAFETY: one pollfd.
    check_int(unsafe { libc::poll(&raw mut one, 1, timeout_ms) })?;
    Ok(one.revents)
}

pub fn poll(fd: Fd, want: Ready, timeout_ms: i32) -> Result<Ready> {
    poll_events(fd, want.events(), timeout_ms).map(Ready::from_events)
}

pub fn ppoll(fd: Fd, want: Ready, timeout_ms: i32) -> Result<Ready> {
    let mut one = pollfd { fd, events: want.events(), revents: 0 };
    let time = duration(timeout_ms);
    let time = if timeout_ms < 0 { null() } else { &raw const time };
    // SAFETY: all-zero is an empty signal set.
    let mask: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: one pollfd; time and mask outlive the call.
    check_int(unsafe { libc::ppoll(&raw mut one, 1, time, &raw const mask) })?;
    Ok(Ready::from_events(one.revents))
}

fn set_with(fd: Fd, wanted: bool) -> libc::fd_set {
    let mut set = MaybeUninit::<libc::fd_set>::zeroed();
    // SAFETY: all-zero is an empty set; peers that select have descriptors below FD_SETSIZE.
    unsafe {
        libc::FD_ZERO(set.as_mut_ptr());
        if wanted {
            assert!((0..libc::FD_SETSIZE as Fd).contains(&fd));
            libc::FD_SET(fd, set.as_mut_ptr());
        }
        set.assume_init()
    }
}

fn is_set(fd: Fd, set: &libc::fd_set) -> bool {
    // SAFETY: `set_with` checked the range.
    unsafe { libc::FD_ISSET(fd, set) }
}

pub fn select(fd: Fd, want: Ready, timeout_ms: i32) -> Result<Ready> {
    let (mut reads, mut writes) = (set_with(fd, want.readable), set_with(fd, want.writable));
    let millis = i64::from(timeout_ms);
    let mut time = libc::timeval { tv_sec: millis / 1000, tv_usec: (millis % 1000) * 1000 };
    let time = if timeout_ms < 0 { null_mut() } else { &raw mut time };
    // SAFETY: sets and time outlive the call.
    check_int(unsafe { libc::select(fd + 1, &raw mut reads, &raw mut writes, null_mut(), time) })?;
    Ok(Ready { readable: is_set(fd, &reads), writable: is_set(fd, &writes) })
}

pub fn pselect(fd: Fd, want: Ready, timeout_ms: i32) -> Result<Ready> {
    let (mut reads, mut writes) = (set_with(fd, want.readable), set_with(fd, want.writable));
    let time = duration(timeout_ms);
    let time = if timeout_ms < 0 { null() } else { &raw const time };
    // SAFETY: sets and time outlive the call; no mask.
    check_int(unsafe {
        libc::pselect(fd + 1, &raw mut reads, &raw mut writes, null_mut(), time, null())
    })?;
    Ok(Ready { readable: is_set(fd, &reads), writable: is_set(fd, &writes) })
}

pub fn epoll_create() -> Result<Fd> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// `operation` is one of EPOLL_CTL_ADD, MOD and DEL.
pub fn epoll_ctl(epoll: Fd, operation: c_int, fd: Fd, events: u32, data: u64) -> Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: `event` outlives the call.
    check_int(unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut event) }).map(drop)
}

/// Events and data of what is ready, at most `max`.
pub fn epoll_wait(epoll: Fd, max: usize, timeout_ms: i32) -> Result<Vec<(u32, u64)>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; max];
    // SAFETY: room for `max` events.
    let count = check_int(unsafe {
        libc::epoll_wait(epoll, events.as_mut_ptr(), max as c_int, timeout_ms)
    })?;
    events.truncate(count as usize);
    Ok(events.iter().map(|event| (event.events, event.u64)).collect())
}

/// The same into `events`; says how many there are.
pub fn epoll_wait_into(
    epoll: Fd,
    events: &mut [libc::epoll_event],
    timeout_ms: i32,
) -> Result<usize> {
    let (at, max) = (events.as_mut_ptr(), events.len() as c_int);
    // SAFETY: room for `max` events.
    check(unsafe { libc::epoll_wait(epoll, at, max, timeout_ms) } as isize)
}

/// epoll_pwait with an empty mask; otherwise as `epoll_wait`.
pub fn epoll_pwait(epoll: Fd, max: usize, timeout_ms: i32) -> Result<Vec<(u32, u64)>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; max];
    // SAFETY: all-zero is an empty signal set.
    let mask: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: room for `max` events; the mask outlives the call.
    let count = check_int(unsafe {
        libc::epoll_pwait(epoll, events.as_mut_ptr(), max as c_int, timeout_ms, &raw const mask)
    })?;
    events.truncate(count as usize);
    Ok(events.iter().map(|event| (event.events, event.u64)).collect())
}

// ---- processes ----

/// What fork returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    Child,
    Parent { child: c_int },
}

pub fn fork() -> Result<Forked> {
    // SAFETY: peers fork while they have one thread.
    Ok(match check_int(unsafe { libc::fork() })? {
        0 => Forked::Child,
        child => Forked::Parent { child },
    })
}

/// The child's exit status, or 128 and the signal.
pub fn wait_child(child: c_int) -> Result<c_int> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    check_int(unsafe { libc::waitpid(child, &raw mut status, 0) })?;
    Ok(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    })
}

/// Ends a forked child without running what the parent has registered.
pub fn exit_child(status: c_int) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// The calling thread's number.
pub fn thread_id() -> c_int {
    // SAFETY: no pointers.
    unsafe { libc::gettid() }
}

/// Signals one thread of this process.
pub fn kill_thread(thread: c_int, signal: c_int) -> Result<()> {
    // SAFETY: no pointers.
    let result = unsafe {
        libc::syscall(libc::SYS_tgkill, libc::c_long::from(libc::getpid()), thread, signal)
    };
    check(result as isize).map(drop)
}

/// Words that a process shares with its children, for ever.
pub fn shared_words(count: usize) -> Result<&'static [std::sync::atomic::AtomicU64]> {
    let len = count * size_of::<u64>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(null_mut(), len, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    // SAFETY: zeroed, aligned, of that size, never unmapped, and only ever used as atomics.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), count) })
}

/// Signals one process that the caller started.
pub fn kill(pid: c_int, signal: c_int) -> Result<()> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Lets the process have as many descriptors as its hard limit allows.
pub fn raise_descriptor_limit() -> Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    check_int(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max.min(65_536);
    // SAFETY: as above.
    check_int(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(limit.rlim_cur)
}

/// Has `command` start its program with these descriptors from 3 on.
pub fn pass_from_3(command: &mut std::process::Command, numbers: Vec<c_int>) {
    use std::os::unix::process::CommandExt;
    let pass = move || {
        // Out of the way first: the numbers may be among those they become.
        let base = 3 + numbers.len() as c_int;
        let mut moved = [0; 64];
        for (place, &number) in moved.iter_mut().zip(&numbers) {
            // SAFETY: no pointers.
            *place = check_int(unsafe { libc::fcntl(number, libc::F_DUPFD, base) })?;
        }
        for (nth, &number) in moved[..numbers.len()].iter().enumerate() {
            // SAFETY: no pointers.
            check_int(unsafe { libc::dup2(number, 3 + nth as c_int) })?;
            // SAFETY: no pointers.
            check_int(unsafe { libc::close(number) })?;
        }
        Ok(())
    };
    // SAFETY: system calls only, on what the closure owns.
    unsafe { command.pre_exec(pass) };
}

/// Has `command` start its program where no memory that was writable may become executable. False: this kernel
/// has no such thing (PR_SET_MDWE, Linux 6.3).
pub fn deny_write_execute(command: &mut std::process::Command) -> bool {
    use std::os::unix::process::CommandExt;
    const PR_SET_MDWE: c_int = 65;
    const PR_GET_MDWE: c_int = 66;
    const REFUSE_EXEC_GAIN: c_int = 1;
    // SAFETY: no pointers.
    if unsafe { libc::prctl(PR_GET_MDWE, 0, 0, 0, 0) } < 0 {
        return false;
    }
    // SAFETY: no pointers.
    let deny =
        || check_int(unsafe { libc::prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) }).map(drop);
    // SAFETY: a system call only.
    unsafe { command.pre_exec(deny) };
    true
}
