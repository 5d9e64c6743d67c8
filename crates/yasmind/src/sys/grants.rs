//! The driver that grants memory of this host's to Xen guests (kmod/grant.h): its calls.

use rustix::fd::{AsFd, AsRawFd};
use std::fs::File;
use std::io;
use yasmin_channel::region::{Filling, Region};

pub const READ_ONLY: u32 = 1;

/// `struct yasmin_grant`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    number: u64,
    address: u64,
    bytes: u64,
    domid: u32,
    flags: u32,
    list: u32,
    reserved: u32,
}

/// Memory that a domain has, by the region's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub number: u64,
    pub bytes: u64,
    /// The grant of the first page of the list of grants.
    pub list: u32,
    pub is_read_only: bool,
}

const fn request(direction: u64, number: u64) -> libc::c_ulong {
    // _IOC of Linux: direction, size of the argument, type, number.
    direction << 30 | (size_of::<Call>() as u64) << 16 | (b'y' as u64) << 8 | number
}

const MAKE: libc::c_ulong = request(3, 16);
const END: libc::c_ulong = request(1, 17);
const NEXT: libc::c_ulong = request(3, 18);

fn call(device: impl AsFd, request: libc::c_ulong, call: &mut Call) -> io::Result<()> {
    // SAFETY: the driver reads and writes one Call, which lives through the call. What it pins is mapped
    // by `make`, through the call.
    let result = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), request, &raw mut *call) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Grants the first `bytes` of a file, which has all of them, to a domain. They stay granted, and in
/// memory, when the file is closed and when this process ends.
///
/// # Errors
/// `AlreadyExists`: the domain has memory of this number. `StorageFull`: no more can be granted. Others
/// are the kernel's.
pub fn make(
    device: impl AsFd,
    file: &File,
    domid: u32,
    number: u64,
    bytes: u64,
    is_read_only: bool,
) -> io::Result<Grant> {
    let len_bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let region = Region::first(file.as_raw_fd(), len_bytes);
    // SAFETY: the file lies where only this process's user may write, and is not read here.
    let mapping = unsafe { region.map_trusted(Filling::Usual) }.map_err(super::io_error)?;
    let flags = if is_read_only { READ_ONLY } else { 0 };
    let address = mapping.as_ptr() as u64;
    let mut said = Call { number, address, bytes, domid, flags, ..Call::default() };
    call(device, MAKE, &mut said)?;
    Ok(Grant { number, bytes, list: said.list, is_read_only })
}

/// Takes memory back.
///
/// # Errors
/// `ResourceBusy`: the domain has some of it mapped. `NotFound`: it has none of this number.
pub fn end(device: impl AsFd, domid: u32, number: u64) -> io::Result<()> {
    call(device, END, &mut Call { number, domid, ..Call::default() })
}

/// All that a domain has.
pub fn of_domain(device: impl AsFd, domid: u32) -> Vec<Grant> {
    let mut found = Vec::new();
    let mut said = Call { domid, ..Call::default() };
    while call(&device, NEXT, &mut said).is_ok() {
        let Call { number, bytes, list, flags, .. } = said;
        found.push(Grant { number, bytes, list, is_read_only: flags & READ_ONLY != 0 });
        let Some(next) = number.checked_add(1) else { break };
        said = Call { number: next, domid, ..Call::default() };
    }
    found
}
