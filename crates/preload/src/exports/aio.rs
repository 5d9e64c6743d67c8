//! Asynchronous input and output: other threads, or the kernel, read and write by calls that
//! nobody sees. What they are asked to use is left to TCP before.
//!
//! What is unread in a ring then comes first. POSIX's requests for it are done at once; the
//! kernel's read it from a pipe, in place of the socket.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_long};

use super::stream::splice_ring;
use crate::conn::Conn;
use crate::entry::{self, Entry};
use crate::iov::Buffers;
use crate::sys::{self, AioRequest, IoVec, Ret, call};
use crate::{life, memory, process, real, recv, tcp};

const LIO_READ: c_int = 0;
const LIO_NOP: c_int = 2;
const SIGEV_SIGNAL: c_int = 0;
const SIGEV_NONE: c_int = 1;

/// The connection whose ring has something for a request that reads from `fd`, which is left
/// to TCP.
fn left(fd: c_int) -> Option<&'static Conn> {
    process::refresh();
    life::leave_to_others(fd);
    let Entry::Conn(conn) = entry::get(fd) else { return None };
    (!life::retires_drained(conn, fd) && recv::before_tcp(conn, fd) > 0).then_some(conn)
}

/// Whether a request to read was done here.
fn reads_ring(request: &mut AioRequest) -> bool {
    let Some(conn) = left(request.fd) else { return false };
    if !matches!(request.notify, SIGEV_SIGNAL | SIGEV_NONE) {
        // Threads are libc's to start: what is unread cannot be had this way.
        tcp::reset(request.fd);
        return false;
    }
    let one = IoVec { base: request.buf, len: request.len };
    let ret = loop {
        let ret = recv::recv(conn, request.fd, Buffers::one(&one), 0);
        // Bytes that come before the ring's are on their way.
        if ret != Some(-(sys::EAGAIN as Ret))
            || tcp::sleep_until(request.fd, sys::POLLIN, sys::SO_RCVTIMEO) < 0
        {
            break ret;
        }
    };
    let Some(ret) = ret else { return false };
    request.error = if ret < 0 { -ret as c_int } else { 0 };
    request.ret = ret.max(-1);
    if request.notify == SIGEV_SIGNAL && request.signal != 0 {
        tell(request);
    }
    true
}

/// Sends the signal of a request that is done.
fn tell(request: &AioRequest) {
    const SI_ASYNCIO: c_int = -4;
    /// siginfo_t: signal, errno and code, then process, user and value.
    #[repr(C)]
    struct Info {
        signal: c_int,
        errno: c_int,
        code: c_int,
        _pad: c_int,
        pid: u32,
        uid: u32,
        value: usize,
        _rest: [u64; 12],
    }
    let info = Info {
        signal: request.signal,
        errno: 0,
        code: SI_ASYNCIO,
        _pad: 0,
        pid: sys::getpid(),
        uid: process::effective_ids().0,
        value: request.value,
        _rest: [0; 12],
    };
    // SAFETY: 128 bytes of ours.
    unsafe { call!(rt_sigqueueinfo, info.pid, request.signal, &raw const info) };
}

macro_rules! reads {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(request: *mut AioRequest) -> c_int {
            // SAFETY: the program's own request; libc takes any pointer for one, too.
            if reads_ring(unsafe { &mut *request }) {
                return 0;
            }
            // SAFETY: as above.
            unsafe { real::$name(request) }
        }
    )*};
}

macro_rules! writes {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(request: *mut AioRequest) -> c_int {
            // SAFETY: as above.
            unsafe {
                life::leave_to_others((*request).fd);
                real::$name(request)
            }
        }
    )*};
}

/// Most requests of a list of which some may be done here.
const DONE_MAX: usize = 256;

macro_rules! lists {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            mode: c_int,
            list: *const *mut AioRequest,
            count: c_int,
            event: *const u8,
        ) -> c_int {
            // SAFETY: the program's own list.
            let one = |at: usize| unsafe { (*list.add(at)).as_mut() };
            let mut done = [false; DONE_MAX];
            for at in 0..count.max(0) as usize {
                let Some(request) = one(at) else { continue };
                if request.opcode == LIO_READ && at < DONE_MAX && reads_ring(request) {
                    // libc passes it by.
                    request.opcode = LIO_NOP;
                    done[at] = true;
                } else if request.opcode != LIO_NOP {
                    life::leave_to_others(request.fd);
                }
            }
            // SAFETY: the program's own arguments.
            let ret = unsafe { real::$name(mode, list, count, event) };
            for at in (0..DONE_MAX).filter(|&at| done[at]) {
                if let Some(request) = one(at) {
                    request.opcode = LIO_READ;
                }
            }
            ret
        }
    )*};
}

reads! { aio_read aio_read64 }
writes! { aio_write aio_write64 }
lists! { lio_listio lio_listio64 }

/// The kernel's struct iocb.
#[repr(C)]
#[derive(Clone, Copy)]
struct Block {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    flags: u32,
    eventfd: u32,
}

const PREAD: u16 = 0;
const POLL: u16 = 5;
const PREADV: u16 = 7;

/// So many requests of one call may read from a pipe; more are cut off, as the kernel may.
const PIPES_MAX: usize = 32;
const PIPE_BYTES: usize = 64 << 10;

/// io_submit(2), by its number.
///
/// # Safety
/// As the program called.
pub unsafe fn io_submit(context: usize, count: c_long, list: *const *mut u8) -> isize {
    let mut pipes = [(core::ptr::null_mut::<Block>(), 0u32, -1); PIPES_MAX];
    let (mut taken, mut used) = (0, 0);
    while taken < count.max(0) && used < PIPES_MAX {
        let at = memory::get(list.wrapping_add(taken as usize)).map(<*mut u8>::cast::<Block>);
        let Some((at, block)) = at.and_then(|at| Some((at, memory::get(at)?))) else { break };
        taken += 1;
        if let Some(conn) = left(block.fd as c_int)
            && let Some(pipe) = pipe_of(conn, &block)
            && memory::is_writable(at, 1)
        {
            // SAFETY: the program's own request, which the kernel copies.
            unsafe { (*at).fd = pipe as u32 };
            pipes[used] = (at, block.fd, pipe);
            used += 1;
        }
    }
    // What cannot be read the kernel refuses.
    let taken = if used < PIPES_MAX { count } else { taken };
    // SAFETY: the program's own arguments.
    let ret = unsafe { call!(io_submit, context, taken, list) };
    for &(at, fd, pipe) in &pipes[..used] {
        // SAFETY: as above.
        unsafe { (*at).fd = fd };
        sys::close(pipe);
    }
    sys::returned(ret)
}

/// A pipe with what a request finds in the ring; it goes when the request is done.
fn pipe_of(conn: &'static Conn, block: &Block) -> Option<c_int> {
    const NONBLOCK: u32 = 2;
    let fd = block.fd as c_int;
    let mut ends = [-1 as c_int; 2];
    let len = match block.opcode {
        PREAD => block.len as usize,
        PREADV => {
            let parts = block.buf as *const IoVec;
            // SAFETY: as the program passed them, looked at there.
            unsafe { Buffers::many(parts, block.len as usize) }?.len_bytes
        }
        POLL if block.buf as i16 & sys::POLLIN != 0 => 0,
        _ => return None,
    };
    // SAFETY: two numbers of ours.
    if unsafe { call!(pipe2, ends.as_mut_ptr(), sys::O_CLOEXEC) } != 0 {
        return None;
    }
    let [from, to] = ends;
    if len > 0 {
        splice_ring(conn, fd, to, len.min(PIPE_BYTES), NONBLOCK);
    } else {
        let byte = 0u8;
        // SAFETY: a byte of ours: something that poll tells of.
        unsafe { call!(write, to, &raw const byte, 1) };
    }
    sys::close(to);
    Some(from)
}
