//! A vsock connection takes the place of a TCP socket.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

use super::options;
use crate::entry::{self, Entry};
use crate::sys::{self, call};
use crate::{broker, table};

/// The number that was changed last; -1: none was.
static LATEST: AtomicI32 = AtomicI32::new(-1);

/// A wait that did not wait has found nothing. A set says so without a look at the connections in
/// it. yasmin.ko counts looks in vain, and lets the other guest run where both share a processor.
pub fn looked_in_vain() {
    let fd = LATEST.load(Ordering::Relaxed);
    if fd >= 0 && matches!(entry::get(fd), Entry::Guest(_)) {
        sys::poll_now(fd, sys::POLLIN);
    }
}

/// A vsock connection about to take a TCP socket's number. All that can fail is done at the
/// beginning; undone unless finished.
pub struct Change {
    fd: c_int,
    vsock: c_int,
    behind: c_int,
    cloexec: c_int,
}

impl Change {
    pub fn begin(fd: c_int, vsock: c_int) -> Option<Self> {
        // SAFETY: no memory involved.
        let (status, flags) =
            unsafe { (call!(fcntl, fd, sys::F_GETFL), call!(fcntl, fd, sys::F_GETFD)) };
        let cloexec = if flags & sys::FD_CLOEXEC as isize != 0 { 0o2000000 } else { 0 };
        let change = Self { fd, vsock, behind: broker::copy_high(fd), cloexec };
        let status = status & sys::O_NONBLOCK as isize;
        // SAFETY: no memory involved.
        let is_set = unsafe { call!(fcntl, vsock, sys::F_SETFL, status) } == 0;
        (change.behind >= 0 && is_set && options::copy(fd, vsock)).then_some(change)
    }

    pub fn finish(self) {
        // SAFETY: no memory involved; the number is the program's, and it is in our call.
        unsafe { call!(dup3, self.vsock, self.fd, self.cloexec) };
        table::set_guest(self.fd, self.behind);
        LATEST.store(self.fd, Ordering::Relaxed);
        sys::close(self.vsock);
        core::mem::forget(self);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if self.behind >= 0 {
            sys::close(self.behind);
        }
        sys::close(self.vsock);
    }
}
