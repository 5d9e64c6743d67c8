//! AF_VSOCK sockets: what rustix has not.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::io;

const FLAGS: i32 = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn address(cid: u32, port: u32) -> libc::sockaddr_vm {
    // SAFETY: a struct of numbers.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
    address.svm_cid = cid;
    address.svm_port = port;
    address
}

const ADDRESS_BYTES: libc::socklen_t = size_of::<libc::sockaddr_vm>() as libc::socklen_t;

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory involved; the descriptor is new and ours.
    unsafe { check(libc::socket(libc::AF_VSOCK, FLAGS, 0)).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

fn bind(fd: &OwnedFd, port: u32) -> io::Result<()> {
    let address = address(libc::VMADDR_CID_ANY, port);
    // SAFETY: the kernel reads the address.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), ADDRESS_BYTES) })?;
    Ok(())
}

pub fn listen(port: u32, backlog: i32) -> io::Result<OwnedFd> {
    let fd = socket()?;
    bind(&fd, port)?;
    // SAFETY: no memory involved.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) })?;
    Ok(fd)
}

/// The next connection, with the other side's CID and port. Never waits.
///
/// Asks whether there is one first: where there is none, AF_VSOCK's accept sleeps until the next
/// tick, up to 4 ms, whatever O_NONBLOCK says (vsock_accept in Linux 6.1).
pub fn accept(fd: impl AsFd) -> io::Result<(OwnedFd, u32, u32)> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now))? == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let mut from = address(0, 0);
    let mut len = ADDRESS_BYTES;
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes at most `len` bytes; the descriptor is new and ours.
    let accepted = unsafe {
        let fd = fd.as_fd().as_raw_fd();
        check(libc::accept4(fd, (&raw mut from).cast(), &raw mut len, flags))
            .map(|fd| OwnedFd::from_raw_fd(fd))?
    };
    Ok((accepted, from.svm_cid, from.svm_port))
}

/// Begins to connect, from a port that only root can have: the first that is free from `first`
/// on, below `end`.
pub fn connect(cid: u32, port: u32, ports: impl Iterator<Item = u32>) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let mut bound = Err(io::Error::from(io::ErrorKind::AddrInUse));
    for port in ports {
        bound = bind(&fd, port);
        match &bound {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            _ => break,
        }
    }
    bound?;
    let to = address(cid, port);
    // SAFETY: the kernel reads the address.
    let result =
        check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const to).cast(), ADDRESS_BYTES) });
    match result {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(fd),
    }
}

/// This guest's own CID, as the kernel's transport has it.
pub fn local_cid() -> io::Result<u32> {
    /// IOCTL_VM_SOCKETS_GET_LOCAL_CID of linux/vm_sockets.h.
    const GET_LOCAL_CID: libc::c_ulong = 0x7b9;
    let device = std::fs::File::open("/dev/vsock")?;
    let mut cid = 0u32;
    // SAFETY: the kernel writes one 32-bit number.
    check(unsafe { libc::ioctl(device.as_raw_fd(), GET_LOCAL_CID as _, &raw mut cid) })?;
    if cid == libc::VMADDR_CID_ANY { Err(io::ErrorKind::NotFound.into()) } else { Ok(cid) }
}
