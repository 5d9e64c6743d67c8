//! epoll_ctl: what the program asks for, and when the kernel hears of it.
//!
//! Storey 6: waits.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::conn::Conn;
use crate::entry::{self, Entry};
use crate::set::hot::{is_kernels, is_telling};
use crate::set::registration::{
    self, ARMED, DIRTY, IN_KERNEL, PRESENT, REGISTRY, Registration, SPENT, TOKENED, WAKES,
};
use crate::set::{
    self, ADD, DEL, EDGE, ERR, EXCLUSIVE, FOLLOWED, HUP, MOD, NESTED, ONESHOT, OUT, Set, WRNORM,
    shown,
};
use crate::sys::{self, EEXIST, EpollEvent, call};
use crate::{holders, memory, process, real, text};

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
        if registration::is_token(asked.data) && set.tokenless.swap(1, Ordering::Relaxed) == 0 {
            set.take_tokens_back();
        }
        let ret = ctl_locked(set, op, fd, asked, kernel);
        // Who goes to sleep counts itself, /then/ tells the kernel, under this lock.
        // Who waits on a set that holds this one asks the kernel about it.
        if set.sleepers.load(Ordering::SeqCst) != 0 || set.is_followed() {
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
            if !is_asked_for(inner)
                && let Some(_guard) = inner.lock.acquire()
            {
                inner.foreign.fetch_and(!(NESTED | FOLLOWED), Ordering::SeqCst);
                inner.show();
            }
        } else if !registration::find(set, fd).is_some_and(|one| inner.follow(set, one)) {
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
        // One that another process has put there may be changed here.
        if op != DEL && ret == 0 {
            added(set, fd, asked);
        }
        return ret;
    };
    let is_present = one.has(PRESENT);
    let special = asked.events | one.asked();
    let is_oneshot = special & ONESHOT != 0;
    // Others the kernel tells of, and hears of at once.
    let has_rings = entry::conn_of(fd).is_some() || is_oneshot && Set::followed(one).is_some();
    let is_late = has_rings
        && special & EXCLUSIVE == 0
        && !process::is_sandboxed()
        && !set.is_foreign()
        && !set.is_shared()
        && (!is_oneshot || set.may_use_tokens() && text::is_clean());
    if !is_late {
        if has_rings && set.is_shared() {
            set.doubted.store(1, Ordering::Relaxed);
        }
        set.flush();
        if !is_present {
            // It was taken back, and is gone now.
            let ret = kernel();
            if op == ADD && ret == 0 {
                added(set, fd, asked);
            }
            return ret;
        }
        if one.has(SPENT) && !one.has(IN_KERNEL) {
            return ctl_spent(set, op, one, asked, kernel);
        }
    }
    match op {
        ADD if is_late && !is_present => {
            arm(set, one, asked);
            0
        }
        MOD if is_late && is_present => {
            arm(set, one, asked);
            0
        }
        DEL if is_late && is_present => {
            one.remove(PRESENT);
            mark_dirty(set, one);
            0
        }
        _ => {
            set.flush();
            // Whether the kernel has it is known from here on: one that is spent it may not have.
            if op == ADD && is_present && !one.has(IN_KERNEL) {
                sys::set_errno(EEXIST);
                return -1;
            }
            let ret = kernel();
            if ret == 0 && is_present {
                if op == DEL {
                    let_go(set, one);
                } else {
                    one.note(asked);
                    one.remove(SPENT | TOKENED);
                    kernel_has(one);
                }
            }
            ret
        }
    }
}

/// The program asks anew, and the kernel hears of it later.
fn arm(set: &Set, one: &'static Registration, asked: EpollEvent) {
    let is_more = one.note(asked);
    one.add(PRESENT);
    one.remove(SPENT | TOKENED);
    if asked.events & ONESHOT != 0 {
        // Only here: whatever the kernel tells by the program's own data was asked for before.
        one.add(TOKENED);
        set.tokens.store(1, Ordering::SeqCst);
    }
    mark_dirty(set, one);
    if is_more && one.hot.load(Ordering::Relaxed) == 0 {
        // What is ready already has its place in the kernel's list from now on.
        set.tell_kernel(one);
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
    one.add(PRESENT);
    kernel_has(one);
}

/// By the program's own call, and its own data.
fn kernel_has(one: &Registration) {
    one.add(IN_KERNEL | ARMED);
    one.kernel_events.store(0, Ordering::Relaxed);
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
            one.remove(SPENT | TOKENED);
            set.arm_kernel(one);
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

/// The ring told of a one-shot registration: nothing more is told until it is armed again. The
/// kernel learns that before it is asked again.
pub fn spend(set: &Set, one: &'static Registration) {
    one.add(SPENT);
    mark_dirty(set, one);
    let is_seen = set.is_foreign() || set.is_followed() || set.is_shared();
    if is_seen || set.sleepers.load(Ordering::SeqCst) != 0 {
        set.flush();
    }
}

/// Others sleep on the set, and the socket has bytes in its ring, which the kernel would
/// tell them of. It tells that the socket can be written instead, in a registration that
/// only `told` sees: who wakes looks at the rings.
pub fn wake_sleepers(set: &Set, one: &Registration) {
    if process::is_sandboxed() {
        return;
    }
    set.tokens.store(1, Ordering::SeqCst);
    one.add(WAKES);
    // What comes by TCP still wakes, too.
    let asked = one.asked() & !(EDGE | ONESHOT | EXCLUSIVE);
    let mut event = EpollEvent { events: OUT | asked, data: one.token() };
    let set = set.fd.load(Ordering::Relaxed);
    // SAFETY: event is ours.
    unsafe { call!(epoll_ctl, set, MOD, one.number(), &raw mut event) };
}

/// Once it takes more steps than this to find the changes that events belong to, the kernel is told
/// all of them.
const STEPS_MAX: u32 = 1 << 16;

/// What the kernel gave in `count` events behind `skip`, as the program is to see it. Wake-ups
/// go, and their registrations get back what the program asked for: who took one has to look at
/// the rings. One-shot registrations get the program's data, and are spent. What the program does
/// not ask for by now goes. Returns how many remain. Under the lock.
pub fn told(
    set: &Set,
    events: *mut EpollEvent,
    skip: usize,
    count: c_int,
    in_ring: impl Fn(&'static Registration) -> u32,
) -> c_int {
    if count <= 0 || set.tokens.load(Ordering::Relaxed) == 0 && set.dirty.is_empty() {
        return count;
    }
    let mut kept = skip;
    for at in skip..skip + count as usize {
        // SAFETY: the kernel filled these in.
        let mut event = unsafe { events.add(at).read_unaligned() };
        if event.data == shown::DATA {
            continue;
        }
        let is_own =
            registration::is_token(event.data) && set.tokenless.load(Ordering::Relaxed) == 0;
        let is_asked_for = if is_own {
            told_by_token(set, &mut event, &in_ring)
        } else {
            told_as_asked(set, &mut event)
        };
        if !is_asked_for {
            continue;
        }
        // SAFETY: as above.
        unsafe { events.add(kept).write_unaligned(event) };
        kept += 1;
    }
    let steps = set.dirty.len().saturating_mul(count as u32);
    let is_seen = set.is_followed() || set.is_shared();
    if is_seen || set.sleepers.load(Ordering::SeqCst) != 0 || steps > STEPS_MAX {
        set.flush();
    }
    (kept - skip) as c_int
}

/// The same in a handler that interrupted its own thread's hold of the lock, where nothing of the
/// set's may be changed: a wake-up stays, and what is not asked for any more is told all the same.
/// Returns how many remain.
pub fn told_inside(set: &Set, events: *mut EpollEvent, count: c_int) -> c_int {
    if set.tokens.load(Ordering::Relaxed) == 0 || count <= 0 {
        return count;
    }
    let mut kept = 0;
    for at in 0..count as usize {
        // SAFETY: the kernel filled these in.
        let mut event = unsafe { events.add(at).read_unaligned() };
        if event.data == shown::DATA {
            continue;
        }
        let one = registration::is_token(event.data)
            .then(|| registration::by_token(set, event.data))
            .flatten();
        if let Some(one) = one {
            if one.asked() & ONESHOT != 0 && !one.has(WAKES) {
                one.remove(ARMED);
                one.add(SPENT);
            }
            event.data = one.data.load(Ordering::Relaxed);
        }
        // SAFETY: as above.
        unsafe { events.add(kept).write_unaligned(event) };
        kept += 1;
    }
    kept as c_int
}

/// Where the kernel watches for more than the program asks for by now, it is told, and so is the
/// program what it asks for. Whether the program is to see the event.
fn told_as_asked(set: &Set, event: &mut EpollEvent) -> bool {
    let data = event.data;
    let has_it = |one: &Registration| one.is_of(set) && one.data.load(Ordering::Relaxed) == data;
    let is_more = |one: &Registration| event.events & !(one.asked() | ERR | HUP) != 0;
    let mut changed = (0..set.dirty.len()).filter_map(|index| set.dirty.get(index));
    let Some(one) = changed.find(|one| has_it(one) && is_more(one)) else { return true };
    set.tell_kernel(one);
    let same = || registration::all(|one| has_it(one) && one.is_armed());
    // Whose event it is nothing says where several have the same data.
    let is_one = same().nth(1).is_none();
    let asks = |one: &Registration| match one.asked() | ERR | HUP {
        asked if is_one => asked,
        asked => u32::from(one.poll_now(asked as i16) as u16),
    };
    event.events &= same().fold(0, |all, one| all | asks(one));
    event.events != 0
}

/// Whether the program is to see the event.
fn told_by_token(
    set: &Set,
    event: &mut EpollEvent,
    in_ring: &impl Fn(&'static Registration) -> u32,
) -> bool {
    let Some(one) = registration::by_token(set, event.data) else { return false };
    if !set.is_own() {
        // The other process has not taken its tokens back yet; what it asks for is its business.
        event.data = one.data.load(Ordering::Relaxed);
        return true;
    }
    if one.has(WAKES) || one.asked() & ONESHOT == 0 {
        // The first to see a wake-up takes it back; it may have been seen several times.
        if one.has(WAKES) && one.is_armed() {
            set.arm_kernel(one);
        }
        return false;
    }
    one.remove(ARMED);
    let wanted = one.asked() | ERR | HUP;
    if !one.is_armed() || event.events & wanted == 0 {
        // Its ring has told meanwhile, or the program asks for something else by now.
        mark_dirty(set, one);
        return false;
    }
    // It tells once, so of what the ring has as well.
    let ring = in_ring(one);
    one.add(SPENT);
    event.events = event.events & wanted | ring;
    event.data = one.data.load(Ordering::Relaxed);
    true
}

/// A connection was registered, or registered anew. Under the lock.
fn registered(set: &Set, conn: &'static Conn, one: &'static Registration) {
    let Ok(_rx) = conn.lock_rx(one.at()) else { return };
    let receiver = conn.receiver();
    // Said, /then/ parked, both under the receive lock, under which others offer.
    let is_elsewhere = conn.is_shared() && holders::watches_rx(&conn.side().rx);
    // Told again, as the kernel does after MOD.
    one.edge_told.store(u64::MAX, Ordering::Relaxed);
    let has_room = is_kernels(&receiver) || set.push_hot(one);
    // Not for good: programs move a connection from such a set to another one.
    // Nobody follows it from now on without its lock.
    let is_seen = || {
        !set.is_followed() || {
            let registry = REGISTRY.acquire();
            registry.is_some() && set.is_seen_outside()
        }
    };
    if one.is_kernels_alone() || is_elsewhere || !set.may_offer() || !has_room || !is_seen() {
        conn.park_rx(&receiver);
    }
    if is_telling(one, conn, &receiver) && set.sleepers.load(Ordering::SeqCst) != 0 {
        wake_sleepers(set, one);
    }
    if set.is_foreign() || set.is_followed() {
        set.show();
    }
}
