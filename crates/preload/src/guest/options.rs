//! Options of a connection that goes by vsock: TCP's own, but for those that the kernel looks at in
//! calls on the vsock connection, and those that only TCP itself can keep.
//!
//! Storey 1: system.

use core::ffi::c_int;

use crate::sys::{self, SOL_SOCKET, call};

/// Those that the kernel looks at in calls on the vsock connection.
const SHARED_OPTIONS: [(c_int, usize); 3] =
    [(sys::SO_RCVTIMEO, 16), (sys::SO_SNDTIMEO, 16), (sys::SO_LINGER, 8)];

/// False: an option could not be had or set.
pub fn copy(from: c_int, to: c_int) -> bool {
    SHARED_OPTIONS.into_iter().all(|(name, size)| {
        let mut value = [0u8; 16];
        let mut len = size as u32;
        let (at, len_at) = (value.as_mut_ptr(), &raw mut len);
        // SAFETY: the kernel writes at most `len` bytes.
        let ret = unsafe { call!(getsockopt, from, SOL_SOCKET, name, at, len_at) };
        ret == 0 && sys::setsockopt_bytes(to, SOL_SOCKET, name, &value[..len as usize]) == 0
    })
}

/// Whether an option that the program sets on the TCP socket behind is set on the vsock
/// connection too.
pub fn shares_option(level: c_int, name: c_int) -> bool {
    /// SO_RCVTIMEO and SO_SNDTIMEO with 64-bit times on 32-bit machines.
    const NEW_TIMEOUTS: [c_int; 2] = [66, 67];
    level == SOL_SOCKET
        && (SHARED_OPTIONS.iter().any(|(shared, _)| *shared == name)
            || name == sys::SO_RCVLOWAT
            || NEW_TIMEOUTS.contains(&name))
}

/// Options that would promise what only TCP itself can do.
pub fn refuses_option(level: c_int, name: c_int) -> bool {
    const SO_ZEROCOPY: c_int = 60;
    match level {
        SOL_SOCKET => name == SO_ZEROCOPY,
        sys::SOL_TCP => matches!(name, sys::TCP_ULP | sys::TCP_ZEROCOPY_RECEIVE),
        _ => false,
    }
}
