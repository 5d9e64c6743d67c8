//! The sending half of a direction (spec/wire.md section 5).

use core::sync::atomic::Ordering::Relaxed;

use yasmin_wire::layout::class_bytes;
use yasmin_wire::{Position, State, Word};

use crate::Broken;
use crate::block::Block;
use crate::memory::{Memory, Place, pieces};
use crate::primitive::Ordering;
use crate::stamps::Stamp;
use crate::state::{SenderState, clear, is_set, set};

/// One end's hold on the direction that it sends on. Made anew for each operation.
pub struct Sender<'a, M> {
    pub block: &'a Block,
    pub state: &'a SenderState,
    pub memory: M,
    /// Fixed at setup; never read back from shared memory.
    pub max_class: u8,
    /// Largest class to fill; offers of larger ones are not taken.
    pub class_limit: u8,
}

/// Where the next bytes go.
#[derive(Debug)]
pub enum Room {
    /// Into the ring: fill, then publish.
    Ring(Write),
    /// The ring is open and full.
    Full,
    /// By TCP.
    Tcp,
}

/// Permission to fill up to `room_bytes` and publish them.
#[derive(Debug)]
pub struct Write {
    expected: Word,
    pub room_bytes: u32,
    /// The word was `expected` when it was loaded; otherwise it is what it should be.
    is_seen: bool,
}

impl Write {
    /// Whether publishing opens the direction.
    pub fn opens(&self) -> bool {
        matches!(self.expected.state, State::Offered)
    }

    /// Class of the ring.
    pub fn class(&self) -> u8 {
        self.expected.class
    }
}

/// To copy so many bytes in vain costs about what the look saves that would have told.
const UNSEEN_BYTES: usize = 1024;

/// The word's state bits; PARKED is 0 (spec/wire.md section 3).
const WORD_STATE_MASK: u64 = 3;

/// What became of a publication.
#[derive(Debug, PartialEq, Eq)]
pub enum Publish {
    Done,
    /// The word moved on: nothing was published. The bytes go by TCP, and so says `room`,
    /// asked again.
    Retry,
}

impl<M: Memory> Sender<'_, M> {
    fn broken<T>(&self) -> Result<T, Broken> {
        set(&self.state.broken);
        Err(Broken)
    }

    pub fn is_broken(&self) -> bool {
        is_set(&self.state.broken)
    }

    /// Loads the word once and checks all that must hold.
    fn load(&self) -> Result<Word, Broken> {
        if self.is_broken() {
            return Err(Broken);
        }
        let Ok(word) = Word::decode(self.block.word.load(Ordering::Acquire)) else {
            return self.broken();
        };
        let opened = is_set(&self.state.open);
        // Only this end moves the tail or opens; a class is the receiver's choice, but not
        // while the ring is open. What is parked for good is nobody's business any more.
        let follows = is_set(&self.state.never)
            || word.tail == self.state.tail.position()
                && match word.state {
                    State::Open => {
                        opened && u32::from(word.class) == self.state.class.load(Relaxed)
                    }
                    State::Offered => word.class <= self.max_class,
                    State::Parked => true,
                };
        if !follows {
            return self.broken();
        }
        if word.state != State::Open {
            // Seen parked or offered once, it does not count as opened any more.
            clear(&self.state.open);
        }
        Ok(word)
    }

    /// Asks where up to `wanted_bytes` go that will be published at once. It may say so of a ring
    /// that was parked meanwhile: the publication finds that.
    ///
    /// # Errors
    /// As [`Self::room`].
    pub fn room_to_send(&self, wanted_bytes: usize) -> Result<Room, Broken> {
        self.room_if_unchanged(wanted_bytes).map_or_else(|| self.room(wanted_bytes), Ok)
    }

    /// The word's cache line is with the receiver, who watches it. Loaded first and changed then, it
    /// would come twice.
    fn room_if_unchanged(&self, wanted_bytes: usize) -> Option<Room> {
        if wanted_bytes > UNSEEN_BYTES || !self.is_open() || self.is_never() || self.is_broken() {
            return None;
        }
        let tail = self.state.tail.position();
        let size = class_bytes(self.class());
        self.memory.expect_write(Place::of(tail, self.class()));
        let used = tail.since(self.state.head_seen.position());
        let room_bytes = size.checked_sub(u32::try_from(used).ok()?)?;
        let expected = Word { state: State::Open, class: self.class(), tail };
        let write = Write { expected, room_bytes, is_seen: false };
        (room_bytes as usize >= wanted_bytes.max(1)).then_some(Room::Ring(write))
    }

    /// Asks where up to `wanted_bytes` go.
    ///
    /// # Errors
    /// [`Broken`] when the peer broke the protocol, now or before.
    pub fn room(&self, wanted_bytes: usize) -> Result<Room, Broken> {
        if self.is_never() && !self.is_broken() {
            return Ok(Room::Tcp);
        }
        if self.is_open() {
            // The receiver has read that line: asked for here, it comes while the word is
            // looked at. The word's own line is not: the receiver watches it, and would have
            // it back before the bytes are in (measured: 64 B, one way, 240 to 315 ns).
            self.memory.expect_write(Place::of(self.state.tail.position(), self.class()));
        }
        let word = self.load()?;
        match word.state {
            State::Parked => {
                clear(&self.state.retried);
                Ok(Room::Tcp)
            }
            State::Offered => {
                // After a publication that failed the bytes go by TCP: otherwise a peer that
                // flips the word could keep a caller filling for ever.
                let retried = is_set(&self.state.retried);
                clear(&self.state.retried);
                // This end's limit may have been raised since the caller read it, before the
                // receiver's was: a larger ring than that is for the next call, if at all.
                if retried || is_set(&self.state.never) || word.class > self.class_limit {
                    return Ok(Room::Tcp);
                }
                // The receiver offers only what it has drained.
                let head = Position::new(self.block.head.load(Ordering::Acquire));
                if head != word.tail {
                    return self.broken();
                }
                self.state.head_seen.set_position(head);
                let room_bytes = class_bytes(word.class);
                Ok(Room::Ring(Write { expected: word, room_bytes, is_seen: true }))
            }
            State::Open => {
                let size = class_bytes(word.class);
                let mut used = word.tail.since(self.state.head_seen.position());
                if (u64::from(size) - used) < wanted_bytes as u64 {
                    used = self.look_at_head()?;
                }
                let room_bytes = size - used as u32;
                if room_bytes == 0 {
                    return Ok(Room::Full);
                }
                Ok(Room::Ring(Write { expected: word, room_bytes, is_seen: true }))
            }
        }
    }

    /// Loads the peer's head and returns the bytes in flight, 0..=size.
    fn look_at_head(&self) -> Result<u64, Broken> {
        // This end's own: of what is parked for good the word is not checked any more.
        let tail = self.state.tail.position();
        let head = Position::new(self.block.head.load(Ordering::Acquire));
        let before = self.state.head_seen.position();
        // Neither backwards nor past the tail.
        if head.since(before) > tail.since(before) {
            return self.broken();
        }
        self.state.head_seen.set_position(head);
        Ok(tail.since(head))
    }

    /// Copies `len_bytes` from `from` to `skip_bytes` behind the tail.
    ///
    /// # Safety
    /// `from` is readable for `len_bytes`.
    ///
    /// # Panics
    /// Never; a range outside the room that `write` grants is cut to it.
    pub unsafe fn fill(&self, write: &Write, skip_bytes: u32, from: *const u8, len_bytes: usize) {
        let mut done = 0;
        for (place, len) in self.spans(write, skip_bytes, len_bytes) {
            // SAFETY: `spans` stays inside the ring and inside `len_bytes`.
            unsafe { self.memory.copy_in(place, from.add(done), len) };
            done += len;
        }
    }

    /// The one or two pieces (place, bytes) of the ring that `len_bytes` take, `skip_bytes`
    /// behind the tail.
    pub fn spans(&self, write: &Write, skip_bytes: u32, len_bytes: usize) -> [(Place, usize); 2] {
        let room = write.room_bytes.saturating_sub(skip_bytes) as usize;
        let start = write.expected.tail.plus(u64::from(skip_bytes));
        pieces(start, write.expected.class, len_bytes.min(room))
    }

    /// Says of the bytes that are about to be published when that is, and after what: a hint.
    pub fn stamp(&self, write: &Write, stamp: Stamp) {
        self.block.note_stamp(write.expected.tail.get(), stamp);
    }

    /// Publishes `len_bytes` (nothing, if 0) that were filled; opens the direction if it was offered, with
    /// `tcp_position` as the place in the TCP stream that comes before them.
    ///
    /// # Errors
    /// [`Broken`] when the word moved in a way that no honest receiver moves it.
    pub fn publish(
        &self,
        write: &Write,
        len_bytes: u32,
        tcp_position: u64,
    ) -> Result<Publish, Broken> {
        let word = write.expected;
        let len_bytes = len_bytes.min(write.room_bytes);
        if len_bytes == 0 {
            return Ok(Publish::Done);
        }
        if word.state == State::Offered {
            if is_set(&self.state.never) {
                return Ok(Publish::Retry);
            }
            self.block.tcp_position.store(tcp_position, Ordering::Relaxed);
        }
        let next = Word {
            state: State::Open,
            class: word.class,
            tail: word.tail.plus(u64::from(len_bytes)),
        };
        // Release: the bytes and the TCP position, then the word. Pairs with `Receiver::look`.
        let swapped = self.block.word.compare_exchange(
            word.encode(),
            next.encode(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if swapped.is_err() {
            if self.is_never() {
                return Ok(Publish::Retry);
            }
            // It was not open, or is not any more; only this end could open it again.
            if self.load()?.state == State::Open {
                return self.broken();
            }
            if write.is_seen {
                set(&self.state.retried);
            }
            return Ok(Publish::Retry);
        }
        self.state.tail.set_position(next.tail);
        self.state.class.store(u32::from(word.class), Relaxed);
        set(&self.state.open);
        if self.is_never() {
            // Abandoned meanwhile, and offered again before the receiver knew: these bytes stand
            // where the stream was then, and are the last ones.
            self.block.word.fetch_and(!WORD_STATE_MASK, Ordering::AcqRel);
        }
        Ok(Publish::Done)
    }

    /// Parks the direction: what comes next goes by TCP. Returns whether it was open.
    ///
    /// # Errors
    /// [`Broken`], as above.
    pub fn park(&self) -> Result<bool, Broken> {
        if self.is_never() && !self.is_broken() {
            self.block.word.fetch_and(!WORD_STATE_MASK, Ordering::AcqRel);
            return Ok(false);
        }
        let word = self.load()?;
        if word.state != State::Parked {
            // One step that cannot fail, whatever the receiver does to the word meanwhile:
            // the state becomes PARKED, class and tail stay.
            self.block.word.fetch_and(!WORD_STATE_MASK, Ordering::AcqRel);
            // The receiver may have offered again since; nobody but this end opens.
            if self.load()?.state == State::Open {
                return self.broken();
            }
        }
        Ok(word.state == State::Open)
    }

    /// Never opens again.
    ///
    /// # Errors
    /// [`Broken`], as above.
    pub fn park_for_good(&self) -> Result<(), Broken> {
        // Parked, /then/ never: an open direction whose bytes go by TCP must not be seen.
        self.park()?;
        set(&self.state.never);
        Ok(())
    }

    /// Whether TCP has it all from now on: parked for good.
    pub fn is_never(&self) -> bool {
        is_set(&self.state.never)
    }

    /// Parks for good from inside a signal handler that interrupted this very half, which may
    /// have changed the word and not yet its own books: no check, and no book is touched but
    /// `never`. The interrupted operation finds the word parked, and follows by TCP.
    pub fn park_interrupted(&self) {
        set(&self.state.never);
        self.block.word.fetch_and(!WORD_STATE_MASK, Ordering::AcqRel);
    }

    /// Parks for good past a holder of the lock that does not move and may go on at any instant:
    /// what it publishes then fails, and it follows by TCP. Where it was about to open, and the
    /// receiver offers again, it still can: with bytes that belong where it stood.
    pub fn abandon(&self) {
        self.park_interrupted();
        // The holder may have sent by TCP, and not said so.
        self.hint();
    }

    /// Says that bytes were sent by TCP: to be called after they were.
    pub fn hint(&self) {
        let hint = self.block.tcp_hint.load(Ordering::Relaxed);
        self.block.tcp_hint.store(hint.wrapping_add(1), Ordering::Release);
    }

    /// Asks the receiver for a ring of `class` at its next offer.
    pub fn want_class(&self, class: u8) {
        self.block.class_wanted.store(u32::from(class), Ordering::Relaxed);
    }

    /// Whether this end opened the direction and has not seen it parked since.
    pub fn is_open(&self) -> bool {
        is_set(&self.state.open)
    }

    /// The peer's head as it stands, unchecked: for watching it move.
    pub fn head_raw(&self) -> u64 {
        self.block.head.load(Ordering::Acquire)
    }

    /// Class of the ring that was opened last.
    pub fn class(&self) -> u8 {
        self.state.class.load(Relaxed) as u8
    }

    /// Ring bytes that the receiver has not consumed.
    ///
    /// # Errors
    /// [`Broken`], as above.
    pub fn unread_bytes(&self) -> Result<u64, Broken> {
        self.load()?;
        self.look_at_head()
    }
}
