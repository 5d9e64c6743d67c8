//! What the loom models share: a ring of a few cells, and a TCP connection with a kernel in
//! which a receiver can sleep.
#![allow(dead_code)]

pub mod side;

use std::collections::VecDeque;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use yasmin_ring::{Block, Memory, Place, Receiver, ReceiverState, Sender, SenderState};
use yasmin_wire::layout::class_bytes;
use yasmin_wire::{Position, Word};

/// A class 0 ring whose bytes come in units of `unit_bytes`, one cell for each: a data race on
/// a cell is an error of the model.
pub struct Cells {
    pub unit_bytes: usize,
    cells: Vec<UnsafeCell<u8>>,
}

impl Cells {
    fn new(unit_bytes: usize) -> Self {
        let count = class_bytes(0) as usize / unit_bytes;
        Self { unit_bytes, cells: (0..count).map(|_| UnsafeCell::new(0)).collect() }
    }

    fn units(&self, Place { class, at }: Place, len_bytes: usize) -> std::ops::Range<usize> {
        assert_eq!(class, 0);
        assert_eq!(at as usize % self.unit_bytes, 0);
        assert_eq!(len_bytes % self.unit_bytes, 0);
        let first = at as usize / self.unit_bytes;
        first..first + len_bytes / self.unit_bytes
    }
}

impl Memory for &Cells {
    unsafe fn copy_in(&self, place: Place, from: *const u8, len_bytes: usize) {
        for (index, cell) in self.units(place, len_bytes).enumerate() {
            // SAFETY: `from` is readable for `len_bytes`; loom checks the cell.
            self.cells[cell]
                .with_mut(|to| unsafe { *to = from.add(index * self.unit_bytes).read() });
        }
    }

    unsafe fn copy_out(&self, place: Place, to: *mut u8, len_bytes: usize) {
        for (index, cell) in self.units(place, len_bytes).enumerate() {
            // SAFETY: `to` is writable for `len_bytes`; loom checks the cell.
            self.cells[cell].with(|from| unsafe { to.add(index * self.unit_bytes).write(*from) });
        }
    }
}

/// One direction of a TCP connection, in units.
#[derive(Default)]
struct Kernel {
    queue: VecDeque<u8>,
    sent: u64,
    read: u64,
    fin: bool,
}

impl Kernel {
    fn take(&mut self, most: usize) -> Vec<u8> {
        let count = most.min(self.queue.len());
        self.read += count as u64;
        self.queue.drain(..count).collect()
    }
}

pub struct Tcp {
    kernel: Mutex<Kernel>,
    arrived: Condvar,
}

impl Tcp {
    fn new() -> Self {
        Self { kernel: Mutex::new(Kernel::default()), arrived: Condvar::new() }
    }

    pub fn send(&self, unit: u8) {
        let mut kernel = self.kernel.lock().unwrap();
        kernel.queue.push_back(unit);
        kernel.sent += 1;
        self.arrived.notify_all();
    }

    pub fn fin(&self) {
        self.kernel.lock().unwrap().fin = true;
        self.arrived.notify_all();
    }

    pub fn sent(&self) -> u64 {
        self.kernel.lock().unwrap().sent
    }

    pub fn read(&self) -> u64 {
        self.kernel.lock().unwrap().read
    }

    /// recv with MSG_DONTWAIT.
    pub fn recv_now(&self, most: usize) -> Vec<u8> {
        self.kernel.lock().unwrap().take(most)
    }

    /// recv: sleeps until there is something; nothing is the end of the stream.
    pub fn recv(&self) -> Vec<u8> {
        let mut kernel = self.kernel.lock().unwrap();
        while kernel.queue.is_empty() && !kernel.fin {
            kernel = self.arrived.wait(kernel).unwrap();
        }
        kernel.take(usize::MAX)
    }

    pub fn has_some(&self) -> bool {
        !self.kernel.lock().unwrap().queue.is_empty()
    }

    /// The FIN has come and everything before it is read.
    pub fn ended(&self) -> bool {
        let kernel = self.kernel.lock().unwrap();
        kernel.fin && kernel.queue.is_empty()
    }

    /// poll for input.
    pub fn wait(&self) {
        let mut kernel = self.kernel.lock().unwrap();
        while kernel.queue.is_empty() && !kernel.fin {
            kernel = self.arrived.wait(kernel).unwrap();
        }
    }
}

/// Both ends of a direction, and the TCP connection beside it.
pub struct Link {
    pub block: Block,
    pub cells: Cells,
    pub tcp: Tcp,
    pub tx_state: SenderState,
    pub rx_state: ReceiverState,
}

impl Link {
    pub fn new(unit_bytes: usize, start: u64) -> Self {
        let start = Position::new(start);
        let block = Block::new();
        block.scribble(Word { tail: start, ..Word::INITIAL }.encode(), 0, start.get());
        Self {
            block,
            cells: Cells::new(unit_bytes),
            tcp: Tcp::new(),
            tx_state: SenderState::starting_at(start),
            rx_state: ReceiverState::starting_at(start),
        }
    }

    pub fn tx(&self) -> Sender<'_, &Cells> {
        Sender {
            block: &self.block,
            state: &self.tx_state,
            memory: &self.cells,
            max_class: 0,
            class_limit: 0,
        }
    }

    pub fn rx(&self) -> Receiver<'_, &Cells> {
        Receiver { block: &self.block, state: &self.rx_state, memory: &self.cells, max_class: 0 }
    }

    pub fn unit_bytes(&self) -> usize {
        self.cells.unit_bytes
    }

    pub fn own_tcp_position(&self) -> Option<u64> {
        Some(self.tcp.read() * self.unit_bytes() as u64)
    }

    /// Reads up to `most` units that the last look found in the ring.
    pub fn read_ring(&self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; most * self.unit_bytes()];
        // SAFETY: `bytes` is writable for its length.
        let len = unsafe { self.rx().peek(0, bytes.as_mut_ptr(), bytes.len()) };
        self.rx().consume(len as u32);
        bytes[..len].iter().step_by(self.unit_bytes()).copied().collect()
    }
}

/// Explores `model`, with at most `preemptions` of a thread that could have gone on.
pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}
