//! Every lock with a holder that dies at any step, and without deaths.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p yasmin-segment --release --test 'loom*'`
//!
//! Loom explores the interleavings of the real locks up to a number of preemptions. It finds two
//! at a time in what only one may be in (the cells), and a sleeper whom nobody wakes (a deadlock).
// Not loom's Arc: dropped while loom reports a deadlock it would abort.
#![cfg(loom)]
#![allow(clippy::arc_with_non_send_sync)]

mod model;

use loom::cell::UnsafeCell;
use loom::thread;
use model::{World, explore, explore_deaths};
use std::sync::Arc;
use yasmin_segment::sync::{
    Barrier, Begun, Condition, Error, Mutex, Number, Once, Party, RwLock, Semaphore, Sequence,
    Wait, Word,
};

const PREEMPTIONS: usize = 2;

struct Lab<T> {
    world: World,
    lock: T,
    /// What the lock guards: loom reports two at a time.
    cell: UnsafeCell<u64>,
}

// SAFETY: the cell is what loom watches.
unsafe impl<T> Sync for Lab<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Lab<T> {}

impl<T: Default + 'static> Lab<T> {
    fn new() -> (Arc<Self>, [Number; 3]) {
        let lab = Self { world: World::new(), lock: T::default(), cell: UnsafeCell::new(0) };
        let numbers = lab.world.claim_all();
        (Arc::new(lab), numbers)
    }

    fn change(&self) {
        // SAFETY: loom watches.
        self.cell.with_mut(|value| unsafe { *value += 1 });
    }

    fn value(&self) -> u64 {
        // SAFETY: loom watches.
        self.cell.with(|value| unsafe { *value })
    }
}

fn lock_and_change(lab: &Lab<Mutex>, by: &Party<'_>) -> u64 {
    let got = lab.lock.lock(by, Wait::Forever).unwrap();
    lab.change();
    if got.owner_died {
        lab.lock.consistent(by).unwrap();
    }
    lab.lock.unlock(by).unwrap();
    got.fence
}

#[test]
fn mutex_of_three() {
    explore(PREEMPTIONS, || {
        let (lab, [a, b, c]) = Lab::<Mutex>::new();
        let others = [a, b].map(|number| {
            let lab = Arc::clone(&lab);
            thread::spawn(move || lab.world.act(number, |by| lock_and_change(&lab, by)))
        });
        let mut fences = vec![lab.world.act(c, |by| lock_and_change(&lab, by))];
        fences.extend(others.map(|other| other.join().unwrap()));
        fences.sort_unstable();
        assert_eq!(fences, [1, 2, 3]);
        assert_eq!(lab.value(), 3);
    });
}

#[test]
fn mutex_whose_holder_dies() {
    explore_deaths(PREEMPTIONS, 6, |step| {
        let (lab, [a, b, c]) = Lab::<Mutex>::new();
        let one = Arc::clone(&lab);
        let dying = thread::spawn(move || {
            one.world.act_and_die(a, step, |by| lock_and_change(&one, by)).is_none()
        });
        let two = Arc::clone(&lab);
        let other = thread::spawn(move || two.world.act(b, |by| lock_and_change(&two, by)));
        let mine = lab.world.act(c, |by| lock_and_change(&lab, by));
        assert_ne!(mine, other.join().unwrap());
        dying.join().unwrap()
    });
}

#[test]
fn mutex_that_is_lost_wakes_all() {
    explore(PREEMPTIONS, || {
        let (lab, [a, b, c]) = Lab::<Mutex>::new();
        let _ = lab.world.act(a, |by| lab.lock.lock(by, Wait::Forever).unwrap());
        lab.world.die(a);
        let others = [b, c].map(|number| {
            let lab = Arc::clone(&lab);
            thread::spawn(move || {
                lab.world.act(number, |by| {
                    let got = lab.lock.lock(by, Wait::Forever)?;
                    assert!(got.owner_died);
                    lab.lock.unlock(by)
                })
            })
        });
        let results = others.map(|other| other.join().unwrap());
        assert!(results.contains(&Ok(())) && results.contains(&Err(Error::NotRecoverable)));
    });
}

/// A member that was only paused: declared dead at any step, it never has the lock at the same time
/// as a later owner without being able to know.
#[test]
fn mutex_whose_holder_was_only_paused() {
    explore(PREEMPTIONS, || {
        let (lab, [a, b, _]) = Lab::<Mutex>::new();
        let one = Arc::clone(&lab);
        let paused = thread::spawn(move || {
            one.world.act(a, |by| match one.lock.lock(by, Wait::Forever) {
                Ok(got) => (Some(got.fence), one.lock.unlock(by)),
                Err(error) => (None, Err(error)),
            })
        });
        lab.world.members().declare_dead(a);
        lab.world.die(a);
        let mine = lab.world.act(b, |by| {
            let got = lab.lock.lock(by, Wait::Forever).unwrap();
            if got.owner_died {
                lab.lock.consistent(by).unwrap();
            }
            lab.lock.unlock(by).unwrap();
            got
        });
        match paused.join().unwrap() {
            // It had it before it was declared dead, and so before the other one.
            (Some(fence), Ok(())) => assert!(fence < mine.fence),
            // Robbed while it had it: the other one's number is the greater.
            (Some(fence), Err(Error::Fenced)) => assert!(fence < mine.fence && mine.owner_died),
            (None, Err(Error::Fenced)) => {}
            other => panic!("{other:?}"),
        }
    });
}

fn write(lab: &Lab<RwLock>, by: &Party<'_>) {
    let got = lab.lock.write(by, Wait::Forever).unwrap();
    lab.change();
    if got.owner_died {
        lab.lock.consistent(by).unwrap();
    }
    lab.lock.unlock(by).unwrap();
}

fn read(lab: &Lab<RwLock>, by: &Party<'_>) {
    let _ = lab.lock.read(by, Wait::Forever).unwrap();
    lab.value();
    lab.lock.unlock(by).unwrap();
}

fn rwlock(first: fn(&Lab<RwLock>, &Party<'_>), second: fn(&Lab<RwLock>, &Party<'_>)) {
    explore(PREEMPTIONS, move || {
        let (lab, [a, b, _]) = Lab::<RwLock>::new();
        let one = Arc::clone(&lab);
        let other = thread::spawn(move || one.world.act(a, |by| first(&one, by)));
        lab.world.act(b, |by| second(&lab, by));
        other.join().unwrap();
    });
    explore_deaths(PREEMPTIONS, 5, move |step| {
        let (lab, [a, b, _]) = Lab::<RwLock>::new();
        let one = Arc::clone(&lab);
        let dying =
            thread::spawn(move || one.world.act_and_die(a, step, |by| first(&one, by)).is_none());
        lab.world.act(b, |by| second(&lab, by));
        dying.join().unwrap()
    });
}

#[test]
fn rwlock_writer_dies_and_a_reader_waits() {
    rwlock(write, read);
}

#[test]
fn rwlock_reader_dies_and_a_writer_waits() {
    rwlock(read, write);
}

#[test]
fn rwlock_writer_dies_and_a_writer_waits() {
    rwlock(write, write);
}

#[test]
fn semaphore() {
    explore(PREEMPTIONS, || {
        let (lab, [a, b, c]) = Lab::<Semaphore>::new();
        let takers = [a, b].map(|number| {
            let lab = Arc::clone(&lab);
            thread::spawn(move || {
                lab.world.act(number, |by| lab.lock.wait(by, Wait::Forever)).unwrap();
            })
        });
        lab.world.act(c, |by| {
            lab.lock.post(by.waiter()).unwrap();
            lab.lock.post(by.waiter()).unwrap();
        });
        takers.map(|taker| taker.join().unwrap());
        assert_eq!(lab.lock.value(), Ok(0));
    });
}

/// One who waits dies; the unit it did not take goes to the other one.
#[test]
fn semaphore_whose_taker_dies() {
    explore_deaths(PREEMPTIONS, 1, |step| {
        let (lab, [a, b, _]) = Lab::<Semaphore>::new();
        lab.lock.set_value(1).unwrap();
        let one = Arc::clone(&lab);
        let dying = thread::spawn(move || {
            let lived = one.world.act_and_die(a, step, |by| one.lock.wait(by, Wait::No));
            let took = lived == Some(Ok(()));
            if took {
                one.lock.post(&one.world).unwrap();
            }
            lived.is_none()
        });
        let taken = lab.world.act(b, |by| lab.lock.wait(by, Wait::Forever));
        assert_eq!(taken, Ok(()));
        dying.join().unwrap()
    });
}

struct Waited {
    mutex: Mutex,
    condition: Condition,
}

impl Default for Waited {
    fn default() -> Self {
        Self { mutex: Mutex::default(), condition: Condition::default() }
    }
}

fn await_change(lab: &Lab<Waited>, by: &Party<'_>) {
    let mut got = lab.lock.mutex.lock(by, Wait::Forever).unwrap();
    loop {
        if got.owner_died {
            lab.lock.mutex.consistent(by).unwrap();
        }
        if lab.value() > 0 {
            break;
        }
        got = lab.lock.condition.wait(by, &lab.lock.mutex, Wait::Forever).unwrap();
    }
    lab.lock.mutex.unlock(by).unwrap();
}

fn change_and_tell(lab: &Lab<Waited>, by: &Party<'_>) {
    let got = lab.lock.mutex.lock(by, Wait::Forever).unwrap();
    if got.owner_died {
        lab.lock.mutex.consistent(by).unwrap();
    }
    lab.change();
    lab.lock.mutex.unlock(by).unwrap();
    lab.lock.condition.signal(by.waiter()).unwrap();
}

#[test]
fn condition() {
    explore(PREEMPTIONS, || {
        let (lab, [a, b, _]) = Lab::<Waited>::new();
        let one = Arc::clone(&lab);
        let waiting = thread::spawn(move || one.world.act(a, |by| await_change(&one, by)));
        lab.world.act(b, |by| change_and_tell(&lab, by));
        waiting.join().unwrap();
    });
}

#[test]
fn condition_whose_waiter_dies() {
    explore_deaths(PREEMPTIONS, 6, |step| {
        let (lab, [a, b, _]) = Lab::<Waited>::new();
        let one = Arc::clone(&lab);
        let dying = thread::spawn(move || {
            one.world.act_and_die(a, step, |by| await_change(&one, by)).is_none()
        });
        lab.world.act(b, |by| change_and_tell(&lab, by));
        dying.join().unwrap()
    });
}

#[test]
fn barrier_of_two_for_two_rounds() {
    explore(PREEMPTIONS, || {
        let (lab, [a, b, _]) = Lab::<Barrier>::new();
        lab.lock.repair(2).unwrap();
        let one = Arc::clone(&lab);
        let other = thread::spawn(move || {
            one.change();
            one.world.act(a, |by| {
                let first = one.lock.wait(by, Wait::Forever).unwrap();
                one.lock.wait(by, Wait::Forever).unwrap();
                first
            })
        });
        let mine = lab.world.act(b, |by| {
            let first = lab.lock.wait(by, Wait::Forever).unwrap();
            lab.change();
            lab.lock.wait(by, Wait::Forever).unwrap();
            first
        });
        assert_ne!(mine, other.join().unwrap(), "one is the last");
        assert_eq!(lab.value(), 2);
    });
}

/// Who got past and ends has broken nothing: the other one gets past, too, wherever it is in asking who lives.
#[test]
fn barrier_whose_party_ends_behind_it() {
    explore(PREEMPTIONS, || {
        let (lab, [a, b, _]) = Lab::<Barrier>::new();
        lab.lock.repair(2).unwrap();
        lab.world.short_naps.store(1, std::sync::atomic::Ordering::Relaxed);
        let one = Arc::clone(&lab);
        let other = thread::spawn(move || {
            one.world.act(a, |by| one.lock.wait(by, Wait::Forever).unwrap());
            one.world.die(a);
        });
        lab.world.act(b, |by| lab.lock.wait(by, Wait::Forever).unwrap());
        other.join().unwrap();
    });
}

/// Whoever dies where, the other one gets past or learns it.
#[test]
fn barrier_whose_party_dies() {
    explore_deaths(PREEMPTIONS, 4, |step| {
        let (lab, [a, b, _]) = Lab::<Barrier>::new();
        lab.lock.repair(2).unwrap();
        let one = Arc::clone(&lab);
        let dying = thread::spawn(move || {
            let wait = |by: &Party<'_>| one.lock.wait(by, Wait::Forever).map(|_| ());
            let lived = one.world.act_and_die(a, step, |by| wait(by).and_then(|()| wait(by)));
            lived.is_none()
        });
        let wait = |by: &Party<'_>| lab.lock.wait(by, Wait::Until(3)).map(|_| ());
        let mine = lab.world.act(b, |by| wait(by).and_then(|()| wait(by)));
        let died = dying.join().unwrap();
        let told = [Ok(()), Err(Error::PartyDied), Err(Error::TimedOut)].contains(&mine);
        assert!(if died { told } else { mine == Ok(()) }, "{mine:?}, died: {died}");
        died
    });
}

fn make(lab: &Lab<Once>, by: &Party<'_>) {
    match lab.lock.begin(by, Wait::Forever).unwrap() {
        Begun::Done => {}
        Begun::Make { .. } => {
            lab.change();
            lab.lock.finish(by).unwrap();
        }
    }
    lab.value();
}

#[test]
fn once_whose_maker_dies() {
    explore_deaths(PREEMPTIONS, 6, |step| {
        let (lab, [a, b, _]) = Lab::<Once>::new();
        let one = Arc::clone(&lab);
        let dying =
            thread::spawn(move || one.world.act_and_die(a, step, |by| make(&one, by)).is_none());
        lab.world.act(b, |by| make(&lab, by));
        assert!(lab.value() >= 1 && lab.lock.is_done().unwrap());
        dying.join().unwrap()
    });
}

/// Two words that a writer makes equal.
struct Torn {
    sequence: Sequence,
    words: [Word; 2],
}

impl Default for Torn {
    fn default() -> Self {
        Self { sequence: Sequence::default(), words: [Word::new(0), Word::new(0)] }
    }
}

#[test]
fn sequence_whose_writer_dies() {
    use loom::sync::atomic::Ordering::Relaxed;
    explore_deaths(PREEMPTIONS, 6, |step| {
        let (lab, [a, b, _]) = Lab::<Torn>::new();
        let write = |lab: &Lab<Torn>, by: &Party<'_>, value| {
            let _ = lab.lock.sequence.write(by, Wait::Forever).unwrap();
            for word in &lab.lock.words {
                word.store(value, Relaxed);
            }
            lab.lock.sequence.finish(by).unwrap();
        };
        let one = Arc::clone(&lab);
        let dying = thread::spawn(move || {
            one.world.act_and_die(a, step, |by| write(&one, by, 7)).is_none()
        });
        let look = |lab: &Lab<Torn>| {
            let snapshot = lab.lock.sequence.begin().ok()?;
            let words = lab.lock.words.each_ref().map(|word| word.load(Relaxed));
            lab.lock.sequence.is_whole(snapshot).then_some(words)
        };
        if let Some([first, second]) = look(&lab) {
            assert_eq!(first, second);
        }
        lab.world.act(b, |by| write(&lab, by, 9));
        let died = dying.join().unwrap();
        if look(&lab).is_none() {
            assert!(
                died && lab.lock.sequence.is_abandoned(lab.world.members(), &lab.world).unwrap()
            );
            lab.world.act(b, |by| write(&lab, by, 11));
        }
        let [first, second] = look(&lab).expect("at rest");
        assert_eq!(first, second);
        died
    });
}
