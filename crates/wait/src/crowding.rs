//! Whether other threads want the CPUs, and whether they wait or work.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Rate;

const MIN_US: u64 = 5_000;
const MAX_US: u64 = 640_000;

/// What a thread may lose to others that work, beyond what its turns save, before its process takes none. While threads
/// go over from sleeps to turns those that sleep still go first, as they have used up less of their slices.
const LOSES_US: u64 = 40_000;

/// After so much lost the process takes no turns for so many times as long.
const STOPS: u64 = 4;

const FIRST_WORK_US: u64 = LOSES_US * STOPS;

/// Who was heard from so soon after a watch in vain, through TCP's sleep and wake-up, had waited for its end.
const KEPT_US: u64 = 200;

/// A time that ends by itself, and is longer each time that its reason comes again soon. All zero: it is over.
#[derive(Debug, Default)]
struct Spell {
    until: AtomicU64,
    last_us: AtomicU64,
}

impl Spell {
    const fn new() -> Self {
        Self { until: AtomicU64::new(0), last_us: AtomicU64::new(0) }
    }

    fn lasts(&self, now: u64) -> bool {
        let until = self.until.load(Relaxed);
        until != 0 && now < until
    }

    /// How long it was told to last, if that is not long ago.
    fn recent_us(&self, now: u64, rate: Rate) -> Option<u64> {
        let last_us = self.last_us.load(Relaxed);
        let since = now.saturating_sub(self.until.load(Relaxed));
        (since < rate.us(4 * last_us.max(MIN_US))).then_some(last_us)
    }

    /// It begins, for at least so many ticks as far as the longest one allows.
    #[cold]
    fn begins(&self, now: u64, least: u64, rate: Rate) {
        let us = match self.recent_us(now, rate) {
            // Another thread of the process found the same.
            Some(last_us) if self.lasts(now) => last_us,
            Some(last_us) => last_us * 2,
            // Long ago: a single event, and no pattern.
            None => MIN_US,
        };
        let us = us.max(MIN_US).max(least / rate.us(1).max(1)).min(MAX_US);
        self.last_us.store(us, Relaxed);
        self.until.store(now + rate.us(us), Relaxed);
    }
}

/// What a wait does on the CPUs as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowd {
    /// It watches: there are CPUs enough.
    Few,
    /// It takes turns with the others ([`crate::Turns`]): they wait as well.
    Waiting,
    /// It watches and keeps its CPU: the others work, and would have it for a time slice.
    Working,
    /// It sleeps: they took the CPU from a thread that kept it.
    Took,
}

/// Until when other threads want the CPUs of a process, and whether they mostly wait, too. All zero: none does.
///
/// Among threads that work a watch uses up the slice that it will need when the answer comes, and at its end
/// TCP's sleep and wake-up is faster (measured: a 64 B round trip among
/// compilers, p99 4 us sleeping, 7 ms watching).
#[derive(Debug, Default)]
pub struct Crowding {
    others: Spell,
    work: Spell,
    took: Spell,
    /// Ticks of CPU that turns in vain took, of all threads, beyond what others saved.
    burnt: AtomicU64,
}

impl Crowding {
    pub const fn new() -> Self {
        Self {
            others: Spell::new(),
            work: Spell::new(),
            took: Spell::new(),
            burnt: AtomicU64::new(0),
        }
    }

    pub fn now(&self, now: u64) -> Crowd {
        if self.took.lasts(now) {
            Crowd::Took
        } else if self.work.lasts(now) {
            Crowd::Working
        } else if self.others.lasts(now) {
            Crowd::Waiting
        } else {
            Crowd::Few
        }
    }

    /// Whether they took the CPU each time that it watched: it sleeps for as long as it ever does.
    pub fn sleeps_for_long(&self, now: u64) -> bool {
        self.took.lasts(now) && self.took.last_us.load(Relaxed) == MAX_US
    }

    /// Another thread had the CPU for a moment.
    pub fn others_run(&self, now: u64, rate: Rate) {
        self.others.begins(now, 0, rate);
    }

    /// Another thread had the CPU that this one would have kept: nobody watches for a while.
    pub fn others_took(&self, now: u64, rate: Rate) {
        self.took.begins(now, 0, rate);
    }

    /// A thread lost so many ticks to others: nobody takes turns for a while.
    pub fn others_work(&self, now: u64, lost: u64, rate: Rate) {
        self.work.begins(now, lost.saturating_mul(STOPS), rate);
    }

    /// How many ticks a thread may lose to those that work before it says so: less where they did a while ago.
    pub(crate) fn may_lose(&self, now: u64, rate: Rate) -> u64 {
        let recent_us = self.work.recent_us(now, rate).unwrap_or(0);
        let halvings = (recent_us / FIRST_WORK_US).checked_ilog2().map_or(0, |twice| twice + 1);
        rate.us(LOSES_US >> halvings)
    }

    /// Turns took so many ticks of CPU in vain. True: that is too much, and nobody takes turns for a while.
    pub(crate) fn burns(&self, ticks: u64, now: u64, rate: Rate) -> bool {
        let burnt = self.burnt.load(Relaxed).saturating_add(ticks);
        let stops = burnt > self.may_lose(now, rate);
        self.burnt.store(if stops { 0 } else { burnt }, Relaxed);
        if stops {
            self.others_work(now, burnt, rate);
        }
        stops
    }

    pub(crate) fn saves(&self, ticks: u64) {
        let burnt = self.burnt.load(Relaxed);
        if burnt != 0 {
            self.burnt.store(burnt.saturating_sub(ticks), Relaxed);
        }
    }

    /// A watch begins, `now`. The last one of this thread ended in vain at `vain_at` (0: it did not), and all
    /// peers that it watched had last run on this thread's own CPU. True: they only waited for that CPU, which no yield
    /// gives to a lower class, nor always to a lower weight. Then nobody watches for a while.
    pub fn kept(&self, vain_at: u64, now: u64, rate: Rate) -> bool {
        let has_kept = vain_at != 0 && now.saturating_sub(vain_at) < rate.us(KEPT_US);
        if has_kept {
            self.others_took(now, rate);
        }
        has_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate(3);

    /// Microseconds from `now_us` on for which it lasts.
    fn lasts_us(spell: &Spell, now_us: u64) -> u64 {
        let is_over = |us: &u64| !spell.lasts(RATE.us(now_us + us));
        (0..10 * MAX_US).step_by(1000).find(is_over).expect("it ends")
    }

    #[test]
    fn it_lasts_longer_each_time_and_not_too_long() {
        let spell = Spell::new();
        let mut now_us = 10_000_000;
        let mut lasted = [0; 9];
        for one in &mut lasted {
            spell.begins(RATE.us(now_us), 0, RATE);
            *one = lasts_us(&spell, now_us) / 1000;
            now_us += *one * 1000 + 1000;
        }
        assert_eq!(lasted, [5, 10, 20, 40, 80, 160, 320, 640, 640]);
        // After a long time it begins anew.
        now_us += 10 * MAX_US;
        spell.begins(RATE.us(now_us), 0, RATE);
        assert_eq!(lasts_us(&spell, now_us), MIN_US);
    }

    #[test]
    fn what_several_threads_find_at_once_is_found_once() {
        let spell = Spell::new();
        for _ in 0..8 {
            spell.begins(RATE.us(10_000_000), 0, RATE);
        }
        assert_eq!(lasts_us(&spell, 10_000_000), MIN_US);
    }

    #[test]
    fn it_lasts_as_long_as_is_asked_for() {
        let spell = Spell::new();
        spell.begins(RATE.us(10_000_000), RATE.us(33_000), RATE);
        assert_eq!(lasts_us(&spell, 10_000_000), 33_000);
        spell.begins(RATE.us(20_000_000), u64::MAX, RATE);
        assert_eq!(lasts_us(&spell, 20_000_000), MAX_US);
    }

    #[test]
    fn who_kept_the_cpu_from_its_peer_stops() {
        let (crowding, began) = (Crowding::new(), RATE.us(10_000_000));
        assert!(!crowding.kept(0, began, RATE));
        assert!(!crowding.kept(began, began + RATE.us(200), RATE));
        assert_eq!(crowding.now(began), Crowd::Few);
        assert!(crowding.kept(began, began + RATE.us(30), RATE));
        assert_eq!(crowding.now(began + RATE.us(5000)), Crowd::Took);
    }

    #[test]
    fn it_sleeps_for_long_where_others_take_its_cpu_again_and_again() {
        let (crowding, mut now_us, mut slept) = (Crowding::new(), 10_000_000, [false; 9]);
        for slept in &mut slept {
            crowding.others_took(RATE.us(now_us), RATE);
            *slept = crowding.sleeps_for_long(RATE.us(now_us + 1));
            now_us += lasts_us(&crowding.took, now_us) + 1000;
        }
        assert_eq!(slept, [false, false, false, false, false, false, false, true, true]);
        assert!(!crowding.sleeps_for_long(RATE.us(now_us)));
    }

    #[test]
    fn who_took_the_cpu_comes_before_who_works_and_that_before_who_waits() {
        let (crowding, began) = (Crowding::new(), RATE.us(10_000_000));
        let after_us = |us| crowding.now(began + RATE.us(us));
        crowding.others_run(began, RATE);
        assert_eq!([0, 4999, 5000].map(after_us), [Crowd::Waiting, Crowd::Waiting, Crowd::Few]);
        crowding.others_work(began, RATE.us(10_000), RATE);
        assert_eq!([4999, 39_999].map(after_us), [Crowd::Working; 2]);
        crowding.others_took(began + RATE.us(30_000), RATE);
        assert_eq!([34_999, 35_000].map(after_us), [Crowd::Took, Crowd::Working]);
        crowding.others_run(began + RATE.us(39_000), RATE);
        assert_eq!([39_999, 40_000].map(after_us), [Crowd::Working, Crowd::Waiting]);
    }
}
