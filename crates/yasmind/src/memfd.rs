//! Memory that is handed out: memfds whose size nobody can change any more.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{self, Errno};

/// A memfd of `len_bytes`, all zero, sealed against shrinking, growing and further seals (a
/// peer that adds F_SEAL_FUTURE_WRITE would make a later mapping fail).
pub fn sealed(name: &str, len_bytes: u64) -> io::Result<OwnedFd> {
    let memfd = create(name)?;
    ftruncate(&memfd, len_bytes)?;
    fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memfd)
}

fn create(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Never executable where the kernel can promise it (Linux 6.3; vm.memfd_noexec may ask for
    // it). Older kernels know no such flag.
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(name, flags),
        result => result,
    }
}
