//! Offers of a receiving direction to its sender.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_ring::{Pages, Receiver};
use yasmin_wire::State;

use crate::conn::Conn;
use crate::{broker, config, holders, set, spin, sys, text};

/// Offers the receiving direction, if nobody sleeps on it and offers were worth it lately.
/// Under the receive lock; lets nobody else's sleep begin in between.
pub fn offer(conn: &'static Conn, fd: c_int, receiver: &Receiver<'_, Pages>) {
    // A peer that never hinted has not attached its end yet: it would send by TCP unseen.
    let is_attached = receiver.block.tcp_hint() != 0;
    if !is_attached
        || !receiver.may_offer()
        || !spin::allows_offer(&conn.rx.offers)
        || config::chaos()
    {
        return;
    }
    // Who may not watch sleeps next, and would take it back.
    if spin::is_crowded() && !config::is_forced() {
        return;
    }
    let rx = &conn.side().rx;
    let is_awaited = rx.sleepers.load(Ordering::SeqCst) != 0 || holders::is_watched_elsewhere(rx);
    if is_awaited {
        return;
    }
    if !holders::owns_rx(rx) {
        // They take turns: parked and drained as it is, they need no lock from now on.
        receiver.never_offer();
        return;
    }
    if !set::numbers::may_offer(conn, fd) {
        return;
    }
    if !text::is_clean() {
        return;
    }
    if receiver.offer(class_for(conn, receiver)) {
        conn.note_offered();
    }
}

/// For tests: offers before anything was received. False: the other end has not attached yet.
pub fn at_once(conn: &'static Conn, fd: c_int) -> bool {
    let Ok(_rx) = conn.lock_rx(fd) else { return true };
    let receiver = conn.receiver();
    if receiver.block.tcp_hint() == 0 {
        return false;
    }
    if receiver.state_seen() == State::Parked {
        receiver.hinted();
        if sys::poll_now(fd, sys::POLLIN | sys::POLLPRI | sys::POLLRDHUP) == 0 {
            conn.rx.tcp_dry.store(1, Ordering::Relaxed);
            offer(conn, fd, &receiver);
        }
    }
    true
}

/// The ring's class for the next offer: what the sender asks for, as far as the broker lets.
fn class_for(conn: &Conn, receiver: &Receiver<'_, Pages>) -> u8 {
    let limit = conn.side().class_limit.load(Ordering::Relaxed).min(u32::from(conn.max_class()));
    let first = limit as u8;
    let wanted = receiver.class_wanted();
    if wanted > first && conn.rx.grow_asked.load(Ordering::Relaxed) < u32::from(wanted) {
        conn.rx.grow_asked.store(u32::from(wanted), Ordering::Relaxed);
        if !broker::grow(conn.id.load(Ordering::Relaxed), wanted) {
            conn.rx.grow_asked.store(0, Ordering::Relaxed);
        }
    }
    first
}
