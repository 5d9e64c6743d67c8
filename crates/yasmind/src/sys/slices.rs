//! The driver of memory that two guests map (kmod/region.h): its calls.

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::io;

/// A part of a segment: others may have it, too, and whoever touches it when the device has gone
/// gets SIGBUS.
pub const SEGMENT: u64 = 1;
pub const READ_ONLY: u64 = 2;

/// `struct yasmin_slice`: offset and length in bytes, the number by which the host gave it, and flags.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    pub bytes: u64,
    pub grant: u64,
    pub flags: u64,
}

const fn request(direction: u64, number: u64) -> libc::c_ulong {
    // _IOC of Linux: direction, size of the argument, type, number.
    direction << 30 | (size_of::<Range>() as u64) << 16 | (b'y' as u64) << 8 | number
}

const GET: libc::c_ulong = request(1, 4);
const NEXT: libc::c_ulong = request(3, 2);
const FREED: libc::c_ulong = request(2, 3);

fn call(device: impl AsFd, request: libc::c_ulong, range: &mut Range) -> io::Result<i32> {
    // SAFETY: the driver reads and writes one Range, which lives through the call.
    let result = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), request, &raw mut *range) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A descriptor that maps this part of the device's memory.
///
/// # Errors
/// `ResourceBusy`: somebody here holds a part of it. Others are the kernel's.
pub fn get(device: impl AsFd, mut range: Range) -> io::Result<OwnedFd> {
    let fd = call(device, GET, &mut range)?;
    // SAFETY: made by the call, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The first slice from `offset` on that somebody holds.
pub fn held_from(device: impl AsFd, offset: u64) -> Option<Range> {
    let mut range = Range { offset, ..Range::default() };
    call(device, NEXT, &mut range).ok()?;
    Some(range)
}

/// A slice that nobody holds any more, once each.
pub fn freed(device: impl AsFd) -> Option<Range> {
    let mut range = Range::default();
    call(device, FREED, &mut range).ok()?;
    Some(range)
}
