//! What the locks cost, beside pthread's, in the same run by turns: medians and spread.
//!
//! `cargo run --release -p yasmin-segment --example cost [ROUNDS]`
//!
//! Every process-shared pthread lock is robust where pthread has that. Two processes contend, and
//! wait at the barrier. Wants two CPUs that nobody else uses.
#![allow(clippy::undocumented_unsafe_blocks, reason = "pthread's calls, one block each")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use common::{attach, fork, reap, segment};
use yasmin_segment::sync::{Barrier, Mutex, Party, RwLock, Sequence, Wait};

#[repr(C, align(64))]
struct Line<T>(T);

#[repr(C)]
struct Body {
    mutex: Line<Mutex>,
    contended: Line<Mutex>,
    rwlock: Line<RwLock>,
    sequence: Line<Sequence>,
    barrier: Line<Barrier>,
    pthread_mutex: Line<UnsafeCell<libc::pthread_mutex_t>>,
    pthread_contended: Line<UnsafeCell<libc::pthread_mutex_t>>,
    pthread_plain: Line<UnsafeCell<libc::pthread_mutex_t>>,
    pthread_rwlock: Line<UnsafeCell<libc::pthread_rwlock_t>>,
    pthread_barrier: Line<UnsafeCell<libc::pthread_barrier_t>>,
    ping: Line<AtomicU64>,
    /// Where both sides begin a round.
    start: Line<AtomicU64>,
    guarded: Line<AtomicU64>,
}

fn pthread_mutex(at: *mut libc::pthread_mutex_t, robust: bool) {
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes);
        libc::pthread_mutexattr_setpshared(&mut attributes, 1);
        if robust {
            libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST);
        }
        assert_eq!(libc::pthread_mutex_init(at, &attributes), 0);
    }
}

/// ns for each turn of `act`.
fn time(turns: u32, mut act: impl FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..turns {
        act();
    }
    begin.elapsed().as_nanos() as f64 / f64::from(turns)
}

/// Both processes at once, each on its CPU, `turns` each, until both are through; ns for a turn
/// of each.
fn time_both(body: &Body, round: &mut u64, turns: u32, mut act: impl FnMut()) -> f64 {
    *round += 2;
    body.start.0.fetch_add(1, SeqCst);
    while body.start.0.load(SeqCst) < *round {
        std::hint::spin_loop();
    }
    let begin = Instant::now();
    for _ in 0..turns {
        act();
    }
    *round += 2;
    body.start.0.fetch_add(1, SeqCst);
    while body.start.0.load(SeqCst) < *round {
        std::hint::spin_loop();
    }
    begin.elapsed().as_nanos() as f64 / f64::from(turns)
}

fn pin(cpu: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

type Sample = (&'static str, f64);

fn one_round(body: &Body, by: &Party<'_>, side: u64, round: &mut u64) -> Vec<Sample> {
    const ALONE: u32 = 5_000;
    const BOTH: u32 = 3_000;
    let mut samples = Vec::new();
    if side == 0 {
        let m = body.pthread_mutex.0.get();
        samples.push((
            "mutex alone, ours",
            time(ALONE, || {
                let _ = body.mutex.0.lock(by, Wait::Forever).unwrap();
                body.mutex.0.unlock(by).unwrap();
            }),
        ));
        samples.push((
            "mutex alone, pthread robust",
            time(ALONE, || unsafe {
                libc::pthread_mutex_lock(m);
                libc::pthread_mutex_unlock(m);
            }),
        ));
        samples.push((
            "read lock alone, ours",
            time(ALONE, || {
                let _ = body.rwlock.0.read(by, Wait::Forever).unwrap();
                body.rwlock.0.unlock(by).unwrap();
            }),
        ));
        let rw = body.pthread_rwlock.0.get();
        samples.push((
            "read lock alone, pthread",
            time(ALONE, || unsafe {
                libc::pthread_rwlock_rdlock(rw);
                libc::pthread_rwlock_unlock(rw);
            }),
        ));
        samples.push((
            "sequence read, ours",
            time(ALONE, || {
                let snapshot = body.sequence.0.begin().unwrap();
                std::hint::black_box(body.guarded.0.load(SeqCst));
                assert!(body.sequence.0.is_whole(snapshot));
            }),
        ));
    }
    let work = || {
        let seen = body.guarded.0.load(std::sync::atomic::Ordering::Relaxed);
        body.guarded.0.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
    };
    samples.push((
        "mutex of two, ours",
        time_both(body, round, BOTH, || {
            let _ = body.contended.0.lock(by, Wait::Forever).unwrap();
            work();
            body.contended.0.unlock(by).unwrap();
        }),
    ));
    for (name, mutex) in [
        ("mutex of two, pthread robust", &body.pthread_contended),
        ("mutex of two, pthread plain", &body.pthread_plain),
    ] {
        let m = mutex.0.get();
        samples.push((
            name,
            time_both(body, round, BOTH, || unsafe {
                libc::pthread_mutex_lock(m);
                work();
                libc::pthread_mutex_unlock(m);
            }),
        ));
    }
    samples.push((
        "barrier of two, ours",
        time_both(body, round, BOTH, || {
            body.barrier.0.wait(by, Wait::Forever).unwrap();
        }),
    ));
    let barrier = body.pthread_barrier.0.get();
    samples.push((
        "barrier of two, pthread",
        time_both(body, round, BOTH / 10, || unsafe {
            libc::pthread_barrier_wait(barrier);
        }),
    ));
    // Two transfers each: there and back.
    let mine = side;
    let mut turn = body.ping.0.load(SeqCst) & !1;
    samples.push((
        "cache line there and back",
        time_both(body, round, BOTH, || {
            while body.ping.0.load(SeqCst) != turn + mine {
                std::hint::spin_loop();
            }
            body.ping.0.store(turn + mine + 1, SeqCst);
            turn += 2;
        }),
    ));
    samples
}

/// Median, quartiles, least.
fn median(values: &mut [f64]) -> (f64, f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() / 4], values[values.len() * 3 / 4], values[0])
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(301, |rounds| rounds.parse().unwrap());
    let (file, segment) = segment::<Body>();
    let body = &segment.body;
    pthread_mutex(body.pthread_mutex.0.get(), true);
    pthread_mutex(body.pthread_contended.0.get(), true);
    pthread_mutex(body.pthread_plain.0.get(), false);
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_barrierattr_init(&mut attributes);
        libc::pthread_barrierattr_setpshared(&mut attributes, 1);
        libc::pthread_barrier_init(body.pthread_barrier.0.get(), &attributes, 2);
        let mut attributes = std::mem::zeroed();
        libc::pthread_rwlockattr_init(&mut attributes);
        libc::pthread_rwlockattr_setpshared(&mut attributes, 1);
        libc::pthread_rwlock_init(body.pthread_rwlock.0.get(), &attributes);
    }
    body.barrier.0.repair(2).unwrap();
    let side = |side: u64| {
        pin(side as usize);
        let attachment = attach(&file, segment);
        let mut all: Vec<(&str, Vec<f64>)> = Vec::new();
        let mut round = 0;
        for _ in 0..rounds {
            let samples = attachment.act(|by| Ok(one_round(body, by, side, &mut round))).unwrap();
            for (name, ns) in samples {
                match all.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, values)) => values.push(ns),
                    None => all.push((name, vec![ns])),
                }
            }
        }
        all
    };
    let child = fork(|| {
        side(1);
    });
    println!("ns a turn: median (quartiles), least, of {rounds} rounds");
    for (name, mut values) in side(0) {
        let (median, low, high, least) = median(&mut values);
        println!("{name:32} {median:8.1} ({low:.1} to {high:.1}), least {least:.1}");
    }
    assert_eq!(reap(child), Some(0));
}
