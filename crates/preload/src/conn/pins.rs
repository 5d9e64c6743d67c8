//! Threads that watch a connection's channel without a lock: it stays mapped meanwhile.
//!
//! Storey 3: connection.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use super::Conn;
use crate::{lock, process};

/// See `Conn::pin`.
pub struct Pin<'a>(&'a Conn);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::SeqCst);
    }
}

/// For those that watch to look up.
const PIN_NAP_NS: i64 = 20_000;
const PIN_NAPS: u32 = 2000;

impl Conn {
    /// As `pin`, of one that is not in the table yet.
    pub fn pin_fresh(&self) -> Pin<'_> {
        self.pins.fetch_add(1, Ordering::SeqCst);
        Pin(self)
    }

    /// Keeps the channel mapped while it is watched without a lock. `None`: it is gone.
    pub fn pin(&self, fd: c_int) -> Option<Pin<'_>> {
        self.pins.fetch_add(1, Ordering::SeqCst);
        let pin = Pin(self);
        self.is_at(fd).then_some(pin)
    }

    /// Who watches without a lock is gone soon. False: not so, as where a handler closes what its
    /// own thread was watching, or left that watch by a jump: the memory stays until exit. Where
    /// there is no other thread, that is known at once.
    pub fn await_pins(&self) -> bool {
        for nap in 0..PIN_NAPS {
            match self.pins.load(Ordering::SeqCst) {
                0 => return true,
                _ if nap == 0 && !process::has_threads() => return false,
                pins => lock::nap(&self.pins, pins, PIN_NAP_NS),
            }
        }
        false
    }
}
