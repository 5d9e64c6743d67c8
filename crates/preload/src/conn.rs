//! A connection with a channel, as this process holds it.
//!
//! Storey 3: connection.

mod for_good;
pub mod names;
pub mod parts;
pub mod pins;

use core::ffi::c_int;
use core::sync::atomic::{self, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use yasmin_channel::attachment::Attachment;
use yasmin_channel::region::Region;
use yasmin_channel::side::{SIDE_BYTES, Side};
use yasmin_channel::{self as channel};
use yasmin_ring::{Pages, Park, Private, Receiver, Sender};
use yasmin_wait::{Moved, Use};
use yasmin_wire::{Medium, State};

use crate::lock::{Guard, Taken};
use crate::slab::{Pooled, Slab};
use parts::{Holding, LEFT_COUNTED, LEFT_LAST, RxHalf, Settings, TxHalf};

use crate::{clock, config, elsewhere, pace, process, spin, sys, table, tcp, twins};

/// Reads from the ring, or bytes in one, that an opening is worth without watching.
const OPENING_READS: u32 = 4;
const OPENING_BYTES: u32 = 16 * 1024;

/// In a slab: a stale reference finds a Conn, and `lock_rx`/`lock_tx` tell whether it still is
/// the one of that descriptor.
#[repr(C, align(64))]
pub struct Conn {
    pub rx: RxHalf,
    pub tx: TxHalf,
    pub settings: Settings,
    pub holding: Holding,
    base: AtomicPtr<u8>,
    side: AtomicPtr<Side>,
    max_class: AtomicU32,
    is_acceptor: AtomicU32,
    /// Not 0: the peer runs under this kernel, and its CPU numbers are ours.
    is_one_kernel: AtomicU32,
    /// One of the descriptors, for asking the kernel.
    fd: AtomicI32,
    /// How many descriptors of this process name it.
    fds: AtomicU32,
    /// How often in a row the connection gave its channel back before it got this one.
    pub times_seldom: AtomicU32,
    /// The broker's name for it.
    pub id: AtomicU64,
    /// The kernel's name for its socket.
    cookie: AtomicU64,
    /// The number that the program closed last, see `number_goes`; 0: none.
    left: AtomicU64,
    /// Threads that watch the channel without a lock.
    pins: AtomicU32,
    next_free: AtomicPtr<Conn>,
    /// Descriptors that named it beside `fd`, and may still.
    others: [AtomicI32; twins::MOST - 1],
}

// SAFETY: atomics and locks only; all zero is a Conn without memory, which no table entry names.
unsafe impl Pooled for Conn {
    fn next_free(&self) -> &AtomicPtr<Self> {
        &self.next_free
    }
}

/// A process that is stopped with unread bytes in its hands has this long to go on.
const STOPPED_FOR_NS: u64 = 1_000_000_000;

pub static POOL: Slab<Conn> = Slab::new();

/// # Safety
/// The table has or had a connection with this address.
pub unsafe fn of_address(address: usize) -> &'static Conn {
    // SAFETY: connections lie in a slab that is never unmapped.
    unsafe { &*(address as *const Conn) }
}

/// What the process has at `fd` whose memory this is, also if it is a ghost.
pub fn at(fd: c_int) -> Option<&'static Conn> {
    match table::kind(table::raw(fd)) {
        table::Kind::Conn(address) | table::Kind::Ghost(address) => {
            // SAFETY: the table's.
            Some(unsafe { of_address(address) })
        }
        _ => None,
    }
}

/// Somebody sent on the connection in a way that this library did not see.
pub struct PassedBy;

/// Why a half could not be locked.
pub enum Unlocked {
    /// A signal handler interrupted the holder, in this thread.
    Reentered,
    /// The descriptor was closed or replaced meanwhile.
    Gone,
}

/// What came of parking a receiving direction, for who is about to sleep.
pub enum Parked {
    /// Whatever comes, the kernel tells.
    Whole,
    /// The kernel tells of what comes first, and has to be asked again for what is behind it.
    BehindTcp,
    /// Something came, or is there: look again.
    Not,
}

/// What the broker handed out.
pub struct Handout {
    pub id: u64,
    pub is_acceptor: bool,
    pub max_class: u8,
    pub medium: Medium,
    pub channel_fd: c_int,
    pub side_fd: c_int,
}

/// Not 0: some connection was shared, and other processes may send it here.
static ANY_SHARED: AtomicU32 = AtomicU32::new(0);

/// Of the address space of this process, by channels.
static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Channels take so much of an address space that is limited, at most.
const SHARE_OF_LIMIT: u64 = 8;

/// Whether the program can spare so much of its address space for one channel more.
fn can_spare(bytes: usize) -> bool {
    let taken = MAPPED_BYTES.load(Ordering::Relaxed) + bytes as u64;
    taken <= sys::address_space_limit() / SHARE_OF_LIMIT
}

/// Whether a ring has bytes that were not read.
pub fn any_is_unread() -> bool {
    let is_unread =
        |fd| at(fd).is_some_and(|conn| conn.pin(fd).is_some_and(|_pin| conn.is_unread()));
    (0..table::end()).any(is_unread)
}

pub fn any_is_shared() -> bool {
    ANY_SHARED.load(Ordering::Relaxed) != 0
}

impl Conn {
    /// Maps a channel for `fd`. The two descriptors stay the caller's.
    pub fn attach(fd: c_int, handout: &Handout) -> Option<&'static Self> {
        let bytes = channel::bytes(handout.max_class);
        if !can_spare(bytes) {
            return None;
        }
        let attachment = Attachment::map(
            Region::first(handout.channel_fd, bytes),
            handout.medium,
            Region::first(handout.side_fd, SIDE_BYTES),
            handout.max_class,
            sys::filling(bytes),
        )?;
        Self::over(fd, attachment, handout.is_acceptor, 0).inspect(|conn| {
            conn.id.store(handout.id, Ordering::Relaxed);
            conn.is_one_kernel.store(u32::from(handout.medium.is_one_kernel()), Ordering::Relaxed);
            conn.holding.attacher_pid.store(process::id(), Ordering::Relaxed);
        })
    }

    /// A connection over memory that was mapped for it.
    pub fn over(
        fd: c_int,
        attachment: Attachment,
        is_acceptor: bool,
        read_before: u64,
    ) -> Option<&'static Self> {
        let conn = POOL.take()?;
        elsewhere::begin();
        conn.max_class.store(u32::from(attachment.max_class()), Ordering::Relaxed);
        let (base, side) = attachment.keep();
        let bytes = channel::bytes(conn.max_class()) as u64;
        MAPPED_BYTES.fetch_add(bytes, Ordering::Relaxed);
        conn.base.store(base, Ordering::Relaxed);
        conn.side.store(side, Ordering::Relaxed);
        conn.is_acceptor.store(u32::from(is_acceptor), Ordering::Relaxed);
        conn.fd.store(fd, Ordering::Relaxed);
        conn.fds.store(1, Ordering::Relaxed);
        conn.times_seldom.store(0, Ordering::Relaxed);
        conn.others.iter().for_each(|at| at.store(-1, Ordering::Relaxed));
        conn.id.store(0, Ordering::Relaxed);
        conn.cookie.store(tcp::cookie(fd).unwrap_or(0), Ordering::Relaxed);
        conn.is_one_kernel.store(1, Ordering::Relaxed);
        conn.rx.reset(read_before);
        conn.tx.reset();
        conn.settings.reset();
        conn.holding.reset();
        Some(conn)
    }

    /// This thread's CPU, as its peer is to see it: a number of another kernel's says nothing there.
    pub fn shown_cpu(&self) -> u32 {
        match self.is_one_kernel.load(Ordering::Relaxed) {
            0 => spin::NO_CPU,
            _ => spin::cpu(),
        }
    }

    /// Whether what the peer says of times is by this processor's counter.
    pub fn shares_clock(&self) -> bool {
        self.is_one_kernel.load(Ordering::Relaxed) != 0
    }

    pub fn fd(&self) -> c_int {
        self.fd.load(Ordering::Relaxed)
    }

    pub fn is_connector(&self) -> bool {
        self.is_acceptor.load(Ordering::Relaxed) == 0
    }

    pub fn max_class(&self) -> u8 {
        self.max_class.load(Ordering::Relaxed) as u8
    }

    /// Only under a lock, or where a stale value does no harm.
    pub fn side(&self) -> &Side {
        // SAFETY: mapped from attach until `release`, which takes both locks first.
        unsafe { &*self.side.load(Ordering::Relaxed) }
    }

    /// A message of the receiving direction came by TCP. Whether the channel should be given back. Under the
    /// receive lock.
    pub fn reads_seldom(&self) -> bool {
        let Side { rx, tx, .. } = self.side();
        self.is_seldom(&self.rx.usage, &rx.tcp_bytes, &rx.ring_bytes, &tx.ring_bytes)
    }

    /// The same of the sending direction, under the send lock.
    pub fn sends_seldom(&self) -> bool {
        let Side { rx, tx, .. } = self.side();
        self.is_seldom(&self.tx.usage, &tx.tcp_bytes, &tx.ring_bytes, &rx.ring_bytes)
    }

    /// A thread that serves other connections too is not slow if this one is. One that sleeps on crowded CPUs need not
    /// be. And between two guests a wake-up by TCP costs so much that a ring may be of use all the same.
    fn is_seldom(&self, usage: &Use, tcp: &Private, ring: &Private, back: &Private) -> bool {
        pace::note();
        if !usage.note() {
            return false;
        }
        let moved = Moved { tcp_bytes: tcp.get(), ring_bytes: ring.get(), back_bytes: back.get() };
        let sleeps = spin::sleeps_for_long();
        usage.is_none(moved, sleeps, spin::rate(), clock::ticks())
            && (sleeps || pace::is_slow())
            && self.shares_clock()
            && !config::is_forced()
    }

    /// How often in a row the connection gives its channel back, this time included. One that carried most of what
    /// went over the connection meanwhile was of use.
    pub fn times_seldom_now(&self) -> u32 {
        let Side { rx, tx, .. } = self.side();
        let by_tcp = rx.tcp_bytes.get() + tx.tcp_bytes.get();
        let was_of_use = rx.ring_bytes.get() + tx.ring_bytes.get() > by_tcp;
        1 + if was_of_use { 0 } else { self.times_seldom.load(Ordering::Relaxed) }
    }

    /// The receive side is offered.
    pub fn note_offered(&self) {
        self.rx.opening_reads.store(0, Ordering::Relaxed);
    }

    /// `unread_bytes` were found in the ring: the offer was worth it.
    ///
    /// Who may not watch mostly sleeps before the next message: then what an opening costs, some
    /// system calls at both ends, has to be won back by more than one.
    pub fn note_ring_read(&self, unread_bytes: u32) {
        if !spin::is_forbidden() {
            self.rx.offers.won();
            return;
        }
        let reads = self.rx.opening_reads.load(Ordering::Relaxed).saturating_add(1);
        self.rx.opening_reads.store(reads, Ordering::Relaxed);
        if reads >= OPENING_READS || unread_bytes >= OPENING_BYTES {
            self.rx.offers.won();
            self.rx.opening_reads.store(OPENING_READS, Ordering::Relaxed);
        }
    }

    /// The receive side was parked, to sleep, where `seen` was what it knew.
    pub fn note_parked(&self, seen: State) {
        let was_vain = match seen {
            State::Offered => true,
            State::Open => {
                spin::is_forbidden()
                    && self.rx.opening_reads.load(Ordering::Relaxed) < OPENING_READS
            }
            State::Parked => false,
        };
        if was_vain && spin::is_forbidden() {
            self.rx.offers.failed();
        } else if was_vain {
            self.rx.offers.was_vain(clock::ticks());
        }
    }

    /// Under the send lock.
    pub fn sender(&self) -> Sender<'_, Pages> {
        let index = self.is_acceptor.load(Ordering::Relaxed) as usize;
        // SAFETY: the channel is mapped while the lock is held; the geometry is the broker's.
        let (block, memory) = unsafe {
            channel::direction(self.base.load(Ordering::Relaxed), index, self.max_class())
        };
        let max_class = self.max_class();
        let limit = self.side().tx_class_limit.load(Ordering::Relaxed).min(u32::from(max_class));
        Sender { block, state: &self.side().tx.state, memory, max_class, class_limit: limit as u8 }
    }

    /// Under the receive lock.
    pub fn receiver(&self) -> Receiver<'_, Pages> {
        let index = 1 - self.is_acceptor.load(Ordering::Relaxed) as usize;
        // SAFETY: as above.
        let (block, memory) = unsafe {
            channel::direction(self.base.load(Ordering::Relaxed), index, self.max_class())
        };
        Receiver { block, state: &self.side().rx.state, memory, max_class: self.max_class() }
    }

    pub fn lock_rx(&self, fd: c_int) -> Result<Guard<'_>, Unlocked> {
        let guard = self.rx.lock.acquire().ok_or(Unlocked::Reentered)?;
        if !self.is_locked_twice(fd)? {
            return Ok(guard);
        }
        self.lock_shared_rx(fd, guard)
    }

    /// What a killed holder left half done: read, and not counted.
    fn recover_rx(&self) {
        let rx = &self.side().rx;
        let position = self.kernel_position();
        rx.tcp_bytes.set(position.wrapping_sub(self.read_before()));
        rx.ring_checked.set(rx.ring_bytes.get());
        self.receiver().recover(|| Some(position));
    }

    /// Sent, and not counted.
    fn recover_tx(&self) {
        let tx = &self.side().tx;
        let before = self.tx.sent_before.load(Ordering::Relaxed);
        let counted = before + tx.tcp_bytes.get();
        if let Some(position) = tcp::sent_position(self.fd(), self.is_connector(), counted) {
            tx.tcp_bytes.set(position.wrapping_sub(before));
            tx.ring_checked.set(tx.ring_bytes.get());
        }
        self.sender().recover();
    }

    /// What is settled needs no lock: the kernel serves all who share it.
    #[cold]
    fn lock_shared_rx<'a>(
        &'a self,
        fd: c_int,
        mut guard: Guard<'a>,
    ) -> Result<Guard<'a>, Unlocked> {
        let receiver = self.receiver();
        let lock = &self.side().rx.lock;
        let mut give_up_ns = None;
        while !receiver.is_settled() && !receiver.is_broken() {
            guard = match guard.and_shared(lock, || self.recover_rx()) {
                Taken::Guard(guard) => return Ok(guard),
                Taken::Stuck(guard) => guard,
            };
            let holder = lock.load(Ordering::Relaxed) >> 32;
            let is_unread = !receiver.abandon();
            let give_up_ns = *give_up_ns.get_or_insert_with(|| clock::now_ns() + STOPPED_FOR_NS);
            if is_unread && clock::now_ns() > give_up_ns && process::is_stopped(holder as u32) {
                // What it has taken of the unread bytes nobody knows.
                receiver.spoil();
                tcp::reset(fd);
            }
        }
        Ok(guard)
    }

    pub fn lock_tx(&self, fd: c_int) -> Result<Guard<'_>, Unlocked> {
        let guard = self.tx.lock.acquire().ok_or(Unlocked::Reentered)?;
        if !self.is_locked_twice(fd)? {
            return Ok(guard);
        }
        Ok(self.lock_shared_tx(guard))
    }

    /// As with the receiving half.
    #[cold]
    fn lock_shared_tx<'a>(&'a self, guard: Guard<'a>) -> Guard<'a> {
        let sender = self.sender();
        if sender.is_never() || sender.is_broken() {
            return guard;
        }
        match guard.and_shared(&self.side().tx.lock, || self.recover_tx()) {
            Taken::Guard(guard) => guard,
            Taken::Stuck(guard) => {
                sender.abandon();
                guard
            }
        }
    }

    /// Under one of its own locks: whether forked processes may hold it too.
    #[inline]
    fn is_locked_twice(&self, fd: c_int) -> Result<bool, Unlocked> {
        if !self.is_at(fd) {
            return Err(Unlocked::Gone);
        }
        Ok(self.holding.shared.load(Ordering::Relaxed) != 0)
    }

    /// Handed over: nothing comes or goes by ring any more but what is unread.
    pub fn is_plain(&self) -> bool {
        self.holding.plain.load(Ordering::Relaxed) != 0
    }

    pub fn read_before(&self) -> u64 {
        self.rx.read_before.load(Ordering::Relaxed)
    }

    pub fn is_nonblocking(&self) -> bool {
        self.side().rx.nonblocking.load(Ordering::Relaxed) != 0
    }

    pub fn set_nonblocking(&self, on: bool) {
        self.side().rx.nonblocking.store(u32::from(on), Ordering::Relaxed);
    }

    /// Its socket's.
    pub fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Relaxed)
    }

    /// Whether other processes may hold it.
    pub fn is_shared(&self) -> bool {
        self.holding.shared.load(Ordering::Relaxed) != 0
    }

    /// Before a fork: from now on both processes take the locks that they share.
    pub fn share(&self) {
        ANY_SHARED.store(1, Ordering::Relaxed);
        self.holding.shared.store(1, Ordering::SeqCst);
    }

    /// Before a fork: who is inside a step comes out of it first. Its lock is this process's own,
    /// and does not keep the child out.
    pub fn share_between_steps(&self, fd: c_int) {
        let _inside = (!self.is_shared()).then(|| (self.lock_rx(fd), self.lock_tx(fd)));
        self.share();
    }

    /// In a forked child.
    pub fn reset_locks(&self) {
        self.rx.lock.reset();
        self.tx.lock.reset();
    }

    /// The stream positions at which the channel comes.
    pub fn begins_at(&self, sent: u64, read: u64) {
        self.tx.sent_before.store(sent, Ordering::Relaxed);
        self.rx.read_before.store(read, Ordering::Relaxed);
    }

    /// The sender's place in the TCP stream, by the kernel's counters. Under the send lock, and
    /// only while nobody sends without it.
    ///
    /// # Errors
    /// Somebody sent past this library, and the ring was used since it was certain that nobody
    /// had: what went first nobody can say.
    pub fn sent_position(&self) -> Result<Option<u64>, PassedBy> {
        let tx = &self.side().tx;
        let own = self.tx.sent_before.load(Ordering::Relaxed) + tx.tcp_bytes.get();
        let kernel = tcp::sent_position(self.fd(), self.is_connector(), own);
        // Where several processes send, one that was stopped in between has not counted yet.
        if self.is_shared() || kernel.is_none_or(|kernel| kernel == own) {
            if kernel.is_some() {
                tx.ring_checked.set(tx.ring_bytes.get());
            }
            return Ok(kernel);
        }
        if self.sender().is_never() {
            // Others send too by now, past a holder of the lock that did not move.
            return Ok(None);
        }
        if self.has_used_ring_to_send() {
            return Err(PassedBy);
        }
        // All of it went by TCP, in the order in which it was sent. And so it stays.
        let _ = self.sender().park_for_good();
        Ok(None)
    }

    /// Whether somebody sent past this library, and ring bytes went since it was last certain that
    /// nobody had. Asks the kernel, where the ring was used. Under the send lock.
    pub fn is_passed_by(&self) -> bool {
        self.has_used_ring_to_send()
            && !self.sender().is_never()
            && self.side().tx.kernel_senders.load(Ordering::SeqCst) == 0
            && self.sent_position().is_err()
    }

    /// The sending direction ends: what was never compared never will be, and bytes that went past
    /// would have lost their place without a word. Under the send lock.
    pub fn reset_if_passed_by(&self, fd: c_int) {
        if self.has_used_ring_to_send() && tcp::may_send(fd) && self.is_passed_by() {
            tcp::reset(fd);
        }
    }

    /// Since the kernel's counters were last compared.
    pub fn has_used_ring_to_send(&self) -> bool {
        let tx = &self.side().tx;
        tx.ring_bytes.get() != tx.ring_checked.get()
    }

    /// The receiver's place in the TCP stream, under the receive lock. `None`: somebody read past
    /// this library, and the ring was read since it was certain that nobody had.
    ///
    /// It is what this end counted. The kernel's counters are not as good where the peer sent
    /// urgent bytes, of which no more follow an opening: what is unread they tell only up to
    /// the mark, and a byte that was passed over they count as read.
    pub fn read_position(&self) -> Option<u64> {
        let rx = &self.side().rx;
        let own = self.read_before() + rx.tcp_bytes.get();
        if process::is_sandboxed() {
            return Some(own);
        }
        let kernel = self.kernel_position();
        if kernel != own {
            let receiver = self.receiver();
            if receiver.is_settled() || self.is_shared() {
                // Others receive too, without the lock or stopped before they counted.
                return Some(kernel);
            }
            receiver.never_offer();
            if rx.ring_bytes.get() != rx.ring_checked.get() {
                return None;
            }
            rx.tcp_bytes.set(kernel.wrapping_sub(self.read_before()));
        }
        rx.ring_checked.set(rx.ring_bytes.get());
        Some(kernel)
    }

    /// As the kernel tells it, or as it was counted where it does not.
    fn kernel_position(&self) -> u64 {
        let own = self.read_before() + self.side().rx.tcp_bytes.get();
        let kernel = tcp::read_position(self.fd(), own).unwrap_or(own);
        if kernel != own && tcp::is_at_urgent(self.fd()) { own } else { kernel }
    }

    /// Where the channel and the side page are.
    pub fn mapped(&self) -> (*mut u8, *mut Side) {
        (self.base.load(Ordering::Relaxed), self.side.load(Ordering::Relaxed))
    }

    pub fn address(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Before bytes go by TCP: the program's cork holds for them. Under the send lock.
    pub fn apply_cork(&self, fd: c_int) {
        let is_corked = self.settings.cork.load(Ordering::Relaxed) != 0;
        if is_corked && self.settings.kernel_corked.swap(1, Ordering::Relaxed) == 0 {
            sys::setsockopt_bytes(fd, sys::SOL_TCP, sys::TCP_CORK, &1u32.to_ne_bytes());
        }
    }

    /// The program has set SO_RCVLOWAT, in bytes, and the connection is parked for good. The kernel
    /// gets what is left of it beside the ring's unread bytes, which it does not count.
    pub fn set_low_water(&self, fd: c_int) {
        let Ok(_rx) = self.lock_rx(fd) else { return };
        let bytes = sys::getsockopt_u64(fd, sys::SOL_SOCKET, sys::SO_RCVLOWAT, 4).unwrap_or(1);
        self.settings.low_water.store(bytes as u32, Ordering::Relaxed);
        self.follow_low_water(fd);
    }

    /// So many bytes are to be unread before a wait tells of them.
    pub fn low_water(&self) -> u32 {
        self.settings.low_water.load(Ordering::Relaxed).max(1)
    }

    /// Fewer are unread in the ring. Under the receive lock.
    pub fn follow_low_water(&self, fd: c_int) {
        let bytes = self.settings.low_water.load(Ordering::Relaxed);
        if bytes > 1 && !process::is_sandboxed() {
            let left = bytes.saturating_sub(self.receiver().unread_bytes());
            tcp::set_low_water(fd, left.max(1));
        }
    }

    /// Whether a wait tells of the ring's unread bytes: TCP has none that come before, and they are
    /// as many as the program wants. Under the receive lock, or as a hint.
    pub fn has_ring_next(&self, receiver: &Receiver<'_, Pages>) -> bool {
        receiver.has_ring_next() && receiver.unread_bytes() >= self.low_water()
    }

    /// The kernel gets the program's own settings: nothing comes or goes by ring any more.
    pub fn settle(&self, fd: c_int) {
        if self.holding.plain.swap(1, Ordering::SeqCst) != 0 {
            return;
        }
        // Said, /then/ the settings are read. Pairs with who sets them.
        atomic::fence(Ordering::SeqCst);
        self.apply_cork(fd);
        if self.settings.nodelay.load(Ordering::Relaxed) == 0 {
            sys::setsockopt_bytes(fd, sys::SOL_TCP, sys::TCP_NODELAY, &0u32.to_ne_bytes());
        }
    }

    /// Gives back one that never came into the table.
    pub fn discard(&'static self) {
        self.unmap();
        POOL.give(self);
    }

    pub fn unmap(&self) {
        if process::is_sandboxed() {
            return;
        }
        let (base, side) = self.mapped();
        let bytes = channel::bytes(self.max_class()) as u64;
        MAPPED_BYTES.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: the table does not name it, so whoever locks it from now on finds it gone
        // before it touches the memory, and nobody holds a pin.
        drop(unsafe { Attachment::of_kept(base, side, self.max_class()) });
    }

    /// The program exits and may have left bytes unread: as TCP does, its close is a reset.
    pub fn exits(&'static self, fd: c_int) {
        let Ok(_rx) = self.lock_rx(fd) else { return };
        if let Ok(_tx) = self.lock_tx(fd) {
            // The peer looks at the kernel for the end.
            let _ = self.sender().park();
        }
        if self.lets_go() && self.is_unread() {
            self.end_unread(fd);
        }
    }

    /// Whether ring bytes wait to be read; parks. Under the receive lock.
    pub fn is_unread(&self) -> bool {
        let receiver = self.receiver();
        // What the peer sends from now on meets the kernel, which knows that nobody reads.
        self.park_rx(&receiver);
        receiver.unread_bytes() > 0 || self.has_moved()
    }

    /// Whether the channel is to be used no more, as the broker says: its `Side::gone`. Under a lock.
    pub fn is_gone(&self) -> bool {
        self.gone() != 0
    }

    /// The same, and why.
    pub fn gone(&self) -> u32 {
        self.side().gone.load(Ordering::Relaxed)
    }

    /// Whether what was unread is in another process's residue.
    pub fn has_moved(&self) -> bool {
        self.side().rx.moved.load(Ordering::SeqCst) != 0
    }

    /// No process holds the end any more that could read what is in the ring. As TCP does with
    /// unread data: the close becomes a reset. A program without the library may hold the
    /// socket still, and would find a gap in the stream: it gets the reset now.
    pub fn end_unread(&self, fd: c_int) {
        if self.side().rx.foreign.load(Ordering::Relaxed) != 0 {
            tcp::reset(fd);
        } else if !process::is_sandboxed() {
            sys::setsockopt_bytes(fd, sys::SOL_SOCKET, sys::SO_LINGER, &sys::LINGER_0);
        }
    }

    /// The program takes the connection off its socket, which it may connect again: TCP for
    /// good, and nothing of the ring is left.
    pub fn dissolve(&self, fd: c_int) {
        self.park_for_good(fd);
        if let Ok(_rx) = self.lock_rx(fd) {
            let receiver = self.receiver();
            receiver.consume(receiver.unread_bytes());
            receiver.took_tcp(u64::MAX);
        }
    }

    /// One process more holds the end.
    pub fn one_more_holds(&self) {
        self.side().rx.more_holders.fetch_add(1, Ordering::SeqCst);
    }

    /// The reverse; false: it was the first, which is not counted.
    pub fn one_less_holds(&self) -> bool {
        let holders = &self.side().rx.more_holders;
        holders.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
    }

    /// Whether no other process with the library holds the end.
    pub fn is_sole_holder(&self) -> bool {
        self.side().rx.more_holders.load(Ordering::SeqCst) == 0
    }

    /// It does not let go after all.
    pub fn holds_again(&self) {
        if self.holding.left.swap(0, Ordering::Relaxed) == LEFT_COUNTED {
            self.one_more_holds();
        }
    }

    /// This process lets go of the end; says whether it was the last one with the library.
    pub fn lets_go(&self) -> bool {
        if self.holding.left.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let is_last = !self.one_less_holds();
        self.holding.left.store(if is_last { LEFT_LAST } else { LEFT_COUNTED }, Ordering::Relaxed);
        is_last
    }

    /// Whether the broker gave it to this process.
    pub fn is_own(&self) -> bool {
        self.holding.attacher_pid.load(Ordering::Relaxed) == process::id()
    }

    /// Parks the receiving direction, with or without unread bytes. Under the receive lock.
    /// Bounded: each turn but the last, the sender published.
    pub fn park_rx(&self, receiver: &Receiver<'_, Pages>) -> bool {
        for _ in 0..1000 {
            if receiver.look(|| self.read_position()).is_err() {
                return false;
            }
            if receiver.park() == Park::Parked {
                return true;
            }
        }
        false
    }

    /// Parks the receiving direction for a thread that is about to sleep, which is counted already
    /// or holds the lock of whatever counts it; `is_telling`: whether there is something that it
    /// must not sleep over. Under the receive lock.
    pub fn park_to_sleep(
        &self,
        fd: c_int,
        is_telling: impl Fn(&Receiver<'_, Pages>) -> bool,
    ) -> Parked {
        let receiver = self.receiver();
        if receiver.look(|| self.read_position()).is_err() {
            // The kernel tells of that.
            tcp::reset(fd);
            return Parked::Whole;
        }
        if is_telling(&receiver) {
            return Parked::Not;
        }
        let seen = receiver.state_seen();
        if receiver.park() == Park::Moved {
            return Parked::Not;
        }
        self.note_parked(seen);
        if receiver.is_behind_tcp() { Parked::BehindTcp } else { Parked::Whole }
    }

    /// Whether the kernel should be asked again; at bounded intervals, so that a dead peer
    /// shows as soon as on plain TCP.
    pub fn due(&self, looked_at: &AtomicU64, us: u64) -> bool {
        let now = clock::ticks();
        let due = now.wrapping_sub(looked_at.load(Ordering::Relaxed)) > clock::us(us);
        if due {
            looked_at.store(now, Ordering::Relaxed);
        }
        due
    }
}
