//! poll, select and epoll.

use core::ffi::{c_int, c_void};

use super::check;
use crate::poll::Poll;
use crate::select::Sets;
use crate::set::{self, Wait};
use crate::sys::{EpollEvent, PollFd, TimeSpec};
use crate::table::{self, Entry};
use crate::timeout::Timeout;
use crate::{clock, options, process, real};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut PollFd, count: u64, timeout: c_int) -> c_int {
    if fds.is_null() || count == 0 || count > table::CAPACITY as u64 {
        // SAFETY: the program's own arguments.
        return unsafe { real::poll(fds, count, timeout) };
    }
    // SAFETY: the program's own array.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds, count as usize) };
    process::refresh();
    let timeout = Timeout::from_ms(timeout);
    Poll { fds, timeout, mask: core::ptr::null(), precise: false }.wait()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    fds: *mut PollFd,
    count: u64,
    timeout: c_int,
    size: usize,
) -> c_int {
    check(count as usize * size_of::<PollFd>(), size);
    // SAFETY: the program's own arguments.
    unsafe { poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut PollFd,
    count: u64,
    timeout: *const TimeSpec,
    mask: *const c_void,
) -> c_int {
    // SAFETY: the program's own arguments.
    let limit = unsafe { Timeout::from_timespec(timeout) };
    let (Some(timeout), false, 1..=0xf_ffff) = (limit, fds.is_null(), count) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::ppoll(fds, count, timeout, mask) };
    };
    // SAFETY: the program's own array.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds, count as usize) };
    process::refresh();
    Poll { fds, timeout, mask, precise: true }.wait()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut PollFd,
    count: u64,
    timeout: *const TimeSpec,
    mask: *const c_void,
    size: usize,
) -> c_int {
    check(count as usize * size_of::<PollFd>(), size);
    // SAFETY: the program's own arguments.
    unsafe { ppoll(fds, count, timeout, mask) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut u64,
    write: *mut u64,
    except: *mut u64,
    timeout: *mut TimeSpec,
) -> c_int {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::select(count, read, write, except, timeout) };
    let sets = Sets { count, read, write, except };
    if count <= 0 || !sets.concerns() {
        return kernel();
    }
    // A timeval: microseconds, which libc accepts unnormalised.
    let limit = if timeout.is_null() {
        Timeout { ns: -1 }
    } else {
        // SAFETY: the program's own variable.
        let time = unsafe { *timeout };
        if time.sec < 0 || time.nsec < 0 {
            return kernel();
        }
        Timeout {
            ns: time
                .sec
                .saturating_mul(1_000_000_000)
                .saturating_add(time.nsec.saturating_mul(1000)),
        }
    };
    process::refresh();
    let start_ns = clock::now_ns();
    let Some(ret) = sets.wait(limit, core::ptr::null()) else { return kernel() };
    if !timeout.is_null() {
        let left = limit.less(start_ns).timespec();
        // SAFETY: the program's own variable; Linux leaves what is left there.
        unsafe { *timeout = TimeSpec { sec: left.sec, nsec: left.nsec / 1000 } };
    }
    ret
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut u64,
    write: *mut u64,
    except: *mut u64,
    timeout: *const TimeSpec,
    mask: *const c_void,
) -> c_int {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::pselect(count, read, write, except, timeout, mask) };
    let sets = Sets { count, read, write, except };
    // SAFETY: as above.
    let Some(limit) = (unsafe { Timeout::from_timespec(timeout) }) else { return kernel() };
    if count <= 0 || !sets.concerns() {
        return kernel();
    }
    process::refresh();
    sets.wait(limit, mask).unwrap_or_else(kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: no memory involved.
    made_set(unsafe { real::epoll_create(size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: no memory involved.
    made_set(unsafe { real::epoll_create1(flags) })
}

fn made_set(fd: c_int) -> c_int {
    if fd >= 0 {
        options::renumbered(fd);
        if !process::is_borrowed() {
            set::created(fd);
        }
    }
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    set_fd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut EpollEvent,
) -> c_int {
    match table::get(set_fd) {
        Entry::Set(set) => {
            process::refresh();
            // SAFETY: the program's own arguments.
            unsafe { set.ctl(set_fd, op, fd, event) }
        }
        _ => {
            // A set that this library does not know watches it.
            if op == 1 {
                options::leave_to_others(fd);
                set::watched_from_outside(fd);
            }
            // SAFETY: the program's own arguments.
            unsafe { real::epoll_ctl(set_fd, op, fd, event) }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    fd: c_int,
    events: *mut EpollEvent,
    max: c_int,
    timeout: c_int,
) -> c_int {
    let Entry::Set(set) = table::get(fd) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::epoll_wait(fd, events, max, timeout) };
    };
    process::refresh();
    let timeout = Timeout::from_ms(timeout);
    set.wait(&Wait { fd, events, max, timeout, mask: core::ptr::null(), precise: false })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    fd: c_int,
    events: *mut EpollEvent,
    max: c_int,
    timeout: c_int,
    mask: *const c_void,
) -> c_int {
    let Entry::Set(set) = table::get(fd) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::epoll_pwait(fd, events, max, timeout, mask) };
    };
    process::refresh();
    set.wait(&Wait { fd, events, max, timeout: Timeout::from_ms(timeout), mask, precise: false })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    fd: c_int,
    events: *mut EpollEvent,
    max: c_int,
    timeout: *const TimeSpec,
    mask: *const c_void,
) -> c_int {
    // SAFETY: the program's own arguments.
    let limit = unsafe { Timeout::from_timespec(timeout) };
    let (Entry::Set(set), Some(limit)) = (table::get(fd), limit) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::epoll_pwait2(fd, events, max, timeout, mask) };
    };
    process::refresh();
    set.wait(&Wait { fd, events, max, timeout: limit, mask, precise: true })
}
