//! Receiving on a connection with a channel.
//!
//! Storey 5: calls.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_ring::{Pages, Phase, Receiver, View};
use yasmin_wire::State;

use crate::conn::{Conn, Unlocked};
use crate::iov::{Buffers, NO_PIECE};
use crate::lock::Guard;
use crate::signals::Handled;
use crate::spin::{Budget, Found, Interests, Watched};
use crate::sys::{
    self, EAGAIN, ECONNRESET, EFAULT, EINTR, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
};
use crate::sys::{IoVec, MsgHdr, Ret, call};
use crate::tcp::Ahead;
use crate::{clock, config, holders, memory, offer, real, set, spin, tcp};

/// How often a receiver that only watches the ring looks at the kernel, in microseconds.
const LOOK_US: u64 = 500;

/// What a receive waits for in the kernel.
#[derive(Clone, Copy)]
enum Sleep {
    /// The next bytes, in libc's own recv. The thread is counted as a sleeper.
    Recv,
    /// TCP bytes that must come first and are under way.
    Tcp,
    /// The first byte at `offset`, behind everything unread, for who peeks there.
    Beyond { offset: usize },
}

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
    if conn.rx.error.load(Ordering::Relaxed) != 0 {
        let error = conn.rx.error.swap(0, Ordering::Relaxed) as Ret;
        if error != 0 {
            return Some(-error);
        }
    }
    let handled = Handled::now();
    let id = conn.id.load(Ordering::Relaxed);
    let (sleep, awaits) = (Sleep::Recv, None);
    spin::wait(&mut Call { conn, fd, to, flags, done: 0, sleep, awaits, handled, id })
}

/// A receive of no bytes waits until there are some, and leaves them.
fn nothing(conn: &'static Conn, fd: c_int, flags: c_int) -> Option<Ret> {
    if ring_unread(conn, fd) > 0 {
        return Some(0);
    }
    // What TCP has the kernel tells, an error only where no byte stands before it.
    let has_error = conn.rx.error.load(Ordering::Relaxed) != 0;
    if !has_error && tcp::ahead(fd) != Ahead::Nothing {
        return None;
    }
    let mut byte = 0u8;
    let one = sys::IoVec { base: &raw mut byte, len: 1 };
    let ret = recv(conn, fd, Buffers::one(&one), flags & MSG_DONTWAIT | MSG_PEEK)?;
    // There is no byte: the kernel, which will not wait, may have something else to tell.
    (ret != -(EAGAIN as Ret)).then_some(ret.min(0))
}

struct Call<'a> {
    conn: &'static Conn,
    fd: c_int,
    to: Buffers<'a>,
    flags: c_int,
    done: usize,
    /// What it sleeps for, when it does.
    sleep: Sleep,
    /// Since when it has waited for TCP bytes that must come first.
    awaits: Option<clock::Since>,
    /// Signals that this thread had handled when the call began.
    handled: Handled,
    /// The connection that the call began on: another thread may close it, and memory and
    /// number may serve another one by the time this call looks again.
    id: u64,
}

impl Call<'_> {
    fn lock(&self) -> Result<Guard<'static>, Unlocked> {
        let guard = self.conn.lock_rx(self.fd)?;
        let is_same = self.conn.id.load(Ordering::Relaxed) == self.id;
        if is_same { Ok(guard) } else { Err(Unlocked::Gone) }
    }

    fn blocks(&self) -> bool {
        self.flags & MSG_DONTWAIT == 0 && !self.conn.is_nonblocking()
    }

    fn peeks(&self) -> bool {
        self.flags & MSG_PEEK != 0
    }

    /// Everything that can be had without waiting, under one hold of the lock. `is_spent`: this
    /// call has watched long enough.
    fn step(&mut self, is_spent: bool) -> Result<Found<Option<Ret>>, Unlocked> {
        let conn = self.conn;
        let guard = self.lock()?;
        let receiver = conn.receiver();
        let blocks = self.blocks();
        let all = self.flags & MSG_WAITALL != 0 && !self.peeks();
        if config::chaos() {
            conn.park_rx(&receiver);
        }
        if conn.is_shared() && !receiver.is_never() && !holders::owns_rx(&conn.side().rx) {
            // They take turns: once it is drained the kernel serves them, without a lock.
            receiver.never_offer();
            conn.park_rx(&receiver);
        }
        loop {
            let left = self.to.len_bytes - self.done;
            let Ok(view) = receiver.look(|| conn.read_position()) else {
                drop(guard);
                return Ok(answer(self.broken()));
            };
            if self.peeks()
                && let Some(offset) = ring_offset(&receiver, self.fd)
            {
                return Ok(self.peek_from(offset, view, &receiver));
            }
            match view {
                View::Ring { unread_bytes } => {
                    conn.rx.spin.won();
                    conn.note_ring_read(unread_bytes);
                    let goes_on = match self.take_ring(&receiver, unread_bytes as usize) {
                        Ok(goes_on) => goes_on,
                        Err(fault) => return Ok(answer(self.result(fault))),
                    };
                    if !goes_on {
                        // What is peeked at in the ring and in TCP are one short read.
                        let left = self.to.len_bytes - self.done;
                        let goes_on = left > 0 && receiver.phase() == Phase::Parked;
                        if goes_on && tcp::ahead(self.fd) == Ahead::Bytes {
                            self.take_tcp(&receiver, left);
                        }
                        return Ok(answer(self.done as Ret));
                    }
                    if self.done == self.to.len_bytes {
                        return Ok(self.finish(&receiver));
                    }
                }
                View::TcpUpTo { limit_bytes } => {
                    let most = left.min(usize::try_from(limit_bytes).unwrap_or(left));
                    let ret = self.take_tcp(&receiver, most);
                    if ret == -(EAGAIN as Ret) {
                        if self.done > 0 && !all || !blocks {
                            return Ok(self.finish_with(&receiver, ret));
                        }
                        return Ok(self.sleeps(Sleep::Tcp));
                    }
                    let unread = receiver.unread_bytes() as usize;
                    let is_whole = u64::try_from(ret) == Ok(limit_bytes);
                    if self.peeks() && is_whole && unread > 0 && self.done < self.to.len_bytes {
                        // What is peeked at in TCP and in the ring are one short read.
                        if let Err(fault) = self.take_ring(&receiver, unread) {
                            return Ok(answer(self.result(fault)));
                        }
                        if receiver.phase() == Phase::Parked {
                            self.peek_past(limit_bytes as usize);
                        }
                        return Ok(answer(self.done as Ret));
                    }
                    // An end before what was promised: a reset took it, and what follows it is
                    // not in order. The stream ends here.
                    if ret <= 0 || self.peeks() || self.done == self.to.len_bytes {
                        return Ok(self.finish_with(&receiver, ret));
                    }
                }
                View::Tcp if receiver.is_never() && self.done == 0 => {
                    return Ok(Found::Answer(None));
                }
                View::Tcp => {
                    if self.done > 0 {
                        let ahead = tcp::ahead(self.fd);
                        // What the ring gave and what TCP has are one short read.
                        if !all && !self.peeks() && ahead == Ahead::Bytes {
                            self.take_tcp(&receiver, left);
                        }
                        if !all || ahead == Ahead::Stop {
                            return Ok(self.finish(&receiver));
                        }
                    }
                    if blocks && (is_spent || !self.may_watch(&receiver)) {
                        return Ok(self.fall_asleep());
                    }
                    let ret = self.take_tcp(&receiver, left);
                    if ret == -(EAGAIN as Ret) {
                        self.dry(true);
                        self.offer(&receiver);
                        if !blocks {
                            return Ok(answer(self.result(ret)));
                        }
                        if receiver.phase() == Phase::Parked {
                            return Ok(self.fall_asleep());
                        }
                        return Ok(Found::Nothing);
                    }
                    if ret <= 0 || !all || self.done == self.to.len_bytes {
                        return Ok(self.finish_with(&receiver, ret));
                    }
                }
                View::Empty { state } => {
                    if self.done > 0 && !all {
                        return Ok(answer(self.done as Ret));
                    }
                    if state == State::Offered && (!self.is_dry() || receiver.is_hinted()) {
                        receiver.park();
                        continue;
                    }
                    if blocks {
                        return Ok(Found::Nothing);
                    }
                    if !self.tcp_needs_a_look(&receiver, state) {
                        return Ok(answer(self.result(-(EAGAIN as Ret))));
                    }
                    receiver.park();
                }
            }
        }
    }

    /// Whether TCP has something that a read which finds the ring empty must not miss: an
    /// edge that the kernel told of is told once.
    fn tcp_needs_a_look(&self, receiver: &Receiver<'_, Pages>, state: State) -> bool {
        let conn = self.conn;
        if state == State::Offered {
            let wanted = sys::POLLIN | sys::POLLPRI | sys::POLLRDHUP;
            return receiver.hinted() || sys::poll_now(self.fd, wanted) != 0;
        }
        let told = set::kernel_told();
        let is_news = conn.rx.told_seen.swap(told, Ordering::Relaxed) != told;
        (is_news || conn.due(&conn.rx.looked_at, LOOK_US)) && tcp::is_over(self.fd)
    }

    /// Copies from the ring. False when a peek has seen all of it. A fault takes nothing, as
    /// with what TCP has queued together.
    fn take_ring(&mut self, receiver: &Receiver<'_, Pages>, unread: usize) -> Result<bool, Ret> {
        let offset = ring_offset(receiver, self.fd);
        let len = self.copy_ring(receiver, 0, unread)?;
        if self.peeks() {
            return Ok(false);
        }
        receiver.consume(len as u32);
        if let Some(offset) = offset {
            tcp::set_peek_offset(self.fd, offset.saturating_sub(len));
        }
        self.conn.side().rx.ring_bytes.add(len as u64);
        let cpu = spin::cpu();
        if receiver.block.receiver_cpu() != cpu {
            receiver.block.set_receiver_cpu(cpu);
        }
        Ok(true)
    }

    /// Copies up to `most` bytes that lie in the ring behind the first `skip` unread ones.
    fn copy_ring(
        &mut self,
        receiver: &Receiver<'_, Pages>,
        skip: usize,
        most: usize,
    ) -> Result<usize, Ret> {
        let len = most.min(self.to.len_bytes - self.done);
        let mut result = Ok(());
        if self.flags & MSG_TRUNC == 0 {
            self.to.each(self.done, len, |base, len, done| {
                result = result.and_then(|()| give(receiver, (skip + done) as u32, base, len));
            });
        }
        result?;
        self.done += len;
        Ok(len)
    }

    /// One recv in the kernel that does not wait. Under the lock.
    fn take_tcp(&mut self, receiver: &Receiver<'_, Pages>, most: usize) -> Ret {
        let mut pieces = [NO_PIECE; 16];
        let pieces = self.to.rest(self.done, most, &mut pieces);
        let flags = (self.flags | MSG_DONTWAIT) & !MSG_WAITALL;
        // What the peer sends after this read raises the hint again.
        receiver.hinted();
        let ret = raw_recv(self.fd, pieces, flags);
        if ret > 0 && !self.peeks() {
            receiver.took_tcp(ret as u64);
            self.conn.side().rx.tcp_bytes.add(ret as u64);
        }
        if ret > 0 {
            self.done += ret as usize;
        }
        ret
    }

    /// Peeks from the program's SO_PEEK_OFF on, where the ring has unread bytes. The kernel counts
    /// from its own first one, and is told each time where that is.
    fn peek_from(
        &mut self,
        offset: usize,
        view: View,
        receiver: &Receiver<'_, Pages>,
    ) -> Found<Option<Ret>> {
        let before = match view {
            View::TcpUpTo { limit_bytes } => usize::try_from(limit_bytes).unwrap_or(usize::MAX),
            _ => 0,
        };
        let unread = receiver.unread_bytes() as usize;
        let mut ret = -(EAGAIN as Ret);
        if offset < before {
            tcp::set_peek_offset(self.fd, offset);
            ret = self.take_tcp(receiver, self.to.len_bytes.min(before - offset));
        }
        let skip = (offset + self.done).wrapping_sub(before);
        if skip < unread {
            ret = match self.copy_ring(receiver, skip, unread - skip) {
                Ok(len) => len as Ret,
                Err(fault) => fault,
            };
        }
        let skip = (offset + self.done).wrapping_sub(unread);
        if skip >= before && self.done < self.to.len_bytes && ret != -(EFAULT as Ret) {
            tcp::set_peek_offset(self.fd, skip);
            ret = self.take_tcp(receiver, self.to.len_bytes - self.done);
            if ret == -(EAGAIN as Ret) && self.done == 0 && self.blocks() {
                return self.sleeps(Sleep::Beyond { offset });
            }
        }
        tcp::set_peek_offset(self.fd, offset + self.done);
        answer(self.result(ret))
    }

    /// Waits for the first byte at `offset`, behind everything that is there; the kernel knows
    /// where that is.
    fn peek_beyond(&mut self, offset: usize) -> Ret {
        let mut pieces = [NO_PIECE; 16];
        let pieces = self.to.rest(0, self.to.len_bytes, &mut pieces);
        let ret = libc_recv(self.fd, pieces, self.flags);
        tcp::set_peek_offset(self.fd, offset + usize::try_from(ret).unwrap_or(0));
        ret
    }

    /// Peeks at what TCP has behind the `before` bytes that stand in front of the ring's. The
    /// kernel looks from the first unread byte on: those come once more, to where they are.
    fn peek_past(&mut self, before: usize) {
        let left = self.to.len_bytes - self.done;
        let (mut first, mut last) = ([NO_PIECE; 16], [NO_PIECE; 16]);
        let first = self.to.rest(0, before, &mut first);
        let is_whole = first.iter().map(|piece| piece.len).sum::<usize>() == before;
        if left == 0 || !is_whole {
            return;
        }
        let last = self.to.rest(self.done, left, &mut last);
        let mut pieces = [NO_PIECE; 32];
        let mut count = 0;
        for piece in first.iter().chain(last.iter()) {
            pieces[count] = IoVec { base: piece.base, len: piece.len };
            count += 1;
        }
        let flags = (self.flags | MSG_DONTWAIT) & !MSG_WAITALL;
        let ret = raw_recv(self.fd, &mut pieces[..count], flags);
        self.done += usize::try_from(ret).unwrap_or(0).saturating_sub(before);
    }

    fn result(&self, ret: Ret) -> Ret {
        if self.done == 0 {
            return ret;
        }
        if is_end(ret) {
            // The kernel has told it, and tells it once: it is for the next call.
            self.conn.rx.error.store(-ret as u32, Ordering::Relaxed);
        }
        self.done as Ret
    }

    /// The call ends with what it has, or `ret`; end of stream closes the other direction to
    /// the ring.
    fn finish_with(&self, receiver: &Receiver<'_, Pages>, ret: Ret) -> Found<Option<Ret>> {
        if ret == 0 || is_end(ret) {
            receiver.never_offer();
            self.conn.park_tx_for_good(self.fd);
            return answer(self.result(ret));
        }
        if ret < 0 {
            return answer(self.result(ret));
        }
        self.finish(receiver)
    }

    fn finish(&self, receiver: &Receiver<'_, Pages>) -> Found<Option<Ret>> {
        if receiver.phase() == Phase::Parked && !self.peeks() {
            // A short read found TCP empty; after a full one it may hold more.
            self.dry(self.done < self.to.len_bytes);
            self.offer(receiver);
        }
        answer(self.done as Ret)
    }

    /// Whether TCP was empty when it was last read, but for what raised the hint since.
    fn dry(&self, is_dry: bool) {
        self.conn.rx.tcp_dry.store(u32::from(is_dry), Ordering::Relaxed);
    }

    fn is_dry(&self) -> bool {
        self.conn.rx.tcp_dry.load(Ordering::Relaxed) != 0
    }

    fn may_watch(&self, receiver: &Receiver<'_, Pages>) -> bool {
        !spin::is_off() && receiver.may_offer() && spin::allows_watch(&self.conn.rx.spin)
    }

    fn offer(&self, receiver: &Receiver<'_, Pages>) {
        offer::offer(self.conn, self.fd, receiver);
    }

    fn sleeps(&mut self, sleep: Sleep) -> Found<Option<Ret>> {
        self.sleep = sleep;
        Found::Asleep
    }

    /// Counts this thread as a sleeper, so that no other one offers. Under the lock.
    fn fall_asleep(&mut self) -> Found<Option<Ret>> {
        self.conn.side().rx.sleepers.fetch_add(1, Ordering::SeqCst);
        self.sleeps(Sleep::Recv)
    }

    /// Sleeps in libc's recv, parked, without limit.
    fn sleep_in_recv(&mut self) -> Found<Option<Ret>> {
        let mut pieces = [NO_PIECE; 16];
        let left = self.to.len_bytes - self.done;
        let pieces = self.to.rest(self.done, left, &mut pieces);
        let goes_on = self.done > 0;
        let ret = if self.handled.ends_call(self.fd, self.done, sys::SO_RCVTIMEO) {
            -(EINTR as Ret)
        } else if goes_on {
            // A handler that restarts calls ends one that has moved something: the kernel
            // would not know that this one has.
            tcp::sleep_until(self.fd, sys::POLLIN, sys::SO_RCVTIMEO)
        } else {
            libc_recv(self.fd, pieces, self.flags)
        };
        let Ok(_rx) = self.lock() else {
            // Closed by another thread meanwhile; its memory is gone.
            return answer(self.result(ret));
        };
        let side = self.conn.side();
        side.rx.sleepers.fetch_sub(1, Ordering::SeqCst);
        let receiver = self.conn.receiver();
        if ret <= 0 {
            return self.finish_with(&receiver, ret);
        }
        if goes_on {
            // Still parked: nobody offers while somebody sleeps.
            let ret = self.take_tcp(&receiver, left);
            if ret == -(EAGAIN as Ret) || ret > 0 && self.done < self.to.len_bytes {
                return Found::Part;
            }
            return self.finish_with(&receiver, ret);
        }
        if !self.peeks() {
            side.rx.tcp_bytes.add(ret as u64);
        }
        self.done += ret as usize;
        self.finish(&receiver)
    }

    /// Naps until TCP has something, and leaves it there. `Part`: look again.
    fn await_tcp(&mut self) -> Found<Option<Ret>> {
        if self.handled.ends_call(self.fd, self.done, sys::SO_RCVTIMEO) {
            return answer(self.result(-(EINTR as Ret)));
        }
        let start = self.awaits.get_or_insert_with(clock::Since::now);
        let left = tcp::timeout(self.fd, sys::SO_RCVTIMEO).less(start);
        if left.is_now() {
            return answer(self.result(-(EAGAIN as Ret)));
        }
        tcp::poll(self.fd, sys::POLLIN, left.nap());
        Found::Part
    }

    fn broken(&self) -> Ret {
        tcp::reset(self.fd);
        self.result(-(ECONNRESET as Ret))
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
            // A handler's: there is nothing for it until its thread goes on.
            Err(Unlocked::Reentered) if self.blocks() => answer(-(EINTR as Ret)),
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
        let conn = self.conn;
        // Gone, as a look will tell.
        let Some(_pin) = conn.pin(self.fd) else { return Watched::GaveWay };
        let receiver = conn.receiver();
        let stirs = || {
            let may_be_tcp = receiver.phase() == Phase::Offered && receiver.is_hinted();
            receiver.stirs() || may_be_tcp || !conn.is_at(self.fd)
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
            let _ = self.conn.park_to_sleep(self.fd, |receiver| receiver.has_ring_next());
        }
        Found::Nothing
    }

    fn sleep(&mut self) -> Found<Option<Ret>> {
        match self.sleep {
            Sleep::Recv => self.sleep_in_recv(),
            Sleep::Beyond { offset } => answer(self.peek_beyond(offset)),
            Sleep::Tcp => self.await_tcp(),
        }
    }
}

const fn answer(ret: Ret) -> Found<Option<Ret>> {
    Found::Answer(Some(ret))
}

/// SO_PEEK_OFF, where it counts from a byte in front of the ring's unread ones or one of them.
/// The program set it meanwhile: with it a connection is parked for good.
pub fn ring_offset(receiver: &Receiver<'_, Pages>, fd: c_int) -> Option<usize> {
    let may_be = receiver.is_never() && receiver.unread_bytes() > 0;
    if may_be { tcp::peek_offset(fd) } else { None }
}

/// From the ring to the program's memory.
fn give(receiver: &Receiver<'_, Pages>, skip: u32, base: *mut u8, len: usize) -> Result<(), Ret> {
    let mut done = 0;
    for (at, len) in receiver.spans(skip, len) {
        if len > 0 {
            // SAFETY: `spans` stays inside the ring's pages.
            unsafe { memory::copy_out(base.wrapping_add(done), receiver.memory.at(at), len)? };
        }
        done += len;
    }
    Ok(())
}

/// An error that ends the stream.
fn is_end(ret: Ret) -> bool {
    ret < 0 && ![EAGAIN, EINTR, EFAULT].contains(&(-ret as i32))
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

/// Ring bytes that are unread.
pub fn ring_unread(conn: &'static Conn, fd: c_int) -> c_int {
    let Ok(_rx) = conn.lock_rx(fd) else { return 0 };
    let receiver = conn.receiver();
    match receiver.look(|| conn.read_position()) {
        Ok(_) => receiver.unread_bytes() as c_int,
        Err(_) => 0,
    }
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
