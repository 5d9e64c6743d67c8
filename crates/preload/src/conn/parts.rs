//! What this process keeps of a connection besides its pages: of its receiving and of its sending
//! half, of the program's settings, and of who holds it. All zero is a fresh one of each.
//!
//! Storey 3: connection.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use yasmin_wait::Use;

use crate::clock;
use crate::lock::Lock;
use crate::spin::{Backoff, NO_CPU};
use crate::sys;

fn zero<const N: usize>(fields: [&AtomicU32; N]) {
    for field in fields {
        field.store(0, Ordering::Relaxed);
    }
}

#[repr(C)]
pub struct RxHalf {
    pub lock: Lock,
    pub spin: Backoff,
    /// Offers that the sender did not take up.
    pub offers: Backoff,
    /// Reads from the ring since it was last offered, where nobody may watch.
    pub opening_reads: AtomicU32,
    /// Ticks at which the kernel was last asked about this connection.
    pub looked_at: AtomicU64,
    /// `set::kernel::kernel_told` when the kernel was last asked about this connection.
    pub told_seen: AtomicU32,
    /// Not 0: the kernel had something to tell when poll last asked it.
    pub kernel_ready: AtomicU32,
    /// Not 0: TCP was empty when it was last read.
    pub tcp_dry: AtomicU32,
    /// Not 0: an errno that cut a receive short, for the next one.
    pub error: AtomicU32,
    /// The class of the ring that the broker was asked for last.
    pub grow_asked: AtomicU32,
    /// TCP bytes read before the channel came.
    pub read_before: AtomicU64,
    /// Of the ring.
    pub usage: Use,
}

impl RxHalf {
    pub fn reset(&self, read_before: u64) {
        self.spin.reset();
        self.offers.reset();
        self.usage.reset(clock::ticks());
        zero([
            &self.opening_reads,
            &self.told_seen,
            &self.kernel_ready,
            &self.tcp_dry,
            &self.error,
            &self.grow_asked,
        ]);
        self.looked_at.store(0, Ordering::Relaxed);
        self.read_before.store(read_before, Ordering::Relaxed);
    }
}

#[repr(C)]
pub struct TxHalf {
    pub lock: Lock,
    pub looked_at: AtomicU64,
    /// `set::kernel::ends_told` when the kernel was last asked about this connection.
    pub ends_seen: AtomicU32,
    pub compared_at: AtomicU64,
    /// Ticks at which bytes last went by TCP.
    pub tcp_sent_at: AtomicU64,
    /// How often the ring was full, below the class that it had then.
    full: AtomicU32,
    pub spin: Backoff,
    /// The last bytes sent by TCP asked for more to follow (MSG_MORE).
    pub more_follows: AtomicU32,
    /// TCP bytes written before the channel came.
    pub sent_before: AtomicU64,
    /// The CPU that this process said last it sends on.
    pub shown_cpu: AtomicU32,
    /// How often the ring was too small for a send, below the class that it had then, and the ticks of the first.
    small: AtomicU32,
    small_at: AtomicU64,
    /// The thread that sends, `MANY` for several, 0 before any did.
    sender_thread: AtomicU64,
    /// Of the ring.
    pub usage: Use,
}

/// No thread's.
const MANY: u64 = u64::MAX;

/// Where the class stands in `full` and `small`.
const CLASS_SHIFT: u32 = 24;

/// Counts one more of `class`, from 1 on.
fn count(counted: &AtomicU32, class: u8) -> u32 {
    let known = counted.load(Ordering::Relaxed);
    let begun = u32::from(class) << CLASS_SHIFT;
    let next = if known >> CLASS_SHIFT == u32::from(class) { known } else { begun } + 1;
    // Stays below the class.
    if next >> CLASS_SHIFT == u32::from(class) {
        counted.store(next, Ordering::Relaxed);
    }
    next - begun
}

impl TxHalf {
    /// The ring of `class` is full: the how manyth time. For one sender at a time.
    pub fn filled(&self, class: u8) -> u32 {
        count(&self.full, class)
    }

    /// The ring of `class` does not hold a send: the how manyth time, and the ticks of the first. For one sender
    /// at a time.
    pub fn is_too_small(&self, class: u8) -> (u32, u64) {
        let count = count(&self.small, class);
        if count == 1 {
            self.small_at.store(clock::ticks(), Ordering::Relaxed);
        }
        (count, self.small_at.load(Ordering::Relaxed))
    }

    /// This thread sends. For one sender at a time.
    pub fn note_sender(&self) {
        let (own, seen) = (sys::thread_pointer(), self.sender_thread.load(Ordering::Relaxed));
        if seen != own && seen != MANY {
            self.sender_thread.store(if seen == 0 { own } else { MANY }, Ordering::Relaxed);
        }
    }

    pub fn has_many_senders(&self) -> bool {
        self.sender_thread.load(Ordering::Relaxed) == MANY
    }

    pub fn reset(&self) {
        self.spin.reset();
        self.usage.reset(clock::ticks());
        zero([&self.ends_seen, &self.full, &self.more_follows, &self.small]);
        self.sender_thread.store(0, Ordering::Relaxed);
        self.looked_at.store(0, Ordering::Relaxed);
        self.compared_at.store(0, Ordering::Relaxed);
        self.tcp_sent_at.store(clock::ticks(), Ordering::Relaxed);
        self.sent_before.store(0, Ordering::Relaxed);
        self.shown_cpu.store(NO_CPU, Ordering::Relaxed);
    }
}

/// The program's own settings of what this library sets otherwise.
#[repr(C)]
pub struct Settings {
    pub nodelay: AtomicU32,
    pub cork: AtomicU32,
    pub kernel_corked: AtomicU32,
    /// Not 0: the program wants to be told with what it receives how much is unread (TCP_INQ).
    pub tells_unread: AtomicU32,
    /// SO_RCVLOWAT, if the program has set it; see `Conn::set_low_water`.
    pub low_water: AtomicU32,
}

impl Settings {
    pub fn reset(&self) {
        let inquiry = [&self.tells_unread, &self.low_water];
        zero([&self.nodelay, &self.cork, &self.kernel_corked]);
        zero(inquiry);
    }
}

/// Who holds the end, and how it is handed on.
#[repr(C)]
pub struct Holding {
    /// Not 0: forked since it got its channel; locks are taken twice.
    pub shared: AtomicU32,
    /// The process that the broker gave it to.
    pub attacher_pid: AtomicU32,
    /// Not 0: handed over. TCP for good, and the kernel has the program's own settings.
    pub plain: AtomicU32,
    /// The descriptor of its residue plus 1, 0 if it has none.
    pub residue: AtomicI32,
    /// How this process stopped to count as a holder; 0: it counts.
    pub left: AtomicU32,
    /// Not 0: a thread makes plain TCP of it.
    pub retires: AtomicU32,
    /// See `handover`.
    pub handed: Handed,
}

pub const LEFT_LAST: u32 = 1;
pub const LEFT_COUNTED: u32 = 2;

impl Holding {
    pub fn reset(&self) {
        zero([&self.shared, &self.attacher_pid, &self.plain, &self.left]);
        self.retires.store(0, Ordering::Relaxed);
        self.residue.store(0, Ordering::Relaxed);
        self.handed.reset();
    }
}

/// What an exec that is under way has done to a connection, to be undone if it fails.
#[repr(C)]
pub struct Handed {
    /// Which exec or start looked at it last.
    walk: AtomicU32,
    /// How the count of holders was changed.
    pub counted: AtomicI32,
    /// Not 0: its close was made a reset.
    pub lingers: AtomicU32,
    /// Not 0: a child that borrows this memory has it under a number of its own.
    pub lent: AtomicU32,
    /// When a program was last about to be started with its residue.
    leaving_second: AtomicU64,
}

impl Handed {
    /// Of a connection that was just made.
    pub fn reset(&self) {
        self.begin(0);
        self.lent.store(0, Ordering::Relaxed);
        self.leaving_second.store(0, Ordering::Relaxed);
    }

    /// A program is about to be started with its residue.
    pub fn leaves(&self) {
        self.leaving_second.store(clock::second(), Ordering::Relaxed);
    }

    /// Whether one may be about to be started by another thread: until then the residue is not taken back.
    pub fn is_leaving(&self) -> bool {
        const START_S: u64 = 2;
        clock::second().wrapping_sub(self.leaving_second.load(Ordering::Relaxed)) <= START_S
    }

    pub fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Relaxed) != 0
    }

    pub fn is_of(&self, walk: u32) -> bool {
        self.walk.load(Ordering::Relaxed) == walk
    }

    pub fn begin(&self, walk: u32) {
        self.walk.store(walk, Ordering::Relaxed);
        self.counted.store(0, Ordering::Relaxed);
        self.lingers.store(0, Ordering::Relaxed);
    }
}
