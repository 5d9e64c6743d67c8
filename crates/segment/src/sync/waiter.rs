//! Sleeping and waking, behind one small trait.
//!
//! The locks decide and do nothing of this themselves. [`Futex`] serves the processes of one
//! kernel, [`super::Bells`] those of several guests.

use super::primitive::{AtomicU64, Ordering};

pub trait Waiter {
    /// Sleeps while the lower half of `word` is `low`, for at most `limit_ns`; may return at any
    /// time. Whether the limit has passed.
    ///
    /// Looks at the word once more /then/ sleeps, with nothing between that a wake could miss.
    fn sleep(&self, word: &AtomicU64, low: u32, limit_ns: u64) -> bool;

    /// Wakes up to `count` of those who sleep on `word`.
    fn wake(&self, word: &AtomicU64, count: u32);

    /// The monotonic clock that deadlines are told in.
    fn now_ns(&self) -> u64;

    /// How often a wait looks, with a pause between, before it sleeps.
    fn looks(&self) -> u32;
}

/// The shared futex of one kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Futex {
    looks: u32,
}

/// Some microseconds: about what a sleep and a wake-up cost.
const LOOKS: u32 = 128;

impl Futex {
    /// Watches before sleeping where more than one CPU is there to work meanwhile.
    pub fn new() -> Self {
        // Of the machine: a process that is pinned to one CPU waits for others on others.
        // SAFETY: asks for a number.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        Self { looks: if cpus > 1 { LOOKS } else { 0 } }
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

#[cfg(not(target_endian = "little"))]
compile_error!("the futex is the lower half of a word, taken to lie first");

/// Sleeps while the word is `low`, for at most `limit_ns`; may return at any time. Whether the limit has
/// passed.
pub(crate) fn sleep_on(word: *const u32, low: u32, limit_ns: u64) -> bool {
    let limit = timespec(limit_ns);
    // SAFETY: the kernel checks the address, and `limit` outlives the call.
    if unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, low, &raw const limit) } >= 0
    {
        return false;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => false,
        Some(libc::ETIMEDOUT) => true,
        // Forbidden, or no page that the kernel can sleep on: a nap without being woken.
        _ => {
            std::thread::sleep(std::time::Duration::from_nanos(limit_ns));
            true
        }
    }
}

/// Wakes up to `count` of those who sleep on the word.
pub(crate) fn wake(word: *const u32, count: u32) {
    let count = count.min(i32::MAX as u32);
    // SAFETY: the kernel checks the address.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, count) };
}

impl Waiter for Futex {
    fn sleep(&self, word: &AtomicU64, low: u32, limit_ns: u64) -> bool {
        sleep_on(std::ptr::from_ref(word).cast(), low, limit_ns)
    }

    fn wake(&self, word: &AtomicU64, count: u32) {
        wake(std::ptr::from_ref(word).cast(), count);
    }

    fn now_ns(&self) -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is writable for its size.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn looks(&self) -> u32 {
        self.looks
    }
}

/// The half of a word that sleepers compare.
pub(crate) fn low(word: u64) -> u32 {
    word as u32
}

/// Looks at `word` until it is not `seen`, as often as `waiter` says times `patience`.
pub(crate) fn watch(waiter: &dyn Waiter, word: &AtomicU64, seen: u64, patience: u32) -> u64 {
    for _ in 0..waiter.looks() * patience {
        let now = word.load(Ordering::Acquire);
        if now != seen {
            return now;
        }
        super::primitive::look_again();
    }
    seen
}

/// A holder takes and gives a lock in about this time.
const FIRST_PAUSES: u32 = 8;

/// Looks that come further and further apart, so that who holds a lock gets on meanwhile.
pub(crate) struct Backoff {
    left: u32,
    next: u32,
}

impl Backoff {
    pub fn new(waiter: &dyn Waiter) -> Self {
        Self { left: waiter.looks(), next: FIRST_PAUSES }
    }

    /// Pauses before the next look. False: there have been enough.
    pub fn pause(&mut self) -> bool {
        let pauses = self.next.min(self.left);
        for _ in 0..pauses {
            super::primitive::look_again();
        }
        self.left -= pauses;
        self.next = self.next.saturating_mul(2);
        pauses > 0
    }
}
