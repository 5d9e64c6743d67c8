//! Waiting awake, for a short time that gives way.
//!
//! Storey 1: system.

use core::sync::atomic::{AtomicIsize, AtomicU32, AtomicU64, Ordering};

use crate::config::SPIN_US;
use crate::signals::Handled;
use crate::timeout::Timeout;
use crate::{clock, real, sys};

/// What a kind of attempt taught: after attempts that failed it skips more and more of them.
/// All zero is a fresh one.
#[repr(C)]
pub struct Backoff {
    fails: AtomicU32,
    skip: AtomicU32,
    /// Ticks at which an attempt ended in vain that is not judged yet; 0: none did.
    vain_at: AtomicU64,
}

/// At most this many attempts are skipped (as a power of two).
const FAILS_MAX: u32 = 7;

impl Backoff {
    pub const fn new() -> Self {
        Self { fails: AtomicU32::new(0), skip: AtomicU32::new(0), vain_at: AtomicU64::new(0) }
    }

    pub fn reset(&self) {
        self.won();
    }

    /// An attempt ended in vain. It failed if what it was made for stays away: of a peer that
    /// is busy, or whose CPU was taken from it, it was only a little too short.
    pub fn was_vain(&self) {
        self.vain_at.store(clock::ticks(), Ordering::Relaxed);
    }

    /// What the last attempt in vain was made for is there now. It failed if that took longer
    /// than `patience` ticks.
    fn judge(&self, patience: u64) {
        let vain_at = self.vain_at.swap(0, Ordering::Relaxed);
        if vain_at != 0 && clock::ticks().wrapping_sub(vain_at) > patience {
            self.lost();
        }
    }

    /// Whether to offer, now that bytes came.
    pub fn allows_offer(&self) -> bool {
        self.judge(clock::us(OFFER_PATIENCE_US));
        self.allows()
    }

    /// Whether to watch before the next sleep.
    pub fn allows_watch(&self) -> bool {
        self.judge(clock::us(u64::from(SPIN_US.load(Ordering::Relaxed)) * WATCH_PATIENCE));
        self.allows()
    }

    fn allows(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
        }
        skip == 0
    }

    pub fn won(&self) {
        if self.vain_at.load(Ordering::Relaxed) != 0 {
            self.vain_at.store(0, Ordering::Relaxed);
        }
        if self.fails.load(Ordering::Relaxed) != 0 {
            self.fails.store(0, Ordering::Relaxed);
            self.skip.store(0, Ordering::Relaxed);
        }
    }

    pub fn lost(&self) {
        let fails = (self.fails.load(Ordering::Relaxed) + 1).min(FAILS_MAX);
        self.fails.store(fails, Ordering::Relaxed);
        // The first failure is free: one late answer is no pattern.
        self.skip.store((1 << (fails - 1)) - 1, Ordering::Relaxed);
    }
}

/// A sender that was silent for so long after an offer is not busy, in microseconds: 50 busy
/// connections to one thread by TCP have a message each millisecond.
const OFFER_PATIENCE_US: u64 = 2000;

/// Watching failed if nothing came for so many times the budget.
const WATCH_PATIENCE: u64 = 4;

/// Offset of the thread's struct rseq from its thread pointer; 0: none registered.
static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);

/// For waits that must not last (a timeout of 0), called again and again: such a program polls,
/// and the rings answer it sooner than the kernel does. All zero is a fresh one.
#[repr(C)]
pub struct Tight {
    /// Ticks at which the last one found nothing.
    empty_at: AtomicU64,
    /// Ticks at which the last watch was worth it; 0 after one that was not.
    won_at: AtomicU64,
    /// What watches after an empty wait taught.
    backoff: Backoff,
    /// What watches after a won one taught: in a ping-pong the program answers, polls, and has
    /// the next message before the kernel could be asked.
    answers: Backoff,
}

impl Tight {
    /// How long such a wait watches the rings before it asks the kernel: longer than the two
    /// ends of an MPI ping-pong take, in microseconds.
    const WATCH_US: u64 = 4;
    /// Two empty waits so close together are a program that polls.
    const GAP_US: u64 = 2;
    /// A wait so soon after a won one is likely to follow an answer.
    const ANSWER_US: u64 = 8;

    pub const fn new() -> Self {
        Self {
            empty_at: AtomicU64::new(0),
            won_at: AtomicU64::new(0),
            backoff: Backoff::new(),
            answers: Backoff::new(),
        }
    }

    pub fn found_nothing(&self) {
        self.empty_at.store(clock::ticks(), Ordering::Relaxed);
    }

    /// Calls `watch` with a budget if the last empty or won wait was just now and
    /// watching was worth it lately.
    pub fn try_watching(&self, watch: impl FnOnce(&mut Budget) -> Watched) {
        let now = clock::ticks();
        let is_soon =
            |at: &AtomicU64, us| now.wrapping_sub(at.load(Ordering::Relaxed)) <= clock::us(us);
        let backoff = if is_soon(&self.empty_at, Self::GAP_US) {
            &self.backoff
        } else if is_soon(&self.won_at, Self::ANSWER_US) {
            &self.answers
        } else {
            return;
        };
        if is_off() || !backoff.allows() {
            return;
        }
        self.empty_at.store(0, Ordering::Relaxed);
        match watch(&mut Budget::new(clock::us(Self::WATCH_US))) {
            Watched::Stirs => {
                self.won_at.store(clock::ticks(), Ordering::Relaxed);
                backoff.won();
            }
            Watched::InVain | Watched::GaveWay => {
                self.won_at.store(0, Ordering::Relaxed);
                backoff.lost();
            }
        }
    }
}

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
        return NO_CPU;
    }
    let area = (sys::thread_pointer() as isize + offset) as *const u32;
    // SAFETY: struct rseq of this thread; cpu_id is its second field, written by the kernel.
    unsafe { area.add(1).read_volatile().wrapping_add(1) }
}

/// Whether the user's budget is 0.
pub fn is_forbidden() -> bool {
    SPIN_US.load(Ordering::Relaxed) == 0
}

/// Whether nobody watches at the moment: the user's budget is 0, or the CPUs are crowded.
pub fn is_off() -> bool {
    is_forbidden() || is_crowded()
}

/// A gap this long between two looks means that another thread had the CPU.
const PREEMPTED_US: u64 = 300;
const CROWDED_MIN_US: u64 = 5_000;
const CROWDED_MAX_US: u64 = 640_000;

/// Until when (ticks) this process does not watch, and for how long it was last told so.
///
/// Who watches uses up the slice that it will need when the answer comes: with more runnable
/// threads than CPUs, TCP's sleep and wake-up is faster (measured: a 64 B round trip among
/// compilers, p99 4 us sleeping, 7 ms watching).
static CROWDED_UNTIL: AtomicU64 = AtomicU64::new(0);
static CROWDED_US: AtomicU64 = AtomicU64::new(0);

pub fn is_crowded() -> bool {
    let until = CROWDED_UNTIL.load(Ordering::Relaxed);
    until != 0 && clock::ticks() < until
}

/// A CPU that was given away for so long went to others than the peer too: a time slice is shorter,
/// and in one of its own the peer of a stream brings much.
const GIVEN_US: u64 = 5000;

/// Who gave way to others for some time does not watch for so many times as long, and longer each
/// time it happens again soon: then giving way costs a small share of the time.
const YIELD_PAYS: u64 = 4;

/// Nobody watches for a while, for at least so many ticks as far as the longest while allows.
#[cold]
fn was_preempted(least: u64) {
    let now = clock::ticks();
    let last_us = CROWDED_US.load(Ordering::Relaxed);
    let since = now.wrapping_sub(CROWDED_UNTIL.load(Ordering::Relaxed));
    // Long ago: a single event, and no pattern.
    let is_fresh = since < clock::us(4 * last_us.max(CROWDED_MIN_US));
    let us = if is_fresh { (last_us * 2).min(CROWDED_MAX_US) } else { CROWDED_MIN_US };
    let us = us.max(CROWDED_MIN_US).max((least / clock::us(1)).min(CROWDED_MAX_US));
    CROWDED_US.store(us, Ordering::Relaxed);
    CROWDED_UNTIL.store(now + clock::us(us), Ordering::Relaxed);
}

/// How long a wait may still watch: its own looks only, not what the machine took from it.
pub struct Budget {
    ticks: u64,
}

impl Budget {
    pub const fn new(ticks: u64) -> Self {
        Self { ticks }
    }

    pub const fn is_spent(&self) -> bool {
        self.ticks == 0
    }

    /// No longer than the program would wait.
    pub fn within(timeout: Timeout) -> Self {
        let mut budget = Self::whole();
        if timeout.ns >= 0 {
            budget.ticks = budget.ticks.min(clock::us(timeout.ns as u64 / 1000));
        }
        budget
    }

    /// Some was used since `start`; never nothing, so that whoever watches again ends.
    fn use_up(&mut self, start: u64) {
        let used = clock::ticks().wrapping_sub(start).max(1);
        self.ticks = self.ticks.saturating_sub(used);
    }

    /// The whole of the user's budget.
    pub fn whole() -> Self {
        Self::new(clock::us(u64::from(SPIN_US.load(Ordering::Relaxed))))
    }
}

/// What came of watching.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    Stirs,
    /// Nothing stirred as long as the budget lasted.
    InVain,
    /// Others wanted the CPU, or a signal was handled. Says nothing of the peer; look once more.
    GaveWay,
}

/// Watches `stirs` until it is true, as long as the budget lasts. A peer that last ran on this
/// very CPU needs it: yield to it.
pub fn watch(budget: Budget, peer_cpu: impl Fn() -> u32, stirs: impl FnMut() -> bool) -> Watched {
    let mut budget = budget;
    watch_many(&mut budget, peer_cpu, stirs, 64)
}

/// The same, where one look costs more: `looks` of them between two looks at the clock.
pub fn watch_many(
    budget: &mut Budget,
    peer_cpu: impl Fn() -> u32,
    mut stirs: impl FnMut() -> bool,
    looks: u32,
) -> Watched {
    let handled = Handled::now();
    let mut last = clock::ticks();
    // Asked once a watch is longer than a few looks, which most are not.
    let mut switches = None;
    loop {
        let peer = peer_cpu();
        if peer != NO_CPU && peer != 0 && peer == cpu() {
            if stirs() {
                budget.use_up(last);
                return Watched::Stirs;
            }
            sys::sched_yield();
            switches = None;
            // Others than the peer had the CPU meanwhile, though what came since may look as if
            // it had been worth it.
            let gone = clock::ticks().wrapping_sub(last);
            if gone > clock::us(GIVEN_US) {
                was_preempted(gone * YIELD_PAYS);
                return Watched::GaveWay;
            }
        }
        for _ in 0..looks {
            if stirs() {
                budget.use_up(last);
                return Watched::Stirs;
            }
            core::hint::spin_loop();
        }
        if clock::ticks().wrapping_sub(last) > clock::us(PREEMPTED_US) {
            // A virtual machine's CPU may be gone for as long: sleeping gives that host nothing.
            if switches.is_none_or(|before| sys::involuntary_switches() != before) {
                was_preempted(0);
                return Watched::GaveWay;
            }
        } else {
            budget.use_up(last);
            if switches.is_none() {
                switches = Some(sys::involuntary_switches());
            }
        }
        last = clock::ticks();
        if handled.is_past() {
            return Watched::GaveWay;
        }
        if budget.is_spent() {
            return Watched::InVain;
        }
    }
}
