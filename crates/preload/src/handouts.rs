//! Channels that were handed out and have to wait: the descriptor has calls in flight, or another
//! process holds the socket too.
//!
//! Their descriptors lie at high numbers, where no program looks for free ones, and are closed
//! when the offer is taken back: a connection that is over leaves nothing behind.
//!
//! Storey 4: life.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use yasmin_control::Then;
use yasmin_wire::Medium;

use crate::conn::Handout;
use crate::lock::Lock;
use crate::{broker, sys, table};

/// As many may wait: each takes two descriptors.
const MOST: usize = 64;

static WAITING: [Waiting; MOST] = [const { Waiting::new() }; MOST];
/// For whom each of them is: the descriptor, and 1 more; 0: for nobody. Apart, as calls look for their own here.
static FOR: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
static COUNT: AtomicU32 = AtomicU32::new(0);
static LOCK: Lock = Lock::new();

struct Waiting(UnsafeCell<Handout>);

// SAFETY: the cell is used under LOCK alone.
unsafe impl Sync for Waiting {}

impl Waiting {
    const fn new() -> Self {
        let handout = Handout {
            id: 0,
            is_acceptor: false,
            max_class: 0,
            medium: Medium::Memfd,
            channel_fd: -1,
            side_fd: -1,
        };
        Self(UnsafeCell::new(handout))
    }
}

/// Those that wait, and for whom. Under LOCK.
fn all() -> impl Iterator<Item = (&'static Waiting, &'static AtomicU32)> {
    WAITING.iter().zip(&FOR).filter(|(_, whose)| whose.load(Ordering::Relaxed) != 0)
}

fn is_gone(whose: &AtomicU32) {
    whose.store(0, Ordering::Relaxed);
    COUNT.fetch_sub(1, Ordering::Relaxed);
}

/// Whether one waits for `fd`. Without the lock: its own calls ask, and the one that comes next asks again.
pub fn one_waits(fd: c_int) -> bool {
    COUNT.load(Ordering::Relaxed) != 0
        && FOR.iter().any(|whose| whose.load(Ordering::Relaxed) == fd as u32 + 1)
}

/// The channel is not wanted: its descriptors go, and the broker forgets it.
pub fn refuse(handout: &Handout) {
    close(handout);
    broker::release(handout.id, Then::Closes);
}

/// The channel is not wanted now: the other end is to do without it as well, and both are offered again.
pub fn give_back(handout: &Handout) {
    close(handout);
    broker::release(handout.id, Then::GoesOn);
}

/// Its descriptors, once they are mapped or not wanted.
pub fn close(handout: &Handout) {
    for fd in [handout.channel_fd, handout.side_fd] {
        if fd >= 0 {
            table::clear(fd);
            sys::close(fd);
        }
    }
}

/// Keeps a handout for later, if its offer is still out: whoever takes an offer back ends it first, and then
/// looks here.
///
/// # Errors
/// It is not, or there is no room for it.
pub fn keep(mut handout: Handout, is_out: impl Fn(u64) -> bool) -> Result<(), Handout> {
    let Some(_guard) = LOCK.acquire() else { return Err(handout) };
    if !is_out(handout.id) {
        return Err(handout);
    }
    let mut places = WAITING.iter().zip(&FOR);
    let Some((waiting, whose)) = places.find(|(_, whose)| whose.load(Ordering::Relaxed) == 0)
    else {
        return Err(handout);
    };
    let number = broker::descriptor_of(handout.id) as u32 + 1;
    for fd in [&mut handout.channel_fd, &mut handout.side_fd] {
        let high = broker::copy_high(*fd);
        // Where there is none it stays where it is.
        if high >= 0 {
            sys::close(*fd);
            *fd = high;
        }
        table::set_broker(*fd);
    }
    // SAFETY: under LOCK.
    unsafe { *waiting.0.get() = handout };
    whose.store(number, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Every handout that waits is tried again; `done` says whether it need not wait any more.
pub fn retry(done: impl Fn(&Handout) -> bool) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(_guard) = LOCK.acquire() else { return };
    for (waiting, whose) in all() {
        // SAFETY: under LOCK.
        if done(unsafe { &*waiting.0.get() }) {
            is_gone(whose);
        }
    }
}

/// The offer was taken back: whatever waits for it goes.
pub fn take_back(id: u64) {
    retry(|handout| {
        let is_it = handout.id == id;
        if is_it {
            close(handout);
        }
        is_it
    });
}

/// The program puts something else under the number.
pub fn abandon(number: c_int) {
    let Some(_guard) = LOCK.acquire() else { return };
    for (waiting, _) in all() {
        // SAFETY: under LOCK.
        let handout = unsafe { &mut *waiting.0.get() };
        for fd in [&mut handout.channel_fd, &mut handout.side_fd] {
            if *fd == number {
                // What cannot be mapped is refused.
                *fd = -1;
                table::clear(number);
            }
        }
    }
}

/// Until `after_fork` none that waits is attached or closed: the child knows which descriptors are theirs.
pub fn before_fork() {
    LOCK.before_fork();
}

pub fn after_fork() {
    LOCK.after_fork();
}

/// In a forked child: the handouts are the parent's; their descriptors were copied with it.
pub fn forget() {
    LOCK.reset();
    for (waiting, whose) in all() {
        // SAFETY: the child has one thread.
        close(unsafe { &*waiting.0.get() });
        is_gone(whose);
    }
}
