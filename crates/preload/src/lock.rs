//! A short lock that knows its holder.
//!
//! Never held over a sleep or a return to the program. A handler of the program's runs when its thread
//! holds none (`held`). One that nobody could get in front of is told so instead of waiting for itself.
//!
//! Who waits sleeps, and lends the holder its priority: with real-time threads on one CPU the
//! holder would never run otherwise. To let go costs a plain store and a load all the same: the
//! waiter writes the holder's name into a futex of its own (PI: the kernel needs to know who
//! holds it, and not that the holder took it by a system call), has all running threads pass a
//! barrier (membarrier), and looks at the lock again. Either it finds the lock free, or the
//! holder, behind its store, finds the waiter. Every sleep is bounded: where a kernel has no such
//! futex, no barrier, or where a vfork child let go in its parent's name, it is a nap.
//!
//! Storey 1: system.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::sys::{self, TimeSpec, call};
use crate::thread::thread_word;
use crate::{barrier, clock, held, process};

pub struct Lock {
    /// The holder's thread, as the kernel numbers them, or 0.
    holder: AtomicU32,
    waiters: AtomicU32,
    /// A PI futex that waiters sleep on, in the holder's name.
    bed: AtomicU32,
}

pub struct Guard<'a> {
    lock: &'a Lock,
    /// The lock that forked processes share, where there is one.
    shared: Option<&'a AtomicU64>,
}

/// Watched for so long before a sleep, which costs the waker and all who run a system call each: steps
/// under a lock ask the kernel, too.
const SPIN_US: u64 = 30;
/// Between two looks, at most: each look takes the cache line from the holder.
const PAUSES_MAX: u32 = 16;
/// The same for the lock that processes share.
const LOOKS: u32 = 64;
const NAP_NS: i64 = 5_000_000;
/// Where nobody wakes: the first nap, and the longest.
const SHORT_NAP_NS: i64 = 50_000;
const LONG_NAP_NS: i64 = 2_000_000;
/// A step under a lock takes microseconds. A process that has not let go for so long is
/// stopped, starved or frozen.
const PATIENCE_NS: u64 = 20_000_000;

const FUTEX_WAIT: usize = 0;
const FUTEX_LOCK_PI: usize = 6;
const FUTEX_UNLOCK_PI: usize = 7;
const FUTEX_PRIVATE: usize = 128;
const FUTEX_WAITERS: u32 = 0x8000_0000;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

thread_word! {
    /// The thread's number; 0 before it is asked for.
    thread: u32
}

/// The calling thread, as the kernel numbers it.
#[inline]
fn me() -> u32 {
    let known = thread::get();
    if known != 0 { known } else { ask_me() }
}

#[cold]
fn ask_me() -> u32 {
    // A number that no thread has can be told apart as well; only the kernel takes it for nobody's.
    const NO_THREADS: u32 = 1 << 29;
    let number = if process::is_sandboxed() {
        NO_THREADS | (sys::thread_pointer() >> 6) as u32 & (NO_THREADS - 1)
    } else {
        sys::gettid()
    };
    thread::set(number);
    number
}

/// In a forked child: its thread has another number.
pub fn forget_thread() {
    thread::set(0);
    held::forget();
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.store(0, Ordering::Release);
        }
        self.lock.give_up();
    }
}

impl Lock {
    pub const fn new() -> Self {
        Self { holder: AtomicU32::new(0), waiters: AtomicU32::new(0), bed: AtomicU32::new(0) }
    }

    /// `None`: this thread holds it already.
    #[inline]
    pub fn acquire(&self) -> Option<Guard<'_>> {
        let me = me();
        held::enter();
        if self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err()
            && self.wait(me).is_none()
        {
            held::leave();
            return None;
        }
        Some(Guard { lock: self, shared: None })
    }

    /// Without a guard, until `give_up`. False: somebody holds it.
    pub fn hold(&self) -> bool {
        self.try_acquire().map(core::mem::forget).is_some()
    }

    /// Before a fork: waits for it, and keeps it until `after_fork`. The child resets it.
    pub fn before_fork(&self) {
        if let Some(guard) = self.acquire() {
            core::mem::forget(guard);
        }
    }

    /// In the process that forked.
    pub fn after_fork(&self) {
        if self.holder.load(Ordering::Relaxed) == me() {
            self.give_up();
        }
    }

    /// Lets go of what `hold` took.
    #[inline]
    pub fn give_up(&self) {
        self.let_go();
        held::leave();
    }

    /// `None`: somebody holds it.
    pub fn try_acquire(&self) -> Option<Guard<'_>> {
        let me = me();
        held::enter();
        if self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            held::leave();
            return None;
        }
        Some(Guard { lock: self, shared: None })
    }

    #[inline]
    fn let_go(&self) {
        self.holder.store(0, Ordering::Release);
        // The order of the processor is seen to by the waiter's barrier.
        compiler_fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.bed.load(Ordering::Relaxed) & FUTEX_TID_MASK == me() {
            self.leave_bed();
        }
    }

    fn leave_bed(&self) {
        // SAFETY: a futex of ours.
        unsafe { call!(futex, &raw const self.bed, FUTEX_UNLOCK_PI | FUTEX_PRIVATE) };
    }

    #[cold]
    fn wait(&self, me: u32) -> Option<()> {
        if self.holder.load(Ordering::Relaxed) == me {
            return None;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        // Once is enough: whoever lets go from then on sees that somebody waits.
        let mut is_fenced = None;
        while !self.spin(me) {
            let holder = self.holder.load(Ordering::Relaxed);
            if holder != 0 && self.sleep(holder, me, &mut is_fenced) {
                break;
            }
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        Some(())
    }

    /// Whether somebody waits. Who takes the lock again and again, and need not, asks before.
    pub fn is_wanted(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// Looks until it is free. False: not for a while.
    fn spin(&self, me: u32) -> bool {
        let begun = clock::ticks();
        let mut pauses = 1;
        loop {
            let is_free = self.holder.load(Ordering::Relaxed) == 0;
            if is_free
                && self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            if clock::ticks().wrapping_sub(begun) > clock::us(SPIN_US) {
                return false;
            }
            for _ in 0..pauses {
                core::hint::spin_loop();
            }
            pauses = (pauses * 2).min(PAUSES_MAX);
        }
    }

    /// Sleeps until `holder` lets go, or for a while. Whether this thread holds the lock now.
    fn sleep(&self, holder: u32, me: u32, is_fenced: &mut Option<bool>) -> bool {
        let bed = self.bed.load(Ordering::Relaxed);
        if bed & (FUTEX_WAITERS | FUTEX_TID_MASK) != holder && bed & FUTEX_WAITERS == 0 {
            // Nobody sleeps here. Whoever is quicker makes it for the same holder or a later one.
            let _ = self.bed.compare_exchange(bed, holder, Ordering::SeqCst, Ordering::Relaxed);
        }
        let is_fenced = *is_fenced.get_or_insert_with(barrier::pass);
        if self.holder.load(Ordering::SeqCst) != holder {
            return false;
        }
        if !is_fenced {
            nap(&self.holder, holder, SHORT_NAP_NS);
            return false;
        }
        let until = clock::realtime_after(NAP_NS);
        // SAFETY: a futex and a time of ours.
        let ret = unsafe {
            call!(futex, &raw const self.bed, FUTEX_LOCK_PI | FUTEX_PRIVATE, 0, &raw const until)
        };
        match -ret as i32 {
            0 => {
                // Its holder let go. The others sleep on until this one has had its turn.
                let is_mine = self.spin(me);
                self.leave_bed();
                return is_mine;
            }
            sys::EINTR | sys::EAGAIN => {}
            // The mark of a sleeper stays in it, and nobody may sleep there.
            sys::ETIMEDOUT => self.forget_bed(),
            // Made for a thread that is gone, or the kernel has none of these.
            _ => {
                self.forget_bed();
                nap(&self.holder, holder, SHORT_NAP_NS);
            }
        }
        false
    }

    fn forget_bed(&self) {
        let bed = self.bed.load(Ordering::Relaxed);
        let _ = self.bed.compare_exchange(bed, 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// For a forked child: whoever held it is not here, nor who waited.
    pub fn reset(&self) {
        self.holder.store(0, Ordering::Relaxed);
        self.waiters.store(0, Ordering::Relaxed);
        self.bed.store(0, Ordering::Relaxed);
    }
}

/// Sleeps for `ns` if `word` is `seen`. Nobody wakes.
pub fn nap(word: &AtomicU32, seen: u32, ns: i64) {
    let time = TimeSpec { sec: 0, nsec: ns };
    // SAFETY: a word and a time of ours.
    unsafe { call!(futex, &raw const *word, FUTEX_WAIT, seen, &raw const time) };
}

/// What a process that does not let go of a shared lock leaves to others.
pub enum Taken<'a> {
    Guard(Guard<'a>),
    /// The holder lives, and has not moved for a while. This process holds the rest.
    Stuck(Guard<'a>),
}

impl<'a> Guard<'a> {
    /// Takes the lock that forked processes share as well. A holder that was killed is robbed,
    /// and `robbed` puts in order what it may have left half done.
    #[cold]
    pub fn and_shared(mut self, shared: &'a AtomicU64, robbed: impl FnOnce()) -> Taken<'a> {
        let me = u64::from(process::id()) << 32 | u64::from(me());
        let take = |from| shared.compare_exchange(from, me, Ordering::Acquire, Ordering::Relaxed);
        let (mut tries, mut until_ns, mut nap_ns) = (0u32, 0, SHORT_NAP_NS);
        while let Err(holder) = take(0) {
            tries += 1;
            if tries < LOOKS {
                core::hint::spin_loop();
                continue;
            }
            if is_dead(holder) && take(holder).is_ok() {
                robbed();
                break;
            }
            let now_ns = clock::now_ns();
            if until_ns == 0 {
                until_ns = now_ns + PATIENCE_NS;
            } else if now_ns > until_ns {
                return Taken::Stuck(self);
            }
            // SAFETY: the lower half of the word; the processor is little-endian.
            nap(unsafe { &*(&raw const *shared).cast::<AtomicU32>() }, holder as u32, nap_ns);
            nap_ns = (nap_ns * 2).min(LONG_NAP_NS);
        }
        self.shared = Some(shared);
        Taken::Guard(self)
    }
}

/// Whether the holder's process has ended, waited for by its parent or not.
fn is_dead(holder: u64) -> bool {
    let Some(pid) = process::pid_of((holder >> 32) as u32) else { return false };
    // SAFETY: no memory involved.
    let process = unsafe { call!(pidfd_open, pid, 0) };
    if process >= 0 {
        // Readable when all its threads have ended.
        let is_over = sys::poll_now(process as c_int, sys::POLLIN) != 0;
        sys::close(process as c_int);
        return is_over;
    }
    // Also where there is no descriptor left to look with: then at least who is gone is found.
    // SAFETY: signal 0 only asks whether the process is there.
    unsafe { call!(kill, pid, 0) == -(sys::ESRCH as isize) }
}
