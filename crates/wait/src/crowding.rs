//! While other threads want the CPUs nobody watches.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Rate;

const MIN_US: u64 = 5_000;
const MAX_US: u64 = 640_000;

/// Who was heard from so soon after a watch in vain, through TCP's sleep and wake-up, had waited for its end.
const KEPT_US: u64 = 200;

/// Until when a process does not watch, and for how long it was last told so. All zero: it may.
///
/// Who watches uses up the slice that it will need when the answer comes: with more runnable
/// threads than CPUs, TCP's sleep and wake-up is faster (measured: a 64 B round trip among
/// compilers, p99 4 us sleeping, 7 ms watching).
#[derive(Debug, Default)]
pub struct Crowding {
    until: AtomicU64,
    last_us: AtomicU64,
}

impl Crowding {
    pub const fn new() -> Self {
        Self { until: AtomicU64::new(0), last_us: AtomicU64::new(0) }
    }

    pub fn lasts(&self, now: u64) -> bool {
        let until = self.until.load(Relaxed);
        until != 0 && now < until
    }

    /// Another thread had the CPU: nobody watches for a while, longer each time that it happens
    /// again soon, and for at least so many ticks as far as the longest while allows.
    #[cold]
    pub fn found(&self, now: u64, least: u64, rate: Rate) {
        let last_us = self.last_us.load(Relaxed);
        let since = now.saturating_sub(self.until.load(Relaxed));
        let us = if self.lasts(now) {
            // Another thread of the process found the same.
            last_us
        } else if since < rate.us(4 * last_us.max(MIN_US)) {
            last_us * 2
        } else {
            // Long ago: a single event, and no pattern.
            MIN_US
        };
        let us = us.max(MIN_US).max(least / rate.us(1).max(1)).min(MAX_US);
        self.last_us.store(us, Relaxed);
        self.until.store(now + rate.us(us), Relaxed);
    }

    /// A watch begins, `now`. The last one of this thread ended in vain at `vain_at` (0: it did not), and all
    /// peers that it watched had last run on this thread's own CPU. True: they only waited for that CPU, which no yield
    /// gives to a lower class, nor always to a lower weight. Then nobody watches for a while.
    pub fn kept(&self, vain_at: u64, now: u64, rate: Rate) -> bool {
        let has_kept = vain_at != 0 && now.saturating_sub(vain_at) < rate.us(KEPT_US);
        if has_kept {
            self.found(now, 0, rate);
        }
        has_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate(3);

    /// Microseconds from `now_us` on in which nobody watches.
    fn lasts_us(crowding: &Crowding, now_us: u64) -> u64 {
        let is_over = |us: &u64| !crowding.lasts(RATE.us(now_us + us));
        (0..10 * MAX_US).step_by(1000).find(is_over).expect("it ends")
    }

    #[test]
    fn it_lasts_longer_each_time_and_not_too_long() {
        let crowding = Crowding::new();
        let mut now_us = 10_000_000;
        let mut lasted = [0; 9];
        for one in &mut lasted {
            crowding.found(RATE.us(now_us), 0, RATE);
            *one = lasts_us(&crowding, now_us) / 1000;
            now_us += *one * 1000 + 1000;
        }
        assert_eq!(lasted, [5, 10, 20, 40, 80, 160, 320, 640, 640]);
        // After a long time it begins anew.
        now_us += 10 * MAX_US;
        crowding.found(RATE.us(now_us), 0, RATE);
        assert_eq!(lasts_us(&crowding, now_us), MIN_US);
    }

    #[test]
    fn what_several_threads_find_at_once_is_found_once() {
        let crowding = Crowding::new();
        for _ in 0..8 {
            crowding.found(RATE.us(10_000_000), 0, RATE);
        }
        assert_eq!(lasts_us(&crowding, 10_000_000), MIN_US);
    }

    #[test]
    fn who_kept_the_cpu_from_its_peer_stops() {
        let (crowding, began) = (Crowding::new(), RATE.us(10_000_000));
        assert!(!crowding.kept(0, began, RATE));
        assert!(!crowding.kept(began, began + RATE.us(200), RATE) && !crowding.lasts(began));
        assert!(
            crowding.kept(began, began + RATE.us(30), RATE)
                && crowding.lasts(began + RATE.us(5000))
        );
    }

    #[test]
    fn it_lasts_as_long_as_is_asked_for() {
        let crowding = Crowding::new();
        crowding.found(RATE.us(10_000_000), RATE.us(33_000), RATE);
        assert_eq!(lasts_us(&crowding, 10_000_000), 33_000);
        crowding.found(RATE.us(20_000_000), u64::MAX, RATE);
        assert_eq!(lasts_us(&crowding, 20_000_000), MAX_US);
    }
}
