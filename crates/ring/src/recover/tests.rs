//! Every step is cut off after each of the changes that it makes, in the order that it makes
//! them; then both ends go on, and nothing is broken, lost or doubled.

use std::cell::UnsafeCell;

use super::*;
use crate::{Block, Park, Place, Publish, ReceiverState, Room, SenderState, View};

/// A ring that copies itself away, so that many ends can be tried on one past.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a UnsafeCell<[u8; 8192]>);

impl Memory for Bytes<'_> {
    unsafe fn copy_in(&self, place: Place, from: *const u8, len_bytes: usize) {
        // SAFETY: one thread; the range is inside, as the caller vouches.
        unsafe {
            core::ptr::copy(from, self.0.get().cast::<u8>().add(place.at as usize), len_bytes)
        }
    }

    unsafe fn copy_out(&self, place: Place, to: *mut u8, len_bytes: usize) {
        // SAFETY: as above.
        unsafe { core::ptr::copy(self.0.get().cast::<u8>().add(place.at as usize), to, len_bytes) }
    }
}

/// One direction with both its ends' books, and how far TCP is on both sides.
struct Pair {
    block: Block,
    ring: UnsafeCell<[u8; 8192]>,
    sender: SenderState,
    receiver: ReceiverState,
    tcp_sent: u64,
    tcp_read: u64,
    sent: u64,
    got: u64,
}

impl Pair {
    fn new() -> Self {
        let pair = Self {
            block: Block::new(),
            ring: UnsafeCell::new([0; 8192]),
            sender: SenderState::default(),
            receiver: ReceiverState::default(),
            tcp_sent: 0,
            tcp_read: 0,
            sent: 0,
            got: 0,
        };
        pair.tx().hint();
        pair
    }

    fn tx(&self) -> Sender<'_, Bytes<'_>> {
        Sender {
            block: &self.block,
            state: &self.sender,
            memory: Bytes(&self.ring),
            max_class: 1,
            class_limit: 1,
        }
    }

    fn rx(&self) -> Receiver<'_, Bytes<'_>> {
        Receiver {
            block: &self.block,
            state: &self.receiver,
            memory: Bytes(&self.ring),
            max_class: 1,
        }
    }

    /// Bytes of the stream: each says where it belongs.
    fn send(&mut self, len: u64) {
        let mut left = len;
        while left > 0 {
            let room = self.tx().room(left as usize).expect("sender");
            let Room::Ring(write) = room else {
                self.tcp_sent += left;
                self.sent += left;
                self.tx().hint();
                return;
            };
            let now = left.min(u64::from(write.room_bytes));
            for i in 0..now {
                let byte = (self.sent + i) as u8;
                // SAFETY: one byte of ours, inside the room.
                unsafe { self.tx().fill(&write, i as u32, &raw const byte, 1) };
            }
            let done = self.tx().publish(&write, now as u32, self.tcp_sent).expect("sender");
            if done == Publish::Done {
                self.sent += now;
                left -= now;
            }
        }
    }

    /// Reads all that there is, checks its order, and offers.
    fn drain(&mut self) {
        loop {
            let read = self.tcp_read;
            match self.rx().look(|| Some(read)).expect("receiver") {
                View::TcpUpTo { limit_bytes } => {
                    assert!(self.tcp_read + limit_bytes <= self.tcp_sent, "waits for ever");
                    self.take_tcp(limit_bytes);
                    self.rx().took_tcp(limit_bytes);
                }
                View::Ring { unread_bytes } => {
                    for i in 0..unread_bytes {
                        let mut byte = 0u8;
                        // SAFETY: one byte of ours.
                        unsafe { self.rx().peek(i, &raw mut byte, 1) };
                        assert_eq!(byte, self.got as u8, "out of order at {}", self.got);
                        self.got += 1;
                    }
                    self.rx().consume(unread_bytes);
                }
                View::Tcp => {
                    self.take_tcp(self.tcp_sent - self.tcp_read);
                    self.rx().offer(1);
                    return;
                }
                View::Empty { .. } => {
                    assert_eq!(self.rx().park(), Park::Parked);
                }
            }
        }
    }

    /// What goes by TCP is in order by itself; only its place among ring bytes is checked.
    fn take_tcp(&mut self, len: u64) {
        self.tcp_read += len;
        self.got += len;
    }

    fn goes_on(&mut self) {
        for len in [100, 5000, 3, 9000, 100] {
            self.send(len);
            self.drain();
        }
        assert_eq!(self.got, self.sent);
        assert!(!self.tx().is_broken() && !self.rx().is_broken());
    }
}

/// The private numbers of one half.
fn sender_books(state: &SenderState) -> [u64; 3] {
    [state.tail.get(), u64::from(state.class.load(Relaxed)), u64::from(state.open.load(Relaxed))]
}

fn set_sender_books(state: &SenderState, books: [u64; 3]) {
    state.tail.set(books[0]);
    state.class.store(books[1] as u32, Relaxed);
    state.open.store(books[2] as u32, Relaxed);
}

fn receiver_books(state: &ReceiverState) -> [u64; 5] {
    [
        state.tcp_left.get(),
        state.tail_seen.get(),
        u64::from(state.class.load(Relaxed)),
        state.word_seen.get(),
        state.state_seen() as u64,
    ]
}

fn set_receiver_books(state: &ReceiverState, books: [u64; 5]) {
    state.tcp_left.set(books[0]);
    state.tail_seen.set(books[1]);
    state.class.store(books[2] as u32, Relaxed);
    state.word_seen.set(books[3]);
    state.state_seen.store(books[4] as u32, Relaxed);
}

/// Books of which only the first `cut` were changed.
fn cut<const N: usize>(before: [u64; N], after: [u64; N], cut: usize) -> [u64; N] {
    std::array::from_fn(|i| if i < cut { after[i] } else { before[i] })
}

/// Takes a direction to where a step is cut, recovers, and goes on.
fn sender_killed(prepare: impl Fn(&mut Pair), step: impl Fn(&mut Pair)) {
    for at in 0..=3 {
        let mut pair = Pair::new();
        prepare(&mut pair);
        let before = sender_books(&pair.sender);
        step(&mut pair);
        let after = sender_books(&pair.sender);
        set_sender_books(&pair.sender, cut(before, after, at));
        pair.tx().recover();
        pair.goes_on();
    }
}

fn receiver_killed(prepare: impl Fn(&mut Pair), step: impl Fn(&mut Pair)) {
    for at in 0..=5 {
        let mut pair = Pair::new();
        prepare(&mut pair);
        let before = receiver_books(&pair.receiver);
        step(&mut pair);
        let after = receiver_books(&pair.receiver);
        set_receiver_books(&pair.receiver, cut(before, after, at));
        let read = pair.tcp_read;
        pair.rx().recover(|| Some(read));
        pair.drain();
        pair.goes_on();
    }
}

#[test]
fn a_sender_killed_while_it_opens() {
    sender_killed(Pair::drain, |pair| pair.send(100));
}

#[test]
fn a_sender_killed_while_it_publishes() {
    let open = |pair: &mut Pair| {
        pair.drain();
        pair.send(100);
    };
    sender_killed(open, |pair| pair.send(200));
    // The receiver has parked since, or offered again.
    sender_killed(open, |pair| {
        pair.send(200);
        let read = pair.tcp_read;
        pair.rx().look(|| Some(read)).unwrap();
        pair.rx().park();
    });
    sender_killed(open, |pair| {
        pair.send(200);
        pair.drain();
    });
}

#[test]
fn a_receiver_killed_while_it_offers() {
    receiver_killed(|_| {}, |pair| assert!(pair.rx().offer(1)));
    // And opened since, behind bytes of TCP.
    receiver_killed(
        |pair| pair.send(50),
        |pair| {
            pair.drain();
            pair.send(100);
        },
    );
}

#[test]
fn a_receiver_killed_while_it_looks() {
    let look = |pair: &mut Pair| {
        let read = pair.tcp_read;
        pair.rx().look(|| Some(read)).unwrap();
    };
    receiver_killed(
        |pair| {
            pair.send(50);
            pair.rx().offer(1);
            pair.send(100);
        },
        look,
    );
    receiver_killed(
        |pair| {
            pair.rx().offer(1);
            pair.send(100);
            look(pair);
            pair.send(100);
        },
        look,
    );
}

#[test]
fn a_receiver_killed_while_it_parks() {
    receiver_killed(
        |pair| {
            pair.rx().offer(1);
            pair.send(100);
            let read = pair.tcp_read;
            pair.rx().look(|| Some(read)).unwrap();
        },
        |pair| {
            pair.rx().park();
        },
    );
}

/// The kernel's bytes are gone with the process; those after them are not.
#[test]
fn a_receiver_killed_after_it_read_tcp() {
    let mut pair = Pair::new();
    pair.send(50);
    pair.rx().offer(1);
    pair.send(100);
    assert_eq!(pair.rx().look(|| Some(0)).unwrap(), View::TcpUpTo { limit_bytes: 50 });
    pair.take_tcp(20);
    pair.rx().recover(|| Some(20));
    assert_eq!(pair.rx().look(|| Some(20)).unwrap(), View::TcpUpTo { limit_bytes: 30 });
    pair.goes_on();
}

#[test]
fn a_receiver_killed_while_it_consumes() {
    let mut pair = Pair::new();
    pair.rx().offer(1);
    pair.send(4096);
    assert_eq!(pair.rx().look(|| Some(0)).unwrap(), View::Ring { unread_bytes: 4096 });
    // Its own head moved, the shared one did not.
    pair.receiver.head.set(4096);
    pair.got = 4096;
    pair.rx().recover(|| Some(0));
    assert!(matches!(pair.tx().room(1).unwrap(), Room::Ring(_)));
    pair.goes_on();
}

/// A sender that stands still in the middle of a publication, and goes on when others have sent
/// by TCP: its bytes follow by TCP, too.
#[test]
fn a_sender_abandoned_while_it_publishes() {
    for opens in [true, false] {
        let mut pair = Pair::new();
        pair.rx().offer(1);
        if !opens {
            pair.send(100);
        }
        let Room::Ring(write) = pair.tx().room(7).unwrap() else { panic!("no room") };
        pair.tx().abandon();
        pair.send(30);
        assert_eq!(pair.tx().publish(&write, 7, 0).unwrap(), Publish::Retry);
        pair.send(7);
        pair.drain();
        pair.goes_on();
        assert!(matches!(pair.tx().room(1).unwrap(), Room::Tcp));
    }
}

/// It has published already, and not noted it.
#[test]
fn a_sender_abandoned_behind_a_publication() {
    let mut pair = Pair::new();
    pair.rx().offer(1);
    pair.send(100);
    let before = sender_books(&pair.sender);
    pair.send(200);
    let after = sender_books(&pair.sender);
    set_sender_books(&pair.sender, before);
    pair.tx().abandon();
    pair.send(30);
    pair.tx().park().unwrap();
    pair.drain();
    set_sender_books(&pair.sender, after);
    pair.goes_on();
}

/// The receiver offers again before it knows: what opens then is where the stream was.
#[test]
fn a_sender_abandoned_while_it_opens_opens_late() {
    let mut pair = Pair::new();
    pair.send(50);
    pair.drain();
    let Room::Ring(write) = pair.tx().room(7).unwrap() else { panic!("no room") };
    pair.tx().abandon();
    pair.drain();
    for i in 0..7u32 {
        let byte = (pair.sent + u64::from(i)) as u8;
        // SAFETY: one byte of ours, inside the room.
        unsafe { pair.tx().fill(&write, i, &raw const byte, 1) };
    }
    // It was past its last look at `never`.
    pair.sender.never.store(0, Relaxed);
    assert_eq!(pair.tx().publish(&write, 7, 50).unwrap(), Publish::Done);
    pair.sender.never.store(1, Relaxed);
    pair.tx().park().unwrap();
    pair.sent += 7;
    pair.send(30);
    pair.drain();
    pair.goes_on();
}

#[test]
fn a_receiver_abandoned_anywhere_is_settled() {
    // Before it offers; between the offer and its note; open, and drained; while it parks.
    let late_offer = |pair: &Pair| assert!(!pair.rx().offer(1));
    for cut_at in 0..=5 {
        let mut pair = Pair::new();
        pair.send(50);
        let read = pair.tcp_sent;
        pair.take_tcp(50);
        assert_eq!(pair.rx().look(|| Some(read)).unwrap(), View::Tcp);
        let before = receiver_books(&pair.receiver);
        if cut_at > 0 {
            assert!(pair.rx().offer(1));
            let after = receiver_books(&pair.receiver);
            set_receiver_books(&pair.receiver, cut(before, after, cut_at));
        }
        assert!(pair.rx().abandon());
        assert!(pair.rx().is_settled());
        assert_eq!(pair.rx().look(|| Some(read)).unwrap(), View::Tcp);
        late_offer(&pair);
        pair.goes_on();
        assert!(pair.rx().is_settled());
    }
    let mut pair = Pair::new();
    pair.rx().offer(1);
    pair.send(100);
    assert!(!pair.rx().abandon(), "unread bytes are the holder's");
}
