//! Time for spinning and for bounded intervals: the processor's own counter.
//!
//! Storey 1: system.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::process;
use crate::sys::{TimeSpec, call};

/// Counter ticks in a microsecond; a low guess until it is measured.
static PER_US: AtomicU64 = AtomicU64::new(1000);

/// Reading the counter is a fault in this process.
static IS_FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// The program is about to forbid itself the counter (prctl, PR_SET_TSC).
pub fn forbids_counter() {
    IS_FORBIDDEN.store(true, Ordering::SeqCst);
}

/// In a process that may not read the counter each reading is a microsecond later, so that what waits awake ends.
pub fn ticks() -> u64 {
    static READINGS: AtomicU64 = AtomicU64::new(0);
    if IS_FORBIDDEN.load(Ordering::Relaxed) {
        return READINGS.fetch_add(us(1), Ordering::Relaxed);
    }
    // SAFETY: rdtsc reads a register.
    unsafe { core::arch::x86_64::_rdtsc() }
}

pub fn us(count: u64) -> u64 {
    count.saturating_mul(PER_US.load(Ordering::Relaxed))
}

fn monotonic_ns() -> u64 {
    let mut now = TimeSpec::default();
    // SAFETY: the kernel fills `now`.
    unsafe { call!(clock_gettime, 1, &raw mut now) };
    now.sec as u64 * 1_000_000_000 + now.nsec as u64
}

/// Monotonic nanoseconds, for timeouts of waits that are cut in two.
pub fn now_ns() -> u64 {
    monotonic_ns()
}

/// The same in whole seconds, for what may be tried again.
pub fn second() -> u64 {
    monotonic_ns() / 1_000_000_000
}

/// For so long the counter is exact enough.
const SHORT_NS: u64 = 100_000;

/// A moment, by the kernel's clock, which is asked only once somebody wants to know how long ago
/// it was: most waits that can end by themselves end before.
pub struct Since {
    ticks: u64,
    ns: Cell<Option<u64>>,
}

impl Since {
    pub fn now() -> Self {
        Self { ticks: ticks(), ns: Cell::new(None) }
    }

    pub fn gone_ns(&self) -> u64 {
        let is_short = self.ns.get().is_none() && self.gone_by_ticks_ns() < SHORT_NS;
        if is_short || process::is_sandboxed() {
            return self.gone_by_ticks_ns();
        }
        let now = now_ns();
        let then = self.ns.get().unwrap_or_else(|| now.saturating_sub(self.gone_by_ticks_ns()));
        self.ns.set(Some(then));
        now.saturating_sub(then)
    }

    /// A sleep begins, which may be long: how long it was the kernel's clock says then.
    pub fn ask(&self) {
        if self.ns.get().is_none() && !process::is_sandboxed() {
            self.ns.set(Some(now_ns().saturating_sub(self.gone_by_ticks_ns())));
        }
    }

    fn gone_by_ticks_ns(&self) -> u64 {
        let per_us = u128::from(PER_US.load(Ordering::Relaxed));
        (u128::from(ticks().wrapping_sub(self.ticks)) * 1000 / per_us) as u64
    }
}

/// The time of day, `ns` (below a second) from now: for futexes with a deadline.
pub fn realtime_after(ns: i64) -> TimeSpec {
    let mut time = TimeSpec::default();
    // SAFETY: the kernel fills `time`.
    unsafe { call!(clock_gettime, 0, &raw mut time) };
    time.nsec += ns;
    time.sec += time.nsec / 1_000_000_000;
    time.nsec %= 1_000_000_000;
    time
}

/// Measures the counter over 20 us.
///
/// To ask the clock takes up to a twentieth of that. So the counter is read before and behind: one rate is too
/// high and the other one too low, the more so where the CPU is lost on the way, and the nearest of a few enclose the
/// right one. Where the program may not ask the clock, it stands still, and the guess stays.
pub fn calibrate() {
    const MOST_TICKS: u64 = 10_000_000;
    let (mut lowest, mut highest) = (0, u64::MAX);
    for _ in 0..4 {
        let (before, n0, behind) = (ticks(), monotonic_ns(), ticks());
        let (mut last, mut n1) = (behind, n0);
        while n1 < n0 + 5_000 && last - behind < MOST_TICKS {
            (last, n1) = (ticks(), monotonic_ns());
        }
        let rate = |ticks: u64| (ticks * 1000).checked_div(n1 - n0).filter(|rate| *rate > 0);
        if let (Some(low), Some(high)) = (rate(last - behind), rate(ticks() - before)) {
            (lowest, highest) = (low.max(lowest), high.min(highest));
        }
    }
    if lowest > 0 {
        PER_US.store(lowest.midpoint(highest), Ordering::Relaxed);
    }
}
