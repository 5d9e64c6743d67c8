//! A direction whose shared block a hostile peer rewrites between all steps, driven by a string
//! of bytes. Used by `properties.rs` and by the fuzz target `direction_hostile`.
//!
//! Both ends act on the one block, so that a scribble may also imitate what the other end does.
//! Panics when a step reads or writes outside the ring, writes behind the class that the sender was
//! granted (whatever class the peer offers: the pages are charged to the receiver), reports more than the ring holds, or
//! does not come to an end. An end that finds its peer out begins anew.

use yasmin_ring::{Block, Broken, Pages, Park, Publish, Receiver, ReceiverState};
use yasmin_ring::{Room, Sender, SenderState, View};
use yasmin_wire::layout::{MAX_CLASS, class_bytes, paged_bytes};
use yasmin_wire::{Position, Word};

const GUARD_BYTES: usize = 4096;
const GUARD: u8 = 0xa5;
/// Bytes to send. The guards' value is not among them.
static SOURCE: [u8; 1 << 17] = [0x5a; 1 << 17];
/// More than any caller's loop may take.
const TRIES: usize = 4;

struct Bytes<'a> {
    data: &'a [u8],
}

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.data.split_first()?;
        self.data = rest;
        Some(first)
    }

    /// What lies behind the end is 0.
    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// 0, 1, near a ring's size, or anything below 64 KiB.
    fn length(&mut self) -> usize {
        match self.byte() % 4 {
            0 => usize::from(self.byte() % 3),
            1 => usize::from(self.short()) % 5000,
            2 => class_bytes(self.byte() % 4) as usize + usize::from(self.byte() % 3),
            _ => usize::from(self.short()),
        }
    }
}

/// Ring memory with guards on both sides.
struct Guarded {
    bytes: Vec<u8>,
}

impl Guarded {
    fn new(len_bytes: usize) -> Self {
        let mut bytes = vec![GUARD; len_bytes + 2 * GUARD_BYTES];
        bytes[GUARD_BYTES..GUARD_BYTES + len_bytes].fill(0);
        Self { bytes }
    }

    fn start(&mut self) -> *mut u8 {
        self.bytes[GUARD_BYTES..].as_mut_ptr()
    }

    /// `granted`: how many bytes of the ring may be written.
    fn check(&self, granted: usize) {
        let free = GUARD_BYTES + granted..self.bytes.len() - GUARD_BYTES;
        assert!(self.bytes[free].iter().all(|&byte| byte == 0), "wrote more than was granted");
        let behind = self.bytes.len() - GUARD_BYTES;
        assert!(self.bytes[..GUARD_BYTES].iter().all(|&byte| byte == GUARD), "wrote before");
        assert!(self.bytes[behind..].iter().all(|&byte| byte == GUARD), "wrote behind");
    }
}

struct Ends<'a> {
    block: &'a Block,
    tx_state: SenderState,
    rx_state: ReceiverState,
    memory: Pages,
    max_class: u8,
    /// The largest ring that the sender may fill.
    granted: u8,
}

impl Ends<'_> {
    fn tx(&self) -> Sender<'_, Pages> {
        let (block, state) = (self.block, &self.tx_state);
        Sender {
            block,
            state,
            memory: self.memory,
            max_class: self.max_class,
            class_limit: self.granted,
        }
    }

    fn rx(&self) -> Receiver<'_, Pages> {
        let (block, state) = (self.block, &self.rx_state);
        Receiver { block, state, memory: self.memory, max_class: self.max_class }
    }

    fn begin(&mut self, start: u64) {
        let start = Position::new(start);
        self.tx_state = SenderState::starting_at(start);
        self.rx_state = ReceiverState::starting_at(start);
        self.block.scribble(Word { tail: start, ..Word::INITIAL }.encode(), 0, start.get());
    }

    /// Something that an attacker would try, near to what stands there.
    fn scribble(&self, bytes: &mut Bytes<'_>) {
        let (word, tcp, head) =
            (self.block.word_raw(), self.block.tcp_position_raw(), self.block.head_raw());
        let by = u64::from(bytes.short());
        let (word, tcp, head) = match bytes.byte() % 16 {
            0 => (word & !3, tcp, head),
            1 => (word & !3 | 1, tcp, head),
            2 => (word & !3 | 2, tcp, head),
            3 => (word ^ (by & 15) << 2, tcp, head),
            4 => (word.wrapping_add(by << 6), tcp, head),
            5 => (word.wrapping_sub(by << 6), tcp, head),
            6 => (word, tcp, head.wrapping_add(by)),
            7 => (word, tcp, head.wrapping_sub(by)),
            8 => (word, tcp.wrapping_add(by), word >> 6),
            // Drained and offered: what makes the sender open again and again.
            9 => (word & !3 & !(15 << 2) | 1 | (by & 15) << 2, tcp, word >> 6),
            10 => (bytes.long(), bytes.long(), bytes.long()),
            // What an honest sender does, and a little more.
            11 | 12 => ((word & !3 | 2).wrapping_add((by & 0x1fff) << 6), tcp, head),
            // What an honest receiver does.
            13 => (word & !3 | 1, tcp, word >> 6),
            14 => (word & !3, tcp, word >> 6),
            _ => (word, bytes.long(), head),
        };
        self.block.scribble(word, tcp, head);
    }

    fn send(&self, bytes: &mut Bytes<'_>) -> Result<(), Broken> {
        let wanted = bytes.length();
        for _ in 0..TRIES {
            let write = match self.tx().room_to_send(wanted)? {
                Room::Tcp => {
                    self.tx().hint();
                    return Ok(());
                }
                Room::Full => {
                    self.scribble(bytes);
                    self.tx().park()?;
                    return Ok(());
                }
                Room::Ring(write) => write,
            };
            assert!(write.room_bytes >= 1 && write.room_bytes <= class_bytes(self.granted));
            self.scribble(bytes);
            let skip = bytes.byte();
            // SAFETY: `SOURCE` is longer than any `length`.
            unsafe { self.tx().fill(&write, u32::from(skip), SOURCE.as_ptr(), wanted) };
            for (place, len) in self.tx().spans(&write, u32::from(skip), wanted) {
                assert!(place.class <= self.granted);
                assert!(place.at as usize + len <= class_bytes(place.class) as usize);
            }
            self.scribble(bytes);
            let len_bytes = (wanted as u32).min(write.room_bytes);
            if self.tx().publish(&write, len_bytes, bytes.long())? == Publish::Done {
                return Ok(());
            }
            self.scribble(bytes);
        }
        panic!("the peer holds a sender");
    }

    fn receive(&self, bytes: &mut Bytes<'_>) -> Result<(), Broken> {
        // Mostly a place that the stored position does not contradict.
        let own = match bytes.byte() {
            0 => None,
            byte if byte & 7 == 7 => Some(bytes.long()),
            byte => Some(self.block.tcp_position_raw().wrapping_sub(u64::from(byte & 3))),
        };
        match self.rx().look(|| own)? {
            View::TcpUpTo { limit_bytes } => {
                assert!(limit_bytes > 0 && limit_bytes <= 1 << 40);
                self.rx().took_tcp(bytes.length() as u64);
            }
            View::Ring { unread_bytes } => {
                assert!(unread_bytes > 0 && unread_bytes <= class_bytes(self.max_class));
                let (skip, len) = (bytes.length(), bytes.length());
                let mut out = vec![GUARD; len + 1];
                self.scribble(bytes);
                // SAFETY: `out` is writable for `len` and one more.
                let got = unsafe { self.rx().peek(skip as u32, out.as_mut_ptr(), len) };
                assert!(got <= len && out[got..].iter().all(|&byte| byte == GUARD));
                assert!(!out[..got].contains(&GUARD), "read outside the ring");
                self.scribble(bytes);
                self.rx().consume(bytes.length() as u32);
            }
            View::Tcp => {
                self.rx().offer(bytes.byte());
            }
            View::Empty { .. } => {}
        }
        assert!(self.rx().unread_bytes() <= class_bytes(self.max_class));
        Ok(())
    }

    fn step(&self, bytes: &mut Bytes<'_>, op: u8) -> Result<(), Broken> {
        match op % 10 {
            0..=2 => self.send(bytes),
            3..=5 => self.receive(bytes),
            6 => self.tx().park().map(drop),
            7 => {
                let unread = self.tx().unread_bytes()?;
                assert!(unread <= u64::from(class_bytes(self.max_class)));
                Ok(())
            }
            8 => {
                // As a caller parks to sleep: it looks until it is parked.
                let own = bytes.long();
                for _ in 0..TRIES {
                    if self.rx().park() == Park::Parked {
                        break;
                    }
                    self.rx().look(|| Some(own))?;
                }
                Ok(())
            }
            _ => {
                match bytes.byte() {
                    0 => self.tx().park_for_good()?,
                    1 => self.rx().never_offer(),
                    class => self.tx().want_class(class),
                }
                assert!(self.rx().class_wanted() <= self.max_class);
                self.rx().hinted();
                self.rx().stirs();
                Ok(())
            }
        }
    }
}

/// Runs the steps that `data` spells.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes { data };
    // Small ones mostly: they are faster and fill sooner.
    let (max_class, granted) = match bytes.byte() {
        0xff => (MAX_CLASS, MAX_CLASS),
        byte => (byte & 3, (byte & 3).min(byte >> 2 & 3)),
    };
    let mut small = Guarded::new(class_bytes(0) as usize);
    let mut paged = Guarded::new(paged_bytes(max_class));
    let block = Block::new();
    // SAFETY: both outlive the ends.
    let memory = unsafe { Pages::new(small.start(), paged.start()) };
    let mut ends = Ends {
        block: &block,
        tx_state: SenderState::default(),
        rx_state: ReceiverState::default(),
        memory,
        max_class,
        granted,
    };
    ends.begin(bytes.long());
    while let Some(op) = bytes.next() {
        if op & 0x80 != 0 {
            ends.scribble(&mut bytes);
        }
        if ends.step(&mut bytes, op).is_err() {
            assert!(ends.tx().is_broken() || ends.rx().is_broken());
            assert!(!ends.tx().is_broken() || ends.tx().room(1).is_err());
            assert!(!ends.rx().is_broken() || ends.rx().look(|| Some(0)).is_err());
            let start = bytes.long();
            ends.begin(start);
        }
    }
    small.check(class_bytes(0) as usize);
    paged.check(paged_bytes(granted));
}
