//! What glibc's streams do.
//!
//! Storey 7: exports.

use core::ffi::c_int;

use super::{stream, without_cancelling};
use crate::streams::glibc::{self, Functions, Stream};
use crate::{options, table};

pub const OWN: Functions = Functions { read, write, close };

/// A cancellation point, unless the stream was opened without them.
fn as_cancelled(stream: &Stream, call: impl FnOnce() -> isize) -> isize {
    if stream.is_uncancelled() { without_cancelling(call) } else { call() }
}

unsafe extern "C" fn read(stream: *mut Stream, to: *mut u8, len: isize) -> isize {
    // SAFETY: glibc's stream.
    let it = unsafe { &*stream };
    if table::raw(it.number()) == 0 {
        // SAFETY: what glibc passed.
        return unsafe { (glibc::real().read)(stream, to, len) };
    }
    // SAFETY: as above.
    as_cancelled(it, || unsafe { stream::read(it.number(), to, len.max(0) as usize) })
}

/// All of it, or up to an error: then the stream has its mark.
unsafe extern "C" fn write(stream: *mut Stream, from: *const u8, len: isize) -> isize {
    // SAFETY: glibc's stream, which its caller has locked.
    let it = unsafe { &mut *stream };
    let fd = it.number();
    if table::raw(fd) == 0 {
        // SAFETY: what glibc passed.
        return unsafe { (glibc::real().write)(stream, from, len) };
    }
    let mut done = 0;
    let mut has_failed = false;
    while done < len && !has_failed {
        // SAFETY: as above.
        let piece = || unsafe { stream::write(fd, from.offset(done), (len - done) as usize) };
        let wrote = as_cancelled(it, piece);
        has_failed = wrote < 0;
        done += wrote.max(0);
    }
    it.wrote(done, has_failed);
    done
}

unsafe extern "C" fn close(stream: *mut Stream) -> c_int {
    // SAFETY: glibc's stream.
    let fd = unsafe { (*stream).number() };
    // SAFETY: as above.
    options::close_by(fd, || unsafe { (glibc::real().close)(stream) })
}
