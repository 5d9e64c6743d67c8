//! The mutex beside pthread's robust one, process-shared: the same calls give the same answers.
//!
//! Each test plays one scene with both and compares every answer with what is written here.
#![allow(clippy::undocumented_unsafe_blocks, reason = "test processes, one block a call")]

mod common;

use std::cell::UnsafeCell;
use std::fs::File;

use common::{Pipe, Segment, attach, fork, identity, kill, reap};
use yasmin_segment::sync::{Attachment, Error, Futex, Kind, Mutex, Party, Wait, Waiter};

const TIMEOUT_MS: u64 = 30;

#[repr(C)]
struct Body {
    ours: Mutex,
    theirs: UnsafeCell<libc::pthread_mutex_t>,
}

/// One side of the comparison; errno values, 0 for success.
trait Robust: Sync {
    fn lock(&self) -> i32;
    fn try_lock(&self) -> i32;
    fn timed_lock(&self) -> i32;
    fn unlock(&self) -> i32;
    fn consistent(&self) -> i32;
    /// In a fork.
    fn renew(&mut self);
}

struct Ours {
    segment: &'static Segment<Body>,
    attachment: Attachment<'static>,
}

impl Ours {
    fn act<T>(&self, act: impl FnOnce(&Mutex, &Party<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.attachment.act(|by| act(&self.segment.body.ours, by))
    }

    fn acquire(&self, wait: Wait) -> i32 {
        match self.act(|mutex, by| mutex.lock(by, wait)) {
            Ok(acquired) if acquired.owner_died => libc::EOWNERDEAD,
            Ok(_) => 0,
            Err(error) => error.errno(),
        }
    }
}

// Threads use it as they use the real thing.
unsafe impl Sync for Ours {}

fn errno(result: Result<(), Error>) -> i32 {
    result.map_or_else(Error::errno, |()| 0)
}

impl Robust for Ours {
    fn lock(&self) -> i32 {
        self.acquire(Wait::Forever)
    }

    fn try_lock(&self) -> i32 {
        self.acquire(Wait::No)
    }

    fn timed_lock(&self) -> i32 {
        self.acquire(Wait::Until(Futex::new().now_ns() + TIMEOUT_MS * 1_000_000))
    }

    fn unlock(&self) -> i32 {
        errno(self.act(|mutex, by| mutex.unlock(by)))
    }

    fn consistent(&self) -> i32 {
        errno(self.act(|mutex, by| mutex.consistent(by)))
    }

    fn renew(&mut self) {
        self.attachment.renew(identity()).unwrap();
    }
}

struct Theirs(*mut libc::pthread_mutex_t);

unsafe impl Sync for Theirs {}

impl Robust for Theirs {
    fn lock(&self) -> i32 {
        unsafe { libc::pthread_mutex_lock(self.0) }
    }

    fn try_lock(&self) -> i32 {
        unsafe { libc::pthread_mutex_trylock(self.0) }
    }

    fn timed_lock(&self) -> i32 {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut until) };
        let ns = until.tv_nsec as u64 + TIMEOUT_MS * 1_000_000;
        until.tv_sec += (ns / 1_000_000_000) as i64;
        until.tv_nsec = (ns % 1_000_000_000) as i64;
        unsafe { libc::pthread_mutex_timedlock(self.0, &until) }
    }

    fn unlock(&self) -> i32 {
        unsafe { libc::pthread_mutex_unlock(self.0) }
    }

    fn consistent(&self) -> i32 {
        unsafe { libc::pthread_mutex_consistent(self.0) }
    }

    fn renew(&mut self) {}
}

fn ours(kind: Kind) -> Ours {
    let (file, segment): (File, &'static Segment<Body>) = common::segment();
    segment.body.ours.set_kind(kind);
    Ours { segment, attachment: attach(&file, segment) }
}

fn theirs(kind: Kind) -> Theirs {
    let (_file, segment): (File, &'static Segment<Body>) = common::segment();
    let at = segment.body.theirs.get();
    let kind = match kind {
        Kind::Plain => libc::PTHREAD_MUTEX_NORMAL,
        Kind::ErrorChecking => libc::PTHREAD_MUTEX_ERRORCHECK,
        Kind::Recursive => libc::PTHREAD_MUTEX_RECURSIVE,
    };
    unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_mutexattr_init(&mut attributes), 0);
        assert_eq!(libc::pthread_mutexattr_settype(&mut attributes, kind), 0);
        assert_eq!(libc::pthread_mutexattr_setpshared(&mut attributes, 1), 0);
        let robust = libc::PTHREAD_MUTEX_ROBUST;
        assert_eq!(libc::pthread_mutexattr_setrobust(&mut attributes, robust), 0);
        assert_eq!(libc::pthread_mutex_init(at, &attributes), 0);
    }
    Theirs(at)
}

type Scene = fn(&mut dyn Robust) -> Vec<i32>;

fn compare(kind: Kind, scene: Scene, expected: &[i32]) {
    assert_eq!(scene(&mut theirs(kind)), expected, "pthread's");
    assert_eq!(scene(&mut ours(kind)), expected, "ours");
}

fn compare_all(scene: Scene, expected: &[i32]) {
    for kind in [Kind::Plain, Kind::ErrorChecking, Kind::Recursive] {
        compare(kind, scene, expected);
    }
}

/// A process locks as `times` says, and is killed.
fn dies_with_it(mutex: &mut dyn Robust, times: usize) -> i32 {
    let held = Pipe::new();
    let child = fork(|| {
        mutex.renew();
        for _ in 0..times {
            mutex.lock();
        }
        held.tell();
        loop {
            unsafe { libc::pause() };
        }
    });
    held.hear();
    kill(child);
    assert_eq!(reap(child), None);
    0
}

/// What another process gets, which leaves by itself.
fn elsewhere(mutex: &mut dyn Robust, act: impl FnOnce(&mut dyn Robust) -> i32) -> i32 {
    reap(fork(|| {
        mutex.renew();
        let answer = act(mutex);
        unsafe { libc::_exit(answer) };
    }))
    .unwrap()
}

#[test]
fn alive() {
    compare_all(
        |m| vec![m.lock(), m.unlock(), m.try_lock(), m.unlock(), m.timed_lock(), m.unlock()],
        &[0; 6],
    );
}

#[test]
fn held_elsewhere() {
    compare_all(
        |m| {
            let lock = m.lock();
            vec![lock, elsewhere(m, |m| m.try_lock()), elsewhere(m, |m| m.timed_lock()), m.unlock()]
        },
        &[0, libc::EBUSY, libc::ETIMEDOUT, 0],
    );
}

#[test]
fn not_the_owner() {
    compare_all(
        |m| {
            let free = m.unlock();
            let lock = m.lock();
            vec![free, lock, elsewhere(m, |m| m.unlock()), m.unlock(), m.unlock()]
        },
        &[libc::EPERM, 0, libc::EPERM, 0, libc::EPERM],
    );
}

#[test]
fn nobody_died() {
    compare_all(
        |m| {
            let free = m.consistent();
            vec![free, m.lock(), m.consistent(), m.unlock()]
        },
        &[libc::EINVAL, 0, libc::EINVAL, 0],
    );
}

#[test]
fn owner_dies_and_the_next_one_mends() {
    compare_all(
        |m| {
            dies_with_it(m, 1);
            let first = m.lock();
            vec![first, m.consistent(), m.consistent(), m.unlock(), m.lock(), m.unlock()]
        },
        &[libc::EOWNERDEAD, 0, libc::EINVAL, 0, 0, 0],
    );
}

#[test]
fn try_and_timed_lock_of_a_dead_one() {
    compare_all(
        |m| {
            dies_with_it(m, 1);
            let first = vec![m.try_lock(), m.consistent(), m.unlock()];
            dies_with_it(m, 1);
            [first, vec![m.timed_lock(), m.consistent(), m.unlock()]].concat()
        },
        &[libc::EOWNERDEAD, 0, 0, libc::EOWNERDEAD, 0, 0],
    );
}

#[test]
fn not_mended_is_lost() {
    compare_all(
        |m| {
            dies_with_it(m, 1);
            let first = vec![m.lock(), m.unlock()];
            let other = elsewhere(m, |m| m.lock());
            [first, vec![m.lock(), m.try_lock(), other]].concat()
        },
        &[libc::EOWNERDEAD, 0, libc::ENOTRECOVERABLE, libc::ENOTRECOVERABLE, libc::ENOTRECOVERABLE],
    );
}

#[test]
fn who_waits_learns_that_it_is_lost() {
    compare_all(
        |m| {
            dies_with_it(m, 1);
            let mut answers = vec![m.lock()];
            let waiting = Pipe::new();
            let child = fork(|| {
                m.renew();
                waiting.tell();
                let answer = m.lock();
                unsafe { libc::_exit(answer) };
            });
            waiting.hear();
            common::sleep_us(5_000);
            answers.push(m.unlock());
            answers.push(reap(child).unwrap());
            answers
        },
        &[libc::EOWNERDEAD, 0, libc::ENOTRECOVERABLE],
    );
}

#[test]
fn the_next_one_dies_too() {
    compare_all(
        |m| {
            dies_with_it(m, 1);
            dies_with_it(m, 1);
            vec![m.lock(), m.consistent(), m.unlock(), m.lock(), m.unlock()]
        },
        &[libc::EOWNERDEAD, 0, 0, 0, 0],
    );
}

#[test]
fn dies_while_others_wait() {
    compare_all(
        |m| {
            let (held, waiting) = (Pipe::new(), Pipe::new());
            let owner = fork(|| {
                m.renew();
                m.lock();
                held.tell();
                loop {
                    unsafe { libc::pause() };
                }
            });
            held.hear();
            let child = fork(|| {
                m.renew();
                waiting.tell();
                let answer = m.lock();
                let mended = m.consistent() + m.unlock();
                unsafe { libc::_exit(answer + mended) };
            });
            waiting.hear();
            common::sleep_us(5_000);
            kill(owner);
            reap(owner);
            let answer = reap(child).unwrap();
            vec![answer, m.lock(), m.unlock()]
        },
        &[libc::EOWNERDEAD, 0, 0],
    );
}

#[test]
fn leaves_by_exit_or_exec() {
    compare_all(
        |m| {
            let left = elsewhere(m, |m| m.lock());
            let first = vec![left, m.lock(), m.consistent(), m.unlock()];
            let child = fork(|| {
                m.renew();
                m.lock();
                let sleep = [c"sleep".as_ptr(), c"60".as_ptr(), std::ptr::null()];
                unsafe { libc::execvp(sleep[0], sleep.as_ptr()) };
            });
            let second = vec![m.timed_lock_until_dead(), m.consistent(), m.unlock()];
            kill(child);
            reap(child);
            [first, second].concat()
        },
        &[0, libc::EOWNERDEAD, 0, 0, libc::EOWNERDEAD, 0, 0],
    );
}

impl dyn Robust + '_ {
    /// The child may not have locked yet when we do.
    fn timed_lock_until_dead(&self) -> i32 {
        loop {
            match self.timed_lock() {
                0 => assert_eq!(self.unlock(), 0),
                libc::ETIMEDOUT => {}
                other => return other,
            }
            common::sleep_us(100);
        }
    }
}

#[test]
fn a_fork_is_another_one() {
    compare_all(
        |m| {
            let lock = m.lock();
            let child = elsewhere(m, |m| m.unlock());
            vec![lock, child, elsewhere(m, |m| m.try_lock()), m.unlock()]
        },
        &[0, libc::EPERM, libc::EBUSY, 0],
    );
}

#[test]
fn locked_again() {
    compare(
        Kind::ErrorChecking,
        |m| vec![m.lock(), m.lock(), m.timed_lock(), m.unlock(), m.unlock()],
        &[0, libc::EDEADLK, libc::EDEADLK, 0, libc::EPERM],
    );
    compare(
        Kind::Plain,
        |m| vec![m.lock(), m.try_lock(), m.timed_lock(), m.unlock(), m.unlock()],
        &[0, libc::EBUSY, libc::ETIMEDOUT, 0, libc::EPERM],
    );
    compare(
        Kind::Recursive,
        |m| {
            let mut answers = vec![m.lock(), m.lock(), m.try_lock(), m.unlock(), m.unlock()];
            answers.push(elsewhere(m, |m| m.try_lock()));
            answers.extend([m.unlock(), m.unlock()]);
            answers
        },
        &[0, 0, 0, 0, 0, libc::EBUSY, 0, libc::EPERM],
    );
}

#[test]
fn dies_with_a_recursive_one_held_thrice() {
    compare(
        Kind::Recursive,
        |m| {
            dies_with_it(m, 3);
            vec![m.lock(), m.consistent(), m.unlock(), m.unlock()]
        },
        &[libc::EOWNERDEAD, 0, 0, libc::EPERM],
    );
}

/// Where glibc's answers are not POSIX's, ours are.
#[test]
fn where_pthread_differs() {
    let lost_for_timed: Scene = |m| {
        dies_with_it(m, 1);
        vec![m.lock(), m.unlock(), m.timed_lock()]
    };
    let expected = [libc::EOWNERDEAD, 0, libc::ENOTRECOVERABLE];
    assert_eq!(lost_for_timed(&mut ours(Kind::Plain)), expected);
    // EDEADLK there, as it is for a robust one only.
    let tried_again: Scene = |m| vec![m.lock(), m.try_lock(), m.unlock()];
    assert_eq!(tried_again(&mut ours(Kind::ErrorChecking)), [0, libc::EBUSY, 0]);
}

/// The process lives on, its thread does not.
#[test]
fn a_thread_ends_with_it() {
    compare_all(
        |m| {
            let in_thread = |act: fn(&dyn Robust) -> i32| {
                let m: &dyn Robust = m;
                std::thread::scope(|scope| scope.spawn(|| act(m)).join().unwrap())
            };
            let lock = in_thread(|m| m.lock());
            // The scope ends a little before the thread's last destructors have run.
            let next = in_thread(|m| m.timed_lock_until_dead());
            let last = in_thread(|m| m.timed_lock_until_dead() + m.consistent() + m.unlock());
            vec![lock, next, last, m.lock(), m.unlock()]
        },
        &[0, libc::EOWNERDEAD, libc::EOWNERDEAD, 0, 0],
    );
}
