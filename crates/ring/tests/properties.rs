//! Two ends in one thread, step by step: honest ones must deliver the stream exactly, and
//! nothing that a hostile one writes may do harm.
#![cfg(not(loom))]

mod direction;
mod hostile;

use std::collections::VecDeque;

use direction::{Direction, byte_at};
use proptest::prelude::*;
use yasmin_ring::{Pages, Publish, Receiver, Room, Sender, View, Write};
use yasmin_wire::layout::class_bytes;

const MAX_CLASS: u8 = 3;

/// One step of either end. Between `Begin` and `Finish` of a send anything may happen.
#[derive(Clone, Debug)]
enum Step {
    Begin {
        len_bytes: usize,
    },
    Finish,
    SenderPark,
    Unread,
    /// Read up to `len_bytes` from wherever they come next; in OFFERED or OPEN with nothing to
    /// read do nothing.
    Read {
        len_bytes: usize,
    },
    Peek {
        skip_bytes: u32,
        len_bytes: usize,
    },
    ReceiverPark,
    Offer {
        class: u8,
    },
    /// The network delivers.
    Deliver {
        len_bytes: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![4 => 0usize..40, 2 => 0usize..5000, 1 => 4094usize..4099, 1 => 0usize..40_000];
    prop_oneof![
        6 => len().prop_map(|len_bytes| Step::Begin { len_bytes }),
        6 => Just(Step::Finish),
        1 => Just(Step::SenderPark),
        1 => Just(Step::Unread),
        6 => len().prop_map(|len_bytes| Step::Read { len_bytes }),
        1 => (0u32..5000, len())
            .prop_map(|(skip_bytes, len_bytes)| Step::Peek { skip_bytes, len_bytes }),
        2 => Just(Step::ReceiverPark),
        5 => (0u8..5).prop_map(|class| Step::Offer { class }),
        5 => len().prop_map(|len_bytes| Step::Deliver { len_bytes }),
    ]
}

struct World {
    direction: Direction,
    write: Option<(Write, usize)>,
    /// Sent and under way; arrived and unread.
    under_way: VecDeque<u8>,
    arrived: VecDeque<u8>,
    tcp_sent: u64,
    tcp_read: u64,
    written: u64,
    read: u64,
}

impl World {
    fn tx(&self) -> Sender<'_, Pages> {
        self.direction.tx()
    }

    fn rx(&self) -> Receiver<'_, Pages> {
        self.direction.rx()
    }

    fn stream(&self, len_bytes: usize) -> Vec<u8> {
        (self.written..).take(len_bytes).map(byte_at).collect()
    }

    fn send_tcp(&mut self, len_bytes: usize) {
        let bytes = self.stream(len_bytes);
        self.written += len_bytes as u64;
        self.tcp_sent += len_bytes as u64;
        self.under_way.extend(bytes);
        self.tx().hint();
    }

    fn begin(&mut self, len_bytes: usize) {
        if self.write.is_some() {
            return;
        }
        match self.tx().room_to_send(len_bytes).unwrap() {
            Room::Tcp => self.send_tcp(len_bytes),
            Room::Full => {
                assert_eq!(
                    self.tx().unread_bytes().unwrap(),
                    u64::from(class_bytes(self.tx().class()))
                );
            }
            Room::Ring(write) => {
                let len_bytes = len_bytes.min(write.room_bytes as usize);
                let bytes = self.stream(len_bytes);
                let half = len_bytes / 2;
                // SAFETY: `bytes` is readable for `len_bytes`.
                unsafe {
                    self.tx().fill(&write, half as u32, bytes[half..].as_ptr(), len_bytes - half);
                    self.tx().fill(&write, 0, bytes.as_ptr(), half);
                }
                self.write = Some((write, len_bytes));
            }
        }
    }

    fn finish(&mut self) {
        let Some((write, len_bytes)) = self.write.take() else { return };
        match self.tx().publish(&write, len_bytes as u32, self.tcp_sent).unwrap() {
            Publish::Done => self.written += len_bytes as u64,
            // By TCP; or once more into the ring, where the word was not looked at before.
            Publish::Retry => {
                let is_open = self.tx().is_open();
                assert!(!is_open, "what fails to publish finds the ring closed");
                self.begin(len_bytes);
            }
        }
    }

    fn deliver(&mut self, len_bytes: usize) {
        let len_bytes = len_bytes.min(self.under_way.len());
        self.arrived.extend(self.under_way.drain(..len_bytes));
    }

    fn check(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            assert_eq!(byte, byte_at(self.read), "at {}", self.read);
            self.read += 1;
        }
    }

    fn read_tcp(&mut self, most: usize) -> usize {
        let len_bytes = most.min(self.arrived.len());
        let bytes: Vec<u8> = self.arrived.drain(..len_bytes).collect();
        self.tcp_read += len_bytes as u64;
        self.rx().took_tcp(len_bytes as u64);
        self.check(&bytes);
        len_bytes
    }

    /// Returns whether bytes came.
    fn receive(&mut self, len_bytes: usize) -> bool {
        match self.rx().look(|| Some(self.tcp_read)).unwrap() {
            View::TcpUpTo { limit_bytes } => self.read_tcp(len_bytes.min(limit_bytes as usize)) > 0,
            View::Ring { unread_bytes } => {
                let mut bytes = vec![0; len_bytes];
                // SAFETY: `bytes` is writable for `len_bytes`.
                let len = unsafe { self.rx().peek(0, bytes.as_mut_ptr(), len_bytes) };
                assert_eq!(len, len_bytes.min(unread_bytes as usize));
                self.rx().consume(len as u32);
                self.check(&bytes[..len]);
                len > 0
            }
            View::Tcp => self.read_tcp(len_bytes) > 0,
            View::Empty { .. } => false,
        }
    }

    fn peek(&mut self, skip_bytes: u32, len_bytes: usize) {
        let view = self.rx().look(|| Some(self.tcp_read)).unwrap();
        if let View::Ring { unread_bytes } = view {
            let mut bytes = vec![0; len_bytes];
            // SAFETY: `bytes` is writable for `len_bytes`.
            let len = unsafe { self.rx().peek(skip_bytes, bytes.as_mut_ptr(), len_bytes) };
            assert_eq!(len, len_bytes.min(unread_bytes.saturating_sub(skip_bytes) as usize));
            let first = self.read + u64::from(skip_bytes);
            assert!(bytes[..len].iter().zip(first..).all(|(&byte, place)| byte == byte_at(place)));
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Begin { len_bytes } => self.begin(len_bytes),
            Step::Finish => self.finish(),
            Step::SenderPark => {
                // Not between the two halves of a send: one caller at a time.
                self.finish();
                self.tx().park().unwrap();
            }
            Step::Unread => {
                let unread = self.tx().unread_bytes().unwrap();
                assert!(unread <= u64::from(class_bytes(MAX_CLASS)));
            }
            Step::Read { len_bytes } => {
                self.receive(len_bytes);
            }
            Step::Peek { skip_bytes, len_bytes } => self.peek(skip_bytes, len_bytes),
            Step::ReceiverPark => {
                self.rx().park();
            }
            Step::Offer { class } => {
                self.rx().offer(class);
            }
            Step::Deliver { len_bytes } => self.deliver(len_bytes),
        }
        let spare = self.written - self.read;
        let tcp = (self.under_way.len() + self.arrived.len()) as u64;
        assert_eq!(self.tx().unread_bytes().unwrap() + tcp, spare, "bytes are lost or doubled");
    }

    /// Everything arrives in the end, and everything is read.
    fn settle(&mut self) {
        self.finish();
        self.deliver(usize::MAX);
        while self.read < self.written {
            if !self.receive(1 << 20) {
                self.rx().park();
            }
        }
        assert!(!self.tx().is_broken() && !self.rx().is_broken());
    }
}

fn honest(start: u64, steps: &[Step]) {
    let mut world = World {
        direction: Direction::new(start, MAX_CLASS),
        write: None,
        under_way: VecDeque::new(),
        arrived: VecDeque::new(),
        tcp_sent: 0,
        tcp_read: 0,
        written: 0,
        read: 0,
    };
    for step in steps {
        world.step(step);
    }
    world.settle();
}

/// What is unread and what was read from TCP, in a ring of another class.
fn refilled(start: u64, class: u8, sent: u32, taken: u32, read_from_tcp: usize) {
    let direction = Direction::new(start, MAX_CLASS);
    let (sender, receiver) = (direction.tx(), direction.rx());
    assert!(receiver.offer(class));
    let Ok(Room::Ring(write)) = sender.room(1) else { panic!("it was offered") };
    let bytes: Vec<u8> = (0..sent).map(byte_at).collect();
    // SAFETY: that many.
    unsafe { sender.fill(&write, 0, bytes.as_ptr(), bytes.len()) };
    assert_eq!(sender.publish(&write, sent, 0), Ok(Publish::Done));
    let view = receiver.look(|| Some(0));
    assert_eq!(view, Ok(View::Ring { unread_bytes: sent }));
    receiver.consume(taken);
    receiver.never_offer();
    receiver.park();
    let end = sent as usize + read_from_tcp;
    let all: Vec<u8> = (taken as usize..end).map(byte_at).collect();
    // SAFETY: that many.
    unsafe { receiver.refill(MAX_CLASS, all.as_ptr(), all.len() as u32) };
    let mut read = Vec::new();
    while let Ok(View::Ring { unread_bytes }) = receiver.look(|| Some(0)) {
        let mut piece = vec![0; (unread_bytes as usize).min(1500)];
        // SAFETY: that many.
        assert_eq!(unsafe { receiver.peek(0, piece.as_mut_ptr(), piece.len()) }, piece.len());
        receiver.consume(piece.len() as u32);
        // As whoever takes the lock of a killed process.
        receiver.recover(|| Some(0));
        read.append(&mut piece);
    }
    assert_eq!(receiver.look(|| Some(0)), Ok(View::Tcp));
    assert_eq!(read, all);
    assert!(receiver.is_settled());
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), any::<u64>(), (0u64..20_000).prop_map(|less| (1 << 58) - 1 - less)]
}

/// What a ring of `class` holds, at most 4 KiB of it, and less than that.
fn sent_and_taken(class: u8) -> impl Strategy<Value = (u8, u32, u32)> {
    let most = class_bytes(class).min(4096);
    (1..=most).prop_flat_map(move |sent| (Just(class), Just(sent), 0..sent))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn honest_ends_deliver_the_stream(
        start in start(),
        steps in prop::collection::vec(step(), 1..3000),
    ) {
        honest(start, &steps);
    }

    #[test]
    fn a_ring_is_refilled(
        start in start(),
        (class, sent, taken) in (0..=MAX_CLASS).prop_flat_map(sent_and_taken),
        read_from_tcp in 0usize..=12_000,
    ) {
        refilled(start, class, sent, taken, read_from_tcp);
    }

    #[test]
    fn hostile_peer_does_no_harm(data in prop::collection::vec(any::<u8>(), 0..8000)) {
        hostile::run(&data);
    }
}
