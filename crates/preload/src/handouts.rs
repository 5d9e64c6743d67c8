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

use yasmin_wire::Medium;

use crate::conn::Handout;
use crate::lock::Lock;
use crate::{broker, sys, table};

static WAITING: [Waiting; 64] = [const { Waiting::new() }; 64];
static COUNT: AtomicU32 = AtomicU32::new(0);
static LOCK: Lock = Lock::new();

struct Waiting {
    used: AtomicU32,
    handout: UnsafeCell<Handout>,
}

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
        Self { used: AtomicU32::new(0), handout: UnsafeCell::new(handout) }
    }

    fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) != 0
    }

    fn set_used(&self, on: bool) {
        self.used.store(u32::from(on), Ordering::Relaxed);
        if on {
            COUNT.fetch_add(1, Ordering::Relaxed);
        } else {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

pub fn any_waits() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// The channel is not wanted: its descriptors go, and the broker forgets it.
pub fn refuse(handout: &Handout) {
    close(handout);
    broker::release(handout.id, false);
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
    let Some(waiting) = WAITING.iter().find(|waiting| !waiting.is_used()) else {
        return Err(handout);
    };
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
    unsafe { *waiting.handout.get() = handout };
    waiting.set_used(true);
    Ok(())
}

/// Every handout that waits is tried again; `done` says whether it need not wait any more.
pub fn retry(done: impl Fn(&Handout) -> bool) {
    if !any_waits() {
        return;
    }
    let Some(_guard) = LOCK.acquire() else { return };
    for waiting in WAITING.iter().filter(|waiting| waiting.is_used()) {
        // SAFETY: under LOCK.
        if done(unsafe { &*waiting.handout.get() }) {
            waiting.set_used(false);
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
    for waiting in WAITING.iter().filter(|waiting| waiting.is_used()) {
        // SAFETY: under LOCK.
        let handout = unsafe { &mut *waiting.handout.get() };
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
    for waiting in WAITING.iter().filter(|waiting| waiting.is_used()) {
        // SAFETY: the child has one thread.
        close(unsafe { &*waiting.handout.get() });
        waiting.set_used(false);
    }
}
