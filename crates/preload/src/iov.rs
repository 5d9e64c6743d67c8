//! The program's buffers: one or many, walked from an offset.

use core::ffi::c_int;

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
        Self { pieces: core::slice::from_ref(piece), len_bytes: piece.len }
    }

    /// `None` when the kernel should answer for it: too many pieces or too many bytes.
    ///
    /// # Safety
    /// `pieces` points to `count` iovecs.
    pub unsafe fn many(pieces: *const IoVec, count: usize) -> Option<Self> {
        if count > PIECES_MAX || (pieces.is_null() && count > 0) {
            return None;
        }
        if count == 0 {
            return Some(Self { pieces: &[], len_bytes: 0 });
        }
        // SAFETY: the caller's promise.
        let pieces = unsafe { core::slice::from_raw_parts(pieces, count) };
        let mut len_bytes = 0usize;
        for piece in pieces {
            len_bytes = len_bytes.checked_add(piece.len)?;
        }
        (len_bytes <= isize::MAX as usize).then_some(Self { pieces, len_bytes })
    }

    /// Whether a piece lies where no program has memory: the kernel answers EFAULT, where a
    /// copy of ours would fault.
    pub fn is_bad(&self) -> bool {
        const LOWEST: usize = 1 << 16;
        const HIGHEST: usize = 1 << 47;
        self.pieces.iter().any(|piece| {
            let base = piece.base as usize;
            piece.len > 0 && (base < LOWEST || base.saturating_add(piece.len) > HIGHEST)
        })
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
