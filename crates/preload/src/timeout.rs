//! How long a wait may take, in the forms that programs say it.
//!
//! Storey 1: system.

use core::ffi::c_int;

use crate::clock::Since;
use crate::memory;
use crate::sys::TimeSpec;

/// How long to sleep for TCP bytes that have ring bytes behind them: another thread may read the
/// former, and then nothing wakes who sleeps over the latter.
const NAP_NS: i64 = 1_000_000;

/// See `Timeout::is_short`.
const SHORT_NS: i64 = 1_000_000;

/// How long a wait may take.
#[derive(Clone, Copy)]
pub struct Timeout {
    /// Negative: for ever.
    pub ns: i64,
}

impl Timeout {
    pub fn from_ms(ms: c_int) -> Self {
        Self { ns: if ms < 0 { -1 } else { i64::from(ms) * 1_000_000 } }
    }

    /// Of a program's `at`, null for ever. `None`: the kernel refuses it.
    pub fn from_timespec(at: *const TimeSpec) -> Option<Self> {
        if at.is_null() {
            return Some(Self { ns: -1 });
        }
        let time = memory::get(at)?;
        if time.sec < 0 || !(0..1_000_000_000).contains(&time.nsec) {
            return None;
        }
        Some(Self { ns: time.sec.saturating_mul(1_000_000_000).saturating_add(time.nsec) })
    }

    /// As much of it as a nap takes.
    pub fn nap(self) -> Self {
        Self { ns: if self.ns < 0 { NAP_NS } else { self.ns.min(NAP_NS) } }
    }

    pub fn is_now(self) -> bool {
        self.ns == 0
    }

    /// Whether the program may wait again before a peer that it waits for could be heard from.
    pub fn is_short(self) -> bool {
        (0..SHORT_NS).contains(&self.ns)
    }

    /// What is left of it for a sleep that begins now.
    pub fn to_sleep(self, start: &Since) -> Self {
        if self.ns > 0 {
            start.ask();
        }
        self.less(start)
    }

    /// What is left of it after the time since `start`.
    pub fn less(self, start: &Since) -> Self {
        if self.ns <= 0 {
            return self;
        }
        let gone = start.gone_ns().min(i64::MAX as u64) as i64;
        Self { ns: (self.ns - gone).max(0) }
    }

    /// Rounded up, as a wait must not end early.
    pub fn ms(self) -> c_int {
        if self.ns < 0 {
            return -1;
        }
        ((self.ns + 999_999) / 1_000_000).min(i64::from(c_int::MAX)) as c_int
    }

    pub fn timespec(self) -> TimeSpec {
        TimeSpec { sec: self.ns / 1_000_000_000, nsec: self.ns % 1_000_000_000 }
    }
}
