//! Sending on a connection with a channel.
//!
//! Storey 5: calls.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_ring::{Pages, Publish, Room, Sender};

use crate::conn::{Conn, PassedBy, Unlocked};
use crate::iov::{Buffers, NO_PIECE};
use crate::lock::Guard;
use crate::signals::Handled;
use crate::spin::{Budget, Found, Interests, Watched};
use crate::sys::{self, EAGAIN, ECONNRESET, EINTR, MSG_DONTWAIT, MSG_MORE, Ret, call};
use crate::{clock, config, memory, real, recv, set, spin, tcp, text};

/// How often a sender looks at the kernel's state of the connection, in microseconds.
const LOOK_US: u64 = 1000;

/// How often it compares the kernel's count of bytes with its own while the ring is open, in
/// microseconds: that takes three system calls.
const COMPARE_US: u64 = 20_000;

/// While bytes go by ring, some go by TCP at such intervals, in microseconds.
const TCP_AGAIN_US: u64 = 1_000_000;

/// After this many full rings it asks for a larger one.
const FULL_BEFORE_GROWTH: u32 = 2;

/// What a call sends: the program's memory, or a file.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    Buffers(Buffers<'a>),
    /// `offset`: where to read from; the caller moves it.
    File {
        fd: c_int,
        offset: i64,
        len_bytes: usize,
    },
}

impl Source<'_> {
    fn len_bytes(&self) -> usize {
        match self {
            Self::Buffers(buffers) => buffers.len_bytes,
            Self::File { len_bytes, .. } => *len_bytes,
        }
    }
}

/// send in all its forms. `None`: not for this library (any more); libc does it.
pub fn send(conn: &'static Conn, fd: c_int, from: Source<'_>, flags: c_int) -> Option<Ret> {
    let special = sys::MSG_OOB | sys::MSG_ZEROCOPY | sys::MSG_FASTOPEN;
    if flags & special != 0 {
        if flags & sys::MSG_OOB != 0 {
            conn.park_for_good(fd);
        } else {
            conn.park_tx_for_good(fd);
        }
        return None;
    }
    if from.len_bytes() == 0 {
        return None;
    }
    if matches!(from, Source::Buffers(buffers) if buffers.is_refused()) {
        return None;
    }
    let handled = Handled::now();
    let id = conn.id.load(Ordering::Relaxed);
    spin::wait(&mut Call { conn, fd, from, flags, done: 0, has_watched: false, handled, id })
}

/// libc sent on behalf of `send`, which had nothing to do with it.
pub fn sent_verbatim(conn: &'static Conn, fd: c_int, ret: Ret) {
    if ret > 0
        && let Ok(_tx) = conn.lock_tx(fd)
    {
        conn.side().tx.tcp_bytes.add(ret as u64);
        conn.sender().hint();
    }
}

struct Call<'a> {
    conn: &'static Conn,
    fd: c_int,
    from: Source<'a>,
    flags: c_int,
    done: usize,
    /// It watched since it last sent anything by ring.
    has_watched: bool,
    /// Signals that this thread had handled when the call began.
    handled: Handled,
    /// The connection that the call began on: another thread may close it, and memory and
    /// number may serve another one by the time this call looks again.
    id: u64,
}

impl Call<'_> {
    fn lock(&self) -> Result<Guard<'static>, Unlocked> {
        let guard = self.conn.lock_tx(self.fd)?;
        let is_same = self.conn.id.load(Ordering::Relaxed) == self.id;
        if is_same { Ok(guard) } else { Err(Unlocked::Gone) }
    }

    /// Everything that can be sent without waiting, under one hold of the lock. `is_spent`: this
    /// call has watched long enough.
    fn step(&mut self, is_spent: bool) -> Result<Found<Option<Ret>>, Unlocked> {
        let conn = self.conn;
        let _guard = self.lock()?;
        let sender = conn.sender();
        if config::chaos() {
            let _ = sender.park();
        }
        loop {
            let left = self.from.len_bytes() - self.done;
            let was_open = sender.is_open();
            let Ok(room) = sender.room(left) else {
                tcp::reset(self.fd);
                return Ok(answer(self.result(-(ECONNRESET as Ret))));
            };
            match room {
                Room::Ring(write) => {
                    let mut position = 0;
                    // A side that only sends learns here, and only here, that its peer is gone.
                    let is_due = !write.opens() && conn.due(&conn.tx.looked_at, LOOK_US);
                    if is_due && tcp::is_over(self.fd) {
                        let _ = sender.park_for_good();
                        continue;
                    }
                    let compares = is_due && conn.due(&conn.tx.compared_at, COMPARE_US);
                    if compares && conn.sent_position().is_err() {
                        return Ok(self.passed_by());
                    }
                    if is_due && self.is_tcp_silent() {
                        let _ = sender.park();
                        continue;
                    }
                    if write.opens() {
                        match self.opening_position() {
                            Ok(Some(at)) => position = at,
                            Ok(None) => return Ok(self.by_tcp(&sender)),
                            Err(PassedBy) => return Ok(self.passed_by()),
                        }
                    }
                    let len = left.min(write.room_bytes as usize);
                    let len = match self.fill(&sender, &write, len) {
                        Ok(0) => return Ok(answer(self.done as Ret)),
                        Ok(len) => len,
                        Err(ret) => return Ok(answer(self.result(ret))),
                    };
                    self.note_cpu(&sender);
                    match sender.publish(&write, len as u32, position) {
                        Ok(Publish::Done) => {
                            self.done += len;
                            conn.side().tx.ring_bytes.add(len as u64);
                            if core::mem::take(&mut self.has_watched) {
                                conn.tx.spin.won();
                            }
                        }
                        Ok(Publish::Retry) => {}
                        Err(_) => {
                            tcp::reset(self.fd);
                            return Ok(answer(self.result(-(ECONNRESET as Ret))));
                        }
                    }
                    if self.done == self.from.len_bytes() {
                        return Ok(answer(self.done as Ret));
                    }
                }
                Room::Full => {
                    let is_due = conn.due(&conn.tx.looked_at, LOOK_US);
                    if is_due && tcp::is_over(self.fd) {
                        let _ = sender.park_for_good();
                        continue;
                    }
                    let grows = self.wants_growth(&sender);
                    if !is_spent && !grows {
                        return Ok(Found::Nothing);
                    }
                    // A ring that has its full size holds about what TCP's buffers would have taken;
                    // of a smaller one a program would see short writes that TCP does not give.
                    let is_grown = sender.class() >= conn.max_class();
                    if self.done > 0 && !self.blocks() && is_grown {
                        set::write_cut_short(self.fd);
                        return Ok(answer(self.done as Ret));
                    }
                    // TCP's own buffers take it from here, so that a program that relies on
                    // them does not wait where it would not have waited.
                    let _ = sender.park();
                    conn.side().tx.parked.add(1);
                }
                Room::Tcp if sender.is_never() && self.done == 0 => {
                    conn.apply_cork(self.fd);
                    return Ok(Found::Answer(None));
                }
                Room::Tcp => {
                    conn.side().tx.parked.add(u64::from(was_open));
                    return Ok(self.by_tcp(&sender));
                }
            }
        }
    }

    /// Whether nothing was sent by TCP for so long that these bytes should be: what stands on the
    /// way and remembers connections (address translation, load balancers) would forget this one,
    /// and a way that is cut would show itself to nobody.
    fn is_tcp_silent(&self) -> bool {
        let gone = clock::ticks().wrapping_sub(self.conn.tx.tcp_sent_at.load(Ordering::Relaxed));
        gone > clock::us(TCP_AGAIN_US)
    }

    fn blocks(&self) -> bool {
        self.flags & MSG_DONTWAIT == 0 && !self.conn.is_nonblocking()
    }

    /// The place in the TCP stream behind which the ring opens; `None`: not now.
    fn opening_position(&self) -> Result<Option<u64>, PassedBy> {
        let conn = self.conn;
        // Bytes that TCP holds back would hold back the ring behind them.
        if conn.tx.more_follows.load(Ordering::Relaxed) != 0
            || conn.settings.kernel_corked.load(Ordering::Relaxed) != 0
            || conn.side().tx.kernel_senders.load(Ordering::SeqCst) != 0
            || !text::is_clean()
            || config::chaos()
        {
            return Ok(None);
        }
        conn.sent_position()
    }

    /// Bytes of this connection went past this library, in an order that nobody knows: better a
    /// reset than bytes in the wrong place.
    fn passed_by(&self) -> Found<Option<Ret>> {
        tcp::reset(self.fd);
        answer(self.result(-(ECONNRESET as Ret)))
    }

    /// Whether that has happened while the ring was open, at bounded intervals.
    fn is_passed_by(&self) -> bool {
        let conn = self.conn;
        conn.has_used_ring_to_send()
            && !conn.sender().is_never()
            && conn.side().tx.kernel_senders.load(Ordering::SeqCst) == 0
            && conn.due(&conn.tx.looked_at, LOOK_US)
            && conn.sent_position().is_err()
    }

    /// Copies up to `len` bytes behind the tail; returns how many, or minus errno.
    fn fill(
        &self,
        sender: &Sender<'_, Pages>,
        write: &yasmin_ring::Write,
        len: usize,
    ) -> Result<usize, Ret> {
        match self.from {
            Source::Buffers(buffers) => {
                let mut result = Ok(len);
                buffers.each(self.done, len, |base, len, done| {
                    let mut at_byte = 0;
                    for (at, len) in sender.spans(write, done as u32, len) {
                        let from = base.wrapping_add(at_byte);
                        if len > 0 && result.is_ok() {
                            // SAFETY: `spans` stays inside the ring's pages.
                            let taken = unsafe { memory::copy_in(sender.memory.at(at), from, len) };
                            result = result.and_then(|all| taken.map(|()| all));
                        }
                        at_byte += len;
                    }
                });
                result
            }
            Source::File { fd, offset, .. } => {
                let mut done = 0;
                for (at, len) in sender.spans(write, 0, len) {
                    if len == 0 {
                        break;
                    }
                    let from = offset + (self.done + done) as i64;
                    // SAFETY: `spans` stays inside the ring's pages.
                    let ret = unsafe { call!(pread64, fd, sender.memory.at(at), len, from) };
                    if ret < 0 && done == 0 {
                        return Err(ret);
                    }
                    done += ret.max(0) as usize;
                    if ret < len as Ret {
                        break;
                    }
                }
                Ok(done)
            }
        }
    }

    fn note_cpu(&self, sender: &Sender<'_, Pages>) {
        let cpu = spin::cpu();
        if sender.block.sender_cpu() != cpu {
            sender.block.set_sender_cpu(cpu);
        }
    }

    /// A ring that is full again and again should be larger. The receiver gives a larger one
    /// with its next offer, so the direction has to be parked once.
    fn wants_growth(&self, sender: &Sender<'_, Pages>) -> bool {
        let conn = self.conn;
        if sender.class() >= conn.max_class() {
            return false;
        }
        let full = conn.tx.full.fetch_add(1, Ordering::Relaxed) + 1;
        if full == FULL_BEFORE_GROWTH {
            sender.want_class(conn.max_class());
        }
        // The broker has to be asked by the other side first: try now and then.
        full >= FULL_BEFORE_GROWTH && full.is_power_of_two() && full > 4
    }

    /// Tries without sleeping, under the lock; what is left may have to sleep outside it.
    fn by_tcp(&mut self, sender: &Sender<'_, Pages>) -> Found<Option<Ret>> {
        let conn = self.conn;
        if self.is_passed_by() {
            return self.passed_by();
        }
        conn.apply_cork(self.fd);
        // sendfile has no flag to say that it shall not wait.
        let may_wait = matches!(self.from, Source::File { .. }) && self.blocks();
        let ret = if may_wait { -(EAGAIN as Ret) } else { self.kernel(self.flags | MSG_DONTWAIT) };
        if ret > 0 {
            self.sent(sender, ret);
            if self.done == self.from.len_bytes() || !self.blocks() {
                return answer(self.done as Ret);
            }
        } else if ret != -(EAGAIN as Ret) || !self.blocks() {
            return answer(self.result(ret));
        }
        conn.side().tx.kernel_senders.fetch_add(1, Ordering::SeqCst);
        Found::Asleep
    }

    fn sent(&mut self, sender: &Sender<'_, Pages>, ret: Ret) {
        self.done += ret as usize;
        self.conn.tx.tcp_sent_at.store(clock::ticks(), Ordering::Relaxed);
        self.conn.side().tx.tcp_bytes.add(ret as u64);
        let more = u32::from(self.flags & MSG_MORE != 0);
        self.conn.tx.more_follows.store(more, Ordering::Relaxed);
        self.note_cpu(sender);
        sender.hint();
    }

    /// The rest in libc's send, without the lock; nobody opens the direction meanwhile.
    fn sleep_in_send(&mut self) -> Found<Option<Ret>> {
        // A file goes on in the kernel: sendfile cannot be told not to wait.
        let looks_again = self.done > 0 && matches!(self.from, Source::Buffers(_));
        let mut tried = self.from.len_bytes() - self.done;
        let ret = match self.from {
            _ if self.handled.ends_call(self.fd, self.done, sys::SO_SNDTIMEO) => -(EINTR as Ret),
            // A handler that restarts calls ends one that has moved something.
            _ if looks_again => tcp::sleep_until(self.fd, sys::POLLOUT, sys::SO_SNDTIMEO),
            Source::Buffers(buffers) => {
                let mut pieces = [NO_PIECE; 16];
                let left = buffers.len_bytes - self.done;
                let pieces = buffers.rest(self.done, left, &mut pieces);
                tried = pieces.iter().map(|piece| piece.len).sum();
                libc_send(self.fd, pieces, self.flags)
            }
            Source::File { .. } => self.kernel(self.flags),
        };
        let Ok(_guard) = self.lock() else {
            return answer(self.result(ret));
        };
        self.conn.side().tx.kernel_senders.fetch_sub(1, Ordering::SeqCst);
        if ret > 0 && looks_again {
            return Found::Part;
        }
        if ret > 0 {
            let sender = self.conn.sender();
            self.sent(&sender, ret);
        }
        // There were more pieces than one send takes.
        let goes_on = ret == tried as Ret && self.done < self.from.len_bytes();
        if goes_on { Found::Part } else { answer(self.result(ret)) }
    }

    /// One send in the kernel of what is left.
    fn kernel(&self, flags: c_int) -> Ret {
        match self.from {
            Source::Buffers(buffers) => {
                let mut pieces = [NO_PIECE; 16];
                let left = buffers.len_bytes - self.done;
                let pieces = buffers.rest(self.done, left, &mut pieces);
                raw_send(self.fd, pieces, flags)
            }
            Source::File { fd, offset, len_bytes } => {
                let mut offset = offset + self.done as i64;
                // SAFETY: `offset` is ours. sendfile waits as the descriptor's flags say.
                unsafe { call!(sendfile, self.fd, fd, &raw mut offset, len_bytes - self.done) }
            }
        }
    }

    fn result(&self, ret: Ret) -> Ret {
        if self.done > 0 { self.done as Ret } else { ret }
    }
}

impl Interests for Call<'_> {
    /// `None`: libc's.
    type Answer = Option<Ret>;

    fn look(&mut self, budget: Option<&Budget>) -> Found<Option<Ret>> {
        let before = self.done;
        match self.step(budget.is_some_and(Budget::is_spent)) {
            Ok(Found::Nothing) if self.done > before => Found::Part,
            Ok(found) => found,
            Err(Unlocked::Gone) if self.done > 0 => answer(self.done as Ret),
            Err(Unlocked::Gone) => Found::Answer(None),
            Err(Unlocked::Reentered) => {
                let sender = self.conn.sender();
                sender.park_interrupted();
                let ret = self.kernel(self.flags);
                sender.hint();
                answer(ret)
            }
        }
    }

    fn budget(&mut self) -> Budget {
        let watches = !spin::is_off() && spin::allows_watch(&self.conn.tx.spin);
        if watches { spin::budget() } else { Budget::new(0) }
    }

    fn is_watchable(&self) -> bool {
        !self.handled.is_past()
    }

    /// Waits awake for the receiver to make room.
    fn watch(&mut self, budget: &mut Budget) -> Watched {
        self.has_watched = true;
        let conn = self.conn;
        // Gone, as a look will tell.
        let Some(_pin) = conn.pin(self.fd) else { return Watched::GaveWay };
        let sender = conn.sender();
        let head = sender.head_raw();
        let word = sender.block.word_raw();
        let stirs = || sender.head_raw() != head || sender.block.word_raw() != word;
        let watched = spin::watch(budget, || sender.block.receiver_cpu(), stirs);
        if watched == Watched::InVain {
            conn.tx.spin.was_vain(clock::ticks());
        }
        watched
    }

    /// The ring is full, and nobody waits for it any longer.
    fn park(&mut self) -> Found<Option<Ret>> {
        self.look(Some(&Budget::new(0)))
    }

    fn sleep(&mut self) -> Found<Option<Ret>> {
        self.sleep_in_send()
    }
}

const fn answer(ret: Ret) -> Found<Option<Ret>> {
    Found::Answer(Some(ret))
}

fn raw_send(fd: c_int, pieces: &mut [sys::IoVec], flags: c_int) -> Ret {
    if let [one] = pieces {
        // SAFETY: the program's buffer.
        return unsafe { call!(sendto, fd, one.base, one.len, flags, 0, 0) };
    }
    let msg = recv::message(pieces);
    // SAFETY: the program's buffers.
    unsafe { call!(sendmsg, fd, &raw const msg, flags) }
}

/// libc's send: sleeps, is cancelled, restarts, raises SIGPIPE as the program's own would.
fn libc_send(fd: c_int, pieces: &mut [sys::IoVec], flags: c_int) -> Ret {
    let ret = if let [one] = pieces {
        // SAFETY: the program's buffer.
        unsafe { real::send(fd, one.base, one.len, flags) }
    } else {
        let msg = recv::message(pieces);
        // SAFETY: the program's buffers.
        unsafe { real::sendmsg(fd, &raw const msg, flags) }
    };
    if ret < 0 { -(sys::errno() as Ret) } else { ret }
}
