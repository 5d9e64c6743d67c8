//! What musl's streams do. None of it is a cancellation point, as in musl.
//!
//! Storey 7: exports.

use core::ffi::c_int;

use super::{stream, without_cancelling};
use crate::streams::musl::{Functions, Stream};
use crate::sys::IoVec;
use crate::{options, table};

pub const OWN: Functions = Functions { read, write, close };

/// Into `to` all but one byte, what comes then into the stream's buffer, and the first of that into the last of `to`.
unsafe extern "C" fn read(stream: *mut Stream, to: *mut u8, len: usize) -> usize {
    // SAFETY: musl's stream, which its caller has locked.
    let it = unsafe { &mut *stream };
    let fd = it.number();
    if table::raw(fd) == 0 {
        // SAFETY: what musl passed.
        return unsafe { (it.real().read)(stream, to, len) };
    }
    let (buffer, buffer_bytes) = it.buffer();
    let own = len - usize::from(buffer_bytes != 0 && len != 0);
    let pieces = [IoVec { base: to, len: own }, IoVec { base: buffer, len: buffer_bytes }];
    // SAFETY: as above.
    let got = without_cancelling(|| unsafe {
        match own {
            0 => stream::read(fd, buffer, buffer_bytes),
            _ => stream::readv(fd, pieces.as_ptr(), 2),
        }
    });
    if got <= 0 {
        it.read_none(got == 0);
        return 0;
    }
    let got = got as usize;
    if got <= own {
        return got;
    }
    let first = it.filled(got - own);
    // SAFETY: behind what was read, inside what musl passed.
    unsafe { to.add(len - 1).write(first) };
    len
}

/// What the stream has to write, and this behind it.
unsafe extern "C" fn write(stream: *mut Stream, from: *const u8, len: usize) -> usize {
    // SAFETY: musl's stream, which its caller has locked.
    let it = unsafe { &mut *stream };
    let fd = it.number();
    if table::raw(fd) == 0 {
        // SAFETY: what musl passed.
        let wrote = unsafe { (it.real().write)(stream, from, len) };
        // SAFETY: as above.
        unsafe { (*stream).has_written(false) };
        return wrote;
    }
    it.has_written(true);
    let (pending, pending_bytes) = it.pending();
    let all = [(pending.cast_const(), pending_bytes), (from, len)];
    let total = pending_bytes + len;
    let mut done = 0;
    while done < total {
        let mut skip = done;
        let pieces = all.map(|(base, len)| {
            let past = skip.min(len);
            skip -= past;
            IoVec { base: base.wrapping_add(past).cast_mut(), len: len - past }
        });
        // SAFETY: as above.
        let wrote = without_cancelling(|| unsafe { stream::writev(fd, pieces.as_ptr(), 2) });
        if wrote < 0 {
            it.write_failed();
            return done.saturating_sub(pending_bytes);
        }
        done += wrote as usize;
    }
    it.wrote_all();
    len
}

unsafe extern "C" fn close(stream: *mut Stream) -> c_int {
    // SAFETY: musl's stream.
    let it = unsafe { &*stream };
    // SAFETY: as above.
    options::close_by(it.number(), || unsafe { (it.real().close)(stream) })
}
