//! Receiving on a connection with a channel.
//!
//! Storey 5: calls.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_call::answer;
use yasmin_call::receive::{Ahead, Asks, Receive, Sleep, Source};
use yasmin_ring::{Broken, Pages, Receiver, View};
use yasmin_wire::State;

use crate::conn::{Conn, Unlocked};
use crate::iov::{Buffers, By, Vectors};
use crate::life::Ends;
use crate::lock::Guard;
use crate::signals::Handled;
use crate::spin::{Budget, Found, Interests, Watched};
use crate::sys::{self, EAGAIN, EINTR, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use crate::sys::{IoVec, MsgHdr, Ret, call};
use crate::table::Way;
use crate::{
    clock, config, entry, filter, holders, in_flight, life, memory, offer, process, real, residue,
    set, spin, tcp,
};

/// How often a receiver that only watches the ring looks at the kernel, in microseconds.
const LOOK_US: u64 = 500;

/// recv in all its forms. `None`: not for this library (any more); libc does it.
pub fn recv(conn: &'static Conn, fd: c_int, to: Buffers<'_>, flags: c_int) -> Option<Ret> {
    if flags & (sys::MSG_OOB | sys::MSG_ERRQUEUE) != 0 {
        if flags & sys::MSG_OOB != 0 {
            conn.park_for_good(fd);
        }
        return None;
    }
    if to.is_refused() {
        // The kernel says so before it looks for bytes.
        return None;
    }
    if to.len_bytes == 0 {
        return nothing(conn, fd, flags);
    }
    // It stands behind what the ring has: a peek may have found it.
    if conn.rx.error.load(Ordering::Relaxed) != 0 && ring_unread(conn, fd) == 0 {
        let error = conn.rx.error.swap(0, Ordering::Relaxed) as Ret;
        if error != 0 {
            return Some(-error);
        }
    }
    let handled = Handled::now();
    let least_bytes = match flags & MSG_WAITALL {
        0 => to.len_bytes.min(conn.low_water() as usize),
        _ => to.len_bytes,
    };
    let peeks = flags & MSG_PEEK != 0;
    let found = once(conn, fd, to, flags, if peeks { 1 } else { least_bytes })?;
    if peeks && found > 0 && (found as usize) < least_bytes && !handled.is_past() {
        return peek_at_more(conn, fd, to, flags, least_bytes).or(Some(found));
    }
    Some(found)
}

/// One receive. A peek ends with the first bytes that there are.
fn once(
    conn: &'static Conn,
    fd: c_int,
    to: Buffers<'_>,
    flags: c_int,
    least_bytes: usize,
) -> Option<Ret> {
    let asks = Asks {
        len_bytes: to.len_bytes,
        // Not before the lock is held.
        blocks: false,
        peeks: flags & MSG_PEEK != 0,
        least_bytes,
    };
    let (handled, id) = (Handled::now(), conn.id.load(Ordering::Relaxed));
    let cookie = conn.cookie();
    let io = Io { conn, fd, to, flags, sleep: Sleep::Recv, fate: None };
    let mut call = Call { io, receive: Receive::new(asks), awaits: None, handled, id, cookie };
    let ret = spin::wait(&mut call);
    if let Some(why) = call.io.fate {
        life::renew(conn, fd, why);
    }
    ret
}

/// A peek found less than it waits for. Nothing more comes by ring while the thread sleeps, so the
/// kernel tells when the rest is there, the stream ends, or the time is over. `None`: it cannot wait.
fn peek_at_more(
    conn: &'static Conn,
    fd: c_int,
    to: Buffers<'_>,
    flags: c_int,
    least_bytes: usize,
) -> Option<Ret> {
    if flags & MSG_DONTWAIT != 0 || process::is_sandboxed() {
        return None;
    }
    let in_ring = {
        // The first look may have been the channel's last.
        let _rx = conn.lock_rx(fd).ok()?;
        let receiver = conn.receiver();
        if conn.is_nonblocking() || !conn.park_rx(&receiver) {
            return None;
        }
        conn.side().rx.sleepers.fetch_add(1, Ordering::SeqCst);
        receiver.unread_bytes() as usize
    };
    if in_ring < least_bytes {
        // Handlers end it, restarting or not, as they end a call that has something.
        await_bytes(fd, least_bytes - in_ring);
    }
    if let Ok(_rx) = conn.lock_rx(fd) {
        let sleepers = &conn.side().rx.sleepers;
        let _ = sleepers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    }
    once(conn, fd, to, flags | MSG_DONTWAIT, 1).filter(|found| *found > 0)
}

/// Until TCP has so many, the stream ends, a handler ran, or SO_RCVTIMEO is over. Of fewer the kernel tells
/// at once: then this naps. SO_RCVLOWAT would stay with the socket if the program jumped out of a handler.
fn await_bytes(fd: c_int, bytes: usize) {
    let (limit, start) = (tcp::timeout(fd, sys::SO_RCVTIMEO), clock::Since::now());
    loop {
        let (unread, left) = (tcp::unread(fd), limit.less(&start));
        if unread >= bytes || left.is_now() {
            return;
        }
        let found = if unread == 0 {
            tcp::poll(fd, sys::POLLIN | sys::POLLRDHUP, left)
        } else {
            tcp::poll(fd, sys::POLLRDHUP, left.nap())
        };
        let is_over = found > 0 && found & !Ret::from(sys::POLLIN) != 0;
        if is_over || found < 0 && found != -(EAGAIN as Ret) {
            return;
        }
    }
}

/// A receive of no bytes waits until there are some, and leaves them.
fn nothing(conn: &'static Conn, fd: c_int, flags: c_int) -> Option<Ret> {
    if ring_unread(conn, fd) > 0 {
        return Some(0);
    }
    // What TCP has the kernel tells, an error only where no byte stands before it.
    let has_error = conn.rx.error.load(Ordering::Relaxed) != 0;
    if !has_error && (process::is_sandboxed() || tcp::ahead(fd) != Ahead::Nothing) {
        return None;
    }
    let mut byte = 0u8;
    let one = sys::IoVec { base: &raw mut byte, len: 1 };
    let ret = recv(conn, fd, Buffers::one(&one), flags & MSG_DONTWAIT | MSG_PEEK)?;
    // There is no byte: the kernel, which will not wait, may have something else to tell.
    (ret != -(EAGAIN as Ret)).then_some(ret.min(0))
}

/// A receive under way.
struct Call<'a> {
    io: Io<'a>,
    receive: Receive,
    /// Since when it has waited for TCP bytes that must come first.
    awaits: Option<clock::Since>,
    /// Signals that this thread had handled when the call began.
    handled: Handled,
    /// The connection that the call began on: another thread may close it, and memory and
    /// number may serve another one by the time this call looks again.
    id: u64,
    /// And its socket: who has made plain TCP of it has not closed that.
    cookie: u64,
}

impl Call<'_> {
    fn lock(&self) -> Result<Guard<'static>, Unlocked> {
        let conn = self.io.conn;
        let guard = conn.lock_rx(self.io.fd)?;
        if conn.id.load(Ordering::Relaxed) == self.id { Ok(guard) } else { Err(Unlocked::Gone) }
    }

    /// One hold of the lock.
    fn step(&mut self, is_spent: bool) -> Result<Found<Option<Ret>>, Unlocked> {
        let _guard = self.lock()?;
        self.receive.asks.blocks = self.io.blocks();
        let conn = self.io.conn;
        let receiver = conn.receiver();
        if config::chaos() {
            conn.park_rx(&receiver);
        }
        if conn.is_shared() && conn.has_moved() {
            // Another process has passed them on, and what follows may not be read before them.
            tcp::reset(self.io.fd);
        }
        if conn.is_shared() && !receiver.is_never() && !holders::owns_rx(&conn.side().rx) {
            // They take turns: once it is drained the kernel serves them, without a lock.
            receiver.never_offer();
            conn.park_rx(&receiver);
        }
        Ok(self.receive.step(&mut Locked { io: &mut self.io, receiver }, is_spent))
    }

    /// Sleeps in libc's recv, parked, without limit.
    fn sleep_in_recv(&mut self) -> Found<Option<Ret>> {
        let (fd, done) = (self.io.fd, self.receive.done);
        let goes_on = done > 0 && !process::is_sandboxed();
        let ret = if self.handled.ends_call(fd, done, sys::SO_RCVTIMEO) {
            -(EINTR as Ret)
        } else if goes_on {
            // A handler that restarts calls ends one that has moved something: the kernel
            // would not know that this one has.
            // Under SO_RCVLOWAT until as many come anew, as the kernel does.
            tcp::sleep_until(fd, sys::POLLIN, sys::SO_RCVTIMEO)
        } else {
            self.io.libc_recv(done)
        };
        let Ok(_rx) = self.lock() else {
            return answer(if done > 0 { self.goes_on() } else { ret });
        };
        let conn = self.io.conn;
        let side = conn.side();
        side.rx.sleepers.fetch_sub(1, Ordering::SeqCst);
        if !goes_on && ret > 0 && !self.receive.asks.peeks {
            side.rx.tcp_bytes.add(ret as u64);
            self.io.ends_channel(conn.reads_seldom());
        }
        let mut locked = Locked { io: &mut self.io, receiver: conn.receiver() };
        if goes_on {
            return self.receive.slept_for_more(&mut locked, ret);
        }
        self.receive.slept(&mut locked, ret)
    }

    /// Another thread has closed the number, or given the channel back: its memory is gone. In the second case a
    /// call that has something receives on from the kernel: what is there, since a program with an edge-triggered
    /// set takes a short receive for the last, and for as long as it waits. Gives what it has in the end.
    fn goes_on(&self) -> Ret {
        let (fd, mut done, asks) = (self.io.fd, self.receive.done, &self.receive.asks);
        let waits = self.io.flags & MSG_DONTWAIT == 0 && !tcp::is_nonblocking(fd);
        let is_ready = |done: usize| {
            let is_short = waits && done < asks.least_bytes;
            !is_short || tcp::sleep_until(fd, sys::POLLIN, sys::SO_RCVTIMEO) > 0
        };
        // A peek would begin anew.
        while done < asks.len_bytes
            && !asks.peeks
            && !self.handled.is_past()
            && entry::conn_of(fd).is_none()
            && tcp::cookie(fd) == Some(self.cookie)
            && is_ready(done)
            && !tcp::is_at_error(fd)
        {
            let mut vectors = Vectors::new();
            let pieces = self.io.to.rest(done, asks.len_bytes - done, &mut vectors);
            match usize::try_from(in_flight::goes_on(fd, Way::In, || self.io.recv_now(pieces))) {
                Ok(len @ 1..) => done += len,
                _ => break,
            }
        }
        done as Ret
    }

    /// Naps until TCP has something, and leaves it there. `Part`: look again.
    fn await_tcp(&mut self) -> Found<Option<Ret>> {
        let (fd, done) = (self.io.fd, self.receive.done);
        let ends = |error: i32| answer(if done > 0 { done as Ret } else { -(error as Ret) });
        if process::is_sandboxed() {
            // It waited already.
            return ends(EAGAIN);
        }
        if self.handled.ends_call(fd, done, sys::SO_RCVTIMEO) {
            return ends(EINTR);
        }
        let start = self.awaits.get_or_insert_with(clock::Since::now);
        let left = tcp::timeout(fd, sys::SO_RCVTIMEO).less(start);
        if left.is_now() {
            return ends(EAGAIN);
        }
        tcp::poll(fd, sys::POLLIN, left.nap());
        Found::Part
    }

    /// Waits for the first byte at `offset`, behind everything that is there; the kernel knows
    /// where that is.
    fn peek_beyond(&self, offset: usize) -> Ret {
        let ret = self.io.libc_recv(0);
        tcp::set_peek_offset(self.io.fd, offset + usize::try_from(ret).unwrap_or(0));
        ret
    }
}

impl Interests for Call<'_> {
    /// `None`: libc's.
    type Answer = Option<Ret>;

    fn look(&mut self, budget: Option<&Budget>) -> Found<Option<Ret>> {
        let before = self.receive.done;
        let found = self.step(budget.is_some_and(Budget::is_spent));
        let done = self.receive.done;
        if done > before {
            set::shown::was_read(self.io.conn, self.io.fd);
        }
        match found {
            Ok(Found::Nothing) if done > before => Found::Part,
            Ok(found) => found,
            Err(Unlocked::Gone) if done > 0 => answer(self.goes_on()),
            Err(Unlocked::Gone) => Found::Answer(None),
            // A handler's: there is nothing for it until its thread goes on.
            Err(Unlocked::Reentered) if self.io.blocks() => answer(-(EINTR as Ret)),
            Err(Unlocked::Reentered) => answer(-(EAGAIN as Ret)),
        }
    }

    fn budget(&mut self) -> Budget {
        if spin::is_off() { Budget::new(0) } else { spin::budget() }
    }

    fn is_watchable(&self) -> bool {
        !self.handled.is_past()
    }

    fn watch(&mut self, budget: &mut Budget) -> Watched {
        let (conn, fd) = (self.io.conn, self.io.fd);
        // Gone, as a look will tell.
        let Some(_pin) = conn.pin(fd) else { return Watched::GaveWay };
        let receiver = conn.receiver();
        let stirs = || {
            let may_be_tcp = receiver.state_seen() == State::Offered && receiver.is_hinted();
            receiver.stirs() || may_be_tcp || !conn.is_at(fd)
        };
        let watched = spin::watch(budget, || receiver.block.sender_cpu(), stirs);
        match watched {
            Watched::Stirs => conn.rx.spin.won(),
            Watched::InVain => conn.rx.spin.was_vain(clock::ticks()),
            Watched::GaveWay => {}
        }
        watched
    }

    /// Whether it worked or not, the next look tells.
    fn park(&mut self) -> Found<Option<Ret>> {
        if let Ok(_rx) = self.lock() {
            let is_telling = |receiver: &Receiver<'_, Pages>| receiver.has_ring_next();
            let _ = self.io.conn.park_to_sleep(self.io.fd, is_telling);
        }
        Found::Nothing
    }

    fn sleep(&mut self) -> Found<Option<Ret>> {
        match self.io.sleep {
            Sleep::Recv => self.sleep_in_recv(),
            Sleep::Tcp => self.await_tcp(),
            Sleep::Beyond { offset } => answer(self.peek_beyond(offset)),
        }
    }
}

/// What a receive works on.
struct Io<'a> {
    conn: &'static Conn,
    fd: c_int,
    to: Buffers<'a>,
    flags: c_int,
    /// What it sleeps for, when it does.
    sleep: Sleep,
    /// Why the channel ends with this call.
    fate: Option<Ends>,
}

impl Io<'_> {
    /// Bytes came by TCP.
    fn ends_channel(&mut self, is_seldom: bool) {
        self.fate = self.fate.or_else(|| Ends::of(self.conn, is_seldom));
    }

    /// Under the lock, or in a handler that interrupted its holder.
    fn blocks(&self) -> bool {
        self.flags & MSG_DONTWAIT == 0 && !self.conn.is_nonblocking()
    }

    /// One recv in the kernel that does not wait, into what is left of the buffers.
    fn recv_now(&self, pieces: &mut [IoVec]) -> Ret {
        if process::is_sandboxed() {
            return own_recv(self.fd, pieces, self.to.by, self.flags & !MSG_WAITALL);
        }
        raw_recv(self.fd, pieces, (self.flags | MSG_DONTWAIT) & !MSG_WAITALL)
    }

    /// libc's, which may sleep, of a call that has received `done` bytes.
    fn libc_recv(&self, done: usize) -> Ret {
        let mut vectors = Vectors::new();
        let pieces = self.to.rest(done, self.to.len_bytes - done, &mut vectors);
        if process::is_sandboxed() {
            return own_recv(self.fd, pieces, self.to.by, self.flags);
        }
        libc_recv(self.fd, pieces, self.flags)
    }
}

/// The same under the receive lock.
struct Locked<'a, 'b> {
    io: &'a mut Io<'b>,
    receiver: Receiver<'static, Pages>,
}

impl Source for Locked<'_, '_> {
    fn look(&mut self) -> Result<View, Broken> {
        let conn = self.io.conn;
        let view = self.receiver.look(|| conn.read_position());
        match view {
            Ok(View::Ring { unread_bytes }) => {
                if self.io.flags & MSG_PEEK != 0 {
                    // It may come again until it finds as many as it needs.
                    filter::takes_off(conn, self.io.fd);
                }
                conn.rx.spin.won();
                conn.note_ring_read(unread_bytes);
            }
            Ok(_) => {}
            Err(_) => tcp::reset(self.io.fd),
        }
        view
    }

    fn unread_bytes(&self) -> usize {
        self.receiver.unread_bytes() as usize
    }

    fn is_parked(&self) -> bool {
        self.receiver.state_seen() == State::Parked
    }

    /// See `send`.
    fn is_never(&self) -> bool {
        self.receiver.is_never() && !self.io.conn.comes_back()
    }

    fn park(&mut self) {
        self.receiver.park();
    }

    fn peek_offset(&self) -> Option<usize> {
        ring_offset(&self.receiver, self.io.fd)
    }

    fn set_peek_offset(&mut self, offset: usize) {
        tcp::set_peek_offset(self.io.fd, offset);
    }

    fn copy(&mut self, at: usize, skip: usize, most: usize) -> Result<usize, Ret> {
        let mut result = Ok(());
        if self.io.flags & MSG_TRUNC == 0 {
            if self.is_parked() && !self.is_whole(at + most, most) {
                return Err(-(sys::EFAULT as Ret));
            }
            self.io.to.each(at, most, |base, len, done| {
                let skip = (skip + done) as u32;
                result = result.and_then(|()| give(&self.receiver, skip, base, len));
            });
        }
        result.map(|()| most)
    }

    fn consume(&mut self, len: usize) {
        let offset = ring_offset(&self.receiver, self.io.fd);
        self.receiver.consume(len as u32);
        if let Some(offset) = offset {
            tcp::set_peek_offset(self.io.fd, offset.saturating_sub(len));
        }
        self.io.conn.follow_low_water(self.io.fd);
        self.io.conn.side().rx.ring_bytes.add(len as u64);
        if self.receiver.is_never() && self.receiver.unread_bytes() == 0 {
            residue::drained(self.io.conn, self.io.fd);
        }
        let cpu = self.io.conn.shown_cpu();
        if self.receiver.block.receiver_cpu() != cpu {
            self.receiver.block.set_receiver_cpu(cpu);
        }
    }

    fn take_tcp(&mut self, at: usize, most: usize) -> Ret {
        let mut vectors = Vectors::new();
        let pieces = self.io.to.rest(at, most, &mut vectors);
        // What the peer sends after this read raises the hint again.
        self.receiver.hinted();
        let ret = self.io.recv_now(pieces);
        let conn = self.io.conn;
        let mut is_seldom = false;
        if ret > 0 && self.io.flags & MSG_PEEK == 0 {
            self.receiver.took_tcp(ret as u64);
            conn.side().rx.tcp_bytes.add(ret as u64);
            is_seldom = conn.reads_seldom();
        }
        self.io.ends_channel(is_seldom);
        if process::is_sandboxed() && at > 0 && ret < 0 && ret != -(EAGAIN as Ret) {
            // Nothing could say so before, and this call has something.
            self.keep(ret);
        }
        ret
    }

    /// The kernel looks from the first unread byte on: those come once more, to where they are.
    fn peek_past(&mut self, at: usize, before: usize) -> usize {
        let to = &self.io.to;
        let mut vectors = Vectors::new();
        let pieces = to.parts([(0, before), (at, to.len_bytes - at)], &mut vectors);
        if pieces.iter().map(|piece| piece.len).sum::<usize>() < before {
            return 0;
        }
        let ret = self.io.recv_now(pieces);
        usize::try_from(ret).unwrap_or(0).saturating_sub(before)
    }

    fn ahead(&mut self) -> Ahead {
        if process::is_sandboxed() {
            // One that would wait may not try.
            return if self.io.blocks() { Ahead::Nothing } else { Ahead::Bytes };
        }
        tcp::ahead(self.io.fd)
    }

    fn is_dry(&self) -> bool {
        self.io.conn.rx.tcp_dry.load(Ordering::Relaxed) != 0 && !self.receiver.is_hinted()
    }

    fn may_have_tcp(&mut self, state: State) -> bool {
        let (conn, fd) = (self.io.conn, self.io.fd);
        if state == State::Offered {
            return sys::poll_now(fd, sys::POLLIN | sys::POLLPRI | sys::POLLRDHUP) != 0;
        }
        let told = set::kernel::kernel_told();
        let is_news = conn.rx.told_seen.swap(told, Ordering::Relaxed) != told;
        (is_news || conn.due(&conn.rx.looked_at, LOOK_US)) && tcp::is_over(fd)
    }

    fn offer(&mut self, is_dry: bool) {
        let conn = self.io.conn;
        conn.rx.tcp_dry.store(u32::from(is_dry), Ordering::Relaxed);
        offer::offer(conn, self.io.fd, &self.receiver);
    }

    fn may_watch(&mut self) -> bool {
        !spin::is_off() && self.receiver.may_offer() && spin::allows_watch(&self.io.conn.rx.spin)
    }

    fn falls_asleep(&mut self, sleep: Sleep) {
        self.io.sleep = sleep;
        if matches!(sleep, Sleep::Recv) {
            self.io.conn.side().rx.sleepers.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn ends(&mut self) {
        self.receiver.never_offer();
        self.io.conn.park_tx_for_good(self.io.fd);
    }

    fn keep(&mut self, error: Ret) {
        // The kernel has told it, and tells it once.
        self.io.conn.rx.error.store(-error as u32, Ordering::Relaxed);
    }
}

impl Locked<'_, '_> {
    /// Whether what TCP has behind `taken` ring bytes can be written from `at` on, as far as it
    /// would be copied at once with them.
    fn is_whole(&self, at: usize, taken: usize) -> bool {
        let to = &self.io.to;
        let len = memory::AT_ONCE.saturating_sub(taken).min(to.len_bytes - at);
        let good = |base, len| memory::is_writable(base, len);
        len == 0 || process::is_sandboxed() || to.are(at, len.min(tcp::unread(self.io.fd)), good)
    }
}

/// SO_PEEK_OFF, where it counts from a byte in front of the ring's unread ones or one of them.
/// The program set it meanwhile: with it a connection is parked for good.
pub fn ring_offset(receiver: &Receiver<'_, Pages>, fd: c_int) -> Option<usize> {
    let may_be = receiver.is_never() && receiver.unread_bytes() > 0 && !process::is_sandboxed();
    if may_be { tcp::peek_offset(fd) } else { None }
}

/// From the ring to the program's memory.
fn give(receiver: &Receiver<'_, Pages>, skip: u32, base: *mut u8, len: usize) -> Result<(), Ret> {
    let mut done = 0;
    for (place, len) in receiver.spans(skip, len) {
        if len > 0 {
            let from = receiver.memory.at(place);
            // SAFETY: `spans` stays inside the ring's pages.
            unsafe { memory::copy_out(base.wrapping_add(done), from, len)? };
        }
        done += len;
    }
    Ok(())
}

fn raw_recv(fd: c_int, pieces: &mut [sys::IoVec], flags: c_int) -> Ret {
    if let [one] = pieces {
        // SAFETY: the program's buffer.
        return unsafe { call!(recvfrom, fd, one.base, one.len, flags, 0, 0) };
    }
    let mut msg = message(pieces);
    // SAFETY: the program's buffers.
    unsafe { call!(recvmsg, fd, &raw mut msg, flags) }
}

/// The program's own system call, for the rest of its buffers.
fn own_recv(fd: c_int, pieces: &mut [IoVec], by: By, flags: c_int) -> Ret {
    let (first, count) = (pieces.as_mut_ptr(), pieces.len());
    match (by, &*pieces) {
        // SAFETY: the program's buffers.
        (By::Read, [one]) => unsafe { call!(read, fd, one.base, one.len) },
        // SAFETY: as above.
        (By::Read, _) => unsafe { call!(readv, fd, first, count) },
        (By::Recv, _) => raw_recv(fd, pieces, flags),
        (By::Message, _) => {
            let mut msg = message(pieces);
            // SAFETY: as above.
            unsafe { call!(recvmsg, fd, &raw mut msg, flags) }
        }
    }
}

/// libc's recv: sleeps, is cancelled, restarts as the program's own would.
fn libc_recv(fd: c_int, pieces: &mut [sys::IoVec], flags: c_int) -> Ret {
    let ret = if let [one] = pieces {
        // SAFETY: the program's buffer.
        unsafe { real::recv(fd, one.base, one.len, flags) }
    } else {
        let mut msg = message(pieces);
        // SAFETY: the program's buffers.
        unsafe { real::recvmsg(fd, &raw mut msg, flags) }
    };
    if ret < 0 { -(sys::errno() as Ret) } else { ret }
}

/// Bytes that a read gives before those that TCP has without limit.
pub fn before_tcp(conn: &'static Conn, fd: c_int) -> u32 {
    let Ok(_rx) = conn.lock_rx(fd) else { return 0 };
    match conn.receiver().look(|| conn.read_position()) {
        Ok(View::Ring { unread_bytes }) => unread_bytes,
        Ok(View::TcpUpTo { limit_bytes }) => u32::try_from(limit_bytes).unwrap_or(u32::MAX),
        _ => 0,
    }
}

/// What TCP_INQ tells: bytes that are unread, in the ring and in the kernel, and the peer's FIN as
/// one more, so that the program goes on to read.
pub fn inquiry(conn: &'static Conn, fd: c_int) -> c_int {
    let has_fin = || c_int::from(tcp::is_ended(fd));
    let Ok(_rx) = conn.lock_rx(fd) else { return sys::int_ioctl(fd, sys::FIONREAD) + has_fin() };
    let receiver = conn.receiver();
    let in_ring = match receiver.look(|| conn.read_position()) {
        // While it is open and TCP's bytes before the ring's are read, TCP has none.
        Ok(View::Ring { .. } | View::Empty { .. }) if receiver.state_seen() == State::Open => {
            return receiver.unread_bytes() as c_int + has_fin();
        }
        Ok(_) => receiver.unread_bytes() as c_int,
        Err(_) => return has_fin(),
    };
    if ring_offset(&receiver, fd).is_some() {
        // A peek would move where the next one begins.
        return sys::int_ioctl(fd, sys::FIONREAD).saturating_add(in_ring) + has_fin();
    }
    match tcp::inquiry(fd) {
        Ok(in_tcp) => in_tcp.saturating_add(in_ring),
        Err(error) => {
            conn.rx.error.store(-error as u32, Ordering::Relaxed);
            in_ring + has_fin()
        }
    }
}

/// Ring bytes that are unread.
pub fn ring_unread(conn: &'static Conn, fd: c_int) -> c_int {
    ring_counts(conn, fd).map_or(0, |(_, unread)| unread as c_int)
}

/// Bytes that were read from the ring, and that are unread there.
pub fn ring_counts(conn: &'static Conn, fd: c_int) -> Option<(u64, u32)> {
    let _rx = conn.lock_rx(fd).ok()?;
    let receiver = conn.receiver();
    let unread = match receiver.look(|| conn.read_position()) {
        Ok(_) => receiver.unread_bytes(),
        Err(_) => 0,
    };
    Some((conn.side().rx.ring_bytes.get(), unread))
}

pub fn message(pieces: &mut [sys::IoVec]) -> MsgHdr {
    MsgHdr {
        name: core::ptr::null_mut(),
        namelen: 0,
        iov: pieces.as_mut_ptr(),
        iovlen: pieces.len(),
        control: core::ptr::null_mut(),
        controllen: 0,
        flags: 0,
    }
}
