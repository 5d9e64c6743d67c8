//! Descriptors and sockets: made, named, set, closed.

use core::ffi::{c_int, c_void};

use crate::guest::Accepted;
use crate::memory;
use crate::set::{self};
use crate::sys::{self};
use crate::table::{self, Candidate, Entry};
use crate::{guest, options, process, promote, real};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::shutdown(fd, how) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
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
    if matches!(table::get(fd), Entry::Broker) {
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
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: no memory involved.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd >= 0 {
        options::renumbered(fd);
        set::number_closed(fd);
        if guest::marks(domain, kind, protocol) && !process::is_borrowed() {
            table::set_fresh(fd);
        }
    }
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const c_void, len: u32) -> c_int {
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    const EINPROGRESS: i32 = 115;
    let family = if addr.is_null() || len < 2 {
        0
    } else {
        // SAFETY: the program's own address.
        unsafe { addr.cast::<u16>().read_unaligned() }
    };
    if let (Entry::Conn(conn), 0) = (table::get(fd), family) {
        // AF_UNSPEC dissolves the association.
        conn.dissolve(fd);
    }
    let entry = table::get(fd);
    if let Entry::Guest(behind) = entry {
        // What there is to say of the connection TCP says.
        // SAFETY: the program's own arguments.
        return unsafe { real::connect(behind, addr, len) };
    }
    let is_ip = matches!(family, AF_INET | AF_INET6);
    // SAFETY: the program's own arguments.
    let errand = if is_ip { unsafe { guest::prepare(fd, addr, len) } } else { None };
    // SAFETY: the program's own arguments.
    let ret = unsafe { real::connect(fd, addr, len) };
    let begun = ret == 0 || sys::errno() == EINPROGRESS;
    if begun
        && let Some(errand) = errand
        && guest::connected(fd, &errand, ret != 0)
    {
        return ret;
    }
    if begun && is_ip && matches!(entry, Entry::Nothing | Entry::Fresh) {
        process::refresh();
        if !process::is_borrowed() {
            table::set_candidate(fd, Candidate::new(false));
            if ret == 0 {
                promote::at_once(fd);
            }
        }
    }
    ret
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { accept_with(len, || real::accept(fd, addr, len)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    addr: *mut c_void,
    len: *mut u32,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { accept_with(len, || real::accept4(fd, addr, len, flags)) }
}

/// # Safety
/// `len` as the program passed it.
unsafe fn accept_with(len: *mut u32, kernel: impl Fn() -> c_int) -> c_int {
    let has_len = memory::is_readable(len, 1);
    // SAFETY: the program's own variable.
    let room = if has_len { unsafe { *len } } else { 0 };
    loop {
        let fd = kernel();
        if fd < 0 || accepted(fd) {
            return fd;
        }
        // That one was reset before the program had it: the next.
        if has_len {
            // SAFETY: as above.
            unsafe { *len = room };
        }
    }
}

/// False: it is not there any more.
fn accepted(fd: c_int) -> bool {
    options::renumbered(fd);
    set::number_closed(fd);
    process::refresh();
    match guest::accepted(fd) {
        Accepted::Tcp => {
            table::set_candidate(fd, Candidate::new(true));
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
    match table::get(fd) {
        Entry::Guest(behind) => behind,
        _ => fd,
    }
}
