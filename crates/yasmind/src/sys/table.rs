//! The mapped table of other guests' addresses, as the broker writes it.

use rustix::fd::{AsFd, AsRawFd};
use std::io;
use std::sync::atomic::AtomicU64;
use yasmin_channel::region::{Filling, Mapping, Region};
use yasmin_control::directory::{TABLE_BYTES, TABLE_WORDS};

/// A file's first `TABLE_BYTES`, mapped to write.
pub struct Mapped {
    mapping: Mapping,
}

impl Mapped {
    /// `file` has all the bytes, and only root or this user can cut it.
    pub fn map(file: impl AsFd) -> io::Result<Self> {
        let table = Region::first(file.as_fd().as_raw_fd(), TABLE_BYTES);
        // SAFETY: whoever could cut the file is trusted not to.
        let mapping = unsafe { table.map_trusted(Filling::Usual) }.map_err(super::io_error)?;
        Ok(Self { mapping })
    }

    pub fn words(&self) -> &[AtomicU64; TABLE_WORDS] {
        // SAFETY: the mapping has so many words and lives as long as the reference; everybody
        // reaches them atomically.
        unsafe { &*self.mapping.as_ptr().cast() }
    }
}
