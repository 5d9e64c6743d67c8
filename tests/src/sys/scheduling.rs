//! Where and how threads run.

use std::io::{Error, Result};
use std::mem::{size_of, zeroed};

use super::check_int;

/// The calling thread keeps to one CPU.
pub fn pin(cpu: usize) -> Result<()> {
    // SAFETY: all-zero is an empty set; it outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        libc::CPU_SET(cpu, &mut set);
        check_int(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set))
            .map(drop)
    }
}

/// SCHED_FIFO for the calling thread, which needs a privilege.
pub fn real_time(priority: i32) -> Result<()> {
    // SAFETY: all-zero is a valid parameter; it outlives the call.
    let errno = unsafe {
        let mut parameter: libc::sched_param = zeroed();
        parameter.sched_priority = priority;
        libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_FIFO, &raw const parameter)
    };
    if errno == 0 { Ok(()) } else { Err(Error::from_raw_os_error(errno)) }
}

/// The process ends by a signal after so long, whatever its threads are at.
pub fn end_after(seconds: u32) {
    // SAFETY: no pointers.
    unsafe { libc::alarm(seconds) };
}
