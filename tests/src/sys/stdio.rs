//! Sockets in stdio's hands, and the reads and writes with a place and flags.

use std::io::{Error, Result};

use libc::c_int;

use super::{Fd, check};

/// A fresh stream over `fd`, which it closes, reads up to `out.len()` bytes or the end.
pub fn read_stream(fd: Fd, out: &mut [u8]) -> Result<usize> {
    // SAFETY: C strings; the stream is closed before this returns.
    unsafe {
        let stream = libc::fdopen(fd, c"r".as_ptr());
        if stream.is_null() {
            return Err(Error::last_os_error());
        }
        let got = libc::fread(out.as_mut_ptr().cast(), 1, out.len(), stream);
        let error = (libc::ferror(stream) != 0).then(Error::last_os_error);
        libc::fclose(stream);
        error.map_or(Ok(got), Err)
    }
}

/// Likewise, and not a byte more than `out` holds. An error counts where nothing came before it.
pub fn read_exactly(fd: Fd, out: &mut [u8]) -> Result<usize> {
    // SAFETY: C strings; the stream is closed before this returns.
    unsafe {
        let stream = libc::fdopen(fd, c"r".as_ptr());
        if stream.is_null() {
            return Err(Error::last_os_error());
        }
        libc::setvbuf(stream, std::ptr::null_mut(), libc::_IONBF, 0);
        let got = libc::fread(out.as_mut_ptr().cast(), 1, out.len(), stream);
        let error = (libc::ferror(stream) != 0).then(Error::last_os_error);
        libc::fclose(stream);
        error.filter(|_| got == 0).map_or(Ok(got), Err)
    }
}

/// Likewise all of `data` is written.
pub fn write_stream(fd: Fd, data: &[u8]) -> Result<usize> {
    // SAFETY: C strings; the stream is closed before this returns.
    unsafe {
        let stream = libc::fdopen(fd, c"w".as_ptr());
        if stream.is_null() {
            return Err(Error::last_os_error());
        }
        let put = libc::fwrite(data.as_ptr().cast(), 1, data.len(), stream);
        // What a stream cannot write at once it does not keep, and nothing is left for the close.
        let error = (libc::ferror(stream) != 0).then(Error::last_os_error);
        let is_closed = libc::fclose(stream) == 0;
        match error.filter(|_| put == 0) {
            Some(error) => Err(error),
            None if is_closed => Ok(put),
            None => Err(Error::last_os_error()),
        }
    }
}

pub fn read_at(fd: Fd, out: &mut [u8], offset: i64, flags: c_int) -> Result<usize> {
    let piece = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    // SAFETY: one piece of ours.
    check(unsafe { libc::preadv2(fd, &raw const piece, 1, offset, flags) })
}

pub fn write_at(fd: Fd, data: &[u8], offset: i64, flags: c_int) -> Result<usize> {
    let piece = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: one piece of ours, which the kernel reads.
    check(unsafe { libc::pwritev2(fd, &raw const piece, 1, offset, flags) })
}
