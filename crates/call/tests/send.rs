//! Sends on a real direction beside a model of TCP, step by step: what they say they sent arrives,
//! in order and once, and they wait only where TCP would.

#[path = "../../ring/tests/direction/mod.rs"]
mod direction;

use std::collections::VecDeque;

use direction::{Direction, byte_at};
use proptest::prelude::*;
use yasmin_call::send::{AT_ONCE, Asks, Health, Opening, Send, Sink};
use yasmin_call::{EAGAIN, ECONNRESET, EFAULT, EINTR, Ret};
use yasmin_ring::{Broken, Pages, Publish, Receiver, Room, Sender, View, Write};
use yasmin_wait::Found;
use yasmin_wire::layout::class_bytes;

const CLASS: u8 = 0;
/// What TCP takes before it is full.
const BUFFER_BYTES: usize = 3000;

/// What happens between two calls, or while one waits.
#[derive(Clone, Debug)]
enum Event {
    /// The peer reads up to so many bytes, wherever they come next.
    Read {
        len_bytes: usize,
    },
    /// The peer parks, and offers if it has read all.
    Park,
    Offer,
    /// The peer parks while the next bytes are copied.
    ParkMidway,
    Signal,
    Health(Health),
    MayOpen(bool),
    /// The next copy into the ring meets a bad address.
    Fault,
    Reset,
}

fn event() -> impl Strategy<Value = Event> {
    let len = || prop_oneof![3 => 1usize..50, 3 => 1usize..9000];
    prop_oneof![
        12 => len().prop_map(|len_bytes| Event::Read { len_bytes }),
        2 => Just(Event::Park),
        2 => Just(Event::ParkMidway),
        6 => Just(Event::Offer),
        1 => Just(Event::Signal),
        1 => Just(Event::Health(Health::Silent)),
        2 => any::<bool>().prop_map(Event::MayOpen),
        1 => Just(Event::Fault),
        1 => prop::bool::weighted(0.05).prop_map(|is_over| if is_over { Event::Reset } else { Event::Offer }),
    ]
}

fn asks() -> impl Strategy<Value = Asks> {
    let len = prop_oneof![6 => 1usize..50, 6 => 1usize..12_000, 1 => AT_ONCE..AT_ONCE + 5000];
    (len, any::<bool>()).prop_map(|(len_bytes, blocks)| Asks { len_bytes, blocks })
}

#[derive(Clone, Debug)]
enum Step {
    Event(Event),
    Send(Asks),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => event().prop_map(Step::Event), 2 => asks().prop_map(Step::Send)]
}

struct World {
    direction: Direction,
    tcp: VecDeque<u8>,
    tcp_sent: u64,
    tcp_read: u64,
    /// What the program's sends returned, in all.
    written: usize,
    read: usize,
    parks_midway: bool,
    health: Health,
    may_open: bool,
    faults: bool,
    has_faulted: bool,
    /// Of the send under way.
    len_bytes: usize,
    is_over: bool,
    was_reset: bool,
    sleepers: u32,
}

impl World {
    fn tx(&self) -> Sender<'_, Pages> {
        self.direction.tx()
    }

    fn rx(&self) -> Receiver<'_, Pages> {
        self.direction.rx()
    }

    fn look(&self) -> View {
        self.rx().look(|| Some(self.tcp_read)).unwrap()
    }

    fn check(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            assert_eq!(byte, byte_at(self.read), "at {}", self.read);
            self.read += 1;
        }
    }

    fn receive(&mut self, mut most: usize) {
        while most > 0 && !self.is_over {
            let view = self.look();
            let limit = match view {
                View::TcpUpTo { limit_bytes } => limit_bytes as usize,
                View::Ring { unread_bytes } => {
                    let len = most.min(unread_bytes as usize);
                    let mut bytes = vec![0; len];
                    // SAFETY: `bytes` is writable for its length.
                    assert_eq!(unsafe { self.rx().peek(0, bytes.as_mut_ptr(), len) }, len);
                    self.rx().consume(len as u32);
                    self.check(&bytes);
                    most -= len;
                    continue;
                }
                View::Tcp => usize::MAX,
                View::Empty { .. } => {
                    if self.tcp.is_empty() {
                        return;
                    }
                    // TCP may be read only parked.
                    self.rx().park();
                    continue;
                }
            };
            let len = most.min(limit).min(self.tcp.len());
            if len == 0 {
                return;
            }
            let bytes: Vec<u8> = self.tcp.drain(..len).collect();
            self.tcp_read += len as u64;
            self.rx().took_tcp(len as u64);
            self.check(&bytes);
            most -= len;
        }
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Read { len_bytes } => self.receive(len_bytes),
            Event::Park => {
                self.look();
                self.rx().park();
            }
            Event::Offer => {
                if self.look() == View::Tcp && self.tcp.is_empty() && self.sleepers == 0 {
                    self.rx().offer(CLASS);
                }
            }
            Event::ParkMidway => self.parks_midway = true,
            Event::Signal => {}
            Event::Health(health) => self.health = health,
            Event::MayOpen(may) => self.may_open = may,
            Event::Fault => self.faults = true,
            Event::Reset => {
                self.is_over = true;
                self.tcp.clear();
            }
        }
    }

    fn kernel(&mut self, from: usize, len: usize) -> Ret {
        if self.is_over {
            return -ECONNRESET;
        }
        let len = len.min(BUFFER_BYTES - self.tcp.len().min(BUFFER_BYTES));
        if len == 0 {
            return -EAGAIN;
        }
        self.tcp.extend((from..from + len).map(byte_at));
        self.tcp_sent += len as u64;
        self.tx().hint();
        len as Ret
    }

    /// A whole call; `events` happen while it waits.
    fn send(&mut self, asks: Asks, events: &mut dyn Iterator<Item = Event>) {
        let mut send = Send::new(asks);
        let mut is_interrupted = false;
        self.len_bytes = asks.len_bytes;
        self.has_faulted = false;
        let ret = self.carry_out(&mut send, events, &mut is_interrupted);
        let sent = usize::try_from(ret.unwrap_or(send.done as Ret)).unwrap_or(0);
        assert_eq!(sent, send.done, "what it says it sent is not what it sent");
        if let Some(1..) = ret
            && asks.blocks
            && !is_interrupted
            && !self.is_over
        {
            assert!(sent == asks.len_bytes || self.has_faulted, "a send that waits was short");
        }
        assert!(!self.was_reset, "an honest peer, and a reset");
        if ret == Some(-EAGAIN) {
            assert!(!asks.blocks && self.tcp.len() >= BUFFER_BYTES, "TCP had room");
        }
        self.written += sent;
    }

    fn carry_out(
        &mut self,
        send: &mut Send,
        events: &mut dyn Iterator<Item = Event>,
        is_interrupted: &mut bool,
    ) -> Option<Ret> {
        let asks = send.asks;
        let mut is_spent = false;
        loop {
            let found = send.step(self, is_spent);
            if found == Found::Nothing && asks.blocks {
                let is_long = asks.len_bytes > AT_ONCE && !is_of_many(asks.len_bytes);
                assert!(send.done == 0 || is_long, "others see, or send behind, a part");
            }
            match found {
                Found::Answer(Some(ret)) => return Some(ret),
                Found::Answer(None) => {
                    let ret = self.kernel(self.written, asks.len_bytes);
                    send.done = usize::try_from(ret).unwrap_or(0);
                    *is_interrupted = true;
                    return Some(ret);
                }
                Found::Nothing | Found::Part => match events.next() {
                    // Watches until the budget is at an end.
                    None => is_spent = true,
                    Some(event) => {
                        is_spent = matches!(event, Event::Signal);
                        self.happens(&event);
                    }
                },
                Found::Asleep => {
                    assert!(asks.blocks, "a call that does not wait sleeps");
                    while self.tcp.len() >= BUFFER_BYTES && !*is_interrupted && !self.is_over {
                        let Some(event) = events.next() else {
                            self.sleepers -= 1;
                            *is_interrupted = true;
                            return None;
                        };
                        *is_interrupted = matches!(event, Event::Signal);
                        self.happens(&event);
                    }
                    self.sleepers -= 1;
                    let left = send.left();
                    let ret = self.kernel(self.written + send.done, left);
                    let is_refused = ret == -EAGAIN && *is_interrupted;
                    // The kernel's own waits for room for all; here it says what went so far.
                    let tried = usize::try_from(ret).unwrap_or(left);
                    match send.slept(if is_refused { -EINTR } else { ret }, tried) {
                        Found::Answer(Some(ret)) => return Some(ret),
                        found => assert_eq!(found, Found::Part),
                    }
                }
            }
        }
    }
}

impl Sink for World {
    fn room(&mut self, wanted: usize) -> Result<Room, Broken> {
        self.tx().room_to_send(wanted)
    }

    fn is_open(&self) -> bool {
        self.tx().is_open()
    }

    fn is_never(&self) -> bool {
        self.tx().is_never()
    }

    fn is_grown(&self) -> bool {
        true
    }

    /// Of some lengths, as if the ring did not hold them.
    fn awaits_larger(&mut self, _write: &Write, len: usize) -> bool {
        len % 5 == 3
    }

    fn holds(&self, write: &Write, len: usize) -> bool {
        len <= class_bytes(write.class()) as usize
    }

    fn has_many_senders(&self) -> bool {
        is_of_many(self.len_bytes)
    }

    fn health(&mut self, write: Option<&Write>) -> Health {
        if self.is_over {
            return Health::Over;
        }
        if write.is_some_and(Write::opens) {
            return Health::Fine;
        }
        std::mem::replace(&mut self.health, Health::Fine)
    }

    fn opening(&mut self) -> Opening {
        if self.may_open && self.sleepers == 0 {
            Opening::At(self.tcp_sent)
        } else {
            Opening::NotNow
        }
    }

    fn fill(&mut self, write: &Write, at: usize, len: usize) -> Result<usize, Ret> {
        if std::mem::take(&mut self.faults) {
            self.has_faulted = true;
            return Err(-EFAULT);
        }
        let bytes: Vec<u8> = (self.written + at..).take(len).map(byte_at).collect();
        // SAFETY: `bytes` is readable for its length.
        unsafe { self.tx().fill(write, 0, bytes.as_ptr(), len) };
        if std::mem::take(&mut self.parks_midway) {
            self.happens(&Event::Park);
        }
        Ok(len)
    }

    fn publish(&mut self, write: &Write, len: usize, position: u64) -> Result<Publish, Broken> {
        self.tx().publish(write, len as u32, position)
    }

    fn wants_growth(&mut self) -> bool {
        false
    }

    fn cut_short(&mut self) {}

    fn park(&mut self) {
        self.tx().park().unwrap();
    }

    fn park_for_good(&mut self) {
        self.tx().park_for_good().unwrap();
    }

    fn note_parked(&mut self) {}

    fn goes_by_tcp(&mut self) {}

    fn is_passed_by(&mut self) -> bool {
        false
    }

    fn may_send(&mut self) -> bool {
        !self.is_over
    }

    fn send_tcp(&mut self, at: usize) -> Ret {
        assert!(at == 0 || !self.is_over, "it takes an error that is the next call's");
        self.kernel(self.written + at, self.len_bytes - at)
    }

    fn falls_asleep(&mut self) {
        self.sleepers += 1;
    }

    fn reset(&mut self) {
        self.was_reset = true;
    }
}

/// Sends of some lengths are those of one of several threads.
const fn is_of_many(len_bytes: usize) -> bool {
    len_bytes % 3 == 1
}

fn play(steps: &[Step]) {
    let mut world = World {
        direction: Direction::new(0, CLASS),
        tcp: VecDeque::new(),
        tcp_sent: 0,
        tcp_read: 0,
        written: 0,
        read: 0,
        parks_midway: false,
        health: Health::Fine,
        may_open: true,
        faults: false,
        has_faulted: false,
        len_bytes: 0,
        is_over: false,
        was_reset: false,
        sleepers: 0,
    };
    let mut at = 0;
    while at < steps.len() {
        let step = &steps[at];
        at += 1;
        match step {
            Step::Event(event) => world.happens(event),
            Step::Send(asks) => {
                let mut used = 0;
                let mut events = steps[at..].iter().filter_map(|step| {
                    used += 1;
                    if let Step::Event(event) = step { Some(event.clone()) } else { None }
                });
                world.send(*asks, &mut events);
                at += used;
            }
        }
    }
    // Whatever was sent can be read.
    if !world.is_over {
        world.receive(usize::MAX);
        assert_eq!(world.read, world.written, "bytes are lost");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sent_arrives(steps in prop::collection::vec(step(), 1..200)) {
        play(&steps);
    }
}
