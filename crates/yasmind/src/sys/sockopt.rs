//! Socket options that rustix has not, or that it reads into types the kernel can break
//! (SO_PEERCRED gives pid 0 for a process of another pid namespace).

use rustix::fd::{AsFd, AsRawFd};
use std::io;

/// Who is at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// 0 when it is in a pid namespace that the broker cannot see.
    pub pid: u32,
    pub uid: u32,
}

fn get<const N: usize>(fd: impl AsFd, level: i32, name: i32) -> io::Result<[u8; N]> {
    let mut value = [0u8; N];
    let mut len = N as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the size of `value`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    match result {
        0 if len as usize == N => Ok(value),
        0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get_u32(fd: impl AsFd, level: i32, name: i32) -> io::Result<u32> {
    get(fd, level, name).map(u32::from_ne_bytes)
}

pub fn peer_credentials(fd: impl AsFd) -> io::Result<Credentials> {
    // struct ucred: pid, uid, gid.
    let raw: [u8; 12] = get(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    let at = |i: usize| u32::from_ne_bytes([raw[i], raw[i + 1], raw[i + 2], raw[i + 3]]);
    Ok(Credentials { pid: at(0), uid: at(4) })
}

/// SO_DOMAIN, SO_TYPE, SO_PROTOCOL.
pub fn kind(fd: impl AsFd) -> io::Result<(u32, u32, u32)> {
    let fd = fd.as_fd();
    Ok((
        get_u32(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?,
        get_u32(fd, libc::SOL_SOCKET, libc::SO_TYPE)?,
        get_u32(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)?,
    ))
}

/// tcpi_state and tcpi_options, the first and the sixth byte of TCP_INFO.
pub fn tcp_state_and_options(fd: impl AsFd) -> io::Result<(u8, u8)> {
    let raw: [u8; 8] = get(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok((raw[0], raw[5]))
}

/// Unlike any other socket's since the machine started.
pub fn cookie(fd: impl AsFd) -> io::Result<u64> {
    get(fd, libc::SOL_SOCKET, libc::SO_COOKIE).map(u64::from_ne_bytes)
}

/// The cookie of the socket's network namespace (Linux 5.14).
pub fn netns_cookie(fd: impl AsFd) -> io::Result<u64> {
    // asm-generic/socket.h; libc does not name it on every target.
    const SO_NETNS_COOKIE: i32 = 71;
    get(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE).map(u64::from_ne_bytes)
}

/// Index of the device that the socket is bound to, 0 for none.
pub fn bound_device(fd: impl AsFd) -> io::Result<u32> {
    get_u32(fd, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX)
}

/// Resets a TCP connection: what disconnecting does, whoever else has the socket.
pub fn reset(fd: impl AsFd) {
    // SAFETY: all zero is a sockaddr of AF_UNSPEC.
    let unspecified: libc::sockaddr = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes. It cannot fail for a TCP socket, and of others
    // nothing is asked.
    unsafe { libc::connect(fd.as_fd().as_raw_fd(), &raw const unspecified, len) };
}
