//! The program's buffers: one or many, walked from an offset.
//!
//! Storey 1: system.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use crate::sys::{self, IoVec};
use crate::{memory, process};

/// Most pieces that one call takes (UIO_MAXIOV).
pub const PIECES_MAX: usize = 1024;

/// By which system call the program receives into them.
#[derive(Clone, Copy, PartialEq)]
pub enum By {
    /// read, or readv.
    Read,
    /// recvfrom.
    Recv,
    /// recvmsg.
    Message,
}

#[derive(Clone, Copy)]
pub struct Buffers<'a> {
    pieces: &'a [IoVec],
    pub len_bytes: usize,
    pub by: By,
}

impl<'a> Buffers<'a> {
    pub fn one(piece: &'a IoVec) -> Self {
        let len_bytes = piece.len.min(memory::MOST_BYTES);
        Self { pieces: core::slice::from_ref(piece), len_bytes, by: By::Recv }
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
            return Some(Self { pieces: &[], len_bytes: 0, by: By::Message });
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
        Some(Self { pieces, len_bytes: len_bytes.min(memory::MOST_BYTES), by: By::Message })
    }

    pub fn by(self, by: By) -> Self {
        Self { by, ..self }
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

    /// The rest from `skip_bytes` on, at most `len_bytes`, as iovecs for the kernel. All of it: who
    /// sees that less was moved takes the socket for full, or empty, and may wait for an edge (epoll(7)).
    pub fn rest<'b>(
        &self,
        skip_bytes: usize,
        len_bytes: usize,
        vectors: &'b mut Vectors,
    ) -> &'b mut [IoVec] {
        if let [piece] = self.pieces {
            let skip_bytes = skip_bytes.min(piece.len);
            let base = piece.base.wrapping_add(skip_bytes);
            let len = (piece.len - skip_bytes).min(len_bytes);
            let [first, ..] = &mut vectors.few;
            return core::slice::from_mut(first.write(IoVec { base, len }));
        }
        self.parts([(skip_bytes, len_bytes), (0, 0)], vectors)
    }

    /// Two parts, one behind the other: where each begins, and its bytes.
    pub fn parts<'b>(
        &self,
        parts: [(usize, usize); 2],
        vectors: &'b mut Vectors,
    ) -> &'b mut [IoVec] {
        let each = |f: &mut dyn FnMut(*mut u8, usize)| {
            for (skip_bytes, len_bytes) in parts {
                self.each(skip_bytes, len_bytes, |base, len, _| f(base, len));
            }
        };
        let mut count = 0;
        each(&mut |_, _| count += 1);
        let out = vectors.of(count);
        // Another thread of the program's may change the pieces meanwhile.
        let mut done = 0;
        each(&mut |base, len| {
            if let Some(piece) = out.get_mut(done) {
                piece.write(IoVec { base, len });
                done += 1;
            }
        });
        // SAFETY: so many were written.
        unsafe { core::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), done) }
    }
}

/// iovecs for the kernel: on the stack, which may be small, for what most calls have; more is mapped.
pub struct Vectors {
    few: [MaybeUninit<IoVec>; Self::FEW],
    many: *mut IoVec,
    many_bytes: usize,
}

impl Vectors {
    const FEW: usize = 16;

    #[inline]
    pub const fn new() -> Self {
        let few = [MaybeUninit::uninit(); Self::FEW];
        Self { few, many: core::ptr::null_mut(), many_bytes: 0 }
    }

    /// For `count`; less where the kernel gives no memory.
    fn of(&mut self, count: usize) -> &mut [MaybeUninit<IoVec>] {
        let bytes = count * size_of::<IoVec>();
        if count > Self::FEW
            && self.many.is_null()
            && !process::is_sandboxed()
            && let Some(many) = sys::map_private(bytes)
        {
            (self.many, self.many_bytes) = (many.cast(), bytes);
        }
        if self.many.is_null() {
            return &mut self.few;
        }
        // SAFETY: mapped for so many, all zero, and this one's alone.
        unsafe {
            core::slice::from_raw_parts_mut(self.many.cast(), self.many_bytes / size_of::<IoVec>())
        }
    }
}

impl Drop for Vectors {
    fn drop(&mut self) {
        if !self.many.is_null() {
            // SAFETY: mapped by `of`, whose slices are gone.
            unsafe { sys::unmap(self.many.cast(), self.many_bytes) };
        }
    }
}

/// Count of iovecs as the program passed it; negative or too many is for the kernel to refuse.
pub fn count(raw: c_int) -> Option<usize> {
    usize::try_from(raw).ok().filter(|count| *count <= PIECES_MAX)
}
