//! What loom's models of the locks have in common: members that die, and naps.
#![allow(dead_code)]

use loom::sync::MutexGuard;
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;
use yasmin_segment::sync::primitive::steps::{at_once, die_at};
use yasmin_segment::sync::{
    Error, Identity, Life, Liveness, Members, Number, Party, Slot, Thread, Waiter, Word,
};

use loom::sync::atomic::{AtomicU64, Ordering};

const MEMBERS: usize = 3;

/// Who sleeps, in the order of their coming: on which word, and a number of its own.
#[derive(Default)]
struct Bed {
    sleepers: Vec<(*const Word, u64)>,
    last: u64,
}

/// One segment's members and their kernel.
///
/// A nap's end is modelled by what it is there for: a death wakes all sleepers. Without a death
/// nobody wakes but by a wake-up, so that a missed one is a deadlock, which loom reports.
pub struct World {
    slots: [Slot; MEMBERS],
    dead: AtomicU64,
    bed: Mutex<Bed>,
    woken: Condvar,
    clock_ns: std::sync::atomic::AtomicU64,
    /// Whether deaths end naps: not in a model that must get by without.
    pub tells_deaths: bool,
    /// So many naps end by themselves, nobody having died.
    pub short_naps: std::sync::atomic::AtomicU32,
}

impl World {
    pub fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| Slot::default()),
            dead: AtomicU64::new(0),
            bed: Mutex::new(Bed::default()),
            woken: Condvar::new(),
            clock_ns: std::sync::atomic::AtomicU64::new(0),
            tells_deaths: true,
            short_naps: std::sync::atomic::AtomicU32::new(0),
        }
    }

    fn bed(&self) -> MutexGuard<'_, Bed> {
        self.bed.lock().unwrap()
    }

    /// A nap is over, which takes a nanosecond here.
    fn elapsed(&self) -> bool {
        self.clock_ns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        loom::thread::yield_now();
        true
    }

    pub fn members(&self) -> Members<'_> {
        Members::new(&self.slots)
    }

    /// All members, claimed before any thread runs.
    pub fn claim_all(&self) -> [Number; MEMBERS] {
        std::array::from_fn(|_| {
            let mut next = |slot: usize| {
                let is_free = self.members().life(self.number(slot), self) != Ok(Life::Alive);
                Ok::<_, Error>(is_free.then_some(()))
            };
            self.members().claim(Identity::default(), &mut next).unwrap().0
        })
    }

    fn number(&self, slot: usize) -> Number {
        Number::first(slot)
    }

    pub fn act<T>(&self, number: Number, act: impl FnOnce(&Party<'_>) -> T) -> T {
        let thread = Thread::new(1);
        act(&Party::new(self.members(), number, &thread, self, self).unwrap())
    }

    /// Acts, and dies before step `step`. Whether it lived.
    pub fn act_and_die<T>(
        &self,
        number: Number,
        step: i64,
        act: impl FnOnce(&Party<'_>) -> T,
    ) -> Option<T> {
        let result = self.act(number, |by| die_at(step, || act(by)));
        if result.is_none() {
            self.die(number);
        }
        result
    }

    pub fn die(&self, number: Number) {
        self.dead.fetch_or(1 << number.slot(), Ordering::SeqCst);
        if self.tells_deaths {
            self.bed().sleepers.clear();
            self.woken.notify_all();
        }
    }
}

impl Liveness for World {
    fn probe(&self, slot: usize) -> Life {
        let is_dead = self.dead.load(Ordering::SeqCst) & (1 << slot) != 0;
        if is_dead { Life::Dead } else { Life::Alive }
    }
}

impl Waiter for World {
    fn sleep(&self, word: &Word, low: u32, _limit_ns: u64) -> bool {
        let dead = |world: &Self| world.dead.load(Ordering::SeqCst);
        let mut bed = self.bed();
        if at_once(|| word.load(Ordering::SeqCst)) as u32 != low {
            return false;
        }
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        if self.short_naps.fetch_update(relaxed, relaxed, |left| left.checked_sub(1)).is_ok() {
            drop(bed);
            return self.elapsed();
        }
        // A death before the sleep ends the first nap: who sleeps looks then.
        if self.tells_deaths && dead(self) != 0 {
            drop(bed);
            return self.elapsed();
        }
        bed.last += 1;
        let own = bed.last;
        bed.sleepers.push((std::ptr::from_ref(word), own));
        while bed.sleepers.iter().any(|(_, number)| *number == own) {
            bed = self.woken.wait(bed).unwrap();
        }
        drop(bed);
        self.tells_deaths && dead(self) != 0 && self.elapsed()
    }

    fn wake(&self, word: &Word, count: u32) {
        let mut left = count;
        self.bed().sleepers.retain(|(at, _)| {
            let is_woken = *at == std::ptr::from_ref(word) && left > 0;
            left -= u32::from(is_woken);
            !is_woken
        });
        self.woken.notify_all();
    }

    fn now_ns(&self) -> u64 {
        self.clock_ns.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn looks(&self) -> u32 {
        0
    }
}

pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Explores `model` once for each step of the one that dies, until it does not die any more.
pub fn explore_deaths(
    preemptions: usize,
    at_least: i64,
    model: impl Fn(i64) -> bool + Sync + Send + 'static,
) {
    let model = Arc::new(model);
    for step in 0.. {
        let died = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (seen, each) = (Arc::clone(&died), Arc::clone(&model));
        explore(preemptions, move || {
            if each(step) {
                seen.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        });
        if !died.load(std::sync::atomic::Ordering::Relaxed) {
            assert!(step >= at_least, "died at {step} steps only");
            return;
        }
    }
}
