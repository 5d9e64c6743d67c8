//! Socket options that rustix has not, or that it reads into types the kernel can break
//! (SO_PEERCRED gives pid 0 for a process of another pid namespace).

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
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

/// A descriptor for the process at the other end (Linux 6.5).
pub fn peer_pidfd(fd: impl AsFd) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: i32 = 77;
    let pidfd = get_u32(fd, libc::SOL_SOCKET, SO_PEERPIDFD)? as i32;
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// asm-generic/socket.h (Linux 6.16).
const SO_PASSRIGHTS: i32 = 83;

pub fn passes_rights(fd: impl AsFd) -> io::Result<bool> {
    get_u32(fd, libc::SOL_SOCKET, SO_PASSRIGHTS).map(|value| value != 0)
}

/// What a service manager passes to this process, as sd_listen_fds(3) says.
#[derive(Default)]
pub struct Inherited {
    /// The Unix socket that it listens on for us.
    pub listener: Option<OwnedFd>,
    /// What an earlier process of this service gave it to keep, by name.
    pub kept: Vec<(String, OwnedFd)>,
}

/// To be called once.
pub fn inherited() -> Inherited {
    const FIRST: i32 = 3;
    /// More than anything of ours.
    const MOST: i32 = 1 << 16;
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let mut inherited = Inherited::default();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return inherited;
    }
    let count = number("LISTEN_FDS").and_then(|count| i32::try_from(count).ok());
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    for number in FIRST..FIRST + count.unwrap_or(0).min(MOST) {
        // SAFETY: whoever started this process says that it is open and this process's to use.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        let name = names.next().unwrap_or_default();
        if rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).is_err() {
            // It is not open: nothing is to be closed.
            std::mem::forget(fd);
        } else if inherited.listener.is_none() && is_listener(&fd) {
            inherited.listener = rustix::io::ioctl_fionbio(&fd, true).is_ok().then_some(fd);
        } else {
            inherited.kept.push((name.to_owned(), fd));
        }
    }
    inherited
}

fn is_listener(fd: &OwnedFd) -> bool {
    let is = |option, value: i32| {
        get_u32(fd, libc::SOL_SOCKET, option).is_ok_and(|found| found == value as u32)
    };
    is(libc::SO_DOMAIN, libc::AF_UNIX)
        && is(libc::SO_TYPE, libc::SOCK_SEQPACKET)
        && is(libc::SO_ACCEPTCONN, 1)
}

/// Whether senders may pass descriptors to this Unix socket, and to those accepted from it.
pub fn set_pass_rights(fd: impl AsFd, on: bool) -> io::Result<()> {
    let value = i32::from(on);
    // SAFETY: the value is an int that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub fn cookie(fd: impl AsFd) -> io::Result<u64> {
    get(fd, libc::SOL_SOCKET, libc::SO_COOKIE).map(u64::from_ne_bytes)
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

/// The cookie of the socket's network namespace (Linux 5.14).
pub fn netns_cookie(fd: impl AsFd) -> io::Result<u64> {
    // asm-generic/socket.h; libc does not name it on every target.
    const SO_NETNS_COOKIE: i32 = 71;
    get(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE).map(u64::from_ne_bytes)
}
