//! Threads that wait by the engine of `yasmin-wait` on the receiving side, one direction and a
//! TCP connection: nobody sleeps past bytes (spec/wire.md section 5.4).
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p yasmin-ring --release --test loom_engine`
//!
//! The stream does not end: a thread whose bytes went into the ring while it slept sleeps for
//! ever, and loom reports a deadlock.
#![cfg(loom)]
#![allow(clippy::arc_with_non_send_sync)]

mod model;

use loom::sync::atomic::Ordering;
use loom::thread;
use model::explore;
use std::sync::Arc;
use yasmin_ring::View;
use yasmin_wait::{Budget, Found, Interests, Watched, wait};

const UNIT_BYTES: usize = 512;
const PREEMPTIONS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Break {
    Nothing,
    /// Who sleeps does not count itself.
    SleepUncounted,
    /// Who is about to sleep does not park.
    SleepUnparked,
    /// A wait sleeps without limit for TCP bytes that have ring bytes behind them.
    SleepBehindTcp,
}

/// Its extra is the rule that the test breaks.
type Side = model::side::Side<Break>;

fn side(broken: Break) -> Arc<Side> {
    Arc::new(Side::new(UNIT_BYTES, broken))
}

/// What the waits below do beside looking.
impl Side {
    fn counts(&self, is_one_more: bool) {
        if self.extra == Break::SleepUncounted {
            return;
        }
        if is_one_more {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
        } else {
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn watch(&self, budget: &mut Budget) -> Watched {
        *budget = Budget::new(0);
        let rx = self.link.rx();
        if rx.stirs() || rx.is_hinted() { Watched::Stirs } else { Watched::InVain }
    }

    fn park(&self) {
        if self.extra != Break::SleepUnparked {
            self.link.rx().park();
        }
    }
}

/// A recv of one unit, as `preload` has it.
struct Recv<'a>(&'a Side);

impl Interests for Recv<'_> {
    type Answer = u8;

    fn look(&mut self, budget: Option<&Budget>) -> Found<u8> {
        let side = self.0;
        let rx = side.link.rx();
        let is_spent = budget.is_some_and(Budget::is_spent);
        let _guard = side.lock.lock().unwrap();
        loop {
            match side.look() {
                View::TcpUpTo { .. } => {
                    // Under way, and nothing but this end can take it.
                    if let Some(unit) = side.take_tcp() {
                        return Found::Answer(unit);
                    }
                    panic!("the opening's TCP bytes are there: the model's TCP is at once");
                }
                View::Ring { .. } => return Found::Answer(side.link.read_ring(1)[0]),
                View::Empty { .. } if rx.is_hinted() => {
                    rx.park();
                }
                View::Empty { .. } if is_spent && side.extra == Break::SleepUnparked => {
                    side.counts(true);
                    return Found::Asleep;
                }
                View::Empty { .. } => return Found::Nothing,
                View::Tcp if is_spent => {
                    side.counts(true);
                    return Found::Asleep;
                }
                View::Tcp => {
                    rx.hinted();
                    if let Some(unit) = side.take_tcp() {
                        return Found::Answer(unit);
                    }
                    if side.sleepers.load(Ordering::SeqCst) > 0 || !rx.offer(0) {
                        side.counts(true);
                        return Found::Asleep;
                    }
                    return Found::Nothing;
                }
            }
        }
    }

    fn budget(&mut self) -> Budget {
        Budget::new(1)
    }

    fn is_watchable(&self) -> bool {
        true
    }

    fn watch(&mut self, budget: &mut Budget) -> Watched {
        self.0.watch(budget)
    }

    fn park(&mut self) -> Found<u8> {
        let _guard = self.0.lock.lock().unwrap();
        self.0.park();
        Found::Nothing
    }

    fn sleep(&mut self) -> Found<u8> {
        self.0.link.tcp.wait();
        let _guard = self.0.lock.lock().unwrap();
        self.0.counts(false);
        // In the kernel the wait and this are one step. Another one was faster, if it is None.
        if self.0.extra == Break::SleepUnparked {
            return self
                .0
                .link
                .tcp
                .recv_now(1)
                .first()
                .map_or(Found::Part, |one| Found::Answer(*one));
        }
        self.0.take_tcp().map_or(Found::Part, Found::Answer)
    }
}

/// A wait until there is something to read, as poll and epoll_wait have it: it counts itself
/// before it parks, and leaves what there is.
struct Poll<'a> {
    side: &'a Side,
    /// Ring bytes lie behind TCP's: another thread that reads those wakes nobody.
    naps: bool,
}

impl Interests for Poll<'_> {
    type Answer = ();

    fn look(&mut self, _: Option<&Budget>) -> Found<()> {
        let _guard = self.side.lock.lock().unwrap();
        match self.side.look() {
            View::Ring { .. } => Found::Answer(()),
            _ if self.side.link.tcp.has_some() => Found::Answer(()),
            _ => Found::Nothing,
        }
    }

    fn budget(&mut self) -> Budget {
        Budget::new(1)
    }

    fn is_watchable(&self) -> bool {
        true
    }

    fn watch(&mut self, budget: &mut Budget) -> Watched {
        self.side.watch(budget)
    }

    fn park(&mut self) -> Found<()> {
        self.side.counts(true);
        let _guard = self.side.lock.lock().unwrap();
        if self.side.extra != Break::SleepUnparked {
            loop {
                match self.side.look() {
                    View::Ring { .. } => {
                        self.side.counts(false);
                        return Found::Nothing;
                    }
                    View::Empty { .. } => {
                        self.side.park();
                    }
                    View::Tcp => break,
                    View::TcpUpTo { .. } => {
                        self.naps = self.side.extra != Break::SleepBehindTcp;
                        break;
                    }
                }
            }
        }
        Found::Asleep
    }

    fn sleep(&mut self) -> Found<()> {
        if core::mem::take(&mut self.naps) {
            thread::yield_now();
            self.side.counts(false);
            return Found::Nothing;
        }
        self.side.link.tcp.wait();
        self.side.counts(false);
        Found::Answer(())
    }
}

/// Two threads in recv: each gets a unit.
fn check_two_receivers(broken: Break) {
    explore(PREEMPTIONS, move || {
        let side = side(broken);
        let (one, two) = (Arc::clone(&side), Arc::clone(&side));
        let sending = thread::spawn(move || one.send(2, true));
        let receiving = thread::spawn(move || wait(&mut Recv(&two)));
        let mut got = [wait(&mut Recv(&side)), receiving.join().unwrap()];
        sending.join().unwrap();
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
    });
}

/// One thread waits for something to read while another one takes the first unit: the second one
/// wakes it at the latest.
fn check_poll_beside_recv(broken: Break) {
    explore(PREEMPTIONS, move || {
        let side = side(broken);
        let (one, two) = (Arc::clone(&side), Arc::clone(&side));
        let sending = thread::spawn(move || one.send(2, true));
        let polling = thread::spawn(move || wait(&mut Poll { side: &two, naps: false }));
        let first = wait(&mut Recv(&side));
        polling.join().unwrap();
        sending.join().unwrap();
        assert_eq!((first, wait(&mut Recv(&side))), (1, 2));
    });
}

#[test]
fn two_receivers() {
    check_two_receivers(Break::Nothing);
}

#[test]
#[should_panic(expected = "deadlock")]
fn notices_a_receiver_that_sleeps_uncounted() {
    check_two_receivers(Break::SleepUncounted);
}

#[test]
#[should_panic(expected = "deadlock")]
fn notices_a_receiver_that_sleeps_unparked() {
    check_two_receivers(Break::SleepUnparked);
}

#[test]
fn poll_beside_recv() {
    check_poll_beside_recv(Break::Nothing);
}

#[test]
#[should_panic(expected = "deadlock")]
fn notices_a_poll_that_sleeps_uncounted() {
    check_poll_beside_recv(Break::SleepUncounted);
}

#[test]
#[should_panic(expected = "deadlock")]
fn notices_a_poll_that_sleeps_for_bytes_before_the_rings() {
    check_poll_beside_recv(Break::SleepBehindTcp);
}
