//! Waiting awake, for a short time that gives way: what `yasmin_wait` decides, with this
//! process's clock, CPU and settings.
//!
//! Storey 1: system.

use core::sync::atomic::{AtomicIsize, Ordering};

pub use yasmin_wait::{Backoff, Budget, Found, Interests, Polling, Watched, wait};
use yasmin_wait::{Crowd, Crowding, Rate, Record, Share, Turns, Watching};

use crate::config::{SPIN_SHARE, SPIN_US, UNBOUNDED};
use crate::signals::Handled;
use crate::thread::thread_word;
use crate::timeout::Timeout;
use crate::{clock, real, sys};

/// A sender that was silent for so long after an offer is not busy: 50 busy connections to one
/// thread by TCP have a message each millisecond.
const OFFER_PATIENCE_US: u64 = 2000;

/// Watching failed if nothing came for so many times the budget.
const WATCH_PATIENCE: u64 = 4;

static CROWDING: Crowding = Crowding::new();

thread_word! {
    /// Involuntary switches of the thread when it was asked last, and one more; 0: not known.
    switches: u64
}

thread_word! {
    /// When the thread had its CPU back after it gave it away for a slice; 0: not yet.
    given: u64
}

thread_word! {
    /// When the thread's last watch ended, if that was in vain and `Peers::are_all_on` the thread's own CPU;
    /// otherwise 0.
    vain_at: u64
}

thread_word! {
    /// The bits of what the thread learnt from taking turns.
    record: u64
}

/// Used only where the user gave a bound.
static SHARE: Share = Share::new();

/// Offset of the thread's struct rseq from its thread pointer; 0: none registered.
static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);

/// CPU that is not known.
pub const NO_CPU: u32 = u32::MAX;

/// Finds where libc registered rseq, which tells the CPU without a system call.
pub fn find_rseq() {
    let (offset, size) = (real::next(b"__rseq_offset\0"), real::next(b"__rseq_size\0"));
    if offset.is_null() || size.is_null() {
        return;
    }
    // SAFETY: glibc 2.35's `const ptrdiff_t __rseq_offset` and `const unsigned __rseq_size`.
    unsafe {
        if *size.cast::<u32>() > 0 {
            RSEQ_OFFSET.store(*offset.cast::<isize>(), Ordering::Relaxed);
        }
    }
}

/// The CPU that this thread runs on, plus 1 (so that zeroed pages say "not known").
pub fn cpu() -> u32 {
    let offset = RSEQ_OFFSET.load(Ordering::Relaxed);
    if offset == 0 {
        return cpu_by_segment();
    }
    let area = (sys::thread_pointer() as isize + offset) as *const u32;
    // SAFETY: struct rseq of this thread; cpu_id is its second field, written by the kernel.
    unsafe { area.add(1).read_volatile().wrapping_add(1) }
}

/// Linux keeps the CPU's number in the limit of a segment, for the vDSO's getcpu (arch/x86/include/asm/segment.h).
fn cpu_by_segment() -> u32 {
    const CPU_AND_NODE: u32 = 15 * 8 + 3;
    const CPU: u32 = (1 << 12) - 1;
    let (limit, is_there): (u32, u8);
    // SAFETY: reads a descriptor's limit, or says that there is none.
    unsafe {
        core::arch::asm!(
            "lsl {limit:e}, {segment:e}",
            "setz {is_there}",
            limit = lateout(reg) limit,
            segment = in(reg) CPU_AND_NODE,
            is_there = lateout(reg_byte) is_there,
            options(nomem, nostack),
        );
    }
    if is_there == 0 { NO_CPU } else { (limit & CPU) + 1 }
}

pub fn rate() -> Rate {
    Rate(clock::us(1))
}

fn spin_us() -> u64 {
    u64::from(SPIN_US.load(Ordering::Relaxed))
}

/// The whole of the user's budget.
pub fn budget() -> Budget {
    Budget::new(clock::us(spin_us()))
}

/// For a wait on so many connections that may have to be parked; no longer than the program would
/// wait.
pub fn budget_within(timeout: Timeout, connections: u32) -> Budget {
    let budget = Budget::for_connections(clock::us(spin_us()), u64::from(connections));
    let most_us = u64::try_from(timeout.ns).map_or(u64::MAX, |ns| ns / 1000);
    budget.within(clock::us(most_us))
}

/// Whether to offer, now that bytes came.
pub fn allows_offer(offers: &Backoff) -> bool {
    offers.allows(clock::ticks(), clock::us(OFFER_PATIENCE_US))
}

/// Whether to watch before the next sleep.
pub fn allows_watch(watches: &Backoff) -> bool {
    watches.allows(clock::ticks(), clock::us(spin_us() * WATCH_PATIENCE))
}

/// Whether the user's budget is 0, or the process has used its share up.
pub fn is_forbidden() -> bool {
    if SPIN_US.load(Ordering::Relaxed) == 0 {
        return true;
    }
    match SPIN_SHARE.load(Ordering::Relaxed) {
        UNBOUNDED => false,
        percent => percent == 0 || !SHARE.allows(clock::ticks(), rate()),
    }
}

/// Whether nobody watches at the moment: it is forbidden, or others took the CPUs.
pub fn is_off() -> bool {
    is_forbidden() || is_crowded()
}

/// Whether others took a CPU from a thread that watched.
pub fn is_crowded() -> bool {
    CROWDING.now(clock::ticks()) == Crowd::Took
}

/// Whether they did so often that the process sleeps for as long as it ever does.
pub fn sleeps_for_long() -> bool {
    CROWDING.sleeps_for_long(clock::ticks())
}

/// Calls `watch` if this wait, with a timeout of 0, is one of many and watching was worth it.
pub fn try_polling(polling: &Polling, watch: impl FnOnce(&mut Budget) -> Watched) {
    // A program that polls keeps its CPU.
    let is_off = || is_off() || CROWDING.now(clock::ticks()) == Crowd::Waiting;
    if let Some((occasion, mut budget)) = polling.begin(clock::ticks(), rate(), is_off) {
        let watched = watch(&mut budget);
        polling.end(occasion, watched, clock::ticks());
    }
}

/// Whom a watch waits for.
pub struct Peers<C, A> {
    /// The CPU that the first of them last ran on, plus 1.
    pub cpu: C,
    /// Whether all of them last ran on this CPU, a number as `cpu` gives it, and the next watch of the thread says that
    /// one was heard from: the program does not wait again before.
    pub are_all_on: A,
}

/// Watches `stirs` until it is true, as long as the budget lasts. A peer that last ran on this
/// very CPU needs it: yield to it.
pub fn watch(
    budget: &mut Budget,
    peer_cpu: impl Fn() -> u32,
    stirs: impl FnMut() -> bool,
) -> Watched {
    let peers = Peers { cpu: &peer_cpu, are_all_on: |cpu| peer_cpu() == cpu };
    watch_many(budget, &peers, stirs, 64)
}

/// The same, where one look costs more: `looks` of them between two looks at the clock.
pub fn watch_many(
    budget: &mut Budget,
    peers: &Peers<impl Fn() -> u32, impl Fn(u32) -> bool>,
    stirs: impl FnMut() -> bool,
    looks: u32,
) -> Watched {
    let percent = SPIN_SHARE.load(Ordering::Relaxed);
    if percent == UNBOUNDED {
        return watch_unbounded(budget, peers, stirs, looks);
    }
    let before = budget.ticks();
    let watched = watch_unbounded(budget, peers, stirs, looks);
    SHARE.used(clock::ticks(), before - budget.ticks(), percent);
    watched
}

fn watch_unbounded(
    budget: &mut Budget,
    peers: &Peers<impl Fn() -> u32, impl Fn(u32) -> bool>,
    mut stirs: impl FnMut() -> bool,
    looks: u32,
) -> Watched {
    let before = vain_at::get();
    if before != 0 {
        vain_at::set(0);
        if CROWDING.kept(before, clock::ticks(), rate()) {
            return Watched::GaveWay;
        }
    }
    let (now, handled) = (clock::ticks(), Handled::now());
    if CROWDING.now(now) == Crowd::Waiting {
        return take_turns(budget, now, None, stirs, handled);
    }
    let known = switches::get().checked_sub(1);
    let mut watching = Watching::begin(budget, &CROWDING, rate(), now, known);
    let count = || {
        let count = sys::involuntary_switches();
        switches::set(count + 1);
        count
    };
    loop {
        let peer = (peers.cpu)();
        if is_here(peer) {
            if stirs() {
                return watching.stirs(clock::ticks());
            }
            sys::sched_yield();
            // The kernel may count that as one.
            switches::set(0);
            let mut back = given::get();
            let gave_way = watching.yielded(clock::ticks(), &mut back);
            given::set(back);
            if gave_way {
                return Watched::GaveWay;
            }
        }
        for _ in 0..looks {
            if stirs() {
                return watching.stirs(clock::ticks());
            }
            core::hint::spin_loop();
        }
        let then = clock::ticks();
        // A peer on this CPU has had it above, for as long as it works.
        if !is_here(peer) && watching.has_had_it(then) {
            sys::sched_yield();
            let now = clock::ticks();
            if watching.came_back(then, now) {
                return take_turns(budget, then, Some(now), stirs, handled);
            }
        }
        if let Some(ended) = watching.looked(clock::ticks(), count) {
            if ended == Watched::InVain && is_here(peer) && (peers.are_all_on)(peer) {
                vain_at::set(clock::ticks());
            }
            return ended;
        }
        if handled.is_past() {
            return Watched::GaveWay;
        }
    }
}

/// Other threads want this CPU, and wait for something as this one does. `back`: when it had its CPU back, where it gave
/// it away at `now`. `handled`: when the watch began.
fn take_turns(
    budget: &mut Budget,
    now: u64,
    back: Option<u64>,
    mut stirs: impl FnMut() -> bool,
    handled: Handled,
) -> Watched {
    // The kernel may count a yield as one.
    switches::set(0);
    let mut turns = Turns::begin(budget, &CROWDING, rate(), now, Record::of_bits(record::get()));
    let mut ended = back.and_then(|back| turns.came_round(now, back));
    let watched = loop {
        if let Some(ended) = ended {
            break ended;
        }
        let mut look = || {
            core::hint::spin_loop();
            stirs()
        };
        if (0..turns.looks()).any(|_| look()) {
            break turns.stirs();
        }
        if handled.is_past() {
            break Watched::GaveWay;
        }
        let then = clock::ticks();
        sys::sched_yield();
        ended = turns.came_round(then, clock::ticks());
    };
    record::set(turns.record().bits());
    watched
}

fn is_here(peer_cpu: u32) -> bool {
    peer_cpu != NO_CPU && peer_cpu != 0 && peer_cpu == cpu()
}
