//! Memory that is handed out, as descriptors that are closed when they are dropped.

use super::page::Page;
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::fs::{SealFlags, fcntl_add_seals, fstat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use yasmin_channel::memfd;
use yasmin_channel::region::Region;
use yasmin_wire::layout::PAGE_BYTES;

/// A memfd of `len_bytes`, all zero, whose size nobody can change any more.
pub fn sealed(name: &CStr, len_bytes: usize) -> io::Result<OwnedFd> {
    Ok(owned(memfd::create(name, len_bytes).map_err(super::io_error)?))
}

/// A page that is written here alone: whoever gets the descriptor can read it, and can neither
/// write nor punch a hole, for which every access would have to wait.
pub fn page_to_read(name: &CStr) -> io::Result<(Page, OwnedFd)> {
    let memfd = owned(memfd::create_to_seal(name, PAGE_BYTES).map_err(super::io_error)?);
    let page = Page::map(&memfd)?;
    // Behind the mapping, which keeps its rights. Before Linux 5.1 there is no such seal.
    match fcntl_add_seals(&memfd, SealFlags::FUTURE_WRITE | SealFlags::SEAL) {
        Err(Errno::INVAL) => fcntl_add_seals(&memfd, SealFlags::SEAL),
        result => result,
    }?;
    Ok((page, memfd))
}

/// What it has of the machine's memory now.
pub fn used_bytes(memfd: &OwnedFd) -> u64 {
    fstat(memfd).map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
}

fn owned(region: Region) -> OwnedFd {
    // SAFETY: made just now, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(region.fd) }
}
