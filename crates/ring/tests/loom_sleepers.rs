//! Two threads on the receiving side: one goes to sleep in the kernel, one reads and offers
//! (spec/wire.md section 5.4).
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p yasmin-ring --release --test loom_sleepers`
//!
//! The stream does not end and carries one unit for each thread, so a sleeper whose bytes went
//! into the ring sleeps for ever: loom reports a deadlock.
// Not loom's Arc: dropped while loom reports a deadlock it would abort.
#![cfg(loom)]
#![allow(clippy::arc_with_non_send_sync)]

mod model;

use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::thread;
use model::explore;
use std::sync::Arc;
use yasmin_ring::View;

const UNIT_BYTES: usize = 512;
const PREEMPTIONS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Break {
    Nothing,
    /// The sleeper counts itself after it parked.
    CountLate,
    /// The offerer does not look at the count.
    IgnoreSleepers,
    /// No fence between the two stores and the two loads.
    NoFence,
    /// The offerer marks after it looked at the count.
    MarkLate,
}

/// Its extra: the direction is open, or about to be offered, for sleepers that look at it without
/// the lock.
type Side = model::side::Side<AtomicBool>;

fn side() -> Arc<Side> {
    Arc::new(Side::new(UNIT_BYTES, AtomicBool::new(false)))
}

/// recv of one unit that sleeps in the kernel, every time under the lock before it does.
fn recv_one(side: &Side, broken: Break) -> u8 {
    let rx = side.link.rx();
    loop {
        if broken != Break::CountLate {
            side.sleepers.fetch_add(1, Ordering::SeqCst);
        }
        let guard = side.lock.lock().unwrap();
        let unit = loop {
            match side.look() {
                View::TcpUpTo { .. } => break side.take_tcp(),
                View::Ring { .. } => break side.link.read_ring(1).first().copied(),
                View::Tcp => break None,
                View::Empty { .. } => {
                    rx.park();
                }
            }
        };
        drop(guard);
        if broken == Break::CountLate {
            side.sleepers.fetch_add(1, Ordering::SeqCst);
        }
        if unit.is_none() {
            side.link.tcp.wait();
        }
        side.sleepers.fetch_sub(1, Ordering::SeqCst);
        if let Some(unit) = unit {
            return unit;
        }
        // In the kernel this is one step with the wait; the lock stands for that.
        let guard = side.lock.lock().unwrap();
        if side.look() == View::Tcp
            && let Some(unit) = side.take_tcp()
        {
            return unit;
        }
        drop(guard);
    }
}

/// One non-blocking recv of at most one unit, by a thread that offers when it finds nothing.
fn try_recv(side: &Side, broken: Break) -> Option<u8> {
    let rx = side.link.rx();
    let _guard = side.lock.lock().unwrap();
    let mut offered = false;
    loop {
        match side.look() {
            View::TcpUpTo { .. } => return side.take_tcp(),
            View::Ring { .. } => return side.link.read_ring(1).first().copied(),
            View::Empty { .. } if offered => return None,
            View::Empty { .. } => {
                rx.park();
            }
            View::Tcp => {
                if let Some(unit) = side.take_tcp() {
                    return Some(unit);
                }
                let ignore = broken == Break::IgnoreSleepers;
                if !ignore && side.sleepers.load(Ordering::SeqCst) > 0 {
                    return None;
                }
                if offered || !rx.offer(0) {
                    return None;
                }
                offered = true;
                if !ignore && side.sleepers.load(Ordering::SeqCst) > 0 {
                    rx.park();
                }
            }
        }
    }
}

/// Whoever does not get its unit from the first thread's tries gets it asleep.
fn check_recv(broken: Break) {
    explore(PREEMPTIONS, move || {
        let side = side();
        let (one, two) = (Arc::clone(&side), Arc::clone(&side));
        let sending = thread::spawn(move || one.send(2, false));
        let sleeping = thread::spawn(move || recv_one(&two, broken));
        let mut got = Vec::new();
        for _ in 0..2 {
            if got.is_empty() {
                got.extend(try_recv(&side, broken));
            }
        }
        got.push(sleeping.join().unwrap());
        sending.join().unwrap();
        // What is left is where the next reader finds it.
        if got.len() < 2 {
            got.extend(try_recv(&side, broken));
        }
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
    });
}

/// A wait on a set of descriptors, which takes the lock only of a direction that is marked.
fn wait_marked(side: &Side, broken: Break) {
    side.sleepers.fetch_add(1, Ordering::Relaxed);
    if broken != Break::NoFence {
        fence(Ordering::SeqCst);
    }
    let mut ready = false;
    if side.extra.load(Ordering::Relaxed) {
        let _guard = side.lock.lock().unwrap();
        ready = loop {
            match side.look() {
                View::TcpUpTo { .. } | View::Ring { .. } => break true,
                View::Tcp => break false,
                View::Empty { .. } => {
                    side.link.rx().park();
                }
            }
        };
    }
    if !ready {
        side.link.tcp.wait();
    }
    side.sleepers.fetch_sub(1, Ordering::Relaxed);
}

fn offer_marked(side: &Side, broken: Break) {
    let _guard = side.lock.lock().unwrap();
    if side.look() != View::Tcp {
        return;
    }
    if broken == Break::MarkLate {
        if side.sleepers.load(Ordering::Relaxed) > 0 {
            return;
        }
        side.extra.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    } else {
        side.extra.store(true, Ordering::Relaxed);
        if broken != Break::NoFence {
            fence(Ordering::SeqCst);
        }
        if side.sleepers.load(Ordering::Relaxed) > 0 {
            side.extra.store(false, Ordering::Relaxed);
            return;
        }
    }
    side.link.rx().offer(0);
}

fn check_marked(broken: Break) {
    explore(PREEMPTIONS, move || {
        let side = side();
        let (one, two) = (Arc::clone(&side), Arc::clone(&side));
        let waiting = thread::spawn(move || wait_marked(&two, broken));
        let sending = thread::spawn(move || one.send(2, false));
        offer_marked(&side, broken);
        // Every unit must wake the waiter, by ring or by TCP.
        waiting.join().unwrap();
        sending.join().unwrap();
    });
}

#[test]
fn sleeper_under_the_lock() {
    check_recv(Break::Nothing);
}

#[test]
#[should_panic(expected = "deadlock")]
fn notices_a_sleeper_that_counts_late() {
    check_recv(Break::CountLate);
}

#[test]
#[should_panic(expected = "deadlock")]
fn notices_an_offer_over_a_sleeper() {
    check_recv(Break::IgnoreSleepers);
}

#[test]
fn sleeper_that_looks_at_marks() {
    check_marked(Break::Nothing);
}

#[test]
#[should_panic(expected = "deadlock")]
fn notices_marks_without_a_fence() {
    check_marked(Break::NoFence);
}

#[test]
#[should_panic(expected = "deadlock")]
fn notices_a_mark_that_comes_late() {
    check_marked(Break::MarkLate);
}
