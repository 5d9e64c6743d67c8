//! What a socket may be set to that only the kernel can serve: such a connection stays TCP.
//!
//! One list answers both questions: what a socket is set to when it is about to get a channel,
//! whoever set it and when (before connect, on the listener that it was accepted from, by a bare
//! system call), and whether a call of the program's has just set something of the kind.
//!
//! Storey 1: system.

use core::ffi::c_int;

use crate::sys::{self, Ret, SOL_SOCKET, SOL_TCP, call};

const ENOPROTOOPT: i32 = 92;
const EOPNOTSUPP: i32 = 95;
const O_ASYNC: usize = 0o20000;
pub const FIOASYNC: usize = 0x5452;

/// Options that are numbers, with the value that says that they are off.
const NUMBERS: [(c_int, c_int, u32); 11] = [
    (SOL_SOCKET, sys::SO_RCVLOWAT, 1),
    // Times beside the bytes: SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING, old and new.
    (SOL_SOCKET, 29, 0),
    (SOL_SOCKET, 35, 0),
    (SOL_SOCKET, 37, 0),
    (SOL_SOCKET, 63, 0),
    (SOL_SOCKET, 64, 0),
    (SOL_SOCKET, 65, 0),
    // 0 is an offset.
    (SOL_SOCKET, sys::SO_PEEK_OFF, u32::MAX),
    // SO_MAX_PACING_RATE.
    (SOL_SOCKET, 47, u32::MAX),
    // TCP_REPAIR.
    (SOL_TCP, 19, 0),
    // TCP_TX_DELAY.
    (SOL_TCP, 37, 0),
];

/// The second is SO_ATTACH_BPF; the first also says how long the filter is.
const FILTERS: [c_int; 2] = [sys::SO_ATTACH_FILTER, 50];

/// Whether it has to stay TCP. Where the kernel does not say, it has to.
pub fn need_tcp(fd: c_int) -> bool {
    let is_set = NUMBERS.iter().any(|&(level, name, off)| is_on(fd, level, name, off));
    is_set || has_filter(fd) || has_upper_layer(fd) || is_async(fd)
}

/// The program set this option, and the kernel took it: whether that needs TCP.
pub fn is_needed_by(fd: c_int, level: c_int, name: c_int) -> bool {
    let is_number = |&&(at, number, _): &&(c_int, c_int, u32)| (at, number) == (level, name);
    match NUMBERS.iter().find(is_number) {
        Some(&(level, name, off)) => is_on(fd, level, name, off),
        None if level == SOL_SOCKET => FILTERS.contains(&name),
        None => level == SOL_TCP && name == sys::TCP_ULP,
    }
}

/// The program set these flags (F_SETFL): whether that needs TCP.
pub fn is_needed_by_flags(flags: usize) -> bool {
    flags & O_ASYNC != 0
}

fn is_unknown(ret: Ret) -> bool {
    ret == -(ENOPROTOOPT as Ret) || ret == -(EOPNOTSUPP as Ret)
}

fn is_on(fd: c_int, level: c_int, name: c_int, off: u32) -> bool {
    let (mut value, mut len) = (0u32, 4u32);
    // SAFETY: the kernel writes at most four bytes.
    let ret = unsafe { call!(getsockopt, fd, level, name, &raw mut value, &raw mut len) };
    // A listener for MPTCP leaves 0 to what it accepts, and that waits for one byte, too.
    let value = if name == sys::SO_RCVLOWAT { value.max(1) } else { value };
    if ret < 0 { !is_unknown(ret) } else { value != off }
}

fn has_filter(fd: c_int) -> bool {
    let mut len = 0u32;
    // SAFETY: the kernel only says how many instructions there are.
    let ret = unsafe { call!(getsockopt, fd, SOL_SOCKET, FILTERS[0], 0, &raw mut len) };
    ret < 0 && !is_unknown(ret) || len != 0
}

fn has_upper_layer(fd: c_int) -> bool {
    let mut name = [0u8; 16];
    let mut len = 16u32;
    // SAFETY: the kernel writes at most `len` bytes.
    let ret =
        unsafe { call!(getsockopt, fd, SOL_TCP, sys::TCP_ULP, name.as_mut_ptr(), &raw mut len) };
    if ret < 0 { !is_unknown(ret) } else { len > 0 && name[0] != 0 }
}

/// Signals for bytes, by F_SETFL or FIOASYNC.
fn is_async(fd: c_int) -> bool {
    // SAFETY: no memory involved.
    let flags = unsafe { call!(fcntl, fd, sys::F_GETFL) };
    flags < 0 || is_needed_by_flags(flags as usize)
}
