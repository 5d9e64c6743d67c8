//! A send, in all its forms.

use yasmin_ring::{Broken, Publish, Room, Write};
use yasmin_wait::Found;

use crate::{EAGAIN, ECONNRESET, Ret, answer};

/// What the program asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asks {
    pub len_bytes: usize,
    /// It waits until there is room for all.
    pub blocks: bool,
}

/// What the kernel and the clock say of a direction whose ring has room, or is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Fine,
    /// The connection ended: only TCP tells how.
    Over,
    /// TCP was silent for so long that these bytes should go by it.
    Silent,
    /// Bytes went past this library, in an order that nobody knows.
    PassedBy,
}

/// Where the ring would open in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Behind so many TCP bytes.
    At(u64),
    NotNow,
    PassedBy,
}

/// What a send can do, under the send lock. `at`: the place in what the program sends.
pub trait Sink {
    /// # Errors
    /// The peer broke the protocol.
    fn room(&mut self, wanted: usize) -> Result<Room, Broken>;

    /// Whether this end opened the direction and has not seen it parked since.
    fn is_open(&self) -> bool;

    /// Parked for good.
    fn is_never(&self) -> bool;

    /// Whether the ring has the largest size that it may get.
    fn is_grown(&self) -> bool;

    /// Whether the ring has too little room for `len` bytes, and a larger one, which is asked for, can be had soon.
    fn awaits_larger(&mut self, write: &Write, len: usize) -> bool;

    /// Whether the ring holds `len` bytes when it is empty.
    fn holds(&self, write: &Write, len: usize) -> bool;

    /// Whether several threads or processes send on the connection.
    fn has_many_senders(&self) -> bool;

    /// Asked at bounded intervals, in between it is `Fine`. Where the ring opens, and once the
    /// program was told of an end, it is asked each time.
    fn health(&mut self, write: Option<&Write>) -> Health;

    fn opening(&mut self) -> Opening;

    /// Copies up to `len` bytes behind the tail.
    ///
    /// # Errors
    /// Minus errno, with nothing copied.
    fn fill(&mut self, write: &Write, at: usize, len: usize) -> Result<usize, Ret>;

    /// # Errors
    /// The peer broke the protocol.
    fn publish(&mut self, write: &Write, len: usize, position: u64) -> Result<Publish, Broken>;

    /// The ring is full. Whether it should be parked, to become larger.
    fn wants_growth(&mut self) -> bool;

    /// A send that does not wait is cut short by a full ring.
    fn cut_short(&mut self);

    /// Parks: what comes next goes by TCP.
    fn park(&mut self);

    fn park_for_good(&mut self);

    /// The direction was open, and is parked now.
    fn note_parked(&mut self);

    /// Bytes go by TCP from now on: the program's cork holds for them.
    fn goes_by_tcp(&mut self);

    /// Whether somebody sent past this library while the ring was open.
    fn is_passed_by(&mut self) -> bool;

    /// Whether the connection has no error and its sending end is open. Asked once some bytes went:
    /// what ends the stream now is for the next call to tell.
    fn may_send(&mut self) -> bool;

    /// One send in the kernel that does not wait. EAGAIN where it cannot be told not to.
    fn send_tcp(&mut self, at: usize) -> Ret;

    /// The rest goes by TCP, in a call that may sleep; nobody opens the direction meanwhile.
    fn falls_asleep(&mut self);

    /// The connection ends with a reset: better than bytes in the wrong place.
    fn reset(&mut self);
}

/// What one segment takes on loopback, of 64 KiB with both headers: a send of no more comes as a whole.
pub const AT_ONCE: usize = 65_483;

/// One send under way.
#[derive(Debug)]
pub struct Send {
    pub asks: Asks,
    /// Bytes sent so far.
    pub done: usize,
}

/// `None`: parked for good, so the program's own call does it, with all that it asks for.
type Answer = Found<Option<Ret>>;

/// What comes behind a try to send by ring.
enum Next {
    Again,
    /// There is too little room for what must come as a whole.
    Full,
    Answer(Answer),
}

/// How a send goes for whose bytes the ring has too little room.
enum Split {
    InParts,
    WhenThereIsRoom,
    ByTcp,
}

impl Send {
    pub const fn new(asks: Asks) -> Self {
        Self { asks, done: 0 }
    }

    pub fn left(&self) -> usize {
        self.asks.len_bytes - self.done
    }

    /// Everything that can be sent without waiting, then what comes next. `is_spent`: the call has
    /// watched long enough.
    #[inline]
    pub fn step<S: Sink>(&mut self, sink: &mut S, is_spent: bool) -> Answer {
        let mut was_open = false;
        loop {
            was_open |= sink.is_open();
            let Ok(room) = sink.room(self.left()) else { return self.reset(sink) };
            match room {
                Room::Ring(write) => match self.by_ring(sink, &write) {
                    Next::Again => continue,
                    Next::Answer(answer) => return answer,
                    Next::Full => {}
                },
                Room::Full => {}
                Room::Tcp if sink.is_never() && self.done == 0 => {
                    sink.goes_by_tcp();
                    return Found::Answer(None);
                }
                Room::Tcp => {
                    if was_open {
                        sink.note_parked();
                    }
                    return self.by_tcp(sink);
                }
            }
            if sink.health(None) == Health::Over {
                sink.park_for_good();
                continue;
            }
            let grows = sink.wants_growth();
            if !is_spent && !grows {
                return Found::Nothing;
            }
            // A ring that has its full size holds about what TCP's buffers would have
            // taken; of a smaller one a program would see short writes that TCP does not
            // give.
            if self.done > 0 && !self.asks.blocks && sink.is_grown() {
                sink.cut_short();
                return answer(self.done as Ret);
            }
            // TCP's own buffers take it from here, so that a program that relies on
            // them does not wait where it would not have waited.
            sink.park();
            sink.note_parked();
        }
    }

    /// Whether the ring has room for all of it, or what else. Receivers are written that take what one recv gives
    /// for a message; and threads that send messages without a lock of their own, since a send in the kernel has
    /// the socket's. By TCP on loopback both work, so nobody sees, or sends behind, the beginning of such a send alone.
    #[inline]
    fn split<S: Sink>(&self, sink: &mut S, write: &Write) -> Option<Split> {
        let len = self.asks.len_bytes;
        if len <= write.room_bytes as usize || self.done > 0 {
            return None;
        }
        Some(self.split_first(sink, write))
    }

    #[cold]
    fn split_first<S: Sink>(&self, sink: &mut S, write: &Write) -> Split {
        let len = self.asks.len_bytes;
        if len > AT_ONCE && !sink.has_many_senders() {
            return Split::InParts;
        }
        if sink.awaits_larger(write, len) {
            return Split::ByTcp;
        }
        match sink.holds(write, len) {
            // Of a full buffer TCP takes what fits, too.
            true if !self.asks.blocks && sink.is_grown() => Split::InParts,
            true => Split::WhenThereIsRoom,
            false => Split::ByTcp,
        }
    }

    #[inline]
    fn by_ring<S: Sink>(&mut self, sink: &mut S, write: &Write) -> Next {
        match sink.health(Some(write)) {
            Health::Fine => {}
            Health::Over => {
                sink.park_for_good();
                return Next::Again;
            }
            Health::Silent => {
                sink.park();
                return Next::Again;
            }
            Health::PassedBy => return Next::Answer(self.reset(sink)),
        }
        match self.split(sink, write) {
            None | Some(Split::InParts) => {}
            Some(Split::WhenThereIsRoom) => return Next::Full,
            Some(Split::ByTcp) if write.opens() => return Next::Answer(self.by_tcp(sink)),
            Some(Split::ByTcp) => {
                sink.park();
                return Next::Again;
            }
        }
        let mut position = 0;
        if write.opens() {
            match sink.opening() {
                Opening::At(at) => position = at,
                Opening::NotNow => return Next::Answer(self.by_tcp(sink)),
                Opening::PassedBy => return Next::Answer(self.reset(sink)),
            }
        }
        let len = match sink.fill(write, self.done, self.left().min(write.room_bytes as usize)) {
            // A file ended.
            Ok(0) => return Next::Answer(answer(self.done as Ret)),
            Ok(len) => len,
            Err(fault) => return Next::Answer(answer(self.result(fault))),
        };
        match sink.publish(write, len, position) {
            Ok(Publish::Done) => self.done += len,
            Ok(Publish::Retry) => {}
            Err(Broken) => return Next::Answer(self.reset(sink)),
        }
        if self.left() > 0 { Next::Again } else { Next::Answer(answer(self.done as Ret)) }
    }

    /// Tries without sleeping; what is left may have to sleep outside the lock.
    fn by_tcp<S: Sink>(&mut self, sink: &mut S) -> Answer {
        if sink.is_passed_by() {
            return self.reset(sink);
        }
        if self.done > 0 && !sink.may_send() {
            return answer(self.done as Ret);
        }
        sink.goes_by_tcp();
        let ret = sink.send_tcp(self.done);
        if ret > 0 {
            self.done += ret as usize;
            if self.left() == 0 || !self.asks.blocks {
                return answer(self.done as Ret);
            }
        } else if ret != -EAGAIN || !self.asks.blocks {
            return answer(self.result(ret));
        }
        sink.falls_asleep();
        Found::Asleep
    }

    /// What the kernel's own send gave, in which the thread slept, having `tried` so many bytes:
    /// fewer than are left where one call does not take so many pieces.
    pub fn slept(&mut self, ret: Ret, tried: usize) -> Answer {
        self.done += usize::try_from(ret).unwrap_or(0);
        if ret == tried as Ret && self.left() > 0 {
            return Found::Part;
        }
        answer(self.result(ret))
    }

    /// What the call returns if its last step came to `ret`.
    pub fn result(&self, ret: Ret) -> Ret {
        if self.done > 0 { self.done as Ret } else { ret }
    }

    fn reset<S: Sink>(&self, sink: &mut S) -> Answer {
        sink.reset();
        answer(self.result(-ECONNRESET))
    }
}
