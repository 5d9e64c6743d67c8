//! poll, select and epoll.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_void};

use super::check;
use crate::clock::Since;
use crate::entry::{self, Entry};
use crate::epoll_wait::{Form, Wait};
use crate::poll::Poll;
use crate::select::Sets;
use crate::set::{self, Set};
use crate::sys::{self, EpollEvent, PollFd, TimeSpec};
use crate::timeout::Timeout;
use crate::{epoll_ctl, epoll_wait, guest, life, memory, options, process, real, table};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut PollFd, count: u64, timeout: c_int) -> c_int {
    let Some(list) = list_of(fds, count) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::poll(fds, count, timeout) };
    };
    process::refresh();
    let timeout = Timeout::from_ms(timeout);
    Poll { fds: list, timeout, mask: core::ptr::null(), precise: false }.wait()
}

/// A program's list; `None`: the kernel answers for it.
fn list_of<'a>(fds: *mut PollFd, count: u64) -> Option<&'a mut [PollFd]> {
    let is_list = (1..=table::CAPACITY as u64).contains(&count);
    // SAFETY: the program's own array, which can be read and written.
    (is_list && memory::is_writable(fds, count as usize))
        .then(|| unsafe { core::slice::from_raw_parts_mut(fds, count as usize) })
}

/// A time that the kernel reads, or null; libc's own entries would look at it themselves.
fn is_time(time: *const TimeSpec) -> bool {
    let is_there = time.is_null() || memory::is_readable(time, 1);
    if !is_there {
        sys::set_errno(sys::EFAULT);
    }
    is_there
}

/// A program's signal mask, or null.
fn is_mask(mask: *const c_void) -> bool {
    mask.is_null() || memory::is_readable(mask.cast::<u64>(), 1)
}

/// A readable one, for the wait: none where the thread blocks just these signals anyway. Nothing may interrupt the
/// wait then that could not interrupt one without a mask, so the library may watch.
fn needed(mask: *const c_void) -> *const c_void {
    // The kernel takes them out of each mask: SIGKILL, SIGSTOP.
    const NEVER_BLOCKED: u64 = 1 << 8 | 1 << 18;
    let is_same = |blocked: u64| {
        memory::get(mask.cast::<u64>()).is_some_and(|mask| mask & !NEVER_BLOCKED == blocked)
    };
    let is_asked = !mask.is_null() && !process::is_sandboxed();
    let is_needed = !is_asked || !sys::blocked_signals().is_some_and(is_same);
    if is_needed { mask } else { core::ptr::null() }
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
    if !is_time(timeout) {
        return -1;
    }
    let limit = Timeout::from_timespec(timeout).filter(|_| is_mask(mask));
    let (Some(timeout), Some(fds)) = (limit, list_of(fds, count)) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::ppoll(fds, count, timeout, mask) };
    };
    process::refresh();
    Poll { fds, timeout, mask: needed(mask), precise: true }.wait()
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
    if !is_time(timeout) {
        return -1;
    }
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::select(count, read, write, except, timeout) };
    let Some(sets) = (Sets { count, read, write, except }).concerning() else { return kernel() };
    if process::is_sandboxed() {
        return sets.wait_in_sandbox(|may_wait| {
            let mut now = TimeSpec::default();
            let limit = if may_wait { timeout } else { &raw mut now };
            // SAFETY: as above.
            unsafe { real::select(count, read, write, except, limit) }
        });
    }
    // A timeval: microseconds, which libc accepts unnormalised.
    let limit = if timeout.is_null() {
        Timeout { ns: -1 }
    } else {
        let time = memory::get(timeout);
        let Some(time) = time.filter(|time| time.sec >= 0 && time.nsec >= 0) else {
            return kernel();
        };
        Timeout {
            ns: time
                .sec
                .saturating_mul(1_000_000_000)
                .saturating_add(time.nsec.saturating_mul(1000)),
        }
    };
    process::refresh();
    let start = Since::now();
    let Some(ret) = sets.wait(limit, core::ptr::null()) else { return kernel() };
    if !timeout.is_null() {
        // Nothing is left when the time was up, by whatever clock.
        let left = if ret == 0 { Timeout::from_ms(0) } else { limit.less(&start) }.timespec();
        // Linux leaves what is left there, if it can.
        memory::put(timeout, TimeSpec { sec: left.sec, nsec: left.nsec / 1000 });
    }
    ret
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut u64,
    write: *mut u64,
    except: *mut u64,
    timeout: *const TimeSpec,
    mask: *const c_void,
) -> c_int {
    if !is_time(timeout) {
        return -1;
    }
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::pselect(count, read, write, except, timeout, mask) };
    let sets = Sets { count, read, write, except };
    let limit = Timeout::from_timespec(timeout).filter(|_| is_mask(mask));
    let (Some(limit), Some(sets)) = (limit, sets.concerning()) else { return kernel() };
    process::refresh();
    if process::is_sandboxed() {
        return sets.wait_in_sandbox(|may_wait| {
            let now = TimeSpec::default();
            let limit = if may_wait { timeout } else { &raw const now };
            // SAFETY: as above.
            unsafe { real::pselect(count, read, write, except, limit, mask) }
        });
    }
    sets.wait(limit, needed(mask)).unwrap_or_else(kernel)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: no memory involved.
    made_set(unsafe { real::epoll_create(size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
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

const EPOLL_CTL_ADD: c_int = 1;
const EPOLL_CTL_DEL: c_int = 2;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    set_fd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut EpollEvent,
) -> c_int {
    // Without an event to read the kernel refuses it, whatever else it is.
    let is_event = op == EPOLL_CTL_DEL || memory::is_readable(event, 1);
    match entry::get(set_fd) {
        Entry::Set(set) if is_event => {
            process::refresh();
            // SAFETY: the program's own arguments.
            unsafe { epoll_ctl::ctl(set, set_fd, op, fd, event) }
        }
        _ => {
            // A set that this library does not know watches it.
            if op == EPOLL_CTL_ADD && is_event {
                life::leave_to_others(fd);
                set::numbers::watched_from_outside(fd);
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
    let Entry::Set(set) = entry::get(fd) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::epoll_wait(fd, events, max, timeout) };
    };
    let timeout = Timeout::from_ms(timeout);
    wait_on(set, Wait { fd, events, max, timeout, mask: core::ptr::null(), form: Form::Wait })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    fd: c_int,
    events: *mut EpollEvent,
    max: c_int,
    timeout: c_int,
    mask: *const c_void,
) -> c_int {
    let Entry::Set(set) = entry::get(fd) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::epoll_pwait(fd, events, max, timeout, mask) };
    };
    if !is_mask(mask) {
        // SAFETY: as above.
        return unsafe { real::epoll_pwait(fd, events, max, timeout, mask) };
    }
    let timeout = Timeout::from_ms(timeout);
    wait_on(set, Wait { fd, events, max, timeout, mask: needed(mask), form: Form::Masked })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    fd: c_int,
    events: *mut EpollEvent,
    max: c_int,
    timeout: *const TimeSpec,
    mask: *const c_void,
) -> c_int {
    let limit = Timeout::from_timespec(timeout).filter(|_| is_mask(mask));
    let (Entry::Set(set), Some(limit)) = (entry::get(fd), limit) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::epoll_pwait2(fd, events, max, timeout, mask) };
    };
    wait_on(set, Wait { fd, events, max, timeout: limit, mask: needed(mask), form: Form::Precise })
}

/// So many events are looked at whether they can be written; behind them only the kernel knows.
const ROOM: usize = 64;

fn wait_on(set: &'static Set, wait: Wait) -> c_int {
    process::refresh();
    if memory::is_writable(wait.events, (wait.max.max(0) as usize).min(ROOM)) {
        let ret = epoll_wait::wait(set, &wait);
        if ret == 0 && wait.timeout.ns == 0 {
            guest::looked_in_vain();
        }
        return ret;
    }
    // The kernel writes as many as there is room for, and those that are left it tells next time.
    let room = (1..ROOM as c_int).take_while(|n| memory::is_writable(wait.events, *n as usize));
    if let Some(max) = room.last().filter(|max| *max < wait.max) {
        return epoll_wait::wait(set, &Wait { max, ..wait });
    }
    // There is none: the kernel says so once there is an event.
    let mut own = [EpollEvent { events: 0, data: 0 }; ROOM];
    let max = wait.max.min(ROOM as c_int);
    let ret = epoll_wait::wait(set, &Wait { events: own.as_mut_ptr(), max, ..wait });
    if ret <= 0 {
        return ret;
    }
    sys::set_errno(sys::EFAULT);
    -1
}
