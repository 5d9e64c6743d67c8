//! The medium of one kernel: memfds whose size nobody can change any more.

use core::ffi::{CStr, c_int};

use crate::region::Region;
use crate::sys::{Errno, Sysno, syscall};

const MFD_CLOEXEC: usize = 1;
const MFD_ALLOW_SEALING: usize = 2;
const MFD_NOEXEC_SEAL: usize = 8;

const F_ADD_SEALS: usize = 1033;
const F_SEAL_SEAL: usize = 1;
const F_SEAL_SHRINK: usize = 2;
const F_SEAL_GROW: usize = 4;

/// A memfd of `len_bytes`, all zero, closed on exec, sealed against shrinking, growing and further
/// seals (a peer that adds F_SEAL_FUTURE_WRITE would make a later mapping fail). The descriptor is
/// the caller's to close.
///
/// # Errors
/// The kernel's.
pub fn create(name: &CStr, len_bytes: usize) -> Result<Region, Errno> {
    create_sealed(name, len_bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
}

/// The same, to which seals can still be added. Not to be handed out before they are.
///
/// # Errors
/// The kernel's.
pub fn create_to_seal(name: &CStr, len_bytes: usize) -> Result<Region, Errno> {
    create_sealed(name, len_bytes, F_SEAL_SHRINK | F_SEAL_GROW)
}

fn create_sealed(name: &CStr, len_bytes: usize, seals: usize) -> Result<Region, Errno> {
    let fd = open(name)?;
    // SAFETY: no memory involved.
    let sized = unsafe {
        syscall!(Sysno::ftruncate, fd, len_bytes)
            .and_then(|_| syscall!(Sysno::fcntl, fd, F_ADD_SEALS, seals))
    };
    if let Err(error) = sized {
        // SAFETY: opened just now.
        let _ = unsafe { syscall!(Sysno::close, fd) };
        return Err(error);
    }
    Ok(Region::first(fd, len_bytes))
}

fn open(name: &CStr) -> Result<c_int, Errno> {
    let flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    // SAFETY: a C string, which the kernel reads.
    let open = |flags| unsafe { syscall!(Sysno::memfd_create, name.as_ptr(), flags) };
    // Never executable where the kernel can promise it (Linux 6.3; vm.memfd_noexec may ask for
    // it). Older kernels know no such flag.
    let fd = match open(flags | MFD_NOEXEC_SEAL) {
        Err(Errno::EINVAL) => open(flags),
        result => result,
    }?;
    Ok(fd as c_int)
}
