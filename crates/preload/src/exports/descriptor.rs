//! Descriptors and sockets: made, named, set, closed.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_void};

use crate::entry::{self, Entry};
use crate::guest::Accepted;
use crate::memory;
use crate::set::{self};
use crate::sys::{self, call};
use crate::{elsewhere, filter, guest, options, process, promote, real, table};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::shutdown(fd, how) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    // Before the connection lets go: a thread that is cancelled here leaves the number open.
    process::cancellation_point();
    // SAFETY: the program's own arguments.
    unsafe { options::close(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::close_range(first, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the program's own arguments.
    unsafe { options::close_range(first.max(0) as u32, u32::MAX, 0) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if matches!(entry::get(fd), Entry::Own) {
        sys::set_errno(sys::EBADF);
        return -1;
    }
    // SAFETY: no memory involved.
    let ret = unsafe { real::dup(fd) };
    if ret >= 0 {
        options::duplicated(fd, ret);
    }
    ret
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::dup_onto(from, to, None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::dup_onto(from, to, Some(flags)) }
}

// Variadic in C; on x86-64 an int or pointer argument arrives in the same register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::fcntl(fd, cmd, arg) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::fcntl(fd, cmd, arg) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: usize, arg: usize) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::ioctl(fd, request, arg) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sockatmark(fd: c_int) -> c_int {
    let mut at: c_int = 0;
    // SAFETY: a variable of ours.
    let ret = unsafe { options::ioctl(fd, sys::SIOCATMARK, &raw mut at as usize) };
    if ret < 0 { ret } else { at }
}

/// A copy of a descriptor of another process's, or of one of this process's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pidfd_getfd(process: c_int, theirs: c_int, flags: u32) -> c_int {
    // SAFETY: no memory involved.
    let fd = sys::returned(unsafe { call!(pidfd_getfd, process, theirs, flags) }) as c_int;
    if fd >= 0 {
        options::copied(fd);
    }
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: u32,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::setsockopt(fd, level, name, value, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut u32,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::getsockopt(fd, level, name, value, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: no memory involved.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd >= 0 {
        options::renumbered(fd);
        set::numbers::number_closed(fd);
        if guest::marks(domain, kind, protocol) && !process::is_borrowed() {
            table::set_fresh(fd);
        }
    }
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const c_void, len: u32) -> c_int {
    const EINPROGRESS: i32 = 115;
    let entry = entry::get(fd);
    if let Entry::Guest(behind) = entry {
        // What there is to say of the connection TCP says.
        // SAFETY: the program's own arguments.
        return unsafe { real::connect(behind, addr, len) };
    }
    // SAFETY: the program's own arguments.
    let request = unsafe { guest::prepare(fd, addr, len) };
    // SAFETY: the program's own arguments.
    let ret = unsafe { real::connect(fd, addr, len) };
    let begun = ret == 0 || sys::errno() == EINPROGRESS;
    if begun {
        elsewhere::note_step();
    }
    if begun
        && let Some(request) = request
        && guest::connected(fd, &request, ret != 0)
    {
        return ret;
    }
    match entry {
        // The only connect that works on a connection dissolves it (AF_UNSPEC).
        Entry::Conn(conn) if ret == 0 => {
            conn.dissolve(fd);
            filter::lets_through(conn, fd);
        }
        Entry::Nothing | Entry::Fresh if begun && is_ip(memory::get(addr.cast())) => {
            process::refresh();
            if !process::is_borrowed() {
                promote::begin(fd, false);
                if ret == 0 {
                    promote::at_once(fd);
                }
            }
        }
        _ => {}
    }
    ret
}

/// Only sockets of IP become candidates: what else programs accept and connect, Unix sockets
/// above all, is never touched.
fn is_ip(family: Option<u16>) -> bool {
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    matches!(family, Some(AF_INET | AF_INET6))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { accept_with(addr, len, || real::accept(fd, addr, len)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    addr: *mut c_void,
    len: *mut u32,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { accept_with(addr, len, || real::accept4(fd, addr, len, flags)) }
}

/// # Safety
/// `addr` and `len` as the program passed them.
unsafe fn accept_with(addr: *mut c_void, len: *mut u32, kernel: impl Fn() -> c_int) -> c_int {
    let room = if addr.is_null() { None } else { memory::get(len) };
    loop {
        let fd = kernel();
        // The kernel has said of what family it is, if there was room for it.
        let has_family = room.is_some_and(|room| room >= 2) && fd >= 0;
        let family = if has_family { memory::get(addr.cast::<u16>()) } else { None };
        if fd < 0 || accepted(fd, family) {
            return fd;
        }
        // That one was reset before the program had it: the next.
        if let Some(room) = room {
            memory::put(len, room);
        }
    }
}

/// False: it is not there any more.
fn accepted(fd: c_int, family: Option<u16>) -> bool {
    options::renumbered(fd);
    set::numbers::number_closed(fd);
    process::refresh();
    if process::has_left_rings() {
        return true;
    }
    let family = family.or_else(|| {
        let saved = sys::errno();
        let domain = sys::getsockopt_u64(fd, sys::SOL_SOCKET, sys::SO_DOMAIN, 4);
        sys::set_errno(saved);
        domain.map(|domain| domain as u16)
    });
    if !is_ip(family) || process::is_borrowed() {
        return true;
    }
    match guest::accepted(fd) {
        Accepted::Tcp => {
            promote::begin(fd, true);
            promote::at_once(fd);
        }
        Accepted::Vsock => {}
        Accepted::Reset => return false,
    }
    true
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { real::getsockname(named(fd), addr, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { real::getpeername(named(fd), addr, len) }
}

/// The socket that knows the names.
fn named(fd: c_int) -> c_int {
    match entry::get(fd) {
        Entry::Guest(behind) => behind,
        _ => fd,
    }
}
