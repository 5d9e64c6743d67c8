//! How a connection ends in this process: its numbers go, or it becomes plain TCP again.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::sync::atomic::{self, Ordering};

use yasmin_channel::side::{FOR_NOW, GIVEN_BACK};
use yasmin_control::Then;

use crate::conn::names::Goes;
use crate::conn::{self, Conn};
use crate::entry::{self, Entry};
use crate::table::Candidate;
use crate::{
    broker, clock, handouts, holders, process, residue, set, streams, sys, table, tcp, twins,
};

/// The program closes `fd`, which still is in the table. Afterwards it is not, and with
/// the last one the channel is unmapped.
pub fn unname(conn: &'static Conn, fd: c_int, goes: Goes) -> Option<Rest> {
    {
        // Another thread may close the last of them meanwhile.
        let Some(_pin) = conn.pin(fd) else {
            goes.clear(fd);
            return None;
        };
        conn.number_goes(fd, goes);
        if conn.gives_up_name() {
            goes.clear(fd);
            if conn.is_slept_on() {
                goes.await_sleepers();
            }
            let other = (0..table::end()).find(|&at| conn.is_at(at));
            let other = other.unwrap_or(-1);
            if conn.fd() == fd {
                conn.set_fd(other);
            }
            if other >= 0 {
                set::numbers::number_orphaned(fd, other);
            }
            return None;
        }
    }
    release(conn, fd, goes)
}

/// Every descriptor that names it becomes plain TCP, as the kernel has it.
fn retire(conn: &'static Conn, fd: c_int) {
    let rest = {
        let Some(_pin) = conn.pin(fd) else { return };
        // Of several threads one does it.
        if conn.holding.retires.swap(1, Ordering::SeqCst) != 0 {
            return;
        }
        if let Ok(_rx) = conn.lock_rx(fd) {
            residue::drained(conn, fd);
        }
        for at in 0..table::end() {
            if at != fd && table::take_conn(at, conn.address()) {
                conn.gives_up_name();
                set::numbers::leave(at);
            }
        }
        conn.set_fd(fd);
        release(conn, fd, Goes::Unseen)
    };
    drop(rest);
}

/// It is gone from the table.
fn release(conn: &'static Conn, fd: c_int, goes: Goes) -> Option<Rest> {
    lay_ghosts();
    let (Ok(rx), Ok(tx)) = (conn.lock_rx(fd), conn.lock_tx(fd)) else {
        // A handler closes what its thread is using: the memory stays until exit.
        goes.clear(fd);
        return None;
    };
    if conn.has_many_names() {
        // Duplicated meanwhile.
        drop(tx);
        drop(rx);
        return unname(conn, fd, goes);
    }
    conn.reset_if_passed_by(fd);
    // The peer looks at the kernel for the end.
    let _ = conn.sender().park();
    let mut haunts = false;
    if conn.lets_go() {
        if conn.is_unread() {
            // Now, and not by its close: a thread that sleeps in the kernel on it keeps it open.
            tcp::reset(fd);
        }
    } else if set::numbers::watches(fd) {
        // The kernel goes on telling the set of it, as long as others hold it.
        haunts = conn.is_unread() && !conn.has_moved() && !conn.receiver().is_broken();
    } else {
        holders::watches_no_more(&conn.side().rx);
    }
    if conn.receiver().is_broken() {
        tcp::reset(fd);
    }
    let ghost = if haunts { table::set_ghost(conn.address()) } else { None };
    goes.clear(fd);
    let (is_own, is_slept_on) = (conn.is_own(), conn.is_slept_on());
    // The locks that forks share lie in the side page: let go of them first.
    drop(tx);
    drop(rx);
    if is_slept_on {
        goes.await_sleepers();
    }
    if let Some(ghost) = ghost {
        conn.set_fd(ghost);
        set::numbers::number_orphaned(fd, ghost);
        residue::drop_of(conn);
        if is_own {
            broker::release(conn.id.load(Ordering::Relaxed), Then::Closes);
        }
        return None;
    }
    forget(conn, fd, is_own, Then::Closes)
}

/// It is out of the table.
fn forget(conn: &'static Conn, fd: c_int, is_own: bool, then: Then) -> Option<Rest> {
    // Out of the table, /then/ out of the hot lists, /then/ unpinned.
    set::numbers::leave(fd).then_some(Rest { conn, is_own, then })
}

/// A connection that is out of the table, and the sets. Dropped, nobody looks at its pages any more, they are
/// unmapped, and the broker hears of it. A large ring's pages are freed for a tenth of a millisecond, and the
/// broker may take this CPU: the kernel's close goes before that, so that the peer need not wait for the end.
pub struct Rest {
    conn: &'static Conn,
    is_own: bool,
    then: Then,
}

impl Drop for Rest {
    fn drop(&mut self) {
        let saved = sys::errno();
        let conn = self.conn;
        let is_unpinned = conn.await_pins();
        if is_unpinned {
            conn.unmap();
        }
        residue::drop_of(conn);
        if self.is_own {
            broker::release(conn.id.load(Ordering::Relaxed), self.then);
        }
        if is_unpinned {
            conn::POOL.give(conn);
        }
        broker::gives_way();
        sys::set_errno(saved);
    }
}

/// Why a connection that goes on has a channel no longer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Its memory went.
    Gone,
    /// Nothing went by ring for a while, and what went by TCP was little, as this end found, or the other one. A
    /// channel costs such a connection more than it saves.
    Seldom,
    /// A program was started that may have the socket, too; or the other end gave it back for now.
    Lent,
}

impl Ends {
    /// Asked when bytes went by TCP.
    #[inline]
    pub fn of(conn: &Conn, is_seldom: bool) -> Option<Self> {
        match conn.gone() {
            0 if conn.comes_back() && conn.is_sole_holder() => Some(Self::Lent),
            0 => is_seldom.then_some(Self::Seldom),
            GIVEN_BACK => Some(Self::Seldom),
            FOR_NOW => Some(Self::Lent),
            _ => Some(Self::Gone),
        }
    }
}

/// It becomes a candidate, as if it had never had a channel, once nothing of that is left to read; until then
/// nothing is done, and a later call tries again. What several processes hold keeps it.
///
/// The other end does the same in its own time. As long as it has not, it reads what this end
/// published, finds both directions parked, and publishes nothing; and it does not offer itself for
/// another channel, so that the broker has nothing to pair.
#[cold]
pub fn renew(conn: &'static Conn, fd: c_int, why: Ends) {
    let saved = sys::errno();
    if let Some(names) = becomes_candidate(conn, fd, why) {
        let stays = |&at: &c_int| at != fd && !set::numbers::leave(at);
        if names.filter(stays).count() == 0 {
            let then = match why {
                Ends::Gone => Then::Closes,
                Ends::Seldom => Then::IsSeldom,
                Ends::Lent => Then::GoesOn,
            };
            drop(forget(conn, fd, true, then));
        }
    }
    sys::set_errno(saved);
}

/// Gives the numbers that did.
fn becomes_candidate(
    conn: &'static Conn,
    fd: c_int,
    why: Ends,
) -> Option<impl Iterator<Item = c_int> + use<>> {
    process::refresh();
    if process::is_borrowed() || process::is_forking() {
        return None;
    }
    let (Ok(_rx), Ok(_tx)) = (conn.lock_rx(fd), conn.lock_tx(fd)) else { return None };
    let names = conn.names(fd)?;
    let is_lent = conn.is_lent();
    // Of who has a socket since a fork the library knows too little to take a channel from it that serves.
    let is_alone = conn.is_own() && conn.is_sole_holder();
    let is_kept = conn.is_shared() && !is_lent && !conn.is_gone();
    if why == Ends::Gone && !conn.is_gone() || !is_alone || is_kept || conn.is_plain() && !is_lent {
        return None;
    }
    // Parked for good is for another reason than that its memory went.
    let (receiver, sender) = (conn.receiver(), conn.sender());
    let stays = || !conn.is_lent() && (receiver.is_never() || sender.is_never());
    if stays() {
        return None;
    }
    // A call that is in the kernel now took it for a connection: what it moves nobody would count,
    // and it would read or write past the next channel.
    let side = conn.side();
    let is_busy = side.rx.sleepers.load(Ordering::SeqCst) != 0
        || side.tx.kernel_senders.load(Ordering::SeqCst) != 0
        || conn.rx.error.load(Ordering::Relaxed) != 0;
    if is_busy || conn.is_unread() || !set::hot::is_kernels(&receiver) || sender.park().is_err() {
        return None;
    }
    let (Ok(Some(sent)), Some(read)) = (conn.sent_position(), conn.read_position()) else {
        // Somebody else has used it: it stays TCP.
        conn.stays_for_good();
        return None;
    };
    // They may have found bytes that went past.
    if stays() {
        return None;
    }
    let slot = match names.clone().count() {
        1 => 0,
        count => holders::take_slot_of(count)?,
    };
    conn.settle(fd);
    let candidate = Candidate::new(!conn.is_connector()).with_again().with_slot(slot);
    let candidate = match why {
        Ends::Gone | Ends::Lent => candidate,
        Ends::Seldom => candidate.seldom(clock::second(), conn.times_seldom_now()),
    };
    // Also where the other end was first. Who else has it the kernel says.
    let is_uncertain = conn.is_lent() || conn.is_shared();
    let candidate = if is_uncertain { candidate.lent(clock::second()) } else { candidate };
    // By this the broker shows it from now on, and forgets it when it is closed.
    for at in names.clone() {
        if let Some(offer) = table::offer(at) {
            offer.store(conn.id.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let moved = if at == fd { (sent as u32, read as u32) } else { (0, 0) };
        table::set_candidate_at(at, candidate, moved.0, moved.1);
    }
    // A fork has seen it as the connection, or sees it as the candidate: only the latter it counts.
    atomic::fence(Ordering::SeqCst);
    if process::is_forking() {
        names.clone().for_each(table::clear);
    }
    Some(names)
}

/// Lets go of those ghosts that no set has to tell of any more.
fn lay_ghosts() {
    for at in table::ghosts() {
        let Some(conn) = conn::at(at) else { continue };
        let is_done = !set::numbers::watches(at)
            || conn.lock_rx(at).is_ok_and(|_rx| conn.receiver().unread_bytes() == 0);
        if !is_done {
            continue;
        }
        table::clear_ghost(at);
        set::numbers::number_closed(at);
        if conn.await_pins() {
            conn.unmap();
            conn::POOL.give(conn);
        }
    }
}

/// The kernel has its settings, and if nothing is unread it is plain TCP. Parked for good. False: something is.
pub fn retires_drained(conn: &'static Conn, fd: c_int) -> bool {
    {
        let Some(_pin) = conn.pin(fd) else { return true };
        conn.settle(fd);
        let Ok(_rx) = conn.lock_rx(fd) else { return true };
        if conn.is_unread() || conn.receiver().is_broken() {
            return false;
        }
    }
    // Nothing comes by ring any more, so it stays drained.
    retire(conn, fd);
    true
}

/// Something that this library does not see will use `fd`: it stays TCP from now on.
pub fn leave_to_others(fd: c_int) {
    loop {
        match entry::get(fd) {
            Entry::Conn(conn) => {
                conn.park_for_good(fd);
                // Another thread may have renewed it before.
                if conn.is_at(fd) {
                    return;
                }
            }
            Entry::Candidate(_) if !withdraw(fd) => {}
            _ => return,
        }
    }
}

/// A program is started that may have the candidate's socket, too, by numbers that nobody counts here.
pub fn lends(fd: c_int) {
    let second = clock::second();
    let lends_one = |at| {
        let before = table::change(at, |candidate| candidate.with_pending(false).lent(second))?;
        took_offer_back(at, before);
        Some(before.slot())
    };
    if let Some(slot) = lends_one(fd) {
        for (at, _) in twins::at(slot).filter(|(at, _)| *at != fd) {
            lends_one(at);
        }
    }
}

/// The candidate stays TCP. The socket remains in use, so its slot is not given back: no other number
/// of it may have a channel. False: it is no candidate any more.
pub fn withdraw(fd: c_int) -> bool {
    let candidate = table::take_candidate(fd);
    candidate.inspect(|&candidate| took_offer_back(fd, candidate)).is_some()
}

/// One number more is about to name the socket of the candidate at `fd`, here or in a child. Gives the
/// slot that counts them. `None`: it is no candidate any more.
///
/// A thread that attaches a channel to it either sees that somebody forks, or finds its gate open and leaves
/// off: it may have counted the numbers before.
pub fn counts_once_more(fd: c_int) -> Option<usize> {
    let slot = |fd| match entry::get(fd) {
        Entry::Candidate(candidate) => Some(candidate.slot()),
        _ => None,
    };
    // What the kernel counted was before.
    table::change(fd, |candidate| candidate.with_by_kernel(false).with_gate(false))?;
    if slot(fd)? == 0 {
        let Some(fresh) = holders::take_slot() else {
            table::clear(fd);
            return None;
        };
        let with_slot = |candidate: Candidate| match candidate.slot() {
            0 => candidate.with_slot(fresh),
            _ => candidate,
        };
        table::change(fd, with_slot);
        if slot(fd) == Some(fresh) {
            return Some(fresh);
        }
        // Another thread was first.
        holders::drop_slot(fresh);
        holders::drop_slot(fresh);
    }
    let slot = slot(fd).filter(|&slot| slot != 0)?;
    holders::hold_slot(slot);
    Some(slot)
}

/// `to` names the socket of the candidate at `from`, too. They get a channel together: one that comes finds the names
/// that there are then. False: it is no candidate any more.
pub fn duplicated(from: c_int, to: c_int) -> bool {
    let is_hidden = streams::hides(to);
    let stop = |candidate: Candidate| candidate.with_pending(candidate.is_pending() && !is_hidden);
    let Some(candidate) = table::change(from, stop) else { return false };
    if is_hidden {
        // No channel can come.
        took_offer_back(from, candidate);
    }
    let Some(slot) = counts_once_more(from) else {
        return !matches!(entry::get(from), Entry::Conn(_));
    };
    let candidate = candidate.alone().with_pending(false).with_slot(slot);
    // The name that it is shown by goes with it: an earlier one of this number may be that of an end that lives.
    if let (Some(name), Some(copy)) = (table::offer(from), table::offer_of_any(to)) {
        copy.store(name.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    table::set_candidate(to, candidate);
    true
}

/// The candidate's number is closed. Where another one here names the socket, a set that was told of this
/// one goes on telling of it, and nobody could tell it of a ring. False: it is no candidate any more.
pub fn number_closes(fd: c_int) -> bool {
    let Some(candidate) = table::take_candidate(fd) else { return false };
    took_offer_back(fd, candidate);
    if candidate.is_again()
        && !candidate.is_pending()
        && twins::at(candidate.slot()).next().is_none()
        && let Some(offer) = table::offer(fd)
    {
        broker::release(offer.load(Ordering::Relaxed), Then::Closes);
    }
    let slot = candidate.slot();
    if slot != 0 && set::numbers::watches(fd) {
        for (at, _) in twins::at(slot) {
            withdraw(at);
        }
    } else if let Some((at, _)) = twins::at(slot).next()
        && let (Some(counts), Some(gone)) = (table::counts(at), table::counts(fd))
    {
        // Before the slot counts one less: until then nobody looks whether they are all.
        counts.take_over(gone);
    }
    holders::drop_slot(slot);
    true
}

/// The broker forgets the offer that the candidate had. Its entry has none any more: a channel that comes
/// for it from now on is refused.
fn took_offer_back(fd: c_int, candidate: Candidate) {
    if candidate.is_pending()
        && let Some(offer) = table::offer(fd)
    {
        let id = offer.load(Ordering::Relaxed);
        handouts::take_back(id);
        broker::release(id, Then::Closes);
    }
}
