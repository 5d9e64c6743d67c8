//! Waits and transfers by the instruction itself: what a library in front of libc cannot see.
//!
//! Only `bare`, the peer that is built to use them, calls this, so that the other peers'
//! programs hold no such instruction of their own.

use std::io::{Error, Result};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use libc::{c_long, c_ulong, pollfd, timespec};

use super::{Fd, Ready, duration, is_set, set_with};

/// # Safety
/// As for the call by its name.
unsafe fn call(number: c_long, arguments: [usize; 6]) -> Result<usize> {
    let [one, two, three, four, five, six] = arguments;
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's convention on this machine; the arguments are the caller's.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") one, in("rsi") two, in("rdx") three,
            in("r10") four, in("r8") five, in("r9") six,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") one as isize => result,
            in("x1") two, in("x2") three, in("x3") four, in("x4") five, in("x5") six,
            options(nostack),
        );
    }
    usize::try_from(result).map_err(|_| Error::from_raw_os_error(-result as i32))
}

/// # Safety
/// As for the call by its name.
unsafe fn call_with<T>(number: c_long, words: [usize; 4], time: *const T) -> Result<usize> {
    let [one, two, three, four] = words;
    // SAFETY: the caller's promise; no sixth argument.
    unsafe { call(number, [one, two, three, four, time as usize, 0]) }
}

/// By `poll` where there is one; the events, 0 after the timeout.
pub fn poll(fd: Fd, events: i16, timeout_ms: i32) -> Result<i16> {
    #[cfg(target_arch = "x86_64")]
    {
        let mut one = pollfd { fd, events, revents: 0 };
        let at = (&raw mut one) as usize;
        // SAFETY: one pollfd, which outlives the call.
        unsafe { call(libc::SYS_poll, [at, 1, timeout_ms as usize, 0, 0, 0]) }?;
        Ok(one.revents)
    }
    #[cfg(not(target_arch = "x86_64"))]
    ppoll(fd, events, timeout_ms)
}

pub fn ppoll(fd: Fd, events: i16, timeout_ms: i32) -> Result<i16> {
    let mut one = pollfd { fd, events, revents: 0 };
    let mut time = duration(timeout_ms);
    let at = (&raw mut one) as usize;
    // SAFETY: one pollfd and the time outlive the call; no mask.
    unsafe { call(libc::SYS_ppoll, [at, 1, (&raw mut time) as usize, 0, 0, 0]) }?;
    Ok(one.revents)
}

pub fn select(fd: Fd, want: Ready, timeout_ms: i32) -> Result<Ready> {
    let (mut reads, mut writes) = (set_with(fd, want.readable), set_with(fd, want.writable));
    let (read, write) = ((&raw mut reads) as usize, (&raw mut writes) as usize);
    #[cfg(target_arch = "x86_64")]
    {
        let millis = i64::from(timeout_ms);
        let time = libc::timeval { tv_sec: millis / 1000, tv_usec: millis % 1000 * 1000 };
        let words = [fd as usize + 1, read, write, 0];
        // SAFETY: sets and time outlive the call.
        unsafe { call_with(libc::SYS_select, words, &raw const time) }?;
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let time = duration(timeout_ms);
        let words = [fd as usize + 1, read, write, 0];
        // SAFETY: sets and time outlive the call; no mask.
        unsafe { call_with(libc::SYS_pselect6, words, &raw const time) }?;
    }
    Ok(Ready { readable: is_set(fd, &reads), writable: is_set(fd, &writes) })
}

/// By `epoll_wait` where there is one.
pub fn epoll_wait(set: Fd, max: usize, timeout_ms: i32) -> Result<Vec<(u32, u64)>> {
    #[cfg(target_arch = "x86_64")]
    let number = libc::SYS_epoll_wait;
    #[cfg(not(target_arch = "x86_64"))]
    let number = libc::SYS_epoll_pwait;
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; max];
    let words = [set as usize, events.as_mut_ptr() as usize, max, timeout_ms as usize];
    // SAFETY: room for `max` events; no mask.
    let count = unsafe { call_with(number, words, null::<timespec>()) }?;
    events.truncate(count);
    Ok(events.iter().map(|event| (event.events, event.u64)).collect())
}

// ---- Linux AIO ----

const READS: u16 = 0;
const WRITES: u16 = 1;
const POLLS: u16 = 5;

/// `struct iocb` of linux/aio_abi.h on little-endian machines.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    flags: u32,
    operation: u16,
    priority: i16,
    fd: u32,
    at: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    event_fd: u32,
}

#[repr(C)]
#[derive(Default)]
struct Outcome {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

/// The process's context, with the process: a forked child has none.
static CONTEXT: Mutex<(u32, c_ulong)> = Mutex::new((0, 0));

/// One request, waited for; `None` after the timeout.
fn submit(mut request: Request, timeout_ms: i32) -> Result<Option<usize>> {
    let mut held = CONTEXT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if held.0 != std::process::id() {
        held.1 = 0;
        let at = (&raw mut held.1) as usize;
        // SAFETY: a word that the kernel fills.
        unsafe { call(libc::SYS_io_setup, [8, at, 0, 0, 0, 0]) }?;
        held.0 = std::process::id();
    }
    let mut at = &raw mut request;
    let context = held.1 as usize;
    // SAFETY: request and what it names outlive the wait below, or the context does not.
    unsafe { call(libc::SYS_io_submit, [context, 1, (&raw mut at) as usize, 0, 0, 0]) }?;
    let mut outcome = Outcome::default();
    let time = duration(timeout_ms);
    let words = [context, 1, 1, (&raw mut outcome) as usize];
    // SAFETY: room for one event.
    let count = unsafe { call_with(libc::SYS_io_getevents, words, &raw const time) }?;
    if count == 0 {
        *held = (0, 0);
        // SAFETY: ends what is under way before it returns.
        unsafe { call(libc::SYS_io_destroy, [context, 0, 0, 0, 0, 0]) }?;
        return Ok(None);
    }
    let result = usize::try_from(outcome.result);
    result.map(Some).map_err(|_| Error::from_raw_os_error(-outcome.result as i32))
}

fn request(fd: Fd, operation: u16, at: u64, len: usize) -> Request {
    Request { operation, fd: fd.cast_unsigned(), at, len: len as u64, ..Request::default() }
}

/// IOCB_CMD_POLL: the events, 0 after the timeout.
pub fn aio_poll(fd: Fd, events: i16, timeout_ms: i32) -> Result<i16> {
    let wanted = u64::from(events.cast_unsigned());
    Ok(submit(request(fd, POLLS, wanted, 0), timeout_ms)?.unwrap_or(0) as i16)
}

/// IOCB_CMD_PREAD: `None` when nothing came in time.
pub fn aio_read(fd: Fd, out: &mut [u8], timeout_ms: i32) -> Result<Option<usize>> {
    submit(request(fd, READS, out.as_mut_ptr() as u64, out.len()), timeout_ms)
}

/// IOCB_CMD_PWRITE.
pub fn aio_write(fd: Fd, data: &[u8], timeout_ms: i32) -> Result<Option<usize>> {
    submit(request(fd, WRITES, data.as_ptr() as u64, data.len()), timeout_ms)
}

// ---- bytes ----

pub fn read(fd: Fd, out: &mut [u8]) -> Result<usize> {
    let words = [fd as usize, out.as_mut_ptr() as usize, out.len(), 0];
    // SAFETY: a buffer of ours.
    unsafe { call_with(libc::SYS_read, words, null_mut::<u8>()) }
}

pub fn write(fd: Fd, data: &[u8]) -> Result<usize> {
    let words = [fd as usize, data.as_ptr() as usize, data.len(), 0];
    // SAFETY: a buffer of ours.
    unsafe { call_with(libc::SYS_write, words, null_mut::<u8>()) }
}
