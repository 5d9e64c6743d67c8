//! A direction and the TCP connection beside it, both ends running freely.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p yasmin-ring --release --test loom_direction`
//!
//! Loom explores the interleavings of the real `Sender` and `Receiver` up to a number of
//! preemptions. It finds lost, doubled or reordered bytes (the receiver compares), races on
//! ring bytes (the cells), and a sleeper that nobody wakes (a deadlock).
// Not loom's Arc: dropped while loom reports a deadlock it would abort.
#![cfg(loom)]
#![allow(clippy::arc_with_non_send_sync)]

mod model;

use loom::thread;
use model::{Link, explore};
use std::sync::Arc;
use yasmin_ring::{Publish, Room, View};

/// Rules that a test breaks, to show that the model notices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Break {
    Nothing,
    /// The receiver reads TCP without parking first when it looks there in OFFERED.
    ReadTcpWhileOffered,
    /// The receiver reads more TCP than the stored position allows.
    IgnoreTcpPosition,
    /// The receiver sleeps without parking.
    SleepUnparked,
    /// The receiver gives bytes back before it copied them.
    ConsumeFirst,
    /// The sender publishes before it fills.
    PublishFirst,
    /// The sender, its publication failed, does not send the bytes again.
    ForgetRetry,
    /// The sender, the ring full, sends by TCP without parking.
    SpillUnparked,
    /// The sender opens with the TCP position of an earlier moment.
    StaleTcpPosition,
    /// The receiver, at the end of TCP, reports the end without looking at the ring again.
    EndWithoutLook,
}

#[derive(Clone, Copy)]
struct Plan {
    unit_bytes: usize,
    start: u64,
    units: u8,
    /// The sender parks by itself after this unit.
    park_after: Option<u8>,
    /// Looks at an empty ring before the receiver parks.
    spins: usize,
    /// Whether the stream ends. If not, nothing but bytes wakes the receiver.
    fin: bool,
    preemptions: usize,
    broken: Break,
}

const PLAN: Plan = Plan {
    unit_bytes: 512,
    start: 0,
    units: 3,
    park_after: None,
    spins: 1,
    fin: false,
    preemptions: 5,
    broken: Break::Nothing,
};

fn send(link: &Link, plan: Plan, unit: u8) {
    let tx = link.tx();
    let bytes = vec![unit; plan.unit_bytes];
    let by_tcp = || {
        link.tcp.send(unit);
        tx.hint();
    };
    loop {
        match tx.room_to_send(plan.unit_bytes).unwrap() {
            Room::Tcp => return by_tcp(),
            Room::Full if plan.broken == Break::SpillUnparked => return by_tcp(),
            Room::Full => {
                tx.park().unwrap();
            }
            Room::Ring(write) => {
                // SAFETY: `bytes` is readable for its length.
                let fill = || unsafe { tx.fill(&write, 0, bytes.as_ptr(), bytes.len()) };
                if plan.broken != Break::PublishFirst {
                    fill();
                }
                let mut tcp_position = link.tcp.sent() * plan.unit_bytes as u64;
                if plan.broken == Break::StaleTcpPosition {
                    tcp_position = tcp_position.saturating_sub(plan.unit_bytes as u64);
                }
                let published = tx.publish(&write, bytes.len() as u32, tcp_position).unwrap();
                if plan.broken == Break::PublishFirst {
                    fill();
                }
                if published == Publish::Done || plan.broken == Break::ForgetRetry {
                    return;
                }
            }
        }
    }
}

fn sender(link: &Link, plan: Plan) {
    for unit in 1..=plan.units {
        send(link, plan, unit);
        if plan.park_after == Some(unit) {
            link.tx().park().unwrap();
        }
    }
    if plan.fin {
        link.tcp.fin();
    }
}

fn receiver(link: &Link, plan: Plan) -> Vec<u8> {
    let rx = link.rx();
    let mut got = Vec::new();
    let mut awake = true;
    let mut spins = plan.spins;
    while plan.fin || got.len() < usize::from(plan.units) {
        match rx.look(|| link.own_tcp_position()).unwrap() {
            View::TcpUpTo { limit_bytes } => {
                let mut most = limit_bytes as usize / plan.unit_bytes;
                if plan.broken == Break::IgnoreTcpPosition {
                    most = usize::MAX;
                }
                let units = link.tcp.recv_now(most);
                assert!(!units.is_empty(), "TCP bytes before the position are missing");
                rx.took_tcp((units.len() * plan.unit_bytes) as u64);
                got.extend(units);
            }
            View::Ring { .. } if plan.broken == Break::ConsumeFirst => {
                let mut unit = vec![0; plan.unit_bytes];
                let head = rx.unread_bytes();
                assert!(head > 0);
                // What `peek` would read is still there: the look that found it is the last.
                rx.consume(plan.unit_bytes as u32);
                thread::yield_now();
                let offset = got.len() % (1024 / plan.unit_bytes) * plan.unit_bytes;
                // SAFETY: `unit` is writable for its length.
                unsafe {
                    use yasmin_ring::{Memory, Place};
                    let place = Place { class: 0, at: offset as u32 };
                    rx.memory.copy_out(place, unit.as_mut_ptr(), unit.len());
                }
                got.push(unit[0]);
            }
            View::Ring { .. } => got.extend(link.read_ring(1)),
            View::Tcp => {
                if awake && rx.offer(0) {
                    awake = false;
                    spins = plan.spins;
                    continue;
                }
                let units = link.tcp.recv();
                if units.is_empty() {
                    return got;
                }
                got.extend(units);
                awake = true;
            }
            View::Empty { .. } if spins > 0 => {
                spins -= 1;
                if plan.broken == Break::ReadTcpWhileOffered {
                    got.extend(link.tcp.recv_now(usize::MAX));
                }
                thread::yield_now();
            }
            View::Empty { .. } if plan.broken == Break::SleepUnparked => {
                got.extend(link.tcp.recv());
            }
            View::Empty { .. } if plan.broken == Break::EndWithoutLook => {
                link.tcp.wait();
                if link.tcp.ended() {
                    return got;
                }
                rx.park();
            }
            // Moved: there is news, look again.
            View::Empty { .. } => {
                rx.park();
            }
        }
    }
    got
}

fn check(plan: Plan) {
    explore(plan.preemptions, move || {
        let link = Arc::new(Link::new(plan.unit_bytes, plan.start));
        let other = Arc::clone(&link);
        let sending = thread::spawn(move || sender(&other, plan));
        let got = receiver(&link, plan);
        let expected: Vec<u8> = (1..=plan.units).collect();
        assert_eq!(got, expected);
        sending.join().unwrap();
    });
}

#[test]
fn three_units() {
    check(PLAN);
}

#[test]
fn three_units_and_the_end() {
    check(Plan { fin: true, ..PLAN });
}

#[test]
fn four_units_without_spinning() {
    check(Plan { units: 4, spins: 0, ..PLAN });
}

#[test]
fn positions_wrap() {
    check(Plan { start: (1 << 58) - 512, ..PLAN });
}

#[test]
fn full_ring_spills() {
    check(Plan { unit_bytes: 1024, units: 4, ..PLAN });
}

#[test]
fn full_ring_spills_across_the_wrap() {
    check(Plan { unit_bytes: 1024, start: (1 << 58) - 1024, fin: true, ..PLAN });
}

#[test]
fn sender_parks_by_itself() {
    check(Plan { units: 4, park_after: Some(2), ..PLAN });
}

#[test]
fn both_park_at_once() {
    check(Plan { park_after: Some(1), spins: 0, ..PLAN });
}

macro_rules! broken {
    ($($name:ident: $rule:ident, $plan:expr, $notices:literal;)*) => {$(
        #[test]
        #[should_panic(expected = $notices)]
        fn $name() {
            check(Plan { broken: Break::$rule, ..$plan });
        }
    )*};
}

const FULL: Plan = Plan { unit_bytes: 1024, units: 4, ..PLAN };
const ENDS: Plan = Plan { fin: true, ..PLAN };

broken! {
    // The position that comes with the opening is behind what was read.
    notices_tcp_read_while_offered: ReadTcpWhileOffered, FULL, "Broken";
    notices_tcp_read_past_the_position: IgnoreTcpPosition, FULL, "[1, 2, 4, 3]";
    notices_sleep_unparked: SleepUnparked, PLAN, "deadlock";
    notices_consume_before_copy: ConsumeFirst, FULL, "Causality violation";
    notices_publish_before_fill: PublishFirst, PLAN, "Causality violation";
    notices_forgotten_retry: ForgetRetry, ENDS, "left: [1, 2]";
    notices_spill_unparked: SpillUnparked, FULL, "assertion `left == right` failed";
    notices_stale_tcp_position: StaleTcpPosition, PLAN, "[1, 3, 2]";
    notices_end_without_look: EndWithoutLook, ENDS, "assertion `left == right` failed";
}
