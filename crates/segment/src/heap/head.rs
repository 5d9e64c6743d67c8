//! The heap's head: its size, its lock, the lists' beginnings, and what is under way.

use super::{CLASSES, Error};
use crate::sync::Mutex;
use crate::sync::primitive::{AtomicU64, Ordering};

/// "YASMHEAP", in the order of the bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"YASMHEAP");

#[repr(C)]
pub(super) struct Head {
    magic: AtomicU64,
    pages: AtomicU64,
    pub mutex: Mutex,
    /// Operation, new block, old block, the old block's bytes. The operation is set last, and
    /// cleared before the lock goes.
    record: [AtomicU64; 4],
    /// For each class a slab with a free block, as its page + 1; 0: none. Derived.
    pub lists: [AtomicU64; CLASSES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Alloc = 1,
    Free = 2,
    Realloc = 3,
}

pub(super) struct Record {
    pub operation: Operation,
    pub new: usize,
    pub old: usize,
    pub old_bytes: usize,
}

impl Head {
    pub fn set_pages(&self, pages: usize) {
        self.pages.store(pages as u64, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    pub fn check_pages(&self, pages: usize) -> Result<(), Error> {
        let (magic, peer_pages) =
            (self.magic.load(Ordering::Acquire), self.pages.load(Ordering::Relaxed));
        if magic != MAGIC {
            return Err(Error::Spoiled { what: "the heap's magic number", value: magic });
        }
        if peer_pages != pages as u64 {
            return Err(Error::Spoiled { what: "the heap's number of pages", value: peer_pages });
        }
        Ok(())
    }

    pub fn begin(&self, operation: Operation, new: usize, old: usize, old_bytes: usize) {
        self.record[1].store(new as u64, Ordering::Relaxed);
        self.record[2].store(old as u64, Ordering::Relaxed);
        self.record[3].store(old_bytes as u64, Ordering::Relaxed);
        self.record[0].store(operation as u64, Ordering::Release);
    }

    pub fn end(&self) {
        self.record[0].store(0, Ordering::Release);
    }

    pub fn record(&self) -> Result<Option<Record>, Error> {
        let operation = match self.record[0].load(Ordering::Acquire) {
            0 => return Ok(None),
            1 => Operation::Alloc,
            2 => Operation::Free,
            3 => Operation::Realloc,
            value => return Err(Error::Spoiled { what: "the heap's record", value }),
        };
        let word = |index: usize| self.record[index].load(Ordering::Relaxed) as usize;
        Ok(Some(Record { operation, new: word(1), old: word(2), old_bytes: word(3) }))
    }
}
