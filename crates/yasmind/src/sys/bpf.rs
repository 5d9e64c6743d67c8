//! The two bpf(2) calls that aya does not make: an iterator's link for one process, and its run.

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::io;

const BPF_LINK_CREATE: i32 = 28;
const BPF_ITER_CREATE: i32 = 33;
const BPF_TRACE_ITER: u32 = 28;

/// The link_create member of union bpf_attr, as far as an iterator needs it.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    iter_info: u64,
    iter_info_len: u32,
    _pad: u32,
}

/// The iter_create member of union bpf_attr.
#[repr(C)]
struct IterCreate {
    link_fd: u32,
    flags: u32,
}

/// # Safety
/// `T` is laid out as the member of union bpf_attr that `command` takes, and the addresses in
/// it are valid for the call. `command` gives a new descriptor.
unsafe fn bpf<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise; the kernel reads `size_of::<T>()` bytes.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    match i32::try_from(result) {
        // SAFETY: a new descriptor, which nobody else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn raw(fd: impl AsFd) -> u32 {
    // A descriptor is never negative.
    fd.as_fd().as_raw_fd() as u32
}

/// Makes `program`, an iterator over tasks, one over process `pid` alone.
pub fn link_iterator(program: impl AsFd, pid: u32) -> io::Result<OwnedFd> {
    // union bpf_iter_link_info: task.tid, task.pid, task.pid_fd. By `tid` it is one thread, the
    // first one of the process.
    let info = [pid, 0, 0];
    let attributes = LinkCreate {
        prog_fd: raw(program),
        target_fd: 0,
        attach_type: BPF_TRACE_ITER,
        flags: 0,
        iter_info: info.as_ptr() as u64,
        iter_info_len: size_of_val(&info) as u32,
        _pad: 0,
    };
    // SAFETY: `LinkCreate` is bpf_attr's link_create, `info` outlives the call, and
    // BPF_LINK_CREATE gives a descriptor.
    unsafe { bpf(BPF_LINK_CREATE, &attributes) }
}

/// A new run of it, which read(2) on it makes.
pub fn run_iterator(link: impl AsFd) -> io::Result<OwnedFd> {
    let attributes = IterCreate { link_fd: raw(link), flags: 0 };
    // SAFETY: `IterCreate` is bpf_attr's iter_create; BPF_ITER_CREATE gives a descriptor.
    unsafe { bpf(BPF_ITER_CREATE, &attributes) }
}
