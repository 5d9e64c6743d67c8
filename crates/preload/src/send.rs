//! Sending on a connection with a channel.
//!
//! Storey 5: calls.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_call::answer;
use yasmin_call::send::{Asks, Health, Opening, Send, Sink};
use yasmin_ring::{Broken, Pages, Publish, Room, Sender, Stamp, Write};
use yasmin_wire::layout::{MIN_PAGED_CLASS, class_bytes};

use crate::conn::{Conn, PassedBy, Unlocked};
use crate::iov::{Buffers, Vectors};
use crate::life::Ends;
use crate::lock::Guard;
use crate::signals::Handled;
use crate::spin::{Budget, Found, Interests, Watched};
use crate::sys::{self, EAGAIN, EINTR, MSG_DONTWAIT, MSG_MORE, Ret, call};
use crate::table::Way;
use crate::{
    clock, config, elsewhere, entry, in_flight, life, memory, real, recv, set, spin, tcp, text,
};

/// How often a sender looks at the kernel's state of the connection, in microseconds.
const LOOK_US: u64 = 1000;

/// How often it compares the kernel's count of bytes with its own while the ring is open, in
/// microseconds: that takes three system calls.
const COMPARE_US: u64 = 20_000;

/// While bytes go by ring, some go by TCP at such intervals, in microseconds.
const TCP_AGAIN_US: u64 = 1_000_000;

/// After this many full rings it asks for a larger one.
const FULL_BEFORE_GROWTH: u32 = 2;

/// So many sends that the ring does not hold as a whole go by TCP, and all of them for so long, in
/// microseconds. Where there is no memory for a larger one by then, they come in parts.
const GROWS_WITHIN: u32 = 16;
const GROWS_WITHIN_US: u64 = 50_000;

/// By how much a ring with pages of its own grows at once: to 16 times its size. All of it is
/// touched then, so not at once to the most; and each growth costs two parks, so not in smaller
/// steps. The smallest ring, which has no page, grows to the next class.
const GROWTH_CLASSES: u8 = 4;

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
    let (id, cookie) = (conn.id.load(Ordering::Relaxed), conn.cookie());
    // Whether it waits is not known before the lock is held.
    let send = Send::new(Asks { len_bytes: from.len_bytes(), blocks: false });
    let io = Io { conn, fd, from, flags, has_watched: false, fate: None };
    let mut call = Call { io, send, handled, id, cookie };
    let ret = spin::wait(&mut call);
    if let Some(why) = call.io.fate {
        life::renew(conn, fd, why);
    }
    ret
}

/// libc sent on behalf of `send`, which had nothing to do with it.
pub fn sent_verbatim(conn: &'static Conn, fd: c_int, ret: Ret) {
    if ret > 0
        && let Ok(_tx) = conn.lock_tx(fd)
    {
        elsewhere::note_step();
        conn.side().tx.tcp_bytes.add(ret as u64);
        conn.sender().hint();
    }
}

/// A send under way.
struct Call<'a> {
    io: Io<'a>,
    send: Send,
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
        let guard = conn.lock_tx(self.io.fd)?;
        if conn.id.load(Ordering::Relaxed) == self.id { Ok(guard) } else { Err(Unlocked::Gone) }
    }

    /// Another thread has closed the number, or given the channel back: its memory is gone. In the second case the
    /// kernel sends the rest: what it has room for, since a program with an edge-triggered set takes a short send for
    /// a full socket, and all where the call waits. Gives what it has sent in the end, `done` bytes by now.
    fn goes_on(&self, mut done: usize) -> Ret {
        let (fd, len_bytes) = (self.io.fd, self.io.from.len_bytes());
        let waits = self.io.flags & MSG_DONTWAIT == 0 && !tcp::is_nonblocking(fd);
        let flags = self.io.flags | MSG_DONTWAIT | sys::MSG_NOSIGNAL;
        while done < len_bytes
            && !self.handled.is_past()
            && entry::conn_of(fd).is_none()
            && tcp::cookie(fd) == Some(self.cookie)
        {
            let ret = in_flight::goes_on(fd, Way::Out, || self.io.kernel(done, flags));
            match usize::try_from(ret) {
                Ok(len) if len > 0 => {
                    elsewhere::note_step();
                    done += len;
                }
                _ if !waits || ret != -(EAGAIN as Ret) => break,
                _ if tcp::sleep_until(fd, sys::POLLOUT, sys::SO_SNDTIMEO) > 0 => {}
                _ => break,
            }
        }
        done as Ret
    }

    /// One hold of the lock.
    fn step(&mut self, is_spent: bool) -> Result<Found<Option<Ret>>, Unlocked> {
        let _guard = self.lock()?;
        self.send.asks.blocks = self.io.blocks();
        self.io.conn.tx.note_sender();
        let sender = self.io.conn.sender();
        if config::chaos() {
            let _ = sender.park();
        }
        Ok(self.send.step(&mut Locked { io: &mut self.io, sender }, is_spent))
    }
}

impl Interests for Call<'_> {
    /// `None`: libc's.
    type Answer = Option<Ret>;

    fn look(&mut self, budget: Option<&Budget>) -> Found<Option<Ret>> {
        let before = self.send.done;
        let found = self.step(budget.is_some_and(Budget::is_spent));
        let done = self.send.done;
        match found {
            Ok(Found::Nothing) if done > before => Found::Part,
            Ok(found) => found,
            Err(Unlocked::Gone) if done > 0 => answer(self.goes_on(done)),
            Err(Unlocked::Gone) => Found::Answer(None),
            Err(Unlocked::Reentered) => {
                let sender = self.io.conn.sender();
                sender.park_interrupted();
                let ret = self.io.kernel(done, self.io.flags);
                sender.hint();
                answer(ret)
            }
        }
    }

    fn budget(&mut self) -> Budget {
        let watches = !spin::is_off() && spin::allows_watch(&self.io.conn.tx.spin);
        if watches { spin::budget() } else { Budget::new(0) }
    }

    fn is_watchable(&self) -> bool {
        !self.handled.is_past()
    }

    /// Waits awake for the receiver to make room.
    fn watch(&mut self, budget: &mut Budget) -> Watched {
        self.io.has_watched = true;
        let conn = self.io.conn;
        // Gone, as a look will tell.
        let Some(_pin) = conn.pin(self.io.fd) else { return Watched::GaveWay };
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

    /// The rest in libc's send, without the lock; nobody opens the direction meanwhile.
    fn sleep(&mut self) -> Found<Option<Ret>> {
        let (fd, done) = (self.io.fd, self.send.done);
        // A file goes on in the kernel: sendfile cannot be told not to wait.
        let looks_again = done > 0 && matches!(self.io.from, Source::Buffers(_));
        let mut tried = self.send.left();
        let ret = match self.io.from {
            _ if self.handled.ends_call(fd, done, sys::SO_SNDTIMEO) => -(EINTR as Ret),
            // A handler that restarts calls ends one that has moved something.
            _ if looks_again => tcp::sleep_until(fd, sys::POLLOUT, sys::SO_SNDTIMEO),
            Source::Buffers(buffers) => {
                let mut vectors = Vectors::new();
                let pieces = buffers.rest(done, tried, &mut vectors);
                tried = pieces.iter().map(|piece| piece.len).sum();
                libc_send(fd, pieces, self.io.flags)
            }
            Source::File { .. } => self.io.kernel(done, self.io.flags),
        };
        let Ok(_guard) = self.lock() else {
            let sent = if looks_again { 0 } else { ret };
            let all = done + usize::try_from(sent).unwrap_or(0);
            return answer(if all > 0 { self.goes_on(all) } else { self.send.result(ret) });
        };
        let conn = self.io.conn;
        conn.side().tx.kernel_senders.fetch_sub(1, Ordering::SeqCst);
        if looks_again {
            return if ret > 0 { Found::Part } else { answer(done as Ret) };
        }
        if ret > 0 {
            self.io.sent(&conn.sender(), ret);
        }
        self.send.slept(ret, tried)
    }
}

/// What a send works on.
struct Io<'a> {
    conn: &'static Conn,
    fd: c_int,
    from: Source<'a>,
    flags: c_int,
    /// It watched since it last sent anything by ring.
    has_watched: bool,
    /// Why the channel ends with this call.
    fate: Option<Ends>,
}

impl Io<'_> {
    /// Under the lock.
    fn blocks(&self) -> bool {
        self.flags & MSG_DONTWAIT == 0 && !self.conn.is_nonblocking()
    }

    /// One send in the kernel of what is left behind `at`.
    fn kernel(&self, at: usize, flags: c_int) -> Ret {
        match self.from {
            Source::Buffers(buffers) => {
                let mut vectors = Vectors::new();
                let pieces = buffers.rest(at, buffers.len_bytes - at, &mut vectors);
                raw_send(self.fd, pieces, flags)
            }
            Source::File { fd, offset, len_bytes } => {
                let mut offset = offset + at as i64;
                // SAFETY: `offset` is ours. sendfile waits as the descriptor's flags say.
                unsafe { call!(sendfile, self.fd, fd, &raw mut offset, len_bytes - at) }
            }
        }
    }

    /// Bytes went by TCP.
    fn sent(&mut self, sender: &Sender<'_, Pages>, ret: Ret) {
        let tx = &self.conn.tx;
        elsewhere::note_step();
        tx.tcp_sent_at.store(clock::ticks(), Ordering::Relaxed);
        self.conn.side().tx.tcp_bytes.add(ret as u64);
        tx.more_follows.store(u32::from(self.flags & MSG_MORE != 0), Ordering::Relaxed);
        note_cpu(self.conn, sender);
        sender.hint();
        self.ends_channel(self.conn.sends_seldom());
    }

    fn ends_channel(&mut self, is_seldom: bool) {
        self.fate = self.fate.or_else(|| Ends::of(self.conn, is_seldom));
    }
}

fn note_cpu(conn: &Conn, sender: &Sender<'_, Pages>) {
    // Not read where the peer reads it: the word is in the same cache line, which would come twice.
    let cpu = conn.shown_cpu();
    if conn.tx.shown_cpu.load(Ordering::Relaxed) != cpu {
        conn.tx.shown_cpu.store(cpu, Ordering::Relaxed);
        sender.block.set_sender_cpu(cpu);
    }
}

/// The same under the send lock.
struct Locked<'a, 'b> {
    io: &'a mut Io<'b>,
    sender: Sender<'static, Pages>,
}

impl Locked<'_, '_> {
    /// Whether nothing was sent by TCP for so long that these bytes should be: what stands on the
    /// way and remembers connections (address translation, load balancers) would forget this one,
    /// and a way that is cut would show itself to nobody.
    ///
    /// TCP is not silent while bytes are unacknowledged, for it sends them again and again. More would
    /// wait behind them, and the peer for those, with nothing under way that its own time-out could end.
    fn is_tcp_silent(&self) -> bool {
        let tx = &self.io.conn.tx;
        let now = clock::ticks();
        if now.wrapping_sub(tx.tcp_sent_at.load(Ordering::Relaxed)) <= clock::us(TCP_AGAIN_US) {
            return false;
        }
        let is_under_way = tcp::unacknowledged(self.io.fd) > 0;
        if is_under_way {
            tx.tcp_sent_at.store(now, Ordering::Relaxed);
        }
        !is_under_way
    }
}

impl Sink for Locked<'_, '_> {
    fn room(&mut self, wanted: usize) -> Result<Room, Broken> {
        self.sender.room_to_send(wanted)
    }

    fn is_open(&self) -> bool {
        self.sender.is_open()
    }

    /// Who is in the kernel on one that comes back is counted.
    fn is_never(&self) -> bool {
        self.sender.is_never() && !self.io.conn.comes_back()
    }

    fn is_grown(&self) -> bool {
        self.sender.class() >= self.io.conn.max_class()
    }

    fn awaits_larger(&mut self, write: &Write, len: usize) -> bool {
        let (class, most) = (write.class(), self.io.conn.max_class());
        if class >= most {
            return false;
        }
        // Beside what is unread now.
        let unread = (class_bytes(class) - write.room_bytes) as usize;
        let fits = |class: &u8| class_bytes(*class) as usize >= unread + len;
        let wanted = (MIN_PAGED_CLASS..most).find(fits).unwrap_or(most);
        self.sender.want_class(wanted);
        let (count, since) = self.io.conn.tx.is_too_small(class);
        count <= GROWS_WITHIN || clock::ticks().wrapping_sub(since) < clock::us(GROWS_WITHIN_US)
    }

    fn holds(&self, write: &Write, len: usize) -> bool {
        len <= class_bytes(write.class()) as usize
    }

    fn has_many_senders(&self) -> bool {
        self.io.conn.tx.has_many_senders() || self.io.conn.is_shared()
    }

    /// A side that only sends learns here, and only here, that its peer is gone.
    fn health(&mut self, write: Option<&Write>) -> Health {
        let conn = self.io.conn;
        let opens = write.is_some_and(Write::opens);
        let told = set::kernel::ends_told();
        let is_news = conn.tx.ends_seen.swap(told, Ordering::Relaxed) != told;
        // What a program sends that could know of the peer's end goes by TCP, which answers it
        // with a reset.
        if !opens && !is_news && !conn.due(&conn.tx.looked_at, LOOK_US) {
            return Health::Fine;
        }
        if tcp::is_over(self.io.fd) {
            return Health::Over;
        }
        if opens || write.is_none() {
            return Health::Fine;
        }
        if conn.due(&conn.tx.compared_at, COMPARE_US) && conn.sent_position().is_err() {
            return Health::PassedBy;
        }
        if self.is_tcp_silent() { Health::Silent } else { Health::Fine }
    }

    fn opening(&mut self) -> Opening {
        let conn = self.io.conn;
        // Bytes that TCP holds back would hold back the ring behind them.
        if conn.tx.more_follows.load(Ordering::Relaxed) != 0
            || conn.settings.kernel_corked.load(Ordering::Relaxed) != 0
            || conn.side().tx.kernel_senders.load(Ordering::SeqCst) != 0
            || !text::is_clean()
            || config::chaos()
        {
            return Opening::NotNow;
        }
        match conn.sent_position() {
            Ok(Some(at)) => Opening::At(at),
            Ok(None) => Opening::NotNow,
            Err(PassedBy) => Opening::PassedBy,
        }
    }

    fn fill(&mut self, write: &Write, at: usize, len: usize) -> Result<usize, Ret> {
        let sender = &self.sender;
        match self.io.from {
            Source::Buffers(buffers) => {
                let beyond = memory::AT_ONCE.saturating_sub(len);
                if !buffers.are(at + len, beyond, |base, len| memory::is_readable(base, len)) {
                    return Err(-(sys::EFAULT as Ret));
                }
                let mut result = Ok(len);
                buffers.each(at, len, |base, len, done| {
                    let mut at_byte = 0;
                    for (place, len) in sender.spans(write, done as u32, len) {
                        let from = base.wrapping_add(at_byte);
                        if len > 0 && result.is_ok() {
                            let to = sender.memory.at(place);
                            // SAFETY: `spans` stays inside the ring's pages.
                            let taken = unsafe { memory::copy_in(to, from, len) };
                            result = result.and_then(|all| taken.map(|()| all));
                        }
                        at_byte += len;
                    }
                });
                result
            }
            Source::File { fd, offset, .. } => {
                let mut done = 0;
                for (place, len) in sender.spans(write, 0, len) {
                    if len == 0 {
                        break;
                    }
                    let from = offset + (at + done) as i64;
                    // SAFETY: `spans` stays inside the ring's pages.
                    let ret = unsafe { call!(pread64, fd, sender.memory.at(place), len, from) };
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

    fn publish(&mut self, write: &Write, len: usize, position: u64) -> Result<Publish, Broken> {
        note_cpu(self.io.conn, &self.sender);
        let elsewhere = elsewhere::stepped_at();
        self.sender.stamp(write, Stamp { time: clock::ticks(), elsewhere });
        let published = self.sender.publish(write, len as u32, position);
        if published == Ok(Publish::Done) {
            let conn = self.io.conn;
            conn.side().tx.ring_bytes.add(len as u64);
            if core::mem::take(&mut self.io.has_watched) {
                conn.tx.spin.won();
            }
        }
        published
    }

    /// A ring that is full again and again should be larger. The receiver gives a larger one
    /// with its next offer, so the direction has to be parked once.
    fn wants_growth(&mut self) -> bool {
        let conn = self.io.conn;
        if self.is_grown() {
            return false;
        }
        let class = self.sender.class();
        let full = conn.tx.filled(class);
        if full == FULL_BEFORE_GROWTH {
            let grown = if class == 0 { MIN_PAGED_CLASS } else { class + GROWTH_CLASSES };
            self.sender.want_class(grown.min(conn.max_class()));
        }
        // The broker has to be asked by the other side first: try now and then.
        full > FULL_BEFORE_GROWTH && full.is_power_of_two()
    }

    fn cut_short(&mut self) {
        set::numbers::write_cut_short(self.io.fd);
    }

    fn park(&mut self) {
        let _ = self.sender.park();
    }

    fn park_for_good(&mut self) {
        let _ = self.sender.park_for_good();
    }

    fn note_parked(&mut self) {
        self.io.conn.side().tx.parked.add(1);
    }

    fn goes_by_tcp(&mut self) {
        self.io.conn.apply_cork(self.io.fd);
    }

    fn is_passed_by(&mut self) -> bool {
        let conn = self.io.conn;
        conn.has_used_ring_to_send() && conn.due(&conn.tx.looked_at, LOOK_US) && conn.is_passed_by()
    }

    fn may_send(&mut self) -> bool {
        tcp::may_send(self.io.fd)
    }

    fn send_tcp(&mut self, at: usize) -> Ret {
        // sendfile has no flag to say that it shall not wait.
        if self.io.blocks() && matches!(self.io.from, Source::File { .. }) {
            return -(EAGAIN as Ret);
        }
        let ret = self.io.kernel(at, self.io.flags | MSG_DONTWAIT);
        self.io.ends_channel(false);
        if ret > 0 {
            self.io.sent(&self.sender, ret);
        }
        ret
    }

    fn falls_asleep(&mut self) {
        self.io.conn.side().tx.kernel_senders.fetch_add(1, Ordering::SeqCst);
    }

    fn reset(&mut self) {
        tcp::reset(self.io.fd);
    }
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
