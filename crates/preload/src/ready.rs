//! What the rings of a set have to tell, in the order in which it was sent (spec/wire.md 5.8).
//!
//! What must stay true: to look changes nothing that a later wait would tell of. What was told is
//! noted by who tells (`note_told`), and what finds no room is told another time.
//!
//! Storey 6: waits.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_ring::{Park, Room, View};
use yasmin_wire::State;

use crate::conn::Conn;
use crate::set::hot::is_telling;
use crate::set::registration::Registration;
use crate::set::{BEHIND, EDGE, IDLE_LOOKS, IN, OUT, PRI, RDBAND, RDNORM, Ready, Set, WRNORM};
use crate::{clock, process, sys, tcp};

/// A look at the rings.
pub struct Look {
    /// Ticks: what was sent later is left to the next look. Something that was sent before that may
    /// lie in a ring that was looked at already.
    pub time: u64,
    /// Ticks: what the senders did by TCP until then the kernel has told of.
    pub asked_at: u64,
}

impl Look {
    pub fn now(set: &Set) -> Self {
        Self { time: clock::ticks(), asked_at: set.known_at.load(Ordering::Relaxed) }
    }

    /// With what the kernel told when it was asked last: what was sent before that is not told later.
    pub fn as_of_kernel(set: &Set) -> Self {
        Self { time: set.looked_at.load(Ordering::Relaxed), ..Self::now(set) }
    }

    /// When what a registration is to tell of gave it its place, by this processor's counter, and
    /// whether its sender did something by TCP before that the kernel has not told of.
    fn order(&self, one: &Registration, conn: &Conn) -> (u64, bool) {
        let receiver = conn.receiver();
        if !conn.shares_clock() {
            let said = receiver.block.tcp_elsewhere();
            return (self.time, one.elsewhere_seen.load(Ordering::Relaxed) != said);
        }
        let head = receiver.head();
        let told = one.edge_told.load(Ordering::Relaxed);
        let is_unread = told.wrapping_sub(head) <= u64::from(receiver.unread_bytes());
        let start = if one.asked() & EDGE != 0 && is_unread { told } else { head };
        match receiver.stamp_at(start, self.time) {
            Some(stamp) => (one.bytes_at(stamp.time), stamp.elsewhere > self.asked_at),
            None => (one.bytes_at(0), receiver.block.tcp_elsewhere() > self.asked_at),
        }
    }

    /// `one`, which has `events` for this look, with its place among the others. `None`: it is left.
    /// That happens once, whatever a sender says of the time.
    pub fn place(&self, one: &'static Registration, conn: &Conn, events: u32) -> Option<Ready> {
        let room_at = if events & ROOM != 0 { one.room_at() } else { None };
        if events & (IN | RDNORM) == 0 {
            let told_at = || one.told_at.load(Ordering::Relaxed);
            let key = room_at.unwrap_or_else(told_at) & !BEHIND;
            return Some(Ready { one, key, events, follows: false });
        }
        let (time, follows) = self.order(one, conn);
        let is_late = time > self.time && one.left.load(Ordering::Relaxed) == 0;
        one.left.store(u32::from(is_late), Ordering::Relaxed);
        let sent = if follows { time | BEHIND } else { time & !BEHIND };
        // Its place in the kernel's list it has from when it was told of, whatever came since: only
        // what is told of at all depends on that.
        let kept = one.listed_at().or(room_at).unwrap_or(sent);
        (!is_late).then_some(Ready { one, key: sent.min(kept), events, follows })
    }
}

/// Events that tell of room to write.
const ROOM: u32 = OUT | WRNORM;

/// Of a list that is longer than the program's buffer so many are looked at, for those that have
/// waited longest.
const WINDOW: u32 = 64;

/// Puts the hot registrations that have something to tell into the set's ready list, in the order in
/// which it was sent, as many as there is `room` for. Under the lock.
pub fn gather(set: &Set, look: &Look, room: u32) {
    gather_but(set, look, room, |_| false);
}

pub fn gather_but(set: &Set, look: &Look, room: u32, is_told: impl Fn(&Registration) -> bool) {
    let ready = &set.ready;
    ready.clear();
    let start = set.cursor.load(Ordering::Relaxed);
    let mut index = start;
    // Under the lock: no other thread writes these.
    let round = set.round.load(Ordering::Relaxed).wrapping_add(1);
    set.round.store(round, Ordering::Relaxed);
    let (mut seen, mut kept) = (0u32, 0u32);
    loop {
        let len = set.hot.len();
        // All of them at first without a lock, one right after the other: what is published
        // meanwhile is left, and the cache lines that other CPUs wrote come side by side.
        let end = seen.saturating_add(room.max(WINDOW)).min(len);
        for _ in seen..end {
            if index >= len {
                index = 0;
            }
            let Some(one) = set.hot.get(index) else { break };
            index += 1;
            if one.round.load(Ordering::Relaxed) == round {
                continue;
            }
            one.round.store(round, Ordering::Relaxed);
            if may_tell(one) && !is_told(one) {
                ready.push(Ready { one, key: 0, events: 0, follows: false });
            }
        }
        keep_found(set, look, kept);
        kept = ready.len();
        if kept >= room || end == len {
            break;
        }
        seen = end;
        if set.hot.len() < len {
            // Those that left had others moved to their places, maybe from where nobody looked yet.
            (seen, index) = (0, start);
        }
    }
    ready.sort(|found| found.key);
    if ready.len() > room {
        // Those that are left have their turn soon, and others beside them.
        ready.truncate(room);
        index = start.wrapping_add(room);
    }
    if index >= set.hot.len() {
        index = 0;
    }
    set.cursor.store(index, Ordering::Relaxed);
}

/// Of the ready list from `first` on, keeps what has something to tell, with what it is.
fn keep_found(set: &Set, look: &Look, first: u32) {
    let ready = &set.ready;
    let mut kept = first;
    for at in first..ready.len() {
        let Some(Ready { one, .. }) = ready.get(at) else { break };
        if let Some(found) = find(set, look, one) {
            ready.put(kept, found);
            kept += 1;
        }
    }
    ready.truncate(kept);
}

/// Whether a hot registration may have something to tell: a hint, without a lock.
fn may_tell(one: &'static Registration) -> bool {
    if !one.is_armed() {
        return false;
    }
    let Some(conn) = one.conn() else { return Set::followed(one).is_some() };
    let receiver = conn.receiver();
    let idle = one.idle.load(Ordering::Relaxed);
    one.idle.store(idle.wrapping_add(1), Ordering::Relaxed);
    receiver.is_moved()
        || is_telling(one, conn, &receiver)
        || idle >= IDLE_LOOKS
        || receiver.state_seen() == State::Offered && receiver.is_hinted()
        || one.asked() & (OUT | WRNORM) != 0
}

fn find(set: &Set, look: &Look, one: &'static Registration) -> Option<Ready> {
    if let Some(inner) = Set::followed(one) {
        let events = found_inside(set, one, inner);
        let key = one.told_at.load(Ordering::Relaxed) & !BEHIND;
        return (events != 0).then_some(Ready { one, key, events, follows: false });
    }
    let events = found(set, one);
    let conn = one.conn().filter(|_| events != 0)?;
    one.idle.store(0, Ordering::Relaxed);
    look.place(one, conn, events)
}

/// What a registration of a followed set has to tell: whether a wait on that would tell of anything
/// by rings.
fn found_inside(set: &Set, one: &'static Registration, inner: &'static Set) -> u32 {
    let Some(_guard) = inner.lock.acquire() else { return 0 };
    let mut index = 0;
    let mut tells = false;
    while let Some(hot) = inner.hot.get(index) {
        tells |= may_tell(hot) && found(inner, hot) != 0;
        // It may have left.
        index += u32::from(inner.hot.get(index).is_some_and(|it| core::ptr::eq(it, hot)));
    }
    if inner.hot.is_empty() {
        set.drop_hot(one);
    }
    if inner.kernel_due.load(Ordering::Relaxed) != 0 {
        set.kernel_due.store(1, Ordering::Relaxed);
    }
    let is_told = tells && one.waits_for_bytes() && !one.is_kernels_alone();
    if is_told { one.asked() & (IN | RDNORM) } else { 0 }
}

/// The program is told of `events` of `one`, now.
pub fn note_told(one: &Registration, events: u32, now: u64) {
    if events == 0 {
        return;
    }
    one.told_at.store(now, Ordering::Relaxed);
    if one.asked() & EDGE != 0 {
        one.edge_told.store(one.found_tail.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// What a hot registration has to tell, besides what the kernel knows.
fn found(set: &Set, one: &'static Registration) -> u32 {
    if !one.is_armed() {
        return 0;
    }
    let Some(conn) = one.conn() else { return 0 };
    let asked = one.asked();
    let mut events = 0;
    let receiver = conn.receiver();
    let stirs = receiver.is_moved() || is_telling(one, conn, &receiver);
    if stirs || one.idle.load(Ordering::Relaxed) >= IDLE_LOOKS {
        events |= readable(set, one, conn);
    } else if receiver.state_seen() == State::Offered && receiver.hinted() {
        to_kernel(set, one, conn);
    }
    if one.hot.load(Ordering::Relaxed) == 0 {
        // All is the kernel's now, and nothing keeps the connection mapped any more.
        return events;
    }
    // Once the kernel alone has told of it, nobody else may tell again.
    let wants_out = asked & (OUT | WRNORM) != 0 && !one.is_kernels_alone();
    if wants_out && (events != 0 || asked & EDGE == 0 || has_past_edge(one, conn)) {
        // An edge tells of everything that is ready, and of this one the kernel knows nothing.
        let may_ask = asked & EDGE != 0 && !process::is_sandboxed();
        let asks_kernel = || may_ask && one.poll_now(sys::POLLOUT) != 0;
        if writable(conn, one.at()) || asks_kernel() {
            events |= asked & (OUT | WRNORM);
        } else {
            set.kernel_due.store(1, Ordering::Relaxed);
        }
    }
    events
}

pub fn readable(set: &Set, one: &'static Registration, conn: &'static Conn) -> u32 {
    let Ok(_rx) = conn.lock_rx(one.at()) else { return 0 };
    let receiver = conn.receiver();
    let Ok(view) = receiver.look(|| conn.read_position()) else {
        // The kernel reports the reset.
        tcp::reset(one.at());
        set.drop_hot(one);
        set.kernel_due.store(1, Ordering::Relaxed);
        return 0;
    };
    if is_telling(one, conn, &receiver) {
        let tail = receiver.tail_seen();
        if receiver.is_behind_tcp() {
            set.kernel_due.store(1, Ordering::Relaxed);
            if !is_come(conn, one.at()) {
                // With TCP's bytes, which come before these, the kernel tells of all.
                one.edge_told.store(tail, Ordering::Relaxed);
                return 0;
            }
        }
        one.found_tail.store(tail, Ordering::Relaxed);
        receiver.expect_read();
        return one.asked() & (IN | RDNORM);
    }
    match view {
        // Told of already, or not asked for.
        View::Ring { .. } => {}
        View::TcpUpTo { .. } => set.kernel_due.store(1, Ordering::Relaxed),
        View::Tcp => {
            set.drop_hot(one);
            set.kernel_due.store(1, Ordering::Relaxed);
        }
        View::Empty { state } => {
            let is_idle = one.idle.load(Ordering::Relaxed) >= IDLE_LOOKS;
            if is_idle && receiver.park() == Park::Parked {
                if state == State::Offered {
                    conn.rx.offers.failed();
                }
                set.drop_hot(one);
                set.kernel_due.store(1, Ordering::Relaxed);
            }
        }
    }
    0
}

/// Whether TCP has bytes to read, and with the ring's as many as the program wants.
fn is_come(conn: &Conn, fd: c_int) -> bool {
    let unread = sys::int_ioctl(fd, sys::FIONREAD);
    let in_ring = conn.receiver().unread_bytes();
    unread > 0 && i64::from(unread) + i64::from(in_ring) >= i64::from(conn.low_water())
}

/// Whether bytes came and were read that no wait has told of: TCP tells of that edge with what
/// is ready still, if anything is asked for that bytes wake (`sock_def_readable`).
fn has_past_edge(one: &Registration, conn: &'static Conn) -> bool {
    let receiver = conn.receiver();
    let (tail, told) = (receiver.tail_seen(), one.edge_told.load(Ordering::Relaxed));
    let is_woken = one.asked() & (IN | PRI | RDNORM | RDBAND) != 0;
    if !is_woken || told == tail || receiver.unread_bytes() > 0 {
        return false;
    }
    if told == u64::MAX {
        // Registered anew: the kernel tells.
        one.edge_told.store(tail, Ordering::Relaxed);
        return false;
    }
    one.found_tail.store(tail, Ordering::Relaxed);
    true
}

/// Whether a send would find room in the ring.
pub fn writable(conn: &'static Conn, fd: c_int) -> bool {
    let Ok(_tx) = conn.lock_tx(fd) else { return false };
    matches!(conn.sender().room(1), Ok(Room::Ring(write)) if !write.opens())
}

/// Bytes came by TCP to an offered direction: the kernel tells of them.
fn to_kernel(set: &Set, one: &Registration, conn: &'static Conn) {
    set.kernel_due.store(1, Ordering::Relaxed);
    let Ok(_rx) = conn.lock_rx(one.at()) else { return };
    let receiver = conn.receiver();
    if receiver.park() == Park::Parked && receiver.is_drained() {
        set.drop_hot(one);
    }
}
