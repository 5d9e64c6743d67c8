//! Memory that is handed out, as descriptors that are closed when they are dropped.

use rustix::fd::{FromRawFd, OwnedFd};
use std::ffi::CStr;
use std::io;
use yasmin_channel::memfd;

/// A memfd of `len_bytes`, all zero, whose size nobody can change any more.
pub fn sealed(name: &CStr, len_bytes: usize) -> io::Result<OwnedFd> {
    let region = memfd::create(name, len_bytes).map_err(super::io_error)?;
    // SAFETY: made just now, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(region.fd) })
}
