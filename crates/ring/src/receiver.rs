//! The receiving half of a direction (spec/wire.md section 5).

use core::sync::atomic::Ordering::Relaxed;

use yasmin_wire::layout::{MAX_CLASS, class_bytes};
use yasmin_wire::{State, Word};

use crate::Broken;
use crate::block::Block;
use crate::memory::{Memory, Place, pieces};
use crate::primitive::Ordering;
use crate::stamps::Stamp;
use crate::state::{ReceiverState, clear, is_set, set};

/// One end's hold on the direction that it receives on. Made anew for each operation.
pub struct Receiver<'a, M> {
    pub block: &'a Block,
    pub state: &'a ReceiverState,
    pub memory: M,
    /// Fixed at setup; never read back from shared memory.
    pub max_class: u8,
}

/// Where the next bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// From TCP, at most `limit_bytes` of them: the ring goes on behind.
    TcpUpTo { limit_bytes: u64 },
    /// From the ring; `unread_bytes` are there, at least one.
    Ring { unread_bytes: u32 },
    /// From TCP without limit: the direction is parked and its ring is drained. The only state
    /// in which this end may sleep.
    Tcp,
    /// From nowhere yet. OFFERED: look at TCP now and then, but park before reading it.
    /// OPEN: only the word tells.
    Empty { state: State },
}

/// What became of an attempt to park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Park {
    Parked,
    /// The sender was faster: look again.
    Moved,
}

/// A TCP position this far ahead of what was read is a lie: more than any window holds.
pub(crate) const TCP_AHEAD_MAX: u64 = 1 << 40;

impl<M: Memory> Receiver<'_, M> {
    fn broken<T>(&self) -> Result<T, Broken> {
        set(&self.state.broken);
        Err(Broken)
    }

    pub fn is_broken(&self) -> bool {
        is_set(&self.state.broken)
    }

    /// Loads the word once, checks it, and says where the next bytes come from.
    ///
    /// `tcp_position` gives the TCP bytes that this end has read, from the kernel's counters;
    /// it is asked once for each time that the sender opened. `None` breaks the direction.
    ///
    /// # Errors
    /// [`Broken`] when the peer broke the protocol, now or before.
    pub fn look(&self, tcp_position: impl FnOnce() -> Option<u64>) -> Result<View, Broken> {
        if self.is_broken() {
            return Err(Broken);
        }
        let raw = self.block.word.load(Ordering::Acquire);
        let state = self.state;
        if raw != state.word_seen.get() {
            self.take_word(raw, tcp_position)?;
        }
        let limit_bytes = state.tcp_left.get();
        if limit_bytes > 0 {
            return Ok(View::TcpUpTo { limit_bytes });
        }
        let unread = state.tail_seen.position().since(state.head.position());
        if unread > 0 {
            return Ok(View::Ring { unread_bytes: unread as u32 });
        }
        Ok(match state.state_seen() {
            State::Parked => View::Tcp,
            state => View::Empty { state },
        })
    }

    /// Takes over a word that differs from the last one.
    fn take_word(
        &self,
        raw: u64,
        tcp_position: impl FnOnce() -> Option<u64>,
    ) -> Result<(), Broken> {
        let state = self.state;
        let Ok(word) = Word::decode(raw) else {
            return self.broken();
        };
        if self.is_never() && word.state == State::Parked && word.tail == state.head.position() {
            // Nothing follows any more, whatever was noted on the way.
            state.tail_seen.set_position(word.tail);
            state.word_seen.set(raw);
            state.set_state_seen(State::Parked);
            return Ok(());
        }
        let size = u64::from(class_bytes(word.class));
        let before = state.tail_seen.position();
        let moved = word.tail.since(before) > 0;
        let seen = state.state_seen();
        // The tail runs forwards and not past what the ring holds; the class is this end's
        // choice; PARKED stays as it is until this end offers; only what was offered opens,
        // and it opens together with its first bytes; an open ring does not turn to offered.
        let follows = u32::from(word.class) == state.class.load(Relaxed)
            && word.tail.since(state.head.position()) <= size
            && word.tail.since(before) <= size
            && match (seen, word.state) {
                (State::Parked, _) => false,
                (State::Offered, State::Offered) => !moved,
                (State::Offered, State::Open) => moved,
                (State::Offered | State::Open, State::Parked) => true,
                (State::Open, State::Open) => true,
                (State::Open, State::Offered) => false,
            };
        if !follows {
            return self.broken();
        }
        if seen == State::Offered && moved {
            // Acquire of the word, then the position: pairs with `Sender::publish`.
            let peer_position = self.block.tcp_position.load(Ordering::Relaxed);
            let Some(own_position) = tcp_position() else {
                return self.broken();
            };
            let left = peer_position.wrapping_sub(own_position);
            if left > TCP_AHEAD_MAX {
                return self.broken();
            }
            state.tcp_left.set(left);
        }
        state.tail_seen.set_position(word.tail);
        state.word_seen.set(raw);
        state.set_state_seen(word.state);
        Ok(())
    }

    /// Copies out up to `len_bytes` of what the last `look` found, `skip_bytes` behind the
    /// head, without consuming them. Returns the bytes copied.
    ///
    /// # Safety
    /// `to` is writable for `len_bytes`.
    pub unsafe fn peek(&self, skip_bytes: u32, to: *mut u8, len_bytes: usize) -> usize {
        let [(place, first), (start, second)] = self.spans(skip_bytes, len_bytes);
        // SAFETY: both pieces are inside the ring and inside `len_bytes`.
        unsafe {
            self.memory.copy_out(place, to, first);
            if second > 0 {
                self.memory.copy_out(start, to.add(first), second);
            }
        }
        first + second
    }

    /// The one or two pieces (place, bytes) of the ring where up to `len_bytes` of what the
    /// last `look` found lie, `skip_bytes` behind the head.
    pub fn spans(&self, skip_bytes: u32, len_bytes: usize) -> [(Place, usize); 2] {
        let head = self.state.head.position();
        // unread <= size: checked when the word was taken.
        let unread = self.state.tail_seen.position().since(head) as usize;
        let len = len_bytes.min(unread.saturating_sub(skip_bytes as usize));
        pieces(head.plus(u64::from(skip_bytes)), self.class(), len)
    }

    /// Gives `len_bytes` (no more than are unread) back to the sender.
    pub fn consume(&self, len_bytes: u32) {
        let head = self.state.head.position();
        let unread = self.state.tail_seen.position().since(head);
        let head = head.plus(u64::from(len_bytes).min(unread));
        self.state.head.set_position(head);
        // The bytes are out, /then/ the sender may overwrite them. Pairs with
        // `Sender::look_at_head`.
        self.block.head.store(head.get(), Ordering::Release);
    }

    /// Says that `len_bytes` were read from TCP.
    pub fn took_tcp(&self, len_bytes: u64) {
        let left = self.state.tcp_left.get();
        if left > 0 {
            self.state.tcp_left.set(left.saturating_sub(len_bytes));
        }
    }

    /// Parks the direction as the last `look` saw it: from then on new bytes come by TCP.
    /// Unread ring bytes stay readable.
    pub fn park(&self) -> Park {
        let state = self.state;
        if state.state_seen() == State::Parked {
            return Park::Parked;
        }
        let raw = state.word_seen.get();
        let parked = raw & !3 | State::Parked as u64;
        let swapped =
            self.block.word.compare_exchange(raw, parked, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            return Park::Moved;
        }
        state.word_seen.set(parked);
        state.set_state_seen(State::Parked);
        Park::Parked
    }

    /// Whether `offer` would do anything: parked, drained, and not for good.
    pub fn may_offer(&self) -> bool {
        let state = self.state;
        state.state_seen() == State::Parked
            && state.tcp_left.get() == 0
            && state.head.get() == state.tail_seen.get()
            && !is_set(&state.never)
            && !is_set(&state.broken)
    }

    /// Offers the drained, parked direction with a ring of `class`. Returns whether it did.
    pub fn offer(&self, class: u8) -> bool {
        if !self.may_offer() {
            return false;
        }
        let state = self.state;
        let word = Word {
            state: State::Offered,
            class: class.min(self.max_class).min(MAX_CLASS),
            tail: state.tail_seen.position(),
        };
        let raw = word.encode();
        // Again, in case that a process died between its two stores in `consume`: the sender
        // takes an offer only from a head that is at the tail.
        self.block.head.store(state.head.get(), Ordering::Release);
        let swapped = self.block.word.compare_exchange(
            state.word_seen.get(),
            raw,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if swapped.is_err() {
            // Nobody but this end moves a parked word: another process of it, that abandoned it.
            if !self.is_never() {
                set(&state.broken);
            }
            return false;
        }
        state.class.store(u32::from(word.class), Relaxed);
        state.word_seen.set(raw);
        state.set_state_seen(State::Offered);
        true
    }

    /// Never offers again. Parks only if nothing new came; the caller looks and tries again.
    pub fn never_offer(&self) {
        set(&self.state.never);
    }

    /// Puts other bytes in the place of the unread ones: the `len_bytes` at `from`, at most what a
    /// ring of `class` holds. The ring must be this end's alone by now, and parked for good: a copy
    /// that the peer does not see.
    ///
    /// # Safety
    /// `from` is readable for `len_bytes`.
    pub unsafe fn refill(&self, class: u8, from: *const u8, len_bytes: u32) {
        let state = self.state;
        let class = class.min(self.max_class).min(MAX_CLASS);
        let (head, len_bytes) = (state.head.position(), len_bytes.min(class_bytes(class)));
        let [(place, first), (start, second)] = pieces(head, class, len_bytes as usize);
        // For who finds the lock of a killed process: some of the bytes may be old, some new.
        set(&state.broken);
        // SAFETY: both pieces are inside the ring and inside `len_bytes`.
        unsafe {
            self.memory.copy_in(place, from, first);
            self.memory.copy_in(start, from.add(first), second);
        }
        let tail = head.plus(u64::from(len_bytes));
        let raw = Word { state: State::Parked, class, tail }.encode();
        state.tail_seen.set_position(tail);
        state.class.store(u32::from(class), Relaxed);
        state.tcp_left.set(0);
        state.word_seen.set(raw);
        self.block.word.store(raw, Ordering::Release);
        clear(&state.broken);
    }

    /// Whether TCP has it all from now on: parked for good.
    pub fn is_never(&self) -> bool {
        is_set(&self.state.never)
    }

    /// Parked for good, and drained: nothing here will ever change again.
    pub fn is_settled(&self) -> bool {
        let word = Word::decode(self.block.word.load(Ordering::Acquire));
        self.is_never()
            && word.is_ok_and(|word| {
                word.state == State::Parked && word.tail == self.state.head.position()
            })
    }

    /// Settles the direction past a holder of the lock that does not move and may go on at any
    /// instant. Each of its own changes of the word fails then, since the word is another one;
    /// of a parked word nobody reads the class. False: bytes are unread, and only the holder
    /// knows which of them it has taken.
    pub fn abandon(&self) -> bool {
        self.never_offer();
        // Bounded: each turn but the last, the sender published.
        for _ in 0..64 {
            let raw = self.block.word.load(Ordering::Acquire);
            let Ok(word) = Word::decode(raw) else { return false };
            if word.tail != self.state.head.position() {
                return false;
            }
            let next = match (word.state, word.class) {
                (State::Parked, 0) if self.max_class == 0 => return false,
                (State::Parked, 0) => Word { class: 1, ..word },
                (State::Parked, class) => Word { class: class - 1, ..word },
                _ => word.with_state(State::Parked),
            };
            let swapped = self.block.word.compare_exchange(
                raw,
                next.encode(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if swapped.is_ok() {
                return true;
            }
        }
        false
    }

    /// Nobody can say any more what comes next.
    pub fn spoil(&self) {
        set(&self.state.broken);
    }

    pub fn state_seen(&self) -> State {
        self.state.state_seen()
    }

    /// Without the lock, as a hint: unread bytes, or a word that moved since the last look.
    pub fn stirs(&self) -> bool {
        self.is_moved() || self.state.head.get() != self.state.tail_seen.get()
    }

    /// Whether the word moved since the last look. Without the lock a hint.
    pub fn is_moved(&self) -> bool {
        self.block.word.load(Ordering::Acquire) != self.state.word_seen.get()
    }

    /// Whether the last look left nothing that comes before what TCP has without limit.
    pub fn is_drained(&self) -> bool {
        self.state.tcp_left.get() == 0 && self.state.head.get() == self.state.tail_seen.get()
    }

    /// Whether, as far as the last look saw, the next byte comes from the ring.
    pub fn has_ring_next(&self) -> bool {
        self.state.tcp_left.get() == 0 && self.state.head.get() != self.state.tail_seen.get()
    }

    /// Whether, as far as the last look saw, ring bytes lie behind some that TCP has yet to give.
    /// Who sleeps for those must not sleep for long: another thread may take them first, and the
    /// kernel knows nothing of what is behind.
    pub fn is_behind_tcp(&self) -> bool {
        self.state.tcp_left.get() > 0
    }

    /// Whether the sender says that it sent by TCP since this was last asked.
    pub fn hinted(&self) -> bool {
        let hint = self.block.tcp_hint.load(Ordering::Acquire);
        let news = hint != self.state.hint_seen.get();
        self.state.hint_seen.set(hint);
        news
    }

    /// The same, without forgetting it.
    pub fn is_hinted(&self) -> bool {
        self.block.tcp_hint.load(Ordering::Acquire) != self.state.hint_seen.get()
    }

    /// Somebody will read the first of the unread ring bytes soon: they come from the sender's cache
    /// meanwhile.
    pub fn expect_read(&self) {
        let class = self.class().min(self.max_class);
        let (head, unread) = (self.state.head.position(), self.unread_bytes());
        self.memory.expect_read(Place::of(head, class));
        self.memory.expect_read(Place::of(head.plus(u64::from(unread.min(64)) - 1), class));
    }

    /// Where the bytes that were not read yet begin, as a number to compare.
    pub fn head(&self) -> u64 {
        self.state.head.get()
    }

    /// What the sender said of the publication that begins at `start`, `head` or a tail that was
    /// seen before, with its time near `now`. `None`: it said nothing, or it was too long ago.
    pub fn stamp_at(&self, start: u64, now: u64) -> Option<Stamp> {
        self.block.stamp_at(start, now)
    }

    /// The tail when last looked at, as a number to compare.
    pub fn tail_seen(&self) -> u64 {
        self.state.tail_seen.get()
    }

    /// Class that the sender asks for, cut to what the channel holds.
    pub fn class_wanted(&self) -> u8 {
        let peer_class = self.block.class_wanted.load(Ordering::Relaxed);
        peer_class.min(u32::from(self.max_class)) as u8
    }

    /// Class of the ring that was offered last.
    pub fn class(&self) -> u8 {
        self.state.class.load(Relaxed) as u8
    }

    pub fn unread_bytes(&self) -> u32 {
        self.state.unread_bytes()
    }
}
