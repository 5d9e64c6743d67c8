//! liburing's ways to set an io_uring up: refused, as io_uring_setup by libc's syscall is, so that programs
//! fall back to calls that get rings.
//!
//! Storey 7: exports.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::sys::ENOSYS;
use crate::{config, real, text};

type Setup = unsafe extern "C" fn(usize, usize, usize, usize, usize) -> c_int;

macro_rules! setups {
    ($($name:ident)*) => {$(
        /// Returns as liburing does: minus errno.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize) -> c_int {
            if config::ALLOW_IO_URING.load(Ordering::Relaxed) == 0 {
                return -ENOSYS;
            }
            let setup = real::next(concat!(stringify!($name), "\0").as_bytes());
            if setup.is_null() {
                return -ENOSYS;
            }
            text::may_make_uring();
            // SAFETY: liburing's function of this name, which takes five words at most.
            let setup: Setup = unsafe { core::mem::transmute(setup) };
            // SAFETY: the program's own arguments.
            unsafe { setup(a, b, c, d, e) }
        }
    )*};
}

setups! { io_uring_queue_init io_uring_queue_init_params io_uring_queue_init_mem io_uring_setup }
