//! The program's buffers: one or many, walked from an offset.
//!
//! Storey 1: system.

use core::ffi::c_int;

use crate::memory;
use crate::sys::IoVec;

/// Most pieces that one call takes (UIO_MAXIOV).
pub const PIECES_MAX: usize = 1024;

#[derive(Clone, Copy)]
pub struct Buffers<'a> {
    pieces: &'a [IoVec],
    pub len_bytes: usize,
}

impl<'a> Buffers<'a> {
    pub fn one(piece: &'a IoVec) -> Self {
        Self { pieces: core::slice::from_ref(piece), len_bytes: piece.len.min(memory::MOST_BYTES) }
    }

    /// `None` when the kernel should answer for it, which moves no byte: too many pieces, a
    /// negative length, pieces that cannot be read.
    ///
    /// # Safety
    /// `pieces` is what the program passed as `count` iovecs.
    pub unsafe fn many(pieces: *const IoVec, count: usize) -> Option<Self> {
        if count > PIECES_MAX {
            return None;
        }
        if count == 0 {
            return Some(Self { pieces: &[], len_bytes: 0 });
        }
        if !memory::is_readable(pieces, count) {
            return None;
        }
        // SAFETY: the caller's promise, and readable.
        let pieces = unsafe { core::slice::from_raw_parts(pieces, count) };
        let mut len_bytes = 0usize;
        for piece in pieces {
            if piece.len > isize::MAX as usize {
                return None;
            }
            len_bytes = len_bytes.saturating_add(piece.len);
        }
        Some(Self { pieces, len_bytes: len_bytes.min(memory::MOST_BYTES) })
    }

    pub fn pieces(&self) -> &'a [IoVec] {
        self.pieces
    }

    /// Whether the kernel refuses a piece before it does anything else.
    pub fn is_refused(&self) -> bool {
        self.pieces.iter().any(|piece| memory::is_refused(piece.base, piece.len))
    }

    /// Whether `good`, of `memory`, says so of each piece of the `len_bytes` from `skip_bytes` on.
    pub fn are(
        &self,
        skip_bytes: usize,
        len_bytes: usize,
        good: impl Fn(*mut u8, usize) -> bool,
    ) -> bool {
        let mut is_good = true;
        self.each(skip_bytes, len_bytes, |base, len, _| is_good = is_good && good(base, len));
        is_good
    }

    /// Calls `f(address, bytes, done)` for the pieces of `len_bytes` from `skip_bytes` on.
    pub fn each(
        &self,
        skip_bytes: usize,
        len_bytes: usize,
        mut f: impl FnMut(*mut u8, usize, usize),
    ) {
        let (mut skip, mut left, mut done) = (skip_bytes, len_bytes, 0);
        for piece in self.pieces {
            if left == 0 {
                return;
            }
            if skip >= piece.len {
                skip -= piece.len;
                continue;
            }
            let len = (piece.len - skip).min(left);
            f(piece.base.wrapping_add(skip), len, done);
            skip = 0;
            left -= len;
            done += len;
        }
    }

    /// The rest from `skip_bytes` on, at most `len_bytes`, as iovecs for the kernel. More than
    /// fit in `out` are left out: the kernel then moves less, as it may.
    pub fn rest<'b>(
        &self,
        skip_bytes: usize,
        len_bytes: usize,
        out: &'b mut [IoVec; 16],
    ) -> &'b mut [IoVec] {
        let mut count = 0;
        self.each(skip_bytes, len_bytes, |base, len, _| {
            if count < out.len() {
                out[count] = IoVec { base, len };
                count += 1;
            }
        });
        &mut out[..count]
    }
}

pub const NO_PIECE: IoVec = IoVec { base: core::ptr::null_mut(), len: 0 };

/// Count of iovecs as the program passed it; negative or too many is for the kernel to refuse.
pub fn count(raw: c_int) -> Option<usize> {
    usize::try_from(raw).ok().filter(|count| *count <= PIECES_MAX)
}
