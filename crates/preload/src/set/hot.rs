//! A set's hot list: the registrations that a wait looks at.
//!
//! Storey 3: connection.

use core::sync::atomic::Ordering;

use yasmin_wire::State;

use super::registration::Registration;
use super::{EDGE, IN, RDNORM, Set};
use crate::conn::Conn;

impl Set {
    /// Parks what is hot. What is unread stays in the list: a wait here tells of it, and not the
    /// kernel. Under the lock.
    pub fn park_hot(&self) {
        let mut index = 0;
        while let Some(one) = self.hot.get(index) {
            let Some(Ok((conn, _rx))) =
                one.conn().map(|it| it.lock_rx(one.at()).map(|rx| (it, rx)))
            else {
                self.drop_hot(one);
                continue;
            };
            let receiver = conn.receiver();
            conn.park_rx(&receiver);
            if receiver.is_drained() {
                self.drop_hot(one);
            } else {
                index += 1;
            }
        }
    }

    /// Whether a wait would tell of ring bytes. Under the lock.
    pub(super) fn tells(&self) -> bool {
        let tells = |one: &Registration| {
            one.conn().is_some_and(|conn| is_telling(one, conn, &conn.receiver()))
        };
        self.each_hot().any(tells)
    }

    pub fn each_hot(&self) -> impl Iterator<Item = &'static Registration> {
        (0..self.hot.len()).filter_map(|index| self.hot.get(index))
    }

    /// Under the lock, and the receive lock of its connection. Whether it is in the list.
    pub fn push_hot(&self, one: &'static Registration) -> bool {
        if one.hot.load(Ordering::Relaxed) != 0 {
            return true;
        }
        one.idle.store(0, Ordering::Relaxed);
        if !self.ready.reserve(self.hot.len() + 1) {
            return false;
        }
        let Some(index) = self.hot.push(one) else { return false };
        one.hot.store(index + 1, Ordering::Relaxed);
        true
    }

    pub fn drop_hot(&self, one: &Registration) {
        let Some(index) = one.hot.swap(0, Ordering::Relaxed).checked_sub(1) else { return };
        if let Some(last) = self.hot.swap_remove(index)
            && !core::ptr::eq(last, one)
        {
            last.hot.store(index + 1, Ordering::Relaxed);
        }
        if self.shows() {
            self.show();
        }
    }
}

/// Whether a wait tells of ring bytes: there are some, TCP has none that come before, and they
/// are asked for and not told of yet. An edge may be due also behind TCP's: that is between the ring
/// and what the kernel has, and looked at once (`ready::readable`). Under the receive lock, or as a
/// hint.
pub fn is_telling(
    one: &Registration,
    conn: &Conn,
    receiver: &yasmin_ring::Receiver<'_, yasmin_ring::Pages>,
) -> bool {
    let asked = one.asked();
    if !one.is_armed() || asked & (IN | RDNORM) == 0 {
        return false;
    }
    if asked & EDGE == 0 {
        return conn.has_ring_next(receiver);
    }
    one.edge_told.load(Ordering::Relaxed) != receiver.tail_seen()
        && (conn.has_ring_next(receiver) || receiver.is_behind_tcp())
}

/// Whether the kernel knows all that there is to tell: parked, and nothing left of the ring.
pub fn is_kernels(receiver: &yasmin_ring::Receiver<'_, yasmin_ring::Pages>) -> bool {
    receiver.state_seen() == State::Parked && receiver.is_drained()
}
