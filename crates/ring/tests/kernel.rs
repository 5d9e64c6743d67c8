//! The kernel module's ring (`kmod/ring.c`), built here in user space: it runs the specification's
//! vectors, and exchanges data with this crate over one memfd, each in a process of its own.
#![cfg(not(loom))]

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use yasmin_ring::{
    Block, Pages, Publish, Receiver, ReceiverState, Room, Sender, SenderState, View,
};
use yasmin_wire::layout::{
    MIN_PAGED_CLASS, channel_bytes, direction_offset, ring_offset, small_ring_offset,
};

const KMOD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kmod");

#[test]
fn vectors() {
    let output = Command::new("make")
        .args(["-s", "-C", KMOD, "check", concat!("OUT=", env!("CARGO_TARGET_TMPDIR"))])
        .output()
        .expect("make");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn byte_at(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}

struct End {
    base: *mut u8,
    max_class: u8,
    total_bytes: u64,
    sent_bytes: u64,
    received_bytes: u64,
    random: Random,
    data: Vec<u8>,
}

impl End {
    fn block(&self, direction: usize) -> &'static Block {
        // SAFETY: inside the mapping, which is never unmapped; `Block` is atomics throughout.
        unsafe { &*self.base.add(direction_offset(direction)).cast() }
    }

    fn ring(&self, direction: usize) -> Pages {
        let (small, paged) = (small_ring_offset(direction), ring_offset(direction, self.max_class));
        // SAFETY: the rings are inside the mapping, which is never unmapped.
        unsafe { Pages::new(self.base.add(small), self.base.add(paged)) }
    }

    /// Sends on direction 0; whether anything happened.
    fn send(&mut self, state: &SenderState) -> bool {
        let max_class = self.max_class;
        let tx = Sender {
            block: self.block(0),
            state,
            memory: self.ring(0),
            max_class,
            class_limit: max_class,
        };
        let left = self.total_bytes - self.sent_bytes;
        let wanted = (1 + self.random.below(self.data.len() as u64)).min(left) as usize;
        if wanted == 0 {
            return false;
        }
        let Room::Ring(write) = tx.room(wanted).expect("an honest peer") else { return false };
        let len = wanted.min(write.room_bytes as usize);
        for (place, byte) in (self.sent_bytes..).zip(&mut self.data[..len]) {
            *byte = byte_at(place);
        }
        // SAFETY: `data` is readable for `len`.
        unsafe { tx.fill(&write, 0, self.data.as_ptr(), len) };
        if tx.publish(&write, len as u32, 0).expect("an honest peer") == Publish::Done {
            self.sent_bytes += len as u64;
        }
        if self.random.below(64) == 0 {
            tx.park().expect("an honest peer");
        }
        true
    }

    /// Receives on direction 1; whether anything happened.
    fn receive(&mut self, state: &ReceiverState) -> bool {
        let max_class = self.max_class;
        let rx = Receiver { block: self.block(1), state, memory: self.ring(1), max_class };
        if self.received_bytes == self.total_bytes {
            return false;
        }
        match rx.look(|| Some(0)).expect("an honest peer") {
            // The kernel's rings have pages.
            View::Tcp => {
                let more = self.random.below(u64::from(max_class - MIN_PAGED_CLASS) + 1);
                rx.offer(MIN_PAGED_CLASS + more as u8)
            }
            View::Ring { .. } => {
                let len = 1 + self.random.below(self.data.len() as u64) as usize;
                // SAFETY: `data` is writable for `len`.
                let len = unsafe { rx.peek(0, self.data.as_mut_ptr(), len) };
                for (place, byte) in (self.received_bytes..).zip(&self.data[..len]) {
                    assert_eq!(*byte, byte_at(place), "byte {place}");
                }
                rx.consume(len as u32);
                self.received_bytes += len as u64;
                true
            }
            View::Empty { .. } => {
                if self.random.below(1024) == 0 {
                    rx.park();
                }
                false
            }
            View::TcpUpTo { limit_bytes } => {
                panic!("{limit_bytes} bytes by a TCP that is not there")
            }
        }
    }
}

fn exchange(program: &Path, max_class: u8, total_bytes: u64) {
    let memfd = memfd_create("channel", MemfdFlags::empty()).unwrap();
    ftruncate(&memfd, channel_bytes(max_class) as u64).unwrap();
    let (prot, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping, at no address of our choice.
    let base =
        unsafe { mmap(std::ptr::null_mut(), channel_bytes(max_class), prot, shared, &memfd, 0) };
    let mut end = End {
        base: base.unwrap().cast(),
        max_class,
        total_bytes,
        sent_bytes: 0,
        received_bytes: 0,
        random: Random(0x5eed + u64::from(max_class)),
        data: vec![0; 1 << 16],
    };
    let mut peer = Command::new(program)
        .arg(memfd.as_raw_fd().to_string())
        .args([max_class.to_string(), total_bytes.to_string(), "4711".to_string()])
        .spawn()
        .unwrap();
    let (sender, receiver) = (SenderState::default(), ReceiverState::default());
    let mut idle = 0u64;
    while end.sent_bytes < total_bytes || end.received_bytes < total_bytes {
        let moved = end.send(&sender);
        if end.receive(&receiver) || moved {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle.is_multiple_of(1024)
            && let Some(status) = peer.try_wait().unwrap()
            && !status.success()
        {
            panic!("the peer ended with {status}");
        }
        std::thread::yield_now();
    }
    assert!(peer.wait().unwrap().success());
}

#[test]
fn data_both_ways() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exchange");
    let built = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-Wno-implicit-fallthrough", "-o"])
        .arg(&program)
        .args([format!("{KMOD}/test/exchange.c"), format!("{KMOD}/ring.c")])
        .status()
        .expect("cc");
    assert!(built.success());
    for (max_class, total_bytes) in [(1, 1 << 20), (4, 4 << 20), (9, 16 << 20)] {
        exchange(&program, max_class, total_bytes);
    }
}
