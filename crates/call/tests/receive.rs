//! Receives of every kind on a real direction beside a model of TCP, step by step: each returns
//! what the stream has, as a receive on TCP alone would, and sleeps only where the kernel wakes it.

#[path = "../../ring/tests/direction/mod.rs"]
mod direction;

use std::collections::VecDeque;

use direction::{Direction, byte_at};
use proptest::prelude::*;
use yasmin_call::receive::{Ahead, Asks, Receive, Sleep, Source};
use yasmin_call::{EAGAIN, ECONNRESET, EFAULT, EINTR, Ret};
use yasmin_ring::{Broken, Pages, Publish, Receiver, Room, Sender, View};
use yasmin_wait::Found;
use yasmin_wire::State;

const CLASS: u8 = 0;
const EAGAINED: Ret = -EAGAIN;

/// What happens between two calls, or while one waits.
#[derive(Clone, Debug)]
enum Event {
    /// The peer sends, by the ring if that is open or offered.
    Send {
        len_bytes: usize,
    },
    /// The peer parks.
    Park,
    /// The network delivers.
    Deliver {
        len_bytes: usize,
    },
    Fin,
    Reset,
    /// A signal interrupts the call, if it sleeps.
    Signal,
    /// The library may offer, or not, from now on.
    MayOffer(bool),
    MayWatch(bool),
    /// The next copy out of the ring meets a bad address.
    Fault,
}

fn event() -> impl Strategy<Value = Event> {
    let len = || prop_oneof![4 => 1usize..40, 2 => 1usize..5000];
    prop_oneof![
        12 => len().prop_map(|len_bytes| Event::Send { len_bytes }),
        3 => Just(Event::Park),
        12 => len().prop_map(|len_bytes| Event::Deliver { len_bytes }),
        1 => Just(Event::Signal),
        2 => any::<bool>().prop_map(Event::MayOffer),
        2 => any::<bool>().prop_map(Event::MayWatch),
        1 => Just(Event::Fault),
        1 => prop_oneof![Just(Event::Fin), Just(Event::Reset)],
    ]
}

fn end() -> impl Strategy<Value = Event> {
    prop_oneof![Just(Event::Fin), Just(Event::Reset), Just(Event::Park)]
}

fn asks() -> impl Strategy<Value = Asks> {
    let len = prop_oneof![3 => 1usize..50, 2 => 1usize..9000];
    let least = prop_oneof![6 => Just(1), 3 => Just(usize::MAX), 2 => 1usize..3000];
    (len, any::<bool>(), prop::bool::weighted(0.2), least).prop_map(
        |(len_bytes, blocks, peeks, least_bytes)| {
            let least_bytes = if peeks { 1 } else { least_bytes.min(len_bytes) };
            Asks { len_bytes, blocks, peeks, least_bytes }
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Event(Event),
    Receive(Asks),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => event().prop_map(Step::Event), 2 => asks().prop_map(Step::Receive)]
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Open,
    Fin,
    Reset,
}

struct World {
    direction: Direction,
    under_way: VecDeque<u8>,
    arrived: VecDeque<u8>,
    end: End,
    /// The kernel told the reset's error.
    is_told: bool,
    /// The program was told.
    was_reset: bool,
    kept: Option<Ret>,
    tcp_sent: u64,
    tcp_read: u64,
    written: usize,
    read: usize,
    may_offer: bool,
    may_watch: bool,
    faults: bool,
    has_faulted: bool,
    is_interrupted: bool,
    is_dry: bool,
    sleeps: Option<Sleep>,
    to: Vec<u8>,
    peeks: bool,
}

impl World {
    fn tx(&self) -> Sender<'_, Pages> {
        self.direction.tx()
    }

    fn rx(&self) -> Receiver<'_, Pages> {
        self.direction.rx()
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Send { len_bytes } if self.end == End::Open => self.send(len_bytes),
            Event::Send { .. } => {}
            Event::Park => {
                self.tx().park().unwrap();
            }
            Event::Deliver { len_bytes } => self.deliver(len_bytes),
            Event::Fin | Event::Reset if self.end == End::Open => {
                // Who closes parks; what it sent by TCP comes first, what is in the ring is read.
                self.tx().park_for_good().unwrap();
                self.deliver(usize::MAX);
                self.end = if matches!(event, Event::Fin) { End::Fin } else { End::Reset };
            }
            Event::Signal | Event::Fin | Event::Reset => {}
            Event::MayOffer(may) => self.may_offer = may,
            Event::MayWatch(may) => self.may_watch = may,
            Event::Fault => self.faults = true,
        }
    }

    fn send(&mut self, len_bytes: usize) {
        let room = self.tx().room(len_bytes).unwrap();
        let bytes: Vec<u8> = (self.written..).take(len_bytes).map(byte_at).collect();
        match room {
            Room::Ring(write) => {
                let len_bytes = len_bytes.min(write.room_bytes as usize);
                // SAFETY: `bytes` is readable for `len_bytes`.
                unsafe { self.tx().fill(&write, 0, bytes.as_ptr(), len_bytes) };
                let published = self.tx().publish(&write, len_bytes as u32, self.tcp_sent);
                assert_eq!(published.unwrap(), Publish::Done);
                self.written += len_bytes;
            }
            Room::Full => {}
            Room::Tcp => {
                self.written += len_bytes;
                self.tcp_sent += len_bytes as u64;
                self.under_way.extend(bytes);
                self.tx().hint();
            }
        }
    }

    fn deliver(&mut self, len_bytes: usize) {
        let len_bytes = len_bytes.min(self.under_way.len());
        self.arrived.extend(self.under_way.drain(..len_bytes));
    }

    /// recv with MSG_DONTWAIT.
    fn kernel(&mut self, at: usize, most: usize) -> Ret {
        let len = most.min(self.arrived.len());
        if len == 0 {
            return match self.end {
                End::Open => -EAGAIN,
                End::Fin => 0,
                End::Reset if std::mem::replace(&mut self.is_told, true) => 0,
                End::Reset => -ECONNRESET,
            };
        }
        let bytes: Vec<u8> = self.arrived.iter().copied().take(len).collect();
        self.to[at..at + len].copy_from_slice(&bytes);
        if !self.peeks {
            self.arrived.drain(..len);
            self.tcp_read += len as u64;
        }
        len as Ret
    }

    /// Bytes that a receive must find without waiting.
    fn at_hand(&self) -> usize {
        self.written - self.read - self.under_way.len()
    }

    /// Checks what a call returned against the stream.
    fn returned(&mut self, asks: Asks, ret: Ret) {
        if ret <= 0 {
            return;
        }
        let len = ret as usize;
        assert!(len <= asks.len_bytes && self.read + len <= self.written, "more than there is");
        for at in 0..len {
            assert_eq!(self.to[at], byte_at(self.read + at), "at {} + {at}", self.read);
        }
        if !asks.peeks {
            self.read += len;
        }
    }

    /// A whole call; `events` happen while it waits. `None`: they are at an end, and it waits.
    fn receive(&mut self, asks: Asks, events: &mut dyn Iterator<Item = Event>) -> Option<Ret> {
        if let Some(error) = self.kept.take() {
            self.tells(error);
            return Some(error);
        }
        let mut receive = Receive::new(asks);
        // With TCP bytes under way, ring bytes behind them are not at hand.
        let had = if self.under_way.is_empty() { self.at_hand() } else { 0 };
        self.has_faulted = false;
        self.is_interrupted = false;
        let ret = self.carry_out(&mut receive, events);
        // One that still waits has its bytes in hand.
        self.returned(asks, ret.unwrap_or(receive.done as Ret));
        if let Some(ret @ (1.. | EAGAINED)) = ret
            && !self.has_faulted
        {
            let len = usize::try_from(ret).unwrap_or(0);
            assert!(len >= had.min(asks.len_bytes), "{ret} of {had} bytes");
            let may_be_short = !asks.blocks || self.end != End::Open;
            assert!(may_be_short || self.is_interrupted || len >= asks.least_bytes, "too few");
        }
        self.tells(ret.unwrap_or(0));
        ret
    }

    fn tells(&mut self, ret: Ret) {
        if ret == -ECONNRESET {
            assert!(!self.was_reset, "the program was told already");
            self.was_reset = true;
        }
    }

    fn carry_out(
        &mut self,
        receive: &mut Receive,
        events: &mut dyn Iterator<Item = Event>,
    ) -> Option<Ret> {
        let asks = receive.asks;
        self.to = vec![0; asks.len_bytes];
        self.peeks = asks.peeks;
        let mut is_spent = false;
        loop {
            match receive.step(self, is_spent) {
                Found::Answer(Some(ret)) => return Some(ret),
                Found::Answer(None) => {
                    // libc's: the kernel has all that is left.
                    assert_eq!(self.rx().unread_bytes(), 0);
                    assert_eq!(self.rx().state_seen(), State::Parked);
                    let is_short = self.arrived.len() < asks.least_bytes;
                    if asks.blocks && self.end == End::Open && (is_short || self.arrived.is_empty())
                    {
                        self.happens(&events.next()?);
                        continue;
                    }
                    return Some(self.kernel(0, asks.len_bytes));
                }
                Found::Nothing | Found::Part => {
                    assert!(asks.blocks, "a call that does not wait waits");
                    let (rx, has_arrived) = (self.rx(), !self.arrived.is_empty());
                    assert!(!rx.is_hinted() || !has_arrived, "watches what TCP has");
                    // Watches, until the budget is at an end.
                    let Some(event) = events.next() else {
                        self.rx().park();
                        is_spent = true;
                        continue;
                    };
                    is_spent = matches!(event, Event::Signal);
                    self.happens(&event);
                    if is_spent {
                        let rx = self.rx();
                        rx.look(|| Some(self.tcp_read)).unwrap();
                        rx.park();
                    }
                }
                Found::Asleep => {
                    assert!(asks.blocks, "a call that does not wait sleeps");
                    let sleep = self.sleeps.take().expect("it says what for");
                    if sleep == Sleep::Recv {
                        assert_eq!(self.rx().state_seen(), State::Parked, "asleep, and not parked");
                        assert_eq!(self.rx().unread_bytes(), 0, "asleep over ring bytes");
                    }
                    let is_first = receive.done == 0;
                    // The kernel's own recv waits for as many, too.
                    let is_kernels = is_first && sleep == Sleep::Recv;
                    let enough = if is_kernels { asks.least_bytes } else { 1 };
                    while self.arrived.len() < enough
                        && self.end == End::Open
                        && !self.is_interrupted
                    {
                        let event = events.next()?;
                        self.is_interrupted = matches!(event, Event::Signal);
                        self.happens(&event);
                    }
                    let found = match sleep {
                        Sleep::Recv if is_first => {
                            let ret = self.kernel(0, asks.len_bytes);
                            let is_refused = ret == -EAGAIN && self.is_interrupted;
                            receive.slept(self, if is_refused { -EINTR } else { ret })
                        }
                        _ if self.is_interrupted => receive.slept(self, -EINTR),
                        Sleep::Recv => receive.slept_for_more(self, 1),
                        _ => Found::Part,
                    };
                    if let Found::Answer(Some(ret)) = found {
                        return Some(ret);
                    }
                }
            }
        }
    }
}

impl Source for World {
    fn look(&mut self) -> Result<View, Broken> {
        let read = self.tcp_read;
        self.rx().look(|| Some(read))
    }

    fn unread_bytes(&self) -> usize {
        self.rx().unread_bytes() as usize
    }

    fn is_parked(&self) -> bool {
        self.rx().state_seen() == State::Parked
    }

    fn is_never(&self) -> bool {
        self.rx().is_never()
    }

    fn park(&mut self) {
        self.rx().park();
    }

    fn peek_offset(&self) -> Option<usize> {
        None
    }

    fn set_peek_offset(&mut self, _: usize) {}

    fn copy(&mut self, at: usize, skip: usize, most: usize) -> Result<usize, Ret> {
        if std::mem::take(&mut self.faults) {
            self.has_faulted = true;
            return Err(-EFAULT);
        }
        let mut bytes = vec![0; most];
        // SAFETY: `bytes` is writable for `most`.
        let len = unsafe { self.rx().peek(skip as u32, bytes.as_mut_ptr(), most) };
        assert_eq!(len, most, "more than the ring has");
        self.to[at..at + len].copy_from_slice(&bytes);
        Ok(len)
    }

    fn consume(&mut self, len: usize) {
        self.rx().consume(len as u32);
    }

    fn take_tcp(&mut self, at: usize, most: usize) -> Ret {
        self.rx().hinted();
        let ret = self.kernel(at, most);
        if ret > 0 && !self.peeks {
            self.rx().took_tcp(ret as u64);
        }
        ret
    }

    fn peek_past(&mut self, at: usize, before: usize) -> usize {
        let more: Vec<u8> = self.arrived.iter().copied().skip(before).collect();
        let len = more.len().min(self.to.len() - at);
        self.to[at..at + len].copy_from_slice(&more[..len]);
        len
    }

    fn ahead(&mut self) -> Ahead {
        match self.end {
            _ if !self.arrived.is_empty() => Ahead::Bytes,
            End::Reset if !self.is_told => Ahead::Stop,
            _ => Ahead::Nothing,
        }
    }

    fn is_dry(&self) -> bool {
        self.is_dry && !self.rx().is_hinted()
    }

    fn may_have_tcp(&mut self, state: State) -> bool {
        state == State::Offered && (!self.arrived.is_empty() || self.end != End::Open)
    }

    fn offer(&mut self, is_dry: bool) {
        self.is_dry = is_dry;
        if self.may_offer {
            self.rx().offer(CLASS);
        }
    }

    fn may_watch(&mut self) -> bool {
        self.may_watch && self.rx().may_offer()
    }

    fn falls_asleep(&mut self, sleep: Sleep) {
        self.sleeps = Some(sleep);
    }

    fn ends(&mut self) {
        self.rx().never_offer();
    }

    fn keep(&mut self, error: Ret) {
        self.kept = Some(error);
    }
}

fn play(steps: &[Step], end: &Event) {
    let mut world = World {
        direction: Direction::new(0, CLASS),
        under_way: VecDeque::new(),
        arrived: VecDeque::new(),
        end: End::Open,
        is_told: false,
        was_reset: false,
        kept: None,
        tcp_sent: 0,
        tcp_read: 0,
        written: 0,
        read: 0,
        may_offer: true,
        may_watch: true,
        faults: false,
        has_faulted: false,
        is_interrupted: false,
        is_dry: false,
        sleeps: None,
        to: Vec::new(),
        peeks: false,
    };
    let mut at = 0;
    while at < steps.len() {
        let step = &steps[at];
        at += 1;
        match step {
            Step::Event(event) => world.happens(event),
            Step::Receive(asks) => {
                let rest = &mut steps[at..].iter();
                let mut used = 0;
                let mut events = rest.filter_map(|step| {
                    used += 1;
                    if let Step::Event(event) = step { Some(event.clone()) } else { None }
                });
                if world.receive(*asks, &mut events).is_none() {
                    break;
                }
                at += used;
            }
        }
    }
    // Whatever was sent comes out, and then the end.
    world.happens(end);
    world.deliver(usize::MAX);
    world.faults = false;
    let asks = Asks { len_bytes: 3000, blocks: false, peeks: false, least_bytes: 1 };
    loop {
        let ret = world.receive(asks, &mut std::iter::empty());
        match (ret, world.end) {
            (Some(1..), _) => {}
            (Some(0), End::Fin) => break,
            (Some(0), End::Reset) if world.was_reset => break,
            (Some(ret), End::Reset) if ret == -ECONNRESET => {}
            (Some(ret), End::Open) if ret == -EAGAIN => break,
            (ret, _) => panic!("{ret:?} at the end"),
        }
    }
    assert_eq!(world.read, world.written, "bytes are lost");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn receives_give_the_stream(steps in prop::collection::vec(step(), 1..200), end in end()) {
        play(&steps, &end);
    }
}
