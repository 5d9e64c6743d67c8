//! How this crate calls the kernel: by instructions of its own in the preloaded library, which has no
//! libc to go by; by libc's `syscall` in programs (feature `libc`). A program with instructions of
//! its own that could touch a socket gets no channels, and `yasmin pingpong` wants some.

pub use syscalls::{Errno, Sysno};

/// `syscall!(number, arguments)`, at most six, each as usize: what the kernel returns, or the Errno.
#[cfg(not(feature = "libc"))]
pub use syscalls::syscall;

#[cfg(feature = "libc")]
macro_rules! syscall {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let number: Sysno = $number;
        $crate::sys::result(libc::syscall(
            number.id().into() $(, $argument as usize)*
        ))
    }};
}
#[cfg(feature = "libc")]
pub(crate) use syscall;

#[cfg(feature = "libc")]
pub fn result(returned: core::ffi::c_long) -> Result<usize, Errno> {
    // SAFETY: the thread's own.
    let errno = || unsafe { *libc::__errno_location() };
    if returned == -1 { Err(Errno::new(errno())) } else { Ok(returned as usize) }
}
