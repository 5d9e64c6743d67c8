//! What goes wrong with a heap, and its errno.

use crate::sync;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("no {len_bytes} bytes are free in one piece")]
    NoMemory { len_bytes: usize },
    #[error("{address:#x} is no block in use of this heap")]
    NotABlock { address: usize },
    #[error("{align_bytes} is no power of two")]
    Alignment { align_bytes: usize },
    #[error("a heap begins at a page boundary, not at {at:#x}")]
    Misaligned { at: usize },
    #[error("{len_bytes} bytes at {at:#x} are not inside the attached segment")]
    Outside { at: usize, len_bytes: usize },
    #[error("{len_bytes} bytes are too few or too many for a heap")]
    Size { len_bytes: usize },
    /// Shared memory holds what the allocator never writes.
    #[error("the heap is spoiled: {what} is {value:#x}")]
    Spoiled { what: &'static str, value: u64 },
    #[error("the heap's lock: {0}")]
    Lock(#[from] sync::Error),
}

impl Error {
    pub fn errno(self) -> i32 {
        match self {
            Self::NoMemory { .. } => libc::ENOMEM,
            Self::NotABlock { .. } | Self::Alignment { .. } | Self::Misaligned { .. } => {
                libc::EINVAL
            }
            Self::Size { .. } | Self::Outside { .. } => libc::EINVAL,
            Self::Spoiled { .. } => libc::EUCLEAN,
            Self::Lock(error) => error.errno(),
        }
    }
}
