//! The numbers of sets and of what is registered in them: what closing, duplicating and passing on
//! does to both.
//!
//! Storey 3: connection.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use super::registration::{self, DIRTY, ORPHAN, PRESENT, REGISTRY, Registration};
use super::{
    EDGE, FOR_GOOD, INHERITED, MOD, NESTED, ONESHOT, OUT, POLLED, Set, WRNORM, listed, of,
};
use crate::conn::Conn;
use crate::{process, table};

/// `to` names the set that `from` names.
pub fn named(set: &'static Set, to: c_int) {
    if set.is_followed() {
        set.make_foreign(NESTED);
    }
    set.names.fetch_add(1, Ordering::Relaxed);
    table::set_set(to, set.address());
}

/// The program closes `fd`, one of the set's numbers.
pub fn unnamed(set: &'static Set, fd: c_int) {
    table::clear(fd);
    if set.names.fetch_sub(1, Ordering::Relaxed) > 1 {
        if set.fd.load(Ordering::Relaxed) == fd {
            let other = (0..table::end()).find(|&at| set.is_at(at)).unwrap_or(-1);
            set.fd.store(other, Ordering::Relaxed);
        }
        return;
    }
    set.close();
}

/// Sends the program's set away with a message: others may look at it from now on.
pub fn passed_on(set: &'static Set) {
    set.passed.store(1, Ordering::Relaxed);
    set.touch();
    set.make_foreign(FOR_GOOD);
    if let Some(_guard) = set.lock.acquire() {
        set.leaves_to_kernel(true);
        set.marks_untold();
    }
}

/// A registration's number goes, or the program gives it to something else.
pub fn number_closed(fd: c_int) {
    while let Some(one) = first_at(fd) {
        let Some(set) = one.set() else { return };
        let is_own = set.foreign.load(Ordering::Relaxed) & INHERITED == 0;
        let Some(_guard) = set.lock.acquire() else { return };
        if !one.is_of(set) || one.at() != fd {
            continue;
        }
        if is_own && one.has(DIRTY) {
            // A forked child keeps the registration alive as the kernel has it.
            set.tell_kernel(one);
        }
        set.drop_hot(one);
        one.free();
    }
}

/// The program closed `fd`, but `other` still names the connection: a set that was told of
/// `fd` goes on watching it, as the kernel does.
pub fn number_orphaned(fd: c_int, other: c_int) {
    while let Some(one) = first_at(fd) {
        let Some(set) = one.set() else { return };
        let Some(_guard) = set.lock.acquire() else { return };
        if !one.is_of(set) || one.at() != fd {
            continue;
        }
        if one.has(DIRTY) {
            set.tell_kernel(one);
        }
        if one.has(PRESENT) {
            if !process::is_sandboxed()
                && let Some(inode) = listed::inode_at(fd)
            {
                one.inode.store(inode, Ordering::Relaxed);
            }
            one.moves(other, true);
        } else {
            set.drop_hot(one);
            one.free();
        }
    }
}

/// `fd` names `conn` again: what was registered under this number before is the program's.
pub fn number_is_back(conn: &Conn, fd: c_int) {
    let is_it = |one: &Registration| {
        one.has(ORPHAN)
            && one.number() == fd
            && one.conn().is_some_and(|it| core::ptr::eq(it, conn))
    };
    for one in registration::all(is_it) {
        one.moves(fd, false);
    }
}

fn first_at(fd: c_int) -> Option<&'static Registration> {
    if process::is_borrowed() || !has_registrations(fd) {
        return None;
    }
    let _registry = REGISTRY.acquire()?;
    registration::at(fd).next()
}

fn has_registrations(fd: c_int) -> bool {
    table::watched(fd).is_some_and(|first| !first.load(Ordering::Acquire).is_null())
}

/// Whether a set has `fd`.
pub fn watches(fd: c_int) -> bool {
    has_registrations(fd) && {
        let _registry = REGISTRY.acquire();
        registration::at(fd).any(|one| one.has(PRESENT))
    }
}

/// Whether connection `conn` may be offered as far as sets go; if so all of its registrations
/// are in hot lists. Under the receive lock.
pub fn may_offer(conn: &'static Conn, fd: c_int) -> bool {
    let Some(names) = conn.names(fd) else { return false };
    if !names.clone().any(has_registrations) {
        return true;
    }
    let Some(_registry) = REGISTRY.acquire() else { return false };
    names.flat_map(registration::at).all(|one| {
        let Some(set) = one.set() else { return true };
        if one.is_kernels_alone() {
            return false;
        }
        if !set.may_offer() {
            set.wanted.store(1, Ordering::Relaxed);
            return false;
        }
        if one.hot.load(Ordering::Relaxed) == 0 {
            // The sleeper's order is set, then receive lock: here it may only be tried.
            let Some(_guard) = set.lock.try_acquire() else { return false };
            if !set.may_offer() || !set.push_hot(one) {
                return false;
            }
        }
        // In the list, /then/ that: who takes the set out of the outer list looks whether its own
        // is empty.
        set.is_seen_outside()
    })
}

/// The connection behind `fd` is out of the table, so that nobody offers it any more: out of
/// the hot lists. False: in a handler whose thread holds such a list.
pub fn leave(fd: c_int) -> bool {
    if !has_registrations(fd) {
        return true;
    }
    {
        // What waits were told of was this connection's.
        let Some(_registry) = REGISTRY.acquire() else { return false };
        registration::at(fd).for_each(|one| one.edge_told.store(u64::MAX, Ordering::Relaxed));
    }
    loop {
        let found = {
            let Some(_registry) = REGISTRY.acquire() else { return false };
            registration::at(fd).find(|one| one.hot.load(Ordering::Relaxed) != 0)
        };
        let Some(one) = found else { return true };
        let Some(set) = one.set() else { continue };
        let Some(_guard) = set.lock.acquire() else { return false };
        if one.is_of(set) {
            set.drop_hot(one);
        }
    }
}

/// A write was cut short by a full ring: an edge-triggered writer waits for an edge that TCP
/// does not have. Registering again makes the kernel report it.
pub fn write_cut_short(fd: c_int) {
    if !has_registrations(fd) {
        return;
    }
    let Some(_registry) = REGISTRY.acquire() else { return };
    for one in registration::at(fd) {
        let asked = one.asked();
        // One-shot: the program arms it, and the kernel tells then.
        let waits = asked & (EDGE | ONESHOT) == EDGE && asked & (OUT | WRNORM) != 0;
        if let Some(set) = one.set().filter(|_| waits && !one.has(ORPHAN)) {
            set.kernel_ctl(MOD, one);
            set.kernel_due.store(1, Ordering::Relaxed);
        }
    }
}

/// Another program's eyes are on descriptor `fd`, should it be a set.
pub fn watched_from_outside(fd: c_int) {
    if let Some(set) = of(fd) {
        set.touch();
        set.make_foreign(POLLED);
    }
}

/// Whether `fd` is a set whose rings have something to tell that the kernel was not shown.
pub fn tells_unshown(fd: c_int) -> bool {
    let Some(set) = of(fd).filter(|set| !set.hot.is_empty() && !set.shows()) else { return false };
    let Some(_guard) = set.lock.acquire() else { return false };
    set.reread();
    set.tells()
}
