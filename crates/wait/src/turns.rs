//! Threads that wait for each other take turns on crowded CPUs.
//!
//! With more threads than CPUs that send, receive and wait again, nobody can watch for long. So each of them looks once and
//! gives its CPU to the next one. Those run for a few microseconds each, and it comes back soon: a round of 16
//! threads takes less than the two sleeps and wake-ups of one message by TCP, and nobody sleeps.
//!
//! Among threads that work a turn takes a time slice. What is lost so is weighed against what the turns save.

use crate::watching::SLICE_US;
use crate::{Budget, Crowding, Rate, Watched};

/// What a turn takes of a budget: a look and a yield, without what the others did meanwhile.
const TURN_US: u64 = 1;

/// Whoever has its CPU back sooner is alone there at the moment, and looks so often before it gives it away again.
const ALONE_US: u64 = 1;
const LOOKS_ALONE: u32 = 64;

/// Who got nothing in so long may as well sleep: that costs little of it then. And whoever set a timeout waits for no more
/// than that beyond it.
const LONGEST_US: u64 = 5000;

/// A sleep and a wake-up by TCP.
const SAVED_US: u64 = 10;

/// One wait that takes turns.
#[derive(Debug)]
pub struct Turns<'a> {
    budget: &'a mut Budget,
    crowding: &'a Crowding,
    rate: Rate,
    /// Of the budget, when it began.
    had: u64,
    /// When this thread had its CPU back.
    last: u64,
    record: Record,
}

/// What a thread learnt from its turns. All zero: nothing yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// Ticks that it lost, beyond what it saved.
    lost: u64,
    is_alone: bool,
}

impl Record {
    pub const fn of_bits(bits: u64) -> Self {
        Self { lost: bits >> 1, is_alone: bits & 1 != 0 }
    }

    pub const fn bits(self) -> u64 {
        self.lost << 1 | self.is_alone as u64
    }
}

impl<'a> Turns<'a> {
    pub const fn begin(
        budget: &'a mut Budget,
        crowding: &'a Crowding,
        rate: Rate,
        now: u64,
        record: Record,
    ) -> Self {
        let had = budget.ticks();
        budget.takes_turns(rate.us(LONGEST_US));
        Self { budget, crowding, rate, had, last: now, record }
    }

    /// What the next wait of this thread begins with.
    pub const fn record(&self) -> Record {
        self.record
    }

    /// How often to look before the CPU is given away.
    pub const fn looks(&self) -> u32 {
        if self.record.is_alone { LOOKS_ALONE } else { 1 }
    }

    /// Something stirred: the end of it.
    pub fn stirs(&mut self) -> Watched {
        self.record.lost = self.record.lost.saturating_sub(self.rate.us(SAVED_US));
        self.crowding.saves(self.rate.us(SAVED_US));
        self.budget.use_up(self.rate.us(TURN_US));
        Watched::Stirs
    }

    /// This thread gave its CPU away at `then`, and has it again. `Some`: the end of it.
    pub fn came_round(&mut self, then: u64, now: u64) -> Option<Watched> {
        let gone = now.wrapping_sub(then);
        let looked = then.wrapping_sub(self.last);
        self.last = now;
        self.record.is_alone = gone < self.rate.us(ALONE_US);
        if gone > self.rate.us(SLICE_US) && self.loses(gone) {
            return Some(Watched::GaveWay);
        }
        self.budget.use_up(self.rate.us(TURN_US).max(looked));
        self.budget.passes(gone);
        if !self.budget.is_spent() {
            return None;
        }
        // A sleep comes all the same.
        let burnt = self.had - self.budget.ticks();
        let stops = self.crowding.burns(burnt, self.last, self.rate);
        Some(if stops { Watched::GaveWay } else { Watched::InVain })
    }

    /// True: too much, and the process stops.
    fn loses(&mut self, ticks: u64) -> bool {
        let lost = self.record.lost.saturating_add(ticks);
        let stops = lost > self.crowding.may_lose(self.last, self.rate);
        self.record.lost = if stops { 0 } else { lost };
        if stops {
            self.crowding.others_work(self.last, lost, self.rate);
        }
        stops
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Crowd;

    const RATE: Rate = Rate(2);
    const fn us(count: u64) -> u64 {
        RATE.us(count)
    }

    /// Waits of one thread, one after the other: what came of each.
    struct Thread<'a> {
        crowding: &'a Crowding,
        now: u64,
        record: Record,
    }

    impl<'a> Thread<'a> {
        fn new(crowding: &'a Crowding) -> Self {
            Self { crowding, now: us(10_000_000), record: Record::default() }
        }

        /// The CPU comes back after so long each time; something stirs after so many turns.
        fn waits(&mut self, gone_us: u64, turns: u32) -> Watched {
            let mut budget = Budget::new(us(50));
            let mut wait = Turns::begin(&mut budget, self.crowding, RATE, self.now, self.record);
            let ended = (0..turns).find_map(|_| {
                let then = self.now;
                self.now += us(gone_us);
                wait.came_round(then, self.now)
            });
            let watched = ended.unwrap_or_else(|| wait.stirs());
            self.record = Record::of_bits(wait.record().bits());
            watched
        }

        fn crowd(&self) -> Crowd {
            self.crowding.now(self.now)
        }
    }

    /// Whatever the others do meanwhile is no part of the budget.
    #[test]
    fn so_many_turns_are_a_budget_however_long_a_round_is() {
        for round_us in [1, 20, 99] {
            let crowding = Crowding::new();
            let mut thread = Thread::new(&crowding);
            assert_eq!(thread.waits(round_us, 49), Watched::Stirs, "{round_us}");
            assert_eq!(thread.waits(round_us, 50), Watched::InVain, "{round_us}");
        }
    }

    #[test]
    fn it_is_over_after_a_few_milliseconds_or_the_timeout() {
        let crowding = Crowding::new();
        let mut thread = Thread::new(&crowding);
        assert_eq!(thread.waits(900, 5), Watched::Stirs);
        assert_eq!(thread.waits(900, 6), Watched::InVain);
        let mut budget = Budget::new(us(50)).within(us(2000));
        let mut wait = Turns::begin(&mut budget, &crowding, RATE, us(1), Record::default());
        assert_eq!(wait.came_round(us(2), us(902)), None);
        assert_eq!(wait.came_round(us(903), us(1803)), None);
        assert_eq!(wait.came_round(us(1804), us(2704)), Some(Watched::InVain));
        // Three turns of a microsecond were burnt, and six: 40 ms less these allow 799 waits of 50.
        let waits = (1..).find(|_| thread.waits(1, 50) == Watched::GaveWay);
        assert_eq!(waits, Some(800));
    }

    #[test]
    fn who_is_alone_looks_longer() {
        let (crowding, mut budget) = (Crowding::new(), Budget::new(us(50)));
        let mut wait = Turns::begin(&mut budget, &crowding, RATE, us(1), Record::default());
        assert_eq!(wait.looks(), 1);
        assert_eq!(wait.came_round(us(1), us(1) + 1), None);
        assert_eq!(wait.looks(), 64);
        // Its looks are part of the budget then.
        assert_eq!(wait.came_round(us(40), us(60)), None);
        assert_eq!(wait.looks(), 1);
        assert_eq!(wait.came_round(us(72), us(72) + 1), Some(Watched::InVain));
    }

    #[test]
    fn threads_that_wait_for_each_other_go_on_for_ever() {
        let crowding = Crowding::new();
        let mut thread = Thread::new(&crowding);
        for nth in 0..100_000 {
            // A time slice now and then, and a wait in vain.
            let (gone_us, turns) = match nth % 1000 {
                0 => (4000, 1),
                1 => (20, 50),
                _ => (20, 2),
            };
            assert_ne!(thread.waits(gone_us, turns), Watched::GaveWay, "{nth}");
        }
        assert_eq!(thread.crowd(), Crowd::Few);
    }

    #[test]
    fn among_threads_that_work_it_sleeps_soon_and_sooner_the_next_time() {
        let crowding = Crowding::new();
        let mut thread = Thread::new(&crowding);
        let mut slices = [0; 6];
        for slices in &mut slices {
            while thread.crowd() != Crowd::Working {
                *slices += 1;
                let ended = thread.waits(4000, 1);
                assert_eq!(ended == Watched::GaveWay, thread.crowd() == Crowd::Working);
            }
            while thread.crowd() == Crowd::Working {
                thread.now += us(1000);
            }
        }
        // 40 ms, then half as much each time that it comes again, down to 5.
        assert_eq!(slices, [11, 6, 3, 2, 2, 2]);
    }

    #[test]
    fn after_waits_in_vain_it_sleeps_at_once() {
        let crowding = Crowding::new();
        let mut thread = Thread::new(&crowding);
        let waits = (1..).find(|_| thread.waits(1, 50) == Watched::GaveWay);
        // 40 ms of CPU.
        assert_eq!(waits, Some(801));
        assert_eq!(thread.crowd(), Crowd::Working);
    }
}
