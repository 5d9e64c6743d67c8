//! Bells of two guests: a sleeper that nobody wakes is a deadlock, which loom reports.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p yasmin-segment --release --test 'loom*'`
//!
//! No sleep ends by itself here, and all sleepers ask to be rung for.
#![cfg(loom)]
#![allow(clippy::arc_with_non_send_sync)]

use loom::sync::atomic::Ordering;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;
use yasmin_segment::sync::{Bells, Ringing, Waiter, Word};

#[derive(Default)]
struct Guest {
    rung: Mutex<u32>,
    woken: Condvar,
}

impl Guest {
    fn ring(&self) {
        *self.rung.lock().unwrap() += 1;
        self.woken.notify_all();
    }
}

/// One bell, in two guests.
struct World {
    marks: [Word; 1],
    guests: [Guest; 2],
}

/// What one of its guests sees.
struct Side(usize, Arc<World>);

impl Ringing for Side {
    fn marks(&self) -> &[Word] {
        &self.1.marks
    }

    fn rung(&self, _bell: usize) -> u32 {
        *self.1.guests[self.0].rung.lock().unwrap()
    }

    fn rest(&self, _bell: usize, rung: u32, _limit_ns: u64) {
        let guest = &self.1.guests[self.0];
        let mut now = guest.rung.lock().unwrap();
        while *now == rung {
            now = guest.woken.wait(now).unwrap();
        }
    }

    fn ring(&self, _bell: usize) {
        self.1.guests[self.0].ring();
    }

    fn ring_in(&self, guests: u64, _bell: usize) {
        assert_eq!(guests, 1 << (1 - self.0));
        self.1.guests[1 - self.0].ring();
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn looks(&self) -> u32 {
        0
    }

    fn first_ns(&self) -> u64 {
        u64::MAX / 8
    }
}

/// Words of one bell.
struct Lab {
    world: Arc<World>,
    words: [Word; 2],
}

impl Lab {
    fn new() -> Arc<Self> {
        let world = World { marks: [Word::new(0)], guests: Default::default() };
        let words = [Word::new(0), Word::new(0)];
        Arc::new(Self { world: Arc::new(world), words })
    }

    fn bells(&self, guest: usize) -> Bells<Side> {
        Bells::new(guest as u32, Side(guest, Arc::clone(&self.world)))
    }

    fn await_change(&self, guest: usize, word: usize) {
        let word = &self.words[word];
        while word.load(Ordering::Acquire) == 0 {
            self.bells(guest).sleep(word, 0, u64::MAX);
        }
    }

    fn change(&self, guest: usize, word: usize) {
        let word = &self.words[word];
        word.compare_exchange(0, 1, Ordering::Release, Ordering::Relaxed).unwrap();
        self.bells(guest).wake(word, 1);
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Runs these beside each other.
fn together<const N: usize>(acts: [Box<dyn FnOnce() + Send>; N]) {
    for act in acts.map(thread::spawn) {
        act.join().unwrap();
    }
}

#[test]
fn a_change_in_either_guest_wakes() {
    for waker in [0, 1] {
        explore(move || {
            let lab = Lab::new();
            let [sleeping, waking] = [Arc::clone(&lab), Arc::clone(&lab)];
            together([
                Box::new(move || sleeping.await_change(0, 0)),
                Box::new(move || waking.change(waker, 0)),
            ]);
        });
    }
}

/// Who rings first takes the mark of who sleeps for the other.
#[test]
fn two_words_of_a_bell_do_not_take_each_others_rings() {
    explore(|| {
        let lab = Lab::new();
        let [a, b, c] = std::array::from_fn(|_| Arc::clone(&lab));
        together([
            Box::new(move || a.await_change(0, 0)),
            Box::new(move || b.await_change(0, 1)),
            Box::new(move || {
                c.change(1, 0);
                c.change(1, 1);
            }),
        ]);
    });
}

#[test]
fn sleepers_in_both_guests_are_woken() {
    explore(|| {
        let lab = Lab::new();
        let [a, b, c] = std::array::from_fn(|_| Arc::clone(&lab));
        together([
            Box::new(move || a.await_change(0, 0)),
            Box::new(move || b.await_change(1, 0)),
            Box::new(move || c.change(1, 0)),
        ]);
    });
}
