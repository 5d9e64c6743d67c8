//! Sets that this process did not make: inherited over an exec or a start, or received in a message.
//!
//! What must stay true: no socket has a ring that a set of this process may tell of and this library does not know
//! of. So each set is known that the process has when it begins or that a message brings, with all that the kernel
//! lists in it; as other processes may use it too, nothing that is in it is offered. A socket that comes later may be
//! in such a set from the beginning, and stays TCP; and where the kernel does not say what is in a set, so does all
//! that comes from elsewhere.
//!
//! Storey 3: connection.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use super::listed::{self, INHERITED_BELOW, Listed};
use super::registration::{self, SPENT};
use super::{EDGE, FOR_GOOD, ONESHOT, Set, created, kernel, numbers, of};
use crate::{conn, process, sys, table};

/// Not 0: there is one.
static ARE_ANY: AtomicU32 = AtomicU32::new(0);
/// Not 0: what is in one of them nobody knows.
static ARE_UNCLEAR: AtomicU32 = AtomicU32::new(0);

/// Whether a socket that comes from elsewhere may be in a set of this process already.
pub fn may_have_others() -> bool {
    ARE_ANY.load(Ordering::Relaxed) != 0
}

/// Whether one that the process began with may be in a set that is not known.
pub fn are_unclear() -> bool {
    ARE_UNCLEAR.load(Ordering::Relaxed) != 0
}

fn is_unclear() {
    ARE_UNCLEAR.store(1, Ordering::Relaxed);
    ARE_ANY.store(1, Ordering::Relaxed);
}

/// `fd` came from elsewhere: if it is a set, it is known from now on. What is in it `reads` finds.
pub fn came(fd: c_int) -> Option<&'static Set> {
    // Sockets, files, pipes and devices have a kind; only others have to be asked by name.
    if table::raw(fd) != 0 || !listed::stat(fd).is_some_and(|stat| stat.is_a(0)) {
        return None;
    }
    match listed::is_set(fd) {
        Some(true) => {}
        Some(false) => return None,
        None => {
            is_unclear();
            return None;
        }
    }
    ARE_ANY.store(1, Ordering::Relaxed);
    let me = sys::getpid();
    if let Some(known) = all().find(|set| sys::is_same_file(me, fd, set.fd.load(Ordering::Relaxed)))
    {
        numbers::named(known, fd);
        return None;
    }
    created(fd);
    let set = of(fd);
    match set {
        Some(set) => set.foreign.store(FOR_GOOD, Ordering::SeqCst),
        None => is_unclear(),
    }
    set
}

fn all() -> impl Iterator<Item = &'static Set> {
    super::all().filter(|set| set.foreign.load(Ordering::Relaxed) & FOR_GOOD != 0)
}

/// When the library is loaded, behind `came` of all numbers: what is in the sets that the process began with.
pub fn read_all() {
    if may_have_others() {
        all().for_each(reads);
    }
}

/// What is in a set that came.
pub fn reads(set: &'static Set) {
    let Some(_guard) = set.lock.acquire() else { return is_unclear() };
    let fd = set.fd.load(Ordering::Relaxed);
    // Whoever sent it may have put very many there.
    let mut steps = STEPS;
    let reads = |listed: &Listed| {
        if let Some(at) = number_of(listed, &mut steps) {
            has(set, listed, at);
        }
        steps > 0
    };
    if !listed::for_each(fd, reads) {
        is_unclear();
    }
}

/// So many times at most the kernel is asked which file a number is of, for one set.
const STEPS: u32 = 1 << 14;

/// The number of a registration's socket here: its own, or another one where that was closed.
fn number_of(listed: &Listed, steps: &mut u32) -> Option<c_int> {
    *steps = steps.checked_sub(1)?;
    match listed.is_of(listed.number) {
        Some(true) => return Some(listed.number),
        // It is no socket.
        Some(false) => return None,
        None => {}
    }
    for at in 0..table::end().max(INHERITED_BELOW) {
        *steps = steps.checked_sub(1)?;
        if listed.is_of(at) == Some(true) {
            return Some(at);
        }
    }
    None
}

/// Under the set's lock.
fn has(set: &'static Set, listed: &Listed, at: c_int) {
    let Some(one) = set.knows(listed, at) else { return is_unclear() };
    if one.asked() & ONESHOT != 0 && one.asked() & !(ONESHOT | EDGE) == 0 {
        one.add(SPENT);
    }
    if let Some(conn) = conn::at(at)
        && let Ok(_rx) = conn.lock_rx(at)
    {
        // One whose number was closed could not be marked.
        if at == listed.number && !listed.is_untold() {
            one.edge_told.store(conn.receiver().tail_seen(), Ordering::Relaxed);
        }
        set.push_hot(one);
    }
}

impl Set {
    /// The next program cannot know which bytes of a ring an edge has told of: what the kernel lists says so to
    /// it. Behind `leaves_to_kernel`, under the lock.
    pub fn marks_untold(&self) {
        let is_untold = |one: &registration::Registration| {
            one.asked() & EDGE != 0
                && one.number() == one.at()
                && one
                    .conn()
                    .is_some_and(|conn| super::hot::is_telling(one, conn, &conn.receiver()))
        };
        if !process::is_sandboxed() {
            registration::all(|one| one.is_of(self) && is_untold(one)).for_each(|one| {
                self.kernel_ctl_for(
                    super::MOD,
                    one,
                    one.asked() | kernel::UNTOLD,
                    one.kernel_data(),
                )
            });
        }
    }
}
