//! Data that is whole only between two steps, under locks whose holders are killed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{attach, identity, segment, soon};
use crate::rounds;
use yasmin_segment::sync::{Condition, Mutex, Party, RwLock, Semaphore, Wait};

/// Two numbers that are equal whenever nobody is at it.
#[derive(Default)]
#[repr(C)]
struct Pair {
    first: AtomicU64,
    second: AtomicU64,
}

impl Pair {
    /// `died`: an owner did; else the two must be equal.
    fn change(&self, died: bool) {
        let (first, second) = (self.first.load(Relaxed), self.second.load(Relaxed));
        assert!(died || first == second, "torn, and nobody said so: {first}, {second}");
        assert!(first == second || first == second + 1, "{first}, {second}");
        self.second.store(first, Relaxed);
        self.first.store(first + 1, Relaxed);
        for _ in 0..50 {
            std::hint::spin_loop();
        }
        self.second.store(first + 1, Relaxed);
    }
}

#[derive(Default)]
#[repr(C)]
struct Counts {
    acquired: AtomicU64,
    owner_died: AtomicU64,
    torn: AtomicU64,
    last_fence: AtomicU64,
}

impl Counts {
    fn note(&self, fence: u64, died: bool, pair: &Pair) {
        let before = self.last_fence.swap(fence, Relaxed);
        assert!(fence > before, "the number of an acquisition ran back: {before}, {fence}");
        self.acquired.fetch_add(1, Relaxed);
        self.owner_died.fetch_add(died.into(), Relaxed);
        let is_torn = pair.first.load(Relaxed) != pair.second.load(Relaxed);
        self.torn.fetch_add(is_torn.into(), Relaxed);
    }

    fn tell(&self, name: &str) {
        let [acquired, died, torn] =
            [&self.acquired, &self.owner_died, &self.torn].map(|count| count.load(Relaxed));
        println!("{name}: acquired {acquired} times, {died} after a death, {torn} of these torn");
        assert!(acquired > 1000 && died > 0, "the test kills nobody who holds");
    }
}

#[repr(C)]
struct MutexBody {
    mutex: Mutex,
    pair: Pair,
    counts: Counts,
}

pub fn mutex() {
    let (file, segment) = segment::<MutexBody>();
    let body = &segment.body;
    let work = |_| {
        let attachment = attach(&file, segment);
        loop {
            attachment
                .act(|by| {
                    let got = body.mutex.lock(by, Wait::Forever)?;
                    body.counts.note(got.fence, got.owner_died, &body.pair);
                    body.pair.change(got.owner_died);
                    if got.owner_died {
                        body.mutex.consistent(by)?;
                    }
                    body.mutex.unlock(by)
                })
                .unwrap();
        }
    };
    let check = || {
        let attachment = attach(&file, segment);
        attachment
            .act(|by| {
                let got = body.mutex.lock(by, soon(10_000))?;
                if got.owner_died {
                    body.pair.change(true);
                    body.mutex.consistent(by)?;
                }
                body.mutex.unlock(by)
            })
            .unwrap();
    };
    rounds("mutex", &work, &check);
    body.counts.tell("mutex");
}

#[repr(C)]
struct RwLockBody {
    lock: RwLock,
    pair: Pair,
    counts: Counts,
    read: AtomicU64,
}

pub fn rwlock() {
    let (file, segment) = segment::<RwLockBody>();
    let body = &segment.body;
    let write = |by: &Party<'_>| {
        let got = body.lock.write(by, Wait::Forever)?;
        body.counts.note(got.fence, got.owner_died, &body.pair);
        body.pair.change(got.owner_died);
        if got.owner_died {
            body.lock.consistent(by)?;
        }
        body.lock.unlock(by)
    };
    let read = |by: &Party<'_>| {
        let got = body.lock.read(by, Wait::Forever)?;
        let first = body.pair.first.load(Relaxed);
        for _ in 0..50 {
            std::hint::spin_loop();
        }
        let second = body.pair.second.load(Relaxed);
        assert!(got.owner_died || first == second, "a reader met a writer: {first}, {second}");
        body.read.fetch_add(1, Relaxed);
        body.lock.unlock(by)
    };
    let work = |id: u64| {
        let attachment = attach(&file, segment);
        for turn in id.. {
            attachment.act(|by| if turn.is_multiple_of(3) { write(by) } else { read(by) }).unwrap();
        }
    };
    let check = || {
        let attachment = attach(&file, segment);
        attachment
            .act(|by| {
                // No reader's entry is left of all the dead.
                let got = body.lock.write(by, soon(10_000))?;
                if got.owner_died {
                    body.pair.change(true);
                    body.lock.consistent(by)?;
                }
                body.lock.unlock(by)
            })
            .unwrap();
    };
    rounds("rwlock", &work, &check);
    body.counts.tell("rwlock");
    assert!(body.read.load(Relaxed) > 1000);
}

#[repr(C)]
struct Queue {
    mutex: Mutex,
    filled: Condition,
    items: AtomicU64,
    handled: AtomicU64,
    bell: Semaphore,
}

/// Producers and consumers; a wake-up that a dead one got is made up for, or nothing moves.
pub fn semaphore_and_condition() {
    let (file, segment) = segment::<Queue>();
    let body = &segment.body;
    let work = |id: u64| {
        let mut attachment = attach(&file, segment);
        attachment.renew(identity()).unwrap();
        let lock = |by: &Party<'_>| {
            if body.mutex.lock(by, Wait::Forever)?.owner_died {
                body.mutex.consistent(by)?;
            }
            Ok(())
        };
        loop {
            attachment
                .act(|by| {
                    if id.is_multiple_of(2) {
                        lock(by)?;
                        body.items.fetch_add(1, Relaxed);
                        body.mutex.unlock(by)?;
                        body.filled.signal(by.waiter())?;
                        body.bell.post(by.waiter())
                    } else {
                        lock(by)?;
                        while body.items.load(Relaxed) == 0 {
                            if body.filled.wait(by, &body.mutex, Wait::Forever)?.owner_died {
                                body.mutex.consistent(by)?;
                            }
                        }
                        body.items.fetch_sub(1, Relaxed);
                        body.mutex.unlock(by)?;
                        body.bell.wait(by, Wait::Forever)?;
                        body.handled.fetch_add(1, Relaxed);
                        Ok(())
                    }
                })
                .unwrap();
        }
    };
    rounds("semaphore and condition", &work, &|| ());
    let handled = body.handled.load(Relaxed);
    println!("semaphore and condition: {handled} handled");
    assert!(handled > 1000, "{handled}");
}
