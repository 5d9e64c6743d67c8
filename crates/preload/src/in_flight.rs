//! Calls that are inside the kernel on a candidate.
//!
//! A channel must not be attached while another thread is in the kernel on the same socket: it
//! would read or write past the switch. So a thread says beforehand where it goes. Candidates
//! are used often and attached once; the cost lies with the attaching side: a thread marks a
//! place of its own by a plain store and then reads the entry; the attacher closes the entry's
//! gate, has all running threads pass a barrier (membarrier(2)), and reads all places. Either
//! the attacher sees the mark or the thread sees the gate. (A locked instruction behind a
//! system call costs 28 ns on the machine this was measured on, and a call needs two.)
//!
//! Where there is no place (a call from a signal handler inside another call, more threads
//! than places, memory lent to a vfork child, a program that cancels threads, a kernel without
//! membarrier), the call is counted in the entry itself, by compare-and-swap. A call that a
//! handler leaves by a jump stays marked: its descriptor's number gets no channel any more.
//!
//! Storey 2: table.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::table::{self, Candidate, Way};
use crate::{barrier, pace, process, sys};

/// A cache line each.
#[repr(align(64))]
struct Place {
    /// Thread pointer of the thread that has it for good; 0: nobody. A later thread with the
    /// same thread block has it again.
    owner: AtomicU64,
    /// The descriptor on which it is in the kernel, and 1 more; 0: none.
    marked: AtomicU32,
}

const PLACES: usize = 512;
/// So many places are tried for a thread that has none yet.
const TRIES: usize = 4;

static ALL: [Place; PLACES] =
    [const { Place { owner: AtomicU64::new(0), marked: AtomicU32::new(0) } }; PLACES];

/// What must be undone when the call is over.
pub enum Inside {
    Marked(&'static AtomicU32),
    Counted,
}

/// The calling thread's place.
#[inline]
fn own() -> Option<&'static Place> {
    let me = sys::thread_pointer();
    let first = (me >> 6) as usize ^ (me >> 16) as usize;
    (first..first + TRIES).find_map(|at| {
        let place = &ALL[at % PLACES];
        let owner = place.owner.load(Ordering::Relaxed);
        (owner == me || owner == 0 && take(place, me)).then_some(place)
    })
}

#[cold]
fn take(place: &Place, me: u64) -> bool {
    place.owner.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// A call on `fd` begins. `None`: it is no candidate any more.
#[inline]
pub fn enter(fd: c_int) -> Option<Inside> {
    if barrier::is_there()
        && process::calls_return()
        && let Some(place) = own()
        && place.marked.load(Ordering::Relaxed) == 0
    {
        place.marked.store(fd as u32 + 1, Ordering::Relaxed);
        // The order of the processor is seen to by the attacher's barrier.
        compiler_fence(Ordering::SeqCst);
        if table::is_open_candidate(fd) {
            return Some(Inside::Marked(&place.marked));
        }
        place.marked.store(0, Ordering::Release);
    }
    enter_counted(fd).then_some(Inside::Counted)
}

/// The call ended.
#[inline]
pub fn leave(fd: c_int, inside: Inside) {
    match inside {
        Inside::Marked(mark) => mark.store(0, Ordering::Release),
        Inside::Counted => leave_counted(fd),
    }
}

/// The call ended with `ret`. What it moved is counted before it leaves: with nobody inside all is.
#[inline]
pub fn leave_with(fd: c_int, inside: Inside, way: Way, ret: isize) {
    if ret > 0
        && table::is_candidate(fd)
        && let Some(counts) = table::counts(fd)
    {
        counts.add(ret as usize, way);
        pace::note();
    }
    leave(fd, inside);
}

/// A call goes on in the kernel: `fd` had a channel until another thread made plain TCP, or a candidate, of it.
pub fn goes_on(fd: c_int, way: Way, kernel: impl FnOnce() -> isize) -> isize {
    let inside = enter(fd);
    let ret = kernel();
    if let Some(inside) = inside {
        leave_with(fd, inside, way, ret);
    }
    ret
}

/// As `enter`, for calls that are on several descriptors at once.
pub fn enter_counted(fd: c_int) -> bool {
    table::change(fd, Candidate::enter).is_some()
}

pub fn leave_counted(fd: c_int) {
    table::change(fd, Candidate::leave);
}

/// Whether some thread is seen in a call on `fd`.
pub fn is_marked(fd: c_int) -> bool {
    ALL.iter().any(|place| place.marked.load(Ordering::Acquire) == fd as u32 + 1)
}

/// With the gate of `fd` closed: whether no thread is in a marked call on it, nor can be soon.
pub fn is_clear(fd: c_int) -> bool {
    are_clear(core::iter::once(fd))
}

/// The same of several.
pub fn are_clear(mut numbers: impl Iterator<Item = c_int>) -> bool {
    // Without the barrier nobody ever marked.
    let is_fenced = !barrier::is_there() || barrier::pass();
    is_fenced && !numbers.any(is_marked)
}

/// In a forked child: the other threads are not here.
pub fn forget_others() {
    let me = sys::thread_pointer();
    for place in &ALL {
        if place.owner.load(Ordering::Relaxed) != me {
            place.marked.store(0, Ordering::Relaxed);
        }
    }
}
