//! Ways to the kernel that few programs take: libc's other names for its calls, POSIX aio,
//! Linux AIO by `syscall`.

use std::ffi::CString;
use std::io::{Error, Result};
use std::mem::{transmute, zeroed};
use std::ptr::null;

use libc::{c_int, c_void, iovec, ssize_t};

use super::{Fd, check, check_int};

type Reads = unsafe extern "C" fn(c_int, *mut c_void, usize) -> ssize_t;
type Writes = unsafe extern "C" fn(c_int, *const c_void, usize) -> ssize_t;
type Receives = unsafe extern "C" fn(c_int, *mut c_void, usize, c_int) -> ssize_t;
type Sends = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> ssize_t;
type ReadsChecked = unsafe extern "C" fn(c_int, *mut c_void, usize, usize) -> ssize_t;
type ReceivesChecked = unsafe extern "C" fn(c_int, *mut c_void, usize, usize, c_int) -> ssize_t;
type Vectored = unsafe extern "C" fn(c_int, *const iovec, c_int, i64, c_int) -> ssize_t;

fn symbol(name: &str) -> Result<*mut c_void> {
    let name = CString::new(name).map_err(Error::other)?;
    // SAFETY: a C string.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if at.is_null() { Err(Error::other("libc has no such name")) } else { Ok(at) }
}

/// By a name of libc's, or by a way; `None` where it is neither.
pub fn read(form: &str, fd: Fd, out: &mut [u8]) -> Result<Option<usize>> {
    let (at, len) = (out.as_mut_ptr().cast::<c_void>(), out.len());
    let piece = iovec { iov_base: at, iov_len: len };
    // SAFETY: glibc's functions of these names have these types; the buffer is ours.
    let got = unsafe {
        match form {
            "__read" => transmute::<*mut c_void, Reads>(symbol(form)?)(fd, at, len),
            "__recv" => transmute::<*mut c_void, Receives>(symbol(form)?)(fd, at, len, 0),
            "__read_chk" => transmute::<*mut c_void, ReadsChecked>(symbol(form)?)(fd, at, len, len),
            "__recv_chk" => {
                transmute::<*mut c_void, ReceivesChecked>(symbol(form)?)(fd, at, len, len, 0)
            }
            "preadv64v2" => {
                transmute::<*mut c_void, Vectored>(symbol(form)?)(fd, &raw const piece, 1, -1, 0)
            }
            "aioread" => return posix(fd, at, len, libc::aio_read).map(Some),
            "submitread" => return submit(fd, 0, at, len).map(Some),
            _ => return Ok(None),
        }
    };
    check(got).map(Some)
}

/// The other direction.
pub fn write(form: &str, fd: Fd, data: &[u8]) -> Result<Option<usize>> {
    let (at, len) = (data.as_ptr().cast_mut().cast::<c_void>(), data.len());
    let piece = iovec { iov_base: at, iov_len: len };
    // SAFETY: as in `read`; nobody writes to the data.
    let put = unsafe {
        match form {
            "__write" => transmute::<*mut c_void, Writes>(symbol(form)?)(fd, at, len),
            "__send" => {
                let send = transmute::<*mut c_void, Sends>(symbol(form)?);
                send(fd, at, len, libc::MSG_NOSIGNAL)
            }
            "pwritev64v2" => {
                transmute::<*mut c_void, Vectored>(symbol(form)?)(fd, &raw const piece, 1, -1, 0)
            }
            "aiowrite" => return posix(fd, at, len, libc::aio_write).map(Some),
            "submitwrite" => return submit(fd, 1, at, len).map(Some),
            _ => return Ok(None),
        }
    };
    check(put).map(Some)
}

fn posix(
    fd: Fd,
    at: *mut c_void,
    len: usize,
    begin: unsafe extern "C" fn(*mut libc::aiocb) -> c_int,
) -> Result<usize> {
    // SAFETY: all-zero is a request without a signal.
    let mut request: libc::aiocb = unsafe { zeroed() };
    request.aio_fildes = fd;
    request.aio_buf = at;
    request.aio_nbytes = len;
    request.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    // SAFETY: request and buffer outlive what is begun, which is waited for.
    unsafe {
        check_int(begin(&raw mut request))?;
        let list = [&raw const request];
        while libc::aio_error(&raw const request) == libc::EINPROGRESS {
            libc::aio_suspend(list.as_ptr(), 1, null());
        }
        match libc::aio_error(&raw const request) {
            0 => check(libc::aio_return(&raw mut request)),
            errno => Err(Error::from_raw_os_error(errno)),
        }
    }
}

/// PREAD is 0, PWRITE is 1.
fn submit(fd: Fd, operation: u64, at: *mut c_void, len: usize) -> Result<usize> {
    // data; key and flags; operation, priority and descriptor; buffer, length, offset; the rest.
    let fields = operation | u64::from(fd.cast_unsigned()) << 32;
    let request = [0, 0, fields, at as u64, len as u64, 0, 0, 0];
    let (mut context, list, mut event) = (0u64, [&raw const request], [0i64; 4]);
    // SAFETY: one request and room for one event; both outlive the context.
    unsafe {
        check(libc::syscall(libc::SYS_io_setup, 1, &raw mut context) as isize)?;
        let begun = libc::syscall(libc::SYS_io_submit, context, 1, list.as_ptr());
        let error = Error::last_os_error();
        if begun == 1 {
            let no_time = null::<libc::timespec>();
            libc::syscall(libc::SYS_io_getevents, context, 1, 1, event.as_mut_ptr(), no_time);
        }
        libc::syscall(libc::SYS_io_destroy, context);
        if begun != 1 {
            return Err(error);
        }
    }
    usize::try_from(event[2]).map_err(|_| Error::from_raw_os_error(-event[2] as i32))
}
