//! Ways to read and write that few programs take: libc's other names, asynchronous input and
//! output, the kernel's own, and the bare instruction that no library sees.

use std::io::{Error, Result};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::OnceLock;

use super::{Fd, check, check_int};
use crate::sys::libc::{self, c_int, c_void, iovec};

unsafe extern "C" {
    fn __write(fd: c_int, data: *const c_void, len: usize) -> isize;
    fn __read(fd: c_int, data: *mut c_void, len: usize) -> isize;
    fn __send(fd: c_int, data: *const c_void, len: usize, flags: c_int) -> isize;
    fn __recv(fd: c_int, data: *mut c_void, len: usize, flags: c_int) -> isize;
    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: i64, flags: c_int) -> isize;
    fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: i64, flags: c_int) -> isize;
}

/// `None`: no way of that name.
pub fn send(way: &str, fd: Fd, data: &[u8]) -> Result<Option<usize>> {
    let (at, len) = (data.as_ptr().cast::<c_void>(), data.len());
    let piece = iovec { iov_base: at.cast_mut(), iov_len: len };
    // SAFETY: data that outlive the calls, which read it.
    let sent = unsafe {
        match way {
            "__write" => __write(fd, at, len),
            "__send" => __send(fd, at, len, libc::MSG_NOSIGNAL),
            "pwritev64v2" => pwritev64v2(fd, &raw const piece, 1, -1, 0),
            "aio" => return asynchronous(fd, at.cast_mut(), len, true).map(Some),
            "list" => return listed(fd, at.cast_mut(), len, true).map(Some),
            "kernelaio" => return by_kernel(fd, at.cast_mut(), len, 1).map(Some),
            "bare" => bare(libc::SYS_write, fd, at.cast_mut(), len)?,
            _ => return Ok(None),
        }
    };
    check(sent).map(Some)
}

pub fn receive(way: &str, fd: Fd, out: &mut [u8]) -> Result<Option<usize>> {
    let (at, len) = (out.as_mut_ptr().cast::<c_void>(), out.len());
    let piece = iovec { iov_base: at, iov_len: len };
    // SAFETY: a buffer that outlives the calls.
    let got = unsafe {
        match way {
            "__read" => __read(fd, at, len),
            "__recv" => __recv(fd, at, len, 0),
            "preadv64v2" => preadv64v2(fd, &raw const piece, 1, -1, 0),
            "aio" => return asynchronous(fd, at, len, false).map(Some),
            "list" => return listed(fd, at, len, false).map(Some),
            "kernelaio" => return by_kernel(fd, at, len, 0).map(Some),
            "bare" => bare(libc::SYS_read, fd, at, len)?,
            _ => return Ok(None),
        }
    };
    check(got).map(Some)
}

/// By the instruction, in code that is made at run time: a program with the instruction in its
/// text gets no channels to pass by.
///
/// # Safety
/// As read(2) and write(2).
unsafe fn bare(number: i64, fd: Fd, at: *mut c_void, len: usize) -> Result<isize> {
    type Call = unsafe extern "C" fn(i64, i64, *mut c_void, usize) -> isize;
    /// The arguments each one register on, `syscall`, `ret`; bytes turned over.
    const CODE: [u8; 15] =
        [0xb7, 0x76, 0x07, 0xb7, 0x76, 0x08, 0xb7, 0x76, 0x29, 0xb7, 0x76, 0x35, 0xf0, 0xfa, 0x3c];
    static MADE: OnceLock<usize> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        // SAFETY: a fresh page, written before it is run.
        unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0).cast::<u8>();
            for (at, byte) in CODE.iter().enumerate() {
                page.add(at).write(!byte);
            }
            page as usize
        }
    });
    // SAFETY: code of this signature; the rest is the caller's.
    let ret = unsafe {
        let call: Call = std::mem::transmute(*made);
        call(number, i64::from(fd), at, len)
    };
    if ret < 0 { Err(Error::from_raw_os_error(-ret as i32)) } else { Ok(ret) }
}

/// # Safety
/// `at` is good for `len` bytes until this returns.
unsafe fn request(fd: Fd, at: *mut c_void, len: usize, writes: bool) -> libc::aiocb {
    // SAFETY: plain numbers and pointers.
    let mut request: libc::aiocb = unsafe { zeroed() };
    request.aio_fildes = fd;
    request.aio_buf = at;
    request.aio_nbytes = len;
    request.aio_lio_opcode = if writes { libc::LIO_WRITE } else { libc::LIO_READ };
    request.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    request
}

/// # Safety
/// As `request`.
unsafe fn asynchronous(fd: Fd, at: *mut c_void, len: usize, writes: bool) -> Result<usize> {
    // SAFETY: the request outlives its end.
    unsafe {
        let mut one = request(fd, at, len, writes);
        let begin = if writes { libc::aio_write } else { libc::aio_read };
        check_int(begin(&raw mut one))?;
        loop {
            match libc::aio_error(&raw const one) {
                0 => return check(libc::aio_return(&raw mut one)),
                libc::EINPROGRESS => {
                    let all = [&raw const one];
                    libc::aio_suspend(all.as_ptr(), 1, std::ptr::null());
                }
                errno => return Err(Error::from_raw_os_error(errno)),
            }
        }
    }
}

/// # Safety
/// As `request`.
unsafe fn listed(fd: Fd, at: *mut c_void, len: usize, writes: bool) -> Result<usize> {
    // SAFETY: the requests outlive their end.
    unsafe {
        let mut one = request(fd, at, len, writes);
        let all = [&raw mut one, null_mut()];
        check_int(libc::lio_listio(libc::LIO_WAIT, all.as_ptr(), 2, null_mut()))?;
        check(libc::aio_return(&raw mut one))
    }
}

/// The kernel's struct iocb.
#[repr(C)]
struct Block {
    data: u64,
    key: u64,
    opcode: u16,
    priority: i16,
    fd: u32,
    at: u64,
    len: u64,
    rest: [u64; 3],
}

/// # Safety
/// As `request`.
unsafe fn by_kernel(fd: Fd, at: *mut c_void, len: usize, opcode: u16) -> Result<usize> {
    let mut context = 0u64;
    let mut event = [0u64; 4];
    let block = Block {
        data: 0,
        key: 0,
        opcode,
        priority: 0,
        fd: fd.cast_unsigned(),
        at: at as u64,
        len: len as u64,
        rest: [0; 3],
    };
    let list = [&raw const block];
    // SAFETY: all outlives the calls.
    unsafe {
        check(libc::syscall(libc::SYS_io_setup, 1, &raw mut context) as isize)?;
        let begun = check(libc::syscall(libc::SYS_io_submit, context, 1, list.as_ptr()) as isize);
        let ended = begun.and_then(|_| {
            let timeout = null_mut::<libc::timespec>();
            let events = event.as_mut_ptr();
            check(libc::syscall(libc::SYS_io_getevents, context, 1, 1, events, timeout) as isize)
        });
        libc::syscall(libc::SYS_io_destroy, context);
        ended?;
    }
    let moved = event[2].cast_signed();
    if moved < 0 { Err(Error::from_raw_os_error(-moved as i32)) } else { Ok(moved as usize) }
}
