//! Two threads, real shared memory and a real TCP connection beside the ring, delays injected
//! at every step; every byte is compared. Also the body of the sanitizer runs.
//!
//! `YASMIN_STRESS_BYTES` (each run, default 16 MiB), `YASMIN_STRESS_DELAY` (one in how many
//! steps is delayed, default 64; 0: none), `YASMIN_STRESS_SEED`, and `YASMIN_STRESS_MAPPINGS`
//! (default 2: each end has a mapping of its own; 1 for ThreadSanitizer, which goes by address).
//!
//! It has no test harness: ThreadSanitizer would find the harness's own threads racing, because
//! the standard library is not built for it.

use std::io::{ErrorKind, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use yasmin_ring::{
    Block, Pages, Publish, Receiver, ReceiverState, Room, Sender, SenderState, View,
};
use yasmin_wire::layout::{channel_bytes, direction_offset, ring_offset, small_ring_offset};

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// xorshift64*: each end its own.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 32) % bound
    }
}

/// Stops a step for a moment, now and then.
struct Delays {
    random: Random,
    one_in: u64,
}

impl Delays {
    fn here(&mut self) {
        if self.one_in == 0 || self.random.below(self.one_in) != 0 {
            return;
        }
        match self.random.below(4) {
            0 => std::thread::yield_now(),
            1 => std::thread::sleep(Duration::from_micros(self.random.below(60))),
            _ => {
                let until = Instant::now() + Duration::from_nanos(self.random.below(40_000));
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// The byte at a place of the stream.
fn byte_at(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A channel's pages, mapped.
struct Mapping {
    base: *mut u8,
    len_bytes: usize,
}

// SAFETY: the pages are shared memory, used through `Block` and `Pages` alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(memfd: impl std::os::fd::AsFd, len_bytes: usize) -> Self {
        // SAFETY: a new mapping, at no address of our choice.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memfd,
                0,
            )
        };
        Self { base: base.expect("mmap").cast(), len_bytes }
    }

    fn block(&self) -> &Block {
        // SAFETY: inside the mapping and aligned; `Block` is atomics throughout.
        unsafe { &*self.base.add(direction_offset(0)).cast() }
    }

    fn ring(&self, max_class: u8) -> Pages {
        let (small, paged) = (small_ring_offset(0), ring_offset(0, max_class));
        // SAFETY: the rings of direction 0 are inside the mapping, which outlives both ends.
        unsafe { Pages::new(self.base.add(small), self.base.add(paged)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing uses the mapping any more.
        unsafe { munmap(self.base.cast(), self.len_bytes) }.expect("munmap");
    }
}

#[derive(Clone, Copy)]
struct Plan {
    max_class: u8,
    total_bytes: u64,
    /// Longest message.
    message_bytes: u64,
    /// Looks at an empty or full ring before an end parks.
    spins: u64,
}

struct Counts {
    ring_bytes: u64,
    tcp_bytes: u64,
    parked: u64,
}

fn send(mapping: &Mapping, plan: Plan, mut socket: TcpStream, mut delays: Delays) -> Counts {
    let state = SenderState::default();
    let tx = Sender {
        block: mapping.block(),
        state: &state,
        memory: mapping.ring(plan.max_class),
        max_class: plan.max_class,
        class_limit: plan.max_class,
    };
    let mut counts = Counts { ring_bytes: 0, tcp_bytes: 0, parked: 0 };
    let mut sent = 0;
    let mut message = Vec::new();
    while sent < plan.total_bytes {
        let len = (1 + delays.random.below(plan.message_bytes)).min(plan.total_bytes - sent);
        message.clear();
        message.extend((sent..sent + len).map(byte_at));
        let mut rest = message.as_slice();
        let mut spins = 0;
        while !rest.is_empty() {
            delays.here();
            match tx.room_to_send(rest.len()).expect("honest receiver") {
                Room::Tcp => {
                    delays.here();
                    let len = socket.write(rest).expect("write");
                    tx.hint();
                    counts.tcp_bytes += len as u64;
                    rest = &rest[len..];
                }
                Room::Full if spins < plan.spins => {
                    spins += 1;
                    std::thread::yield_now();
                }
                Room::Full => {
                    delays.here();
                    tx.park().expect("honest receiver");
                    counts.parked += 1;
                    spins = 0;
                }
                Room::Ring(write) => {
                    let len = rest.len().min(write.room_bytes as usize);
                    // SAFETY: `rest` is readable for `len`.
                    unsafe { tx.fill(&write, 0, rest.as_ptr(), len) };
                    delays.here();
                    let done =
                        tx.publish(&write, len as u32, counts.tcp_bytes).expect("honest receiver");
                    if done == Publish::Done {
                        counts.ring_bytes += len as u64;
                        rest = &rest[len..];
                        spins = 0;
                    }
                }
            }
        }
        sent += len;
        if delays.random.below(200) == 0 {
            delays.here();
            tx.park().expect("honest receiver");
            counts.parked += 1;
        }
    }
    socket.shutdown(std::net::Shutdown::Write).expect("shutdown");
    counts
}

fn receive(mapping: &Mapping, plan: Plan, mut socket: TcpStream, mut delays: Delays) -> Counts {
    let state = ReceiverState::default();
    let rx = Receiver {
        block: mapping.block(),
        state: &state,
        memory: mapping.ring(plan.max_class),
        max_class: plan.max_class,
    };
    let mut counts = Counts { ring_bytes: 0, tcp_bytes: 0, parked: 0 };
    let mut buffer = vec![0u8; 40_000];
    let mut place = 0;
    let mut spins = 0;
    let mut awake = true;
    loop {
        delays.here();
        let want = 1 + delays.random.below(buffer.len() as u64) as usize;
        let tcp_bytes = counts.tcp_bytes;
        let len = match rx.look(|| Some(tcp_bytes)).expect("honest sender") {
            View::TcpUpTo { limit_bytes } => {
                let most = want.min(limit_bytes as usize);
                delays.here();
                let len = socket.read(&mut buffer[..most]).expect("read");
                assert!(len > 0, "the end before the stored position");
                rx.took_tcp(len as u64);
                counts.tcp_bytes += len as u64;
                len
            }
            View::Ring { .. } => {
                // SAFETY: `buffer` is writable for `want`.
                let len = unsafe { rx.peek(0, buffer.as_mut_ptr(), want) };
                delays.here();
                rx.consume(len as u32);
                counts.ring_bytes += len as u64;
                len
            }
            View::Tcp => {
                if awake && rx.offer(delays.random.below(u64::from(plan.max_class) + 1) as u8) {
                    awake = false;
                    spins = 0;
                    continue;
                }
                delays.here();
                // Asleep in the kernel, or not, as it comes.
                let len = socket.read(&mut buffer[..want]).expect("read");
                if len == 0 {
                    break;
                }
                counts.tcp_bytes += len as u64;
                awake = delays.random.below(3) > 0;
                len
            }
            View::Empty { .. } => {
                if spins < plan.spins && !rx.hinted() {
                    spins += 1;
                    std::hint::spin_loop();
                    if spins % 16 == 0 {
                        std::thread::yield_now();
                    }
                } else if rx.park() == yasmin_ring::Park::Parked {
                    counts.parked += 1;
                    spins = 0;
                }
                continue;
            }
        };
        spins = 0;
        for &byte in &buffer[..len] {
            assert_eq!(byte, byte_at(place), "at {place}");
            place += 1;
        }
    }
    assert_eq!(place, plan.total_bytes, "bytes are lost");
    counts
}

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("listen");
    let one = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    loop {
        match listener.accept() {
            Ok((two, _)) => return (one, two),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("accept: {error}"),
        }
    }
}

fn stress(plan: Plan) -> Counts {
    let len_bytes = channel_bytes(plan.max_class);
    let memfd = memfd_create("yasmin-stress", MemfdFlags::CLOEXEC).expect("memfd");
    ftruncate(&memfd, len_bytes as u64).expect("ftruncate");
    let one = Mapping::new(&memfd, len_bytes);
    let two = (setting("YASMIN_STRESS_MAPPINGS", 2) > 1).then(|| Mapping::new(&memfd, len_bytes));
    let (sending, receiving) = (&one, two.as_ref().unwrap_or(&one));
    let seed = setting("YASMIN_STRESS_SEED", 0x5eed) | 1;
    let one_in = setting("YASMIN_STRESS_DELAY", 64);
    let delays = |salt: u64| Delays { random: Random(seed ^ salt << 32), one_in };
    let (left, right) = connected();
    let (sent, received) = std::thread::scope(|scope| {
        let sent = scope.spawn(move || send(sending, plan, left, delays(1)));
        let received = scope.spawn(move || receive(receiving, plan, right, delays(2)));
        (sent.join().expect("sender"), received.join().expect("receiver"))
    });
    println!(
        "ring {} B, TCP {} B, parked {} times by the sender and {} by the receiver",
        sent.ring_bytes, sent.tcp_bytes, sent.parked, received.parked
    );
    assert_eq!(sent.ring_bytes, received.ring_bytes);
    assert_eq!(sent.tcp_bytes, received.tcp_bytes);
    Counts { parked: sent.parked + received.parked, ..sent }
}

fn main() {
    if cfg!(loom) {
        println!("stress: skipped, loom's atomics work only in its models");
        return;
    }
    let total_bytes = setting("YASMIN_STRESS_BYTES", 16 << 20);
    let mut all = Counts { ring_bytes: 0, tcp_bytes: 0, parked: 0 };
    let mut run = |name: &str, plan: Plan| {
        print!("stress {name}: ");
        let counts = stress(plan);
        all.ring_bytes += counts.ring_bytes;
        all.tcp_bytes += counts.tcp_bytes;
        all.parked += counts.parked;
    };
    run(
        "small ring: full, spills and parks all the time",
        Plan { max_class: 0, total_bytes, message_bytes: 6000, spins: 40 },
    );
    run(
        "changing classes, messages longer than the ring",
        Plan { max_class: 3, total_bytes, message_bytes: 50_000, spins: 400 },
    );
    run(
        "short messages",
        Plan { max_class: 1, total_bytes: total_bytes / 16, message_bytes: 60, spins: 100 },
    );
    // Each alone may be 0 in a run in which one end had no CPU.
    assert!(all.ring_bytes > 0 && all.tcp_bytes > 0 && all.parked > 0);
}
