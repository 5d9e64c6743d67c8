//! The directory of other guests, as the broker keeps it: a table mapped from a file beside its
//! socket.
//!
//! Storey 1: system.

use core::ffi::c_int;
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use yasmin_channel::region::Region;
use yasmin_control::SYSTEM_DIR;
use yasmin_control::directory::{self, Address, TABLE_BYTES, TABLE_WORDS};
use yasmin_control::guest::Endpoint;

use crate::sys::{self, call};
use crate::{clock, config, process};

type Table = [AtomicU64; TABLE_WORDS];

pub const AF_INET: u16 = 2;
pub const AF_INET6: u16 = 10;
/// How long to believe that there is no table.
const LOOK_AGAIN_US: u64 = 1_000_000;

static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());
/// In ticks of the counter: each connect and accept asks, and the kernel's clock costs a system
/// call.
static LOOK_AGAIN_AT: AtomicU64 = AtomicU64::new(0);

/// The directory, if there are other guests.
pub fn table() -> Option<&'static Table> {
    let at = TABLE.load(Ordering::Acquire);
    // SAFETY: null, or a mapping that stays.
    if let Some(table) = unsafe { at.as_ref() }
        && directory::is_live(table)
    {
        return Some(table);
    }
    let now = clock::ticks();
    let left = LOOK_AGAIN_AT.load(Ordering::Relaxed).saturating_sub(now);
    // More than that is a moment of another counter: a restored guest's begins anew.
    if (1..=clock::us(LOOK_AGAIN_US)).contains(&left) {
        return None;
    }
    LOOK_AGAIN_AT.store(now + clock::us(LOOK_AGAIN_US), Ordering::Relaxed);
    let saved = sys::errno();
    let found = map_table();
    sys::set_errno(saved);
    // The one before stays mapped: another thread may be looking at it.
    TABLE.store(found?, Ordering::Release);
    // SAFETY: mapped just now, for good.
    unsafe { found?.as_ref() }.filter(|table| directory::is_live(table))
}

/// Beside the broker's socket.
fn map_table() -> Option<*mut Table> {
    const O_RDONLY_CLOEXEC_NOFOLLOW: c_int = 0o2000000 | 0o400000;
    let mut path = [0u8; config::SOCKET_BYTES + 8];
    let mut len = 0;
    let mut push = |byte: u8| {
        path[len.min(config::SOCKET_BYTES + 7)] = byte;
        len += 1;
    };
    let folder = config::socket_path().collect_len();
    match folder {
        Some(bytes) => config::socket_path().take(bytes).for_each(&mut push),
        None => SYSTEM_DIR.bytes().chain(*b"/").for_each(&mut push),
    }
    directory::FILE_NAME.bytes().for_each(&mut push);
    if len >= path.len() {
        return None;
    }
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { call!(open, path.as_ptr(), O_RDONLY_CLOEXEC_NOFOLLOW, 0) } as c_int;
    if fd < 0 {
        return None;
    }
    let table = Region::first(fd, TABLE_BYTES);
    // SAFETY: only root or this user can cut it.
    let mapped = is_trusted(fd).then(|| unsafe { table.map_to_read() });
    sys::close(fd);
    mapped?.ok().map(|mapping| mapping.keep().cast())
}

trait FolderLength {
    fn collect_len(self) -> Option<usize>;
}

impl<I: Iterator<Item = u8>> FolderLength for I {
    /// How long the path's folder is, with its slash; `None` for an empty path.
    fn collect_len(self) -> Option<usize> {
        let mut len = None;
        for (i, byte) in self.enumerate() {
            if byte == b'/' {
                len = Some(i + 1);
            } else if len.is_none() {
                len = Some(0);
            }
        }
        len
    }
}

/// A table of root's or of this user's own, whole.
fn is_trusted(fd: c_int) -> bool {
    // struct stat: st_uid at 28, st_size at 48.
    let mut stat = [0u8; 144];
    // SAFETY: the kernel writes 144 bytes.
    if unsafe { call!(fstat, fd, stat.as_mut_ptr()) } != 0 {
        return false;
    }
    let uid = u32::from_ne_bytes([stat[28], stat[29], stat[30], stat[31]]);
    let mut size = [0; 8];
    size.copy_from_slice(&stat[48..56]);
    process::trusts(uid) && i64::from_ne_bytes(size) >= TABLE_BYTES as i64
}

/// The end that a socket address names.
///
/// # Safety
/// `addr` is readable for `len`.
pub unsafe fn endpoint(addr: *const u8, len: usize) -> Option<Endpoint> {
    let mut raw = [0u8; 28];
    let len = len.min(raw.len());
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(addr, raw.as_mut_ptr(), len) };
    let port = u16::from_be_bytes([raw[2], raw[3]]);
    let mut address: Address = [0; 16];
    match u16::from_ne_bytes([raw[0], raw[1]]) {
        AF_INET if len >= 16 => address = directory::mapped([raw[4], raw[5], raw[6], raw[7]]),
        AF_INET6 if len >= 24 => address.copy_from_slice(&raw[8..24]),
        _ => return None,
    }
    Some(Endpoint { address, port })
}

/// Address and port of a socket's own end.
pub fn own_end(fd: c_int) -> Option<Endpoint> {
    // SAFETY: the kernel writes at most `len` bytes.
    end_of(|to, len| unsafe { call!(getsockname, fd, to, len) })
}

/// Of the end that it is connected to.
pub fn peer_end(fd: c_int) -> Option<Endpoint> {
    // SAFETY: as above.
    end_of(|to, len| unsafe { call!(getpeername, fd, to, len) })
}

fn end_of(name: impl FnOnce(*mut u8, *mut u32) -> isize) -> Option<Endpoint> {
    let mut raw = [0u8; 28];
    let mut len = 28u32;
    let ret = name(raw.as_mut_ptr(), &raw mut len);
    // SAFETY: bytes of ours.
    if ret == 0 { unsafe { endpoint(raw.as_ptr(), len as usize) } } else { None }
}

const _: () = assert!(size_of::<Table>() == TABLE_BYTES);
