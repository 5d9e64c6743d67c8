//! One watch: how long it may still take, and what took the CPU meanwhile.

use crate::{Crowd, Crowding, Rate};

/// A gap this long between two looks means that something else had the CPU.
const GAP_US: u64 = 300;

/// A CPU that was given away for so long went to others than the peer too: a time slice is shorter,
/// and in one of its own the peer of a stream brings much.
const GIVEN_US: u64 = 5000;

/// Whoever is away for longer has given a time slice to a thread that works, not only to the peer: they get one
/// for each yield (4 ms measured on Linux 6.18.44 with 250 ticks a second; kernels since the end of 2025 have
/// "sched/fair: Forfeit vruntime on yield").
pub(crate) const SLICE_US: u64 = 1000;

/// Who ran for less than this part of such a slice, since it last gave one away, lost it to others.
/// Of 4 ms that is 250 us: 250 round trips by ring with a peer on another CPU, 50 with one on this
/// CPU, and by TCP 100 to 200 in all of the 4 ms (measured: 1, 5, and 20 to 40 us each).
const RAN_PART: u64 = 16;

/// Each time so many connections more, a wait watches as long again: before its sleep they are
/// parked one by one, and then woken by TCP and opened again. Of a busy redis with 50 connections
/// 90 to 99 % went by ring with 50 us for all, 96 to 100 with 100 us, 99 to 100 from 200 us on.
const MORE_CONNECTIONS: u64 = 8;

/// What many connections may lengthen a watch by.
const LONGER_MAX: u64 = 8;

/// How long a wait may still watch: its own looks only, not what the machine took from it.
#[derive(Debug)]
pub struct Budget {
    ticks: u64,
    /// With what others have of the CPU while it gives that away.
    by_clock: u64,
}

impl Budget {
    pub const fn new(ticks: u64) -> Self {
        Self { ticks, by_clock: u64::MAX }
    }

    /// For a wait that ends after so many ticks whatever comes.
    #[must_use]
    pub const fn within(self, most: u64) -> Self {
        Self {
            ticks: if self.ticks < most { self.ticks } else { most },
            by_clock: if self.by_clock < most { self.by_clock } else { most },
        }
    }

    /// For a wait that has so many connections to park before it sleeps, where one is worth
    /// `ticks`: who watches for about as long as the sleep would cost never loses more than half.
    pub const fn for_connections(ticks: u64, connections: u64) -> Self {
        let longer = connections / MORE_CONNECTIONS;
        let longer = if longer < LONGER_MAX { longer } else { LONGER_MAX };
        Self::new(ticks.saturating_mul(1 + longer))
    }

    pub const fn ticks(&self) -> u64 {
        self.ticks
    }

    pub const fn is_spent(&self) -> bool {
        self.ticks == 0 || self.by_clock == 0
    }

    /// From now on no longer by the clock than that.
    pub(crate) const fn takes_turns(&mut self, most: u64) {
        if self.by_clock > most {
            self.by_clock = most;
        }
    }

    /// So much time went by since its CPU was given away.
    pub(crate) fn passes(&mut self, ticks: u64) {
        self.by_clock = self.by_clock.saturating_sub(ticks);
    }

    /// Never nothing, so that whoever watches again comes to an end.
    pub(crate) fn use_up(&mut self, ticks: u64) {
        self.ticks = self.ticks.saturating_sub(ticks.max(1));
    }
}

/// A watch of this length asks how often its thread was switched away, so that what it knows is
/// fresh. Most watches are shorter, and the question is a system call, which bytes that come
/// meanwhile wait for.
const ASKS_AFTER_US: u64 = 20;

/// A watch gives its CPU away for a moment each time that it has had it for so long: longer than the answer of a peer that
/// watches on another CPU takes. Whoever else waits for this CPU needs it until then.
const HAS_US: u64 = 5;

/// Whoever has its CPU back sooner was alone there.
const AWAY_US: u64 = 3;

/// What came of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    Stirs,
    /// Nothing stirred as long as the budget lasted.
    InVain,
    /// Others wanted the CPU, or a signal was handled. Says nothing of the peer; look once more.
    GaveWay,
}

/// One watch.
#[derive(Debug)]
pub struct Watching<'a> {
    budget: &'a mut Budget,
    crowding: &'a Crowding,
    rate: Rate,
    /// When the looks began that are not counted yet.
    last: u64,
    /// Involuntary switches of this thread, as far as is known: none between watches, as a rule.
    switches: Option<u64>,
    /// When this watch began, and whether it has asked for them.
    began: u64,
    has_asked: bool,
    /// Since when this thread has its CPU, where it does not keep it.
    has_since: Option<u64>,
}

impl<'a> Watching<'a> {
    /// `switches`: how many involuntary switches this thread had when it was asked last.
    pub fn begin(
        budget: &'a mut Budget,
        crowding: &'a Crowding,
        rate: Rate,
        now: u64,
        switches: Option<u64>,
    ) -> Self {
        let keeps = crowding.now(now) == Crowd::Working;
        Self {
            budget,
            crowding,
            rate,
            last: now,
            switches,
            began: now,
            has_asked: false,
            has_since: (!keeps).then_some(now),
        }
    }

    /// Something stirred: the end of it.
    pub fn stirs(&mut self, now: u64) -> Watched {
        self.budget.use_up(now.wrapping_sub(self.last));
        Watched::Stirs
    }

    /// This thread gave its CPU to the peer, and has it again. True: others than the peer had it
    /// meanwhile, though what came since may look as if it had been worth it. `given`: when this
    /// thread had its CPU back after it gave it away for a slice; 0: not yet.
    pub fn yielded(&mut self, now: u64, given: &mut u64) -> bool {
        let gone = now.wrapping_sub(self.last);
        let mut gave_way = gone > self.rate.us(GIVEN_US);
        if gone > self.rate.us(SLICE_US) {
            let ran = self.last.saturating_sub(*given);
            gave_way |= ran < gone / RAN_PART;
            *given = now;
        }
        if gave_way {
            self.crowding.others_took(now, self.rate);
        }
        // A switch of its own making.
        self.switches = None;
        gave_way
    }

    /// Whether to give the CPU away for a moment.
    pub const fn has_had_it(&self, now: u64) -> bool {
        match self.has_since {
            Some(since) => now.wrapping_sub(since) > self.rate.us(HAS_US),
            None => false,
        }
    }

    /// This thread gave its CPU away at `then`, and has it again. True: others ran meanwhile, and it goes on by
    /// [`crate::Turns`].
    pub fn came_back(&mut self, then: u64, now: u64) -> bool {
        self.has_since = Some(now);
        let gone = now.wrapping_sub(then);
        let others_ran = gone > self.rate.us(AWAY_US);
        // Longer ones are counted there: those do not wait.
        if others_ran && gone <= self.rate.us(SLICE_US) {
            self.crowding.others_run(now, self.rate);
        }
        others_ran
    }

    /// Some looks found nothing. `switches` says how many involuntary switches this thread had so
    /// far. `Some`: the end of it.
    pub fn looked(&mut self, now: u64, switches: impl Fn() -> u64) -> Option<Watched> {
        let gone = now.wrapping_sub(self.last);
        self.last = now;
        if gone > self.rate.us(GAP_US) {
            // The host of a virtual machine may have taken the CPU. Sleeping gives it nothing back.
            let before = self.switches;
            self.switches = Some(switches());
            let is_the_hosts = before.is_some() && before == self.switches;
            if !is_the_hosts {
                self.crowding.others_took(now, self.rate);
                return Some(Watched::GaveWay);
            }
            return None;
        }
        let is_long = now.wrapping_sub(self.began) > self.rate.us(ASKS_AFTER_US);
        if self.switches.is_none() || is_long && !self.has_asked {
            self.switches = Some(switches());
            self.has_asked = true;
        }
        self.budget.use_up(gone);
        self.budget.is_spent().then_some(Watched::InVain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Crowd::{Few, Took, Waiting};

    const RATE: Rate = Rate(2);
    const fn us(count: u64) -> u64 {
        RATE.us(count)
    }

    #[test]
    fn it_ends_with_its_budget() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(7), None);
        for nth in 1..10 {
            assert_eq!(watching.looked(us(7 + 5 * nth), || 3), None);
        }
        assert_eq!(watching.looked(us(57), || 3), Some(Watched::InVain));
        assert!(budget.is_spent() && crowding.now(us(57)) == Few);
    }

    #[test]
    fn many_connections_are_watched_longer() {
        let us_for = |connections| Budget::for_connections(us(50), connections).ticks() / us(1);
        assert_eq!(
            [0, 1, 7, 8, 50, 64, 1000, u64::MAX].map(us_for),
            [50, 50, 50, 100, 350, 450, 450, 450]
        );
    }

    #[test]
    fn who_is_told_again_and_again_comes_to_an_end() {
        let (mut budget, crowding) = (Budget::new(10), Crowding::new());
        for _ in 0..10 {
            assert!(!budget.is_spent());
            assert_eq!(
                Watching::begin(&mut budget, &crowding, RATE, 5, None).stirs(5),
                Watched::Stirs
            );
        }
        assert!(budget.is_spent());
    }

    #[test]
    fn a_gap_with_a_switch_is_crowding() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(1), None);
        assert_eq!(watching.looked(us(2), || 3), None);
        assert_eq!(watching.looked(us(2000), || 4), Some(Watched::GaveWay));
        assert_eq!(crowding.now(us(2001)), Took);
    }

    #[test]
    fn a_gap_without_one_is_the_hosts() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(1), None);
        assert_eq!(watching.looked(us(2), || 3), None);
        for nth in 1..100 {
            assert_eq!(watching.looked(us(2000 * nth), || 3), None, "{nth}");
        }
        // Its looks count, the gaps do not.
        assert_eq!(watching.looked(us(2000 * 99 + 48), || 3), None);
        assert_eq!(watching.looked(us(2000 * 99 + 49), || 3), Some(Watched::InVain));
        assert_eq!(crowding.now(us(2000 * 99 + 50)), Few);
    }

    /// What an earlier watch has asked for is good for this one.
    #[test]
    fn a_gap_at_the_beginning_is_the_hosts_if_no_switch_came_since() {
        for (known, ended) in [(3, None), (2, Some(Watched::GaveWay))] {
            let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
            let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(1), Some(known));
            assert_eq!(watching.looked(us(500), || 3), ended);
            assert_eq!(crowding.now(us(501)) == Took, ended.is_some());
        }
    }

    #[test]
    fn a_short_watch_does_not_ask_and_a_long_one_asks_once() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(1), Some(3));
        let asked = core::cell::Cell::new(0);
        for nth in 1..=40 {
            let asks = || {
                asked.set(asked.get() + 1);
                3
            };
            assert_eq!(watching.looked(us(1 + nth), asks), None);
            assert_eq!(asked.get(), u32::from(nth > 20), "{nth}");
        }
    }

    /// Nobody knows whose it was.
    #[test]
    fn a_gap_at_the_beginning_is_crowding() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(1), None);
        assert_eq!(watching.looked(us(500), || 3), Some(Watched::GaveWay));
    }

    #[test]
    fn who_gives_its_cpu_away_for_long_stops() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        let begun_us = 1_000_000;
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(begun_us), None);
        assert!(!watching.yielded(us(begun_us + 5000), &mut 0));
        let back_us = begun_us + 10_001;
        assert!(watching.yielded(us(back_us), &mut 0));
        assert_eq!(crowding.now(us(back_us + 1)), Took);
    }

    #[test]
    fn who_gives_slice_after_slice_away_stops() {
        let crowding = Crowding::new();
        // Gives 4 ms away, again and again, and has the CPU for `ran_us` between.
        let gives = |ran_us: u64| {
            let mut given = 0;
            (1u64..4).any(|nth| {
                let mut budget = Budget::new(us(50));
                let begun = us(nth * (4000 + ran_us));
                let mut watching = Watching::begin(&mut budget, &crowding, RATE, begun, None);
                watching.yielded(begun + us(4000), &mut given)
            })
        };
        assert!(!gives(260) && crowding.now(us(20_000)) == Few);
        assert!(gives(240) && crowding.now(us(13_000)) == Took);
    }

    #[test]
    fn it_gives_its_cpu_away_every_few_microseconds_and_sees_whether_others_took_it() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(1), None);
        assert!(!watching.has_had_it(us(6)) && watching.has_had_it(us(7)));
        assert!(!watching.came_back(us(7), us(10)));
        assert_eq!(crowding.now(us(10)), Few);
        assert!(!watching.has_had_it(us(15)) && watching.has_had_it(us(16)));
        assert!(watching.came_back(us(16), us(20)));
        assert_eq!(crowding.now(us(20)), Waiting);
    }

    /// A hog's time slice: no reason to take turns.
    #[test]
    fn who_was_away_for_a_time_slice_met_nobody_that_waits() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(1), None);
        assert!(watching.came_back(us(7), us(1008)));
        assert_eq!(crowding.now(us(1008)), Few);
        assert!(watching.came_back(us(2000), us(3000)));
        assert_eq!(crowding.now(us(3000)), Waiting);
    }

    /// It would be gone for a time slice.
    #[test]
    fn among_threads_that_work_it_keeps_its_cpu() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        crowding.others_work(us(1), us(10_000), RATE);
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(1), Some(3));
        assert!(!watching.has_had_it(us(40)));
        assert_eq!(watching.looked(us(4000), || 4), Some(Watched::GaveWay));
        assert_eq!(crowding.now(us(4001)), Took);
    }

    /// The switches that a yield makes are none of the others'.
    #[test]
    fn a_yield_is_no_crowding() {
        let (mut budget, crowding) = (Budget::new(us(50)), Crowding::new());
        let mut watching = Watching::begin(&mut budget, &crowding, RATE, us(1), None);
        assert_eq!(watching.looked(us(2), || 3), None);
        assert!(!watching.yielded(us(3), &mut 0));
        assert_eq!(watching.looked(us(4), || 4), None);
        assert_eq!(watching.looked(us(2004), || 4), None);
        assert_eq!(crowding.now(us(2005)), Few);
    }
}
