//! A receive, in all its forms.

use yasmin_ring::{Broken, View};
use yasmin_wait::Found;
use yasmin_wire::State;

use crate::{EAGAIN, ECONNRESET, EFAULT, EINTR, Ret, answer};

/// What the program asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asks {
    pub len_bytes: usize,
    /// It waits until there is something.
    pub blocks: bool,
    /// MSG_PEEK: what is read stays.
    pub peeks: bool,
    /// So many bytes it waits for, if it blocks: 1, or more by MSG_WAITALL and SO_RCVLOWAT. At most
    /// `len_bytes`.
    pub least_bytes: usize,
}

/// What a read that has something already finds in TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    Nothing,
    Bytes,
    /// The read ends here: before an error with nothing in front of it, which a read would take
    /// away, and before an urgent byte, which it would pass over.
    Stop,
}

/// What a receive waits for in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// The next bytes. The thread counts as a sleeper, so that nobody offers.
    Recv,
    /// TCP bytes that must come first and are under way; ring bytes lie behind them.
    Tcp,
    /// The first byte at `offset`, behind everything unread, for who peeks there.
    Beyond { offset: usize },
}

/// What a receive can do, under the receive lock. `at`: the place in the program's buffers.
pub trait Source {
    /// # Errors
    /// The peer broke the protocol.
    fn look(&mut self) -> Result<View, Broken>;

    /// Unread ring bytes, as the last look saw them.
    fn unread_bytes(&self) -> usize;

    fn is_parked(&self) -> bool;

    /// Parked for good.
    fn is_never(&self) -> bool;

    /// Parks the direction, as the last look saw it; if something came meanwhile, it does not.
    fn park(&mut self);

    /// Where the program's SO_PEEK_OFF stands, if it counts from a byte in front of the ring's
    /// unread ones or from one of them.
    fn peek_offset(&self) -> Option<usize>;

    fn set_peek_offset(&mut self, offset: usize);

    /// Copies up to `most` bytes that lie in the ring behind `skip` unread ones.
    ///
    /// # Errors
    /// Minus errno, with nothing taken.
    fn copy(&mut self, at: usize, skip: usize, most: usize) -> Result<usize, Ret>;

    /// Gives the next `len` ring bytes back to the sender.
    fn consume(&mut self, len: usize);

    /// One recv in the kernel that does not wait, of up to `most` bytes.
    fn take_tcp(&mut self, at: usize, most: usize) -> Ret;

    /// Peeks at what TCP has behind the `before` bytes that stand in front of the ring's. Returns
    /// how many more there are.
    fn peek_past(&mut self, at: usize, before: usize) -> usize;

    fn ahead(&mut self) -> Ahead;

    /// Whether TCP was empty when it was last read, and no bytes came by it since as far as the
    /// sender says.
    fn is_dry(&self) -> bool;

    /// Whether a read that finds the ring empty has to ask TCP, where an edge that the kernel
    /// told of is told once.
    fn may_have_tcp(&mut self, state: State) -> bool;

    /// TCP was read, until it was empty if `is_dry`: offers the direction if that is worth it.
    fn offer(&mut self, is_dry: bool);

    /// Whether this thread may watch what it offers.
    fn may_watch(&mut self) -> bool;

    /// The thread is about to sleep.
    fn falls_asleep(&mut self, sleep: Sleep);

    /// The stream ended: nothing comes or goes by ring any more.
    fn ends(&mut self);

    /// An errno, negative, that the kernel told once and that is for the next call.
    fn keep(&mut self, error: Ret);
}

/// One receive under way.
#[derive(Debug)]
pub struct Receive {
    pub asks: Asks,
    /// Bytes received so far.
    pub done: usize,
}

/// `None`: parked for good and drained, so the program's own call does it, with all that it asks
/// for.
type Answer = Found<Option<Ret>>;

/// An error that ends the stream.
fn is_end(ret: Ret) -> bool {
    ret < 0 && ![EAGAIN, EINTR, EFAULT].contains(&-ret)
}

impl Receive {
    pub const fn new(asks: Asks) -> Self {
        Self { asks, done: 0 }
    }

    fn left(&self) -> usize {
        self.asks.len_bytes - self.done
    }

    fn is_whole(&self) -> bool {
        self.done == self.asks.len_bytes
    }

    fn is_enough(&self) -> bool {
        self.done > 0 && self.done >= self.asks.least_bytes
    }

    /// Everything that can be had without waiting, then what comes next. `is_spent`: the call has
    /// watched long enough.
    #[inline]
    pub fn step<S: Source>(&mut self, source: &mut S, is_spent: bool) -> Answer {
        let Asks { blocks, peeks, .. } = self.asks;
        loop {
            let Ok(view) = source.look() else {
                return answer(self.result(source, -ECONNRESET));
            };
            if peeks && let Some(offset) = source.peek_offset() {
                return self.peek_from(source, offset, view);
            }
            match view {
                View::Ring { unread_bytes } => {
                    if let Err(fault) = self.take_ring(source, unread_bytes as usize) {
                        return answer(self.result(source, fault));
                    }
                    if peeks {
                        // What is peeked at in the ring and in TCP are one short read.
                        let goes_on = self.left() > 0 && source.is_parked();
                        if goes_on && source.ahead() == Ahead::Bytes {
                            self.take_tcp(source, self.left());
                        }
                        return answer(self.done as Ret);
                    }
                    if self.is_whole() {
                        return self.finish(source);
                    }
                }
                View::TcpUpTo { limit_bytes } => {
                    if let Some(found) = self.take_tcp_before_ring(source, limit_bytes) {
                        return found;
                    }
                }
                View::Tcp if source.is_never() && self.done == 0 => return Found::Answer(None),
                View::Tcp => {
                    if self.done > 0 {
                        let mut ahead = source.ahead();
                        // What the ring gave and what TCP has are one short read.
                        if !peeks && ahead == Ahead::Bytes {
                            self.take_tcp(source, self.left());
                            if !self.is_enough() {
                                // It may have come to a mark.
                                ahead = source.ahead();
                            }
                        }
                        if self.is_enough() || ahead == Ahead::Stop {
                            return self.finish(source);
                        }
                    }
                    if blocks && (is_spent || !source.may_watch()) {
                        source.falls_asleep(Sleep::Recv);
                        return Found::Asleep;
                    }
                    let ret = self.take_tcp(source, self.left());
                    if ret == -EAGAIN {
                        source.offer(true);
                        if !blocks {
                            return answer(self.result(source, ret));
                        }
                        if source.is_parked() {
                            source.falls_asleep(Sleep::Recv);
                            return Found::Asleep;
                        }
                        return Found::Nothing;
                    }
                    if ret <= 0 || self.is_enough() {
                        return self.finish_with(source, ret);
                    }
                }
                View::Empty { state } => {
                    if self.is_enough() {
                        return answer(self.done as Ret);
                    }
                    if state == State::Offered && !source.is_dry() {
                        source.park();
                        continue;
                    }
                    if blocks {
                        return Found::Nothing;
                    }
                    if !source.may_have_tcp(state) {
                        return answer(self.result(source, -EAGAIN));
                    }
                    source.park();
                }
            }
        }
    }

    /// What the kernel's own recv gave, in which the thread slept for the next bytes.
    pub fn slept<S: Source>(&mut self, source: &mut S, ret: Ret) -> Answer {
        if ret <= 0 {
            return self.finish_with(source, ret);
        }
        self.done += ret as usize;
        self.finish(source)
    }

    /// The same, where it slept until there were bytes, having received some already.
    pub fn slept_for_more<S: Source>(&mut self, source: &mut S, ret: Ret) -> Answer {
        if ret <= 0 {
            // Who waits for more than one byte has what came of them.
            if [-EINTR, -EAGAIN].contains(&ret) && source.ahead() == Ahead::Bytes {
                self.take_tcp(source, self.left());
            }
            return self.finish_with(source, ret);
        }
        if source.ahead() == Ahead::Stop {
            return self.finish(source);
        }
        // Still parked: nobody offers while somebody sleeps.
        let ret = self.take_tcp(source, self.left());
        if ret == -EAGAIN || ret > 0 && !self.is_enough() {
            return Found::Part;
        }
        self.finish_with(source, ret)
    }

    fn take_tcp<S: Source>(&mut self, source: &mut S, most: usize) -> Ret {
        let ret = source.take_tcp(self.done, most);
        self.done += usize::try_from(ret).unwrap_or(0);
        ret
    }

    /// A fault takes nothing, as with what TCP has queued together.
    fn take_ring<S: Source>(&mut self, source: &mut S, unread: usize) -> Result<(), Ret> {
        let len = source.copy(self.done, 0, unread.min(self.left()))?;
        self.done += len;
        if !self.asks.peeks {
            source.consume(len);
        }
        Ok(())
    }

    /// What TCP has of the `limit` bytes that come before the ring's. `None`: look again.
    fn take_tcp_before_ring<S: Source>(&mut self, source: &mut S, limit: u64) -> Option<Answer> {
        let Asks { blocks, peeks, .. } = self.asks;
        let most = self.left().min(usize::try_from(limit).unwrap_or(usize::MAX));
        let ret = self.take_tcp(source, most);
        if ret == -EAGAIN {
            if self.is_enough() || !blocks {
                return Some(self.finish_with(source, ret));
            }
            source.falls_asleep(Sleep::Tcp);
            return Some(Found::Asleep);
        }
        let unread = source.unread_bytes();
        if peeks && u64::try_from(ret) == Ok(limit) && unread > 0 && !self.is_whole() {
            // What is peeked at in TCP and in the ring are one short read.
            if let Err(fault) = self.take_ring(source, unread) {
                return Some(answer(self.result(source, fault)));
            }
            if source.is_parked() && !self.is_whole() {
                self.done += source.peek_past(self.done, limit as usize);
            }
            return Some(answer(self.done as Ret));
        }
        // An end before what was promised: a reset took it, and what follows it is not in order.
        // The stream ends here.
        let is_over = ret <= 0 || peeks || self.is_whole();
        is_over.then(|| self.finish_with(source, ret))
    }

    /// Peeks from the program's SO_PEEK_OFF on, where the ring has unread bytes. The kernel counts
    /// from its own first one, and is told each time where that is.
    fn peek_from<S: Source>(&mut self, source: &mut S, offset: usize, view: View) -> Answer {
        let before = match view {
            View::TcpUpTo { limit_bytes } => usize::try_from(limit_bytes).unwrap_or(usize::MAX),
            _ => 0,
        };
        let unread = source.unread_bytes();
        let mut ret = -EAGAIN;
        if offset < before {
            source.set_peek_offset(offset);
            ret = self.take_tcp(source, self.left().min(before - offset));
        }
        let skip = (offset + self.done).wrapping_sub(before);
        if skip < unread {
            let copied = source.copy(self.done, skip, (unread - skip).min(self.left()));
            ret = copied.map_or_else(|fault| fault, |len| len as Ret);
            self.done += usize::try_from(ret).unwrap_or(0);
        }
        let skip = (offset + self.done).wrapping_sub(unread);
        if skip >= before && self.left() > 0 && ret != -EFAULT {
            source.set_peek_offset(skip);
            ret = self.take_tcp(source, self.left());
            if ret == -EAGAIN && self.done == 0 && self.asks.blocks {
                source.falls_asleep(Sleep::Beyond { offset });
                return Found::Asleep;
            }
        }
        source.set_peek_offset(offset + self.done);
        answer(self.result(source, ret))
    }

    /// What the call returns if its last step came to `ret`.
    pub fn result<S: Source>(&self, source: &mut S, ret: Ret) -> Ret {
        if self.done == 0 {
            return ret;
        }
        if is_end(ret) {
            source.keep(ret);
        }
        self.done as Ret
    }

    /// The call ends with what it has, or `ret`.
    fn finish_with<S: Source>(&self, source: &mut S, ret: Ret) -> Answer {
        if ret == 0 || is_end(ret) {
            source.ends();
            return answer(self.result(source, ret));
        }
        if ret < 0 {
            return answer(self.result(source, ret));
        }
        self.finish(source)
    }

    fn finish<S: Source>(&self, source: &mut S) -> Answer {
        if source.is_parked() && !self.asks.peeks {
            // A short read found TCP empty; after a full one it may hold more.
            source.offer(!self.is_whole());
        }
        answer(self.done as Ret)
    }
}
