//! Memory that is not what a program's buffers usually are, and vectors of it.

use std::io::{Error, Result};
use std::ptr::null_mut;

use super::{Fd, check, check_int, header_of};
use crate::sys::libc::{self, c_int, c_void, iovec};

const PAGE: usize = 4096;

/// A mapping of its own, for ever: the peers are short-lived.
fn map(len: usize, protection: c_int, flags: c_int, fd: Fd) -> Result<*mut c_void> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), len, protection, flags, fd, 0) };
    if at == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(at) }
}

/// As `map`, by the bare system call.
fn bare_map(len: usize, protection: c_int) -> Result<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: as above.
    let at = unsafe { libc::syscall(libc::SYS_mmap, 0, len, protection, flags, -1, 0) };
    if at < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(std::ptr::with_exposed_provenance_mut(at as usize))
    }
}

/// One part of a vector: good memory, or what its name says.
pub enum Part {
    Good(Vec<u8>),
    /// An address and a length that must not be touched.
    Raw(*mut c_void, usize),
}

impl Part {
    /// `kind` and bytes; the first page of `file` is there, and the rest of it is not.
    pub fn new(kind: &str, len: usize) -> Result<Option<Self>> {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let at = match kind {
            "" => return Ok(Some(Self::Good(vec![0; len]))),
            "null" => null_mut(),
            "low" => std::ptr::without_provenance_mut(8),
            // Where nothing was ever mapped.
            "never" => std::ptr::without_provenance_mut(0x1234_5678_9000),
            "high" => std::ptr::without_provenance_mut(1 << 63 | PAGE),
            "none" => map(len.max(1), libc::PROT_NONE, private, -1)?,
            "ro" => map(len.max(1), libc::PROT_READ, private, -1)?,
            // Readable and writable once, as a guard page that was armed later.
            "guard" => {
                let at = map(len.max(1), both, private, -1)?;
                // SAFETY: the mapping made just now, which nobody uses.
                check_int(unsafe { libc::mprotect(at, len.max(1), libc::PROT_NONE) })?;
                at
            }
            // Mapped once, and nothing is there any more.
            "gone" => {
                let at = map(len.max(1), both, private, -1)?;
                // SAFETY: the mapping made just now, which nobody uses.
                check_int(unsafe { libc::munmap(at, len.max(1)) })?;
                at
            }
            // Past libc.
            "bare" => bare_map(len.max(1), libc::PROT_NONE)?,
            "file" => {
                let file = super::anonymous_file()?;
                // SAFETY: no pointers.
                check_int(unsafe { libc::ftruncate(file, PAGE as i64) })?;
                let at = map(len.max(PAGE), both, libc::MAP_SHARED, file)?;
                super::close(file)?;
                at
            }
            // More than any call may move.
            "huge" => {
                let at = fenced(len.max(PAGE))?;
                return Ok(Some(Self::Raw(at, isize::MAX as usize + 1)));
            }
            // As much as a call may be asked for, with memory behind the first page only.
            "vast" => {
                let at = fenced(len.max(PAGE))?;
                return Ok(Some(Self::Raw(at, 1 << 40)));
            }
            _ => return Ok(None),
        };
        Ok(Some(Self::Raw(at, len)))
    }

    fn vector(&mut self) -> iovec {
        match self {
            Self::Good(bytes) => {
                iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
            }
            Self::Raw(at, len) => iovec { iov_base: *at, iov_len: *len },
        }
    }
}

/// Memory behind which no other mapping ever lies: a call that is asked for more must fail there,
/// and would move whatever lies there otherwise.
fn fenced(len: usize) -> Result<*mut c_void> {
    let len = len.next_multiple_of(PAGE);
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = map(len + PAGE, libc::PROT_READ | libc::PROT_WRITE, private, -1)?;
    // SAFETY: the last page of the mapping made just now, which nobody uses.
    check_int(unsafe { libc::mprotect(at.byte_add(len), PAGE, libc::PROT_NONE) })?;
    Ok(at)
}

/// One call by name on `parts`; those that take one buffer take the first.
pub fn vector_call(fd: Fd, form: &str, parts: &mut [Part], flags: c_int) -> Result<Option<usize>> {
    let mut vectors: Vec<iovec> = parts.iter_mut().map(Part::vector).collect();
    let one = vectors.first().copied().unwrap_or(iovec { iov_base: null_mut(), iov_len: 0 });
    let (at, len) = (one.iov_base, one.iov_len);
    let count = vectors.len() as c_int;
    let mut header = header_of(&mut vectors);
    // SAFETY: what is bad memory here is for the kernel to refuse, and for whoever stands
    // before it; the rest outlives the calls.
    let result = unsafe {
        match form {
            "send" => libc::send(fd, at, len, flags),
            "recv" => libc::recv(fd, at, len, flags),
            "write" => libc::write(fd, at, len),
            "read" => libc::read(fd, at, len),
            "writev" => libc::writev(fd, header.msg_iov, count),
            "readv" => libc::readv(fd, header.msg_iov, count),
            "sendmsg" => libc::sendmsg(fd, &raw const header, flags),
            "recvmsg" => libc::recvmsg(fd, &raw mut header, flags),
            _ => return Ok(None),
        }
    };
    check(result).map(Some)
}

/// Calls whose own arguments lie in memory of `kind`, by name.
pub fn bad_header(fd: Fd, form: &str, kind: &str) -> Result<Option<usize>> {
    let Some(Part::Raw(at, _)) = Part::new(kind, PAGE)? else { return Ok(None) };
    let mut vector = iovec { iov_base: at, iov_len: 1 };
    let mut header = header_of(std::slice::from_mut(&mut vector));
    header.msg_iov = at.cast();
    // SAFETY: as in `vector_call`.
    let result = unsafe {
        match form {
            "sendmsg" => libc::sendmsg(fd, at.cast(), libc::MSG_NOSIGNAL),
            "recvmsg" => libc::recvmsg(fd, at.cast(), libc::MSG_DONTWAIT),
            "sendmsgparts" => libc::sendmsg(fd, &raw const header, libc::MSG_NOSIGNAL),
            "recvmsgparts" => libc::recvmsg(fd, &raw mut header, libc::MSG_DONTWAIT),
            "writev" => libc::writev(fd, at.cast(), 1),
            "readv" => libc::readv(fd, at.cast(), 1),
            _ => return Ok(None),
        }
    };
    check(result).map(Some)
}
