//! epoll_ctl: what the program asks for, and when the kernel hears of it.
//!
//! Storey 6: waits.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::conn::Conn;
use crate::entry::{self, Entry};
use crate::set::registration::{self, DIRTY, IN_KERNEL, PRESENT, REGISTRY, Registration, SPENT};
use crate::set::{
    self, ADD, DEL, EDGE, EXCLUSIVE, MOD, NESTED, ONESHOT, OUT, Set, WRNORM, is_kernels, is_telling,
};
use crate::sys::{self, EEXIST, EpollEvent, call};
use crate::{holders, memory, real};

/// Whether any set that watches this one wants events of it.
fn is_asked_for(set: &Set) -> bool {
    let Some(_registry) = REGISTRY.acquire() else { return true };
    registration::all(|one| one.has(PRESENT) && one.asked() != 0).any(|one| set.is_at(one.at()))
}

fn mark_dirty(set: &Set, one: &'static Registration) {
    let is_edge_of_room = one.asked() & EDGE != 0 && one.asked() & (OUT | WRNORM) != 0;
    if one.hot.load(Ordering::Relaxed) == 0 || is_edge_of_room {
        // Only the kernel knows what there is to tell.
        set.kernel_due.store(1, Ordering::Relaxed);
    }
    if one.has(DIRTY) {
        return;
    }
    one.add(DIRTY);
    if set.dirty.push(one).is_none() {
        set.tell_kernel(one);
    }
}

/// epoll_ctl. Returns as libc does.
///
/// # Safety
/// `event` as the program passed it.
pub unsafe fn ctl(
    set: &'static Set,
    set_fd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut EpollEvent,
) -> c_int {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::epoll_ctl(set_fd, op, fd, event) };
    if op != DEL && !memory::is_readable(event, 1) {
        return kernel();
    }
    let asked = if op == DEL {
        EpollEvent { events: 0, data: 0 }
    } else {
        // SAFETY: readable.
        unsafe { event.read_unaligned() }
    };
    set.touch();
    let ret = {
        let Some(_guard) = set.lock.acquire() else { return kernel() };
        let ret = ctl_locked(set, op, fd, asked, kernel);
        // Who goes to sleep counts itself, /then/ tells the kernel, under this lock.
        if set.sleepers.load(Ordering::SeqCst) != 0 {
            set.flush();
        }
        // It may have become a connection meanwhile.
        if let (0, true, Some(conn)) = (ret, op != DEL, entry::conn_of(fd))
            && let Some(one) = registration::find(set, fd)
        {
            registered(set, conn, one);
        }
        ret
    };
    if let (Entry::Set(inner), 0) = (entry::get(fd), ret) {
        if op == DEL || asked.events == 0 {
            if !is_asked_for(inner) {
                inner.foreign.fetch_and(!NESTED, Ordering::SeqCst);
            }
        } else {
            set.outer.store(1, Ordering::Relaxed);
            inner.make_foreign(NESTED);
        }
    }
    ret
}

/// Under the lock.
fn ctl_locked(
    set: &'static Set,
    op: c_int,
    fd: c_int,
    asked: EpollEvent,
    kernel: impl Fn() -> c_int,
) -> c_int {
    let Some(one) = registration::find(set, fd) else {
        let ret = kernel();
        if op == ADD && ret == 0 {
            added(set, fd, asked);
        }
        return ret;
    };
    if one.has(SPENT) {
        return ctl_spent(set, op, one, asked, kernel);
    }
    let is_present = one.has(PRESENT);
    let special = (asked.events | one.asked()) & (ONESHOT | EXCLUSIVE) != 0;
    let is_late = entry::conn_of(fd).is_some() && !special && !set.is_foreign();
    match op {
        ADD if is_late && !is_present => {
            one.add(PRESENT);
            one.note(asked);
            mark_dirty(set, one);
            0
        }
        MOD if is_late && is_present => {
            one.note(asked);
            mark_dirty(set, one);
            0
        }
        DEL if is_late && is_present => {
            one.remove(PRESENT);
            mark_dirty(set, one);
            0
        }
        ADD if !is_present => {
            // Taken back, and the kernel has not been told yet.
            set.flush();
            let ret = kernel();
            if ret == 0 {
                added(set, fd, asked);
            }
            ret
        }
        _ => {
            set.flush();
            let ret = kernel();
            if ret == 0 && is_present {
                if op == DEL {
                    let_go(set, one);
                } else {
                    one.note(asked);
                }
            }
            ret
        }
    }
}

/// The kernel took it.
fn added(set: &'static Set, fd: c_int, asked: EpollEvent) {
    let Some(one) = registration::make(set, fd) else {
        // No memory to know it by: what the kernel alone watches is the kernel's alone.
        set.make_foreign(set::FOR_GOOD);
        return;
    };
    one.note(asked);
    one.add(PRESENT | IN_KERNEL);
}

fn let_go(set: &Set, one: &'static Registration) {
    set.drop_hot(one);
    one.free();
}

/// The kernel does not have it, the program has.
fn ctl_spent(
    set: &Set,
    op: c_int,
    one: &'static Registration,
    asked: EpollEvent,
    kernel: impl Fn() -> c_int,
) -> c_int {
    match op {
        MOD if asked.events & EXCLUSIVE == 0 => {
            one.note(asked);
            one.remove(SPENT);
            one.add(IN_KERNEL);
            set.kernel_ctl(ADD, one);
            0
        }
        DEL => {
            let_go(set, one);
            0
        }
        ADD => {
            sys::set_errno(EEXIST);
            -1
        }
        _ => kernel(),
    }
}

/// The ring told of a one-shot registration: nothing more is told until it is armed again.
pub fn spend(set: &Set, one: &Registration) {
    set.kernel_ctl(DEL, one);
    one.remove(IN_KERNEL | DIRTY);
    one.add(SPENT);
}

/// Others sleep on the set, and the socket has bytes in its ring, which the kernel would
/// tell them of. It tells that the socket can be written instead, in a registration that
/// only `told` sees: who wakes looks at the rings.
pub fn wake_sleepers(set: &Set, one: &Registration) {
    set.woken.store(1, Ordering::SeqCst);
    // What comes by TCP still wakes, too.
    let asked = one.asked() & !(EDGE | ONESHOT | EXCLUSIVE);
    let mut event = EpollEvent { events: OUT | asked, data: one.token() };
    let set = set.fd.load(Ordering::Relaxed);
    // SAFETY: event is ours.
    unsafe { call!(epoll_ctl, set, MOD, one.number(), &raw mut event) };
}

/// Takes the events of `wake_sleepers` out of the `count` behind `skip` that the kernel
/// gave, and gives those registrations back what the program asked for. Who gets one has to
/// look at the rings. Under the lock.
pub fn take_wake_ups(set: &Set, events: *mut EpollEvent, skip: usize, count: c_int) -> c_int {
    if count <= 0 || set.woken.load(Ordering::Relaxed) == 0 {
        return count;
    }
    let mut kept = skip;
    for at in skip..skip + count as usize {
        // SAFETY: the kernel filled these in.
        let event = unsafe { events.add(at).read_unaligned() };
        if registration::is_token(event.data) {
            let one = registration::by_token(event.data);
            if let Some(one) = one.filter(|one| one.is_of(set) && !one.has(SPENT)) {
                set.kernel_ctl(MOD, one);
            }
            continue;
        }
        // SAFETY: as above.
        unsafe { events.add(kept).write_unaligned(event) };
        kept += 1;
    }
    (kept - skip) as c_int
}

/// A connection was registered, or registered anew. Under the lock.
fn registered(set: &Set, conn: &'static Conn, one: &'static Registration) {
    let Ok(_rx) = conn.lock_rx(one.at()) else { return };
    let receiver = conn.receiver();
    // Said, /then/ parked, both under the receive lock, under which others offer.
    let is_elsewhere = conn.is_shared() && holders::watches_rx(&conn.side().rx);
    // Told again, as the kernel does after MOD.
    one.edge_told.store(u64::MAX, Ordering::Relaxed);
    // Not for good: programs move a connection from such a set to another one.
    let is_special = one.asked() & (ONESHOT | EXCLUSIVE) != 0;
    let has_room = is_kernels(&receiver) || set.push_hot(one);
    if is_special || is_elsewhere || !set.may_offer() || !has_room {
        conn.park_rx(&receiver);
    }
    if is_telling(one, &receiver) && set.sleepers.load(Ordering::SeqCst) != 0 {
        wake_sleepers(set, one);
    }
}
