//! Other names of the same entries. libc exports them, and some programs are linked with them.
//!
//! Storey 7: exports.

use super::{descriptor, stdio, stream, wait};
use crate::{fork, real, trampoline};

macro_rules! aliases {
    ($($name:ident = $entry:path;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            core::arch::naked_asm!("jmp {entry}", entry = sym $entry)
        }
    )*};
}

aliases! {
    __read = stream::read;
    __write = stream::write;
    __recv = stream::recv;
    __send = stream::send;
    __sendmmsg = stream::sendmmsg;
    preadv64v2 = stream::preadv2;
    pwritev64v2 = stream::pwritev2;
    __connect = descriptor::connect;
    __socket = descriptor::socket;
    __close = descriptor::close;
    __dup2 = descriptor::dup2;
    __fcntl = descriptor::fcntl;
    __poll = wait::poll;
    __select = wait::select;
    __sigaction = super::signal::sigaction;
    _IO_fdopen = stdio::fdopen;
    _IO_popen = trampoline::popen;
    __vfork = trampoline::vfork;
    __clone = fork::clone;
}

/// fork without handlers that run around it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> i32 {
    // SAFETY: no memory involved.
    crate::fork::forking(|| unsafe { real::_Fork() as isize }) as i32
}
