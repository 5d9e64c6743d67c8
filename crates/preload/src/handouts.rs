//! Channels that were handed out, mapped here, and not attached yet: the other end has not mapped its memory,
//! so that it is not sealed (`yasmin_channel::sealing`), the descriptor has calls in flight, or another
//! process holds the socket too.
//!
//! Their descriptors lie at high numbers, where no program looks for free ones, and are closed
//! when the offer is taken back: a connection that is over leaves nothing behind.
//!
//! Storey 4: life.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use yasmin_channel::attachment::Attachment;
use yasmin_channel::sealing;
use yasmin_wire::Medium;

use crate::conn::{Conn, Handout};
use crate::lock::Lock;
use crate::{broker, clock, sys, table};

/// Each may stand in one of so many places, from that of its descriptor on.
const PLACES: usize = 8;
static WAITING: [Waiting; 1024] = [const { Waiting::new() }; 1024];
static COUNT: AtomicU32 = AtomicU32::new(0);
static LOCK: Lock = Lock::new();

/// What was handed out for a connection, mapped.
pub struct Mapped {
    handout: Handout,
    memory: Option<Attachment>,
    is_sealed: bool,
    /// The broker need not forget it.
    is_kept: bool,
    since_second: u64,
}

/// Why a channel cannot be had, for good.
pub struct Spoilt;

impl Mapped {
    /// Maps it, and tells the other end. Dropped, it goes like one that is not wanted.
    ///
    /// # Errors
    /// It is not what it should be, or there is no memory; it is forgotten.
    pub fn of(handout: Handout) -> Result<Self, Spoilt> {
        let memory = Conn::map(&handout);
        let since_second = clock::second();
        let mut mapped = Self { handout, memory, is_sealed: false, is_kept: false, since_second };
        close(&mut mapped.handout.side_fd);
        if mapped.memory.is_none() {
            return Err(Spoilt);
        }
        let channel_fd = mapped.handout.channel_fd;
        mapped.is_sealed = match mapped.handout.medium {
            Medium::Memfd => {
                let end = usize::from(mapped.handout.is_acceptor);
                sealing::arrive(channel_fd, end).map_err(|_| Spoilt)?
            }
            Medium::Ivshmem => true,
        };
        mapped.needs_no_descriptor();
        Ok(mapped)
    }

    pub const fn id(&self) -> u64 {
        self.handout.id
    }

    /// Whether it may be used.
    ///
    /// # Errors
    /// It never will.
    pub fn is_sealed(&mut self) -> Result<bool, Spoilt> {
        if !self.is_sealed {
            self.is_sealed = sealing::is_sealed(self.handout.channel_fd).map_err(|_| Spoilt)?;
            self.needs_no_descriptor();
        }
        Ok(self.is_sealed)
    }

    fn needs_no_descriptor(&mut self) {
        if self.is_sealed {
            close(&mut self.handout.channel_fd);
        }
    }

    /// A connection for `fd` over it, that is not in the table yet. `None`: there is no room for one.
    pub fn attach(&mut self, fd: c_int) -> Option<&'static Conn> {
        Conn::attach(fd, self.memory.take()?, &self.handout)
    }

    /// What was attached was not put into the table.
    pub fn discards(&mut self, conn: &'static Conn) {
        self.memory = conn.discard();
    }

    /// It is in use, or another process's.
    pub fn let_go(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        close(&mut self.handout.channel_fd);
        close(&mut self.handout.side_fd);
        if let Some(memory) = self.memory.take() {
            Conn::unmap_unused(memory);
        }
        if !self.is_kept {
            broker::release(self.handout.id);
        }
    }
}

/// The channel is not wanted: its descriptors go, and the broker forgets it.
pub fn refuse(mut handout: Handout) {
    close(&mut handout.channel_fd);
    close(&mut handout.side_fd);
    broker::release(handout.id);
}

fn close(fd: &mut c_int) {
    let fd = mem::replace(fd, -1);
    if fd >= 0 {
        table::clear(fd);
        sys::close(fd);
    }
}

struct Waiting {
    /// Of the connection; -1: nothing waits here.
    fd: AtomicI32,
    /// When it may be tried again.
    due_second: AtomicU64,
    mapped: UnsafeCell<Option<Mapped>>,
}

// SAFETY: the cell is used under LOCK alone.
unsafe impl Sync for Waiting {}

impl Waiting {
    const fn new() -> Self {
        let (fd, due_second) = (AtomicI32::new(-1), AtomicU64::new(0));
        Self { fd, due_second, mapped: UnsafeCell::new(None) }
    }

    fn fd(&self) -> c_int {
        self.fd.load(Ordering::Relaxed)
    }

    /// Under LOCK. For a second it is tried at each call, since the other end mostly comes soon, and then at
    /// one a second.
    fn put(&self, fd: c_int, mapped: Mapped) {
        let now = clock::second();
        let is_new = now <= mapped.since_second + 1;
        self.due_second.store(if is_new { 0 } else { now + 1 }, Ordering::Relaxed);
        self.fd.store(fd, Ordering::Relaxed);
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: under LOCK.
        unsafe { *self.mapped.get() = Some(mapped) };
    }

    /// Under LOCK.
    fn take(&self) -> Option<Mapped> {
        // SAFETY: under LOCK.
        let mapped = unsafe { (*self.mapped.get()).take() }?;
        self.fd.store(-1, Ordering::Relaxed);
        COUNT.fetch_sub(1, Ordering::Relaxed);
        Some(mapped)
    }
}

fn places(fd: c_int) -> impl Iterator<Item = &'static Waiting> {
    (fd as usize..).take(PLACES).map(|at| &WAITING[at % WAITING.len()])
}

fn all() -> impl Iterator<Item = &'static Waiting> {
    // Most processes never touch their memory.
    let any = if COUNT.load(Ordering::Relaxed) == 0 { &[] } else { &WAITING[..] };
    any.iter().filter(|waiting| waiting.fd() >= 0)
}

/// Whether something waits for `fd`, and may be tried again by now.
pub fn is_due(fd: c_int) -> bool {
    COUNT.load(Ordering::Relaxed) != 0
        && places(fd).any(|waiting| {
            let due_second = waiting.due_second.load(Ordering::Relaxed);
            waiting.fd() == fd && (due_second == 0 || due_second <= clock::second())
        })
}

/// Keeps one for `fd` for later.
///
/// # Errors
/// There is no room for it.
pub fn keep(fd: c_int, mut mapped: Mapped) -> Result<(), Mapped> {
    let Some(_guard) = LOCK.acquire() else { return Err(mapped) };
    let Some(waiting) = places(fd).find(|waiting| waiting.fd() < 0) else {
        return Err(mapped);
    };
    let number = &mut mapped.handout.channel_fd;
    if *number >= 0 {
        let high = broker::copy_high(*number);
        // Where there is none it stays where it is.
        if high >= 0 {
            sys::close(*number);
            *number = high;
        }
        table::set_broker(*number);
    }
    waiting.put(fd, mapped);
    Ok(())
}

/// What waits for `fd` is tried again: `attempt` gives it back if it has to wait on.
pub fn retry(fd: c_int, attempt: impl Fn(Mapped) -> Option<Mapped>) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(_guard) = LOCK.acquire() else { return };
    for waiting in places(fd).filter(|waiting| waiting.fd() == fd) {
        if let Some(mapped) = waiting.take().and_then(&attempt) {
            waiting.put(fd, mapped);
        }
    }
}

/// The offer was taken back, and the broker hears of it: what waits for it goes.
pub fn take_back(id: u64) {
    retry(broker::descriptor_of(id), |mapped| {
        if mapped.id() != id {
            return Some(mapped);
        }
        mapped.let_go();
        None
    });
}

/// The program puts something else under the number.
pub fn abandon(number: c_int) {
    let Some(_guard) = LOCK.acquire() else { return };
    for waiting in all() {
        // SAFETY: under LOCK.
        let Some(mapped) = (unsafe { &mut *waiting.mapped.get() }) else { continue };
        if mapped.handout.channel_fd == number {
            // What cannot be asked is refused.
            mapped.handout.channel_fd = -1;
            table::clear(number);
        }
    }
}

/// In a forked child: they are the parent's; descriptors and mappings were copied with it.
pub fn forget() {
    LOCK.reset();
    all().filter_map(Waiting::take).for_each(Mapped::let_go);
}
