//! A short lock that knows its holder.
//!
//! Never held over a sleep or a return to the program. A signal handler that interrupts the
//! holder in its own thread is told so instead of waiting for itself.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::process;
use crate::sys::{self, call};

#[repr(transparent)]
pub struct Lock(AtomicU64);

pub struct Guard<'a> {
    lock: &'a AtomicU64,
    /// The lock that forked processes share, where there is one.
    shared: Option<&'a AtomicU64>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.store(0, Ordering::Release);
        }
        self.lock.store(0, Ordering::Release);
    }
}

impl Lock {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// `None`: this thread holds it already.
    #[inline]
    pub fn acquire(&self) -> Option<Guard<'_>> {
        let me = sys::thread_pointer();
        if self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait(me)?;
        }
        Some(Guard { lock: &self.0, shared: None })
    }

    /// `None`: somebody holds it.
    pub fn try_acquire(&self) -> Option<Guard<'_>> {
        let me = sys::thread_pointer();
        self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Guard { lock: &self.0, shared: None })
    }

    #[cold]
    fn wait(&self, me: u64) -> Option<()> {
        let mut tries = 0u32;
        loop {
            match self.0.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(()),
                Err(holder) if holder == me => return None,
                Err(_) => {}
            }
            tries += 1;
            if tries.is_multiple_of(64) {
                sys::sched_yield();
            }
            core::hint::spin_loop();
        }
    }

    /// For a forked child: whoever held it is not here.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl<'a> Guard<'a> {
    /// Takes the lock that forked processes share as well. A holder that was killed is robbed,
    /// and `robbed` puts in order what it may have left half done.
    #[cold]
    pub fn and_shared(mut self, shared: &'a AtomicU64, robbed: impl FnOnce()) -> Self {
        let me = u64::from(process::pid()) << 32 | sys::thread_pointer() >> 6 & 0xffff_ffff;
        let mut tries = 0u32;
        loop {
            let holder = match shared.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(holder) => holder,
            };
            tries += 1;
            if tries.is_multiple_of(64) {
                sys::sched_yield();
            }
            if tries.is_multiple_of(4096)
                && is_dead(holder)
                && shared.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                robbed();
                break;
            }
        }
        self.shared = Some(shared);
        self
    }
}

/// Whether the holder's process has ended, waited for by its parent or not.
fn is_dead(holder: u64) -> bool {
    let pid = holder >> 32;
    // SAFETY: no memory involved.
    let process = unsafe { call!(pidfd_open, pid, 0) };
    if process >= 0 {
        // Readable when all its threads have ended.
        let is_over = sys::poll_now(process as c_int, sys::POLLIN) != 0;
        sys::close(process as c_int);
        return is_over;
    }
    // Also where there is no descriptor left to look with: then at least who is gone is found.
    // SAFETY: signal 0 only asks whether the process is there.
    unsafe { call!(kill, pid, 0) == -(sys::ESRCH as isize) }
}
