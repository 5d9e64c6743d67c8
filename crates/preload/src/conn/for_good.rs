//! A connection that is parked for good, or until a program that was started has let go of it.
//!
//! Storey 3: connection.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use super::Conn;

impl Conn {
    /// Parks both directions for good; what is in the rings stays readable.
    pub fn park_for_good(&self, fd: c_int) {
        self.park_rx_for_good(fd);
        self.park_tx_for_good(fd);
    }

    /// The same, as a program is started that may use the socket too. False: it is so for another reason already, or
    /// bytes are unread.
    pub fn lends(&self, fd: c_int) -> bool {
        let is_never = {
            let (Ok(_rx), Ok(_tx)) = (self.lock_rx(fd), self.lock_tx(fd)) else { return false };
            self.receiver().is_never() || self.sender().is_never() || self.is_unread()
        };
        if is_never && !self.is_lent() {
            return false;
        }
        self.park_for_good(fd);
        self.settle(fd);
        let Ok(_rx) = self.lock_rx(fd) else { return false };
        if self.is_unread() || self.receiver().is_broken() {
            return false;
        }
        self.holding.lent.store(1, Ordering::Relaxed);
        true
    }

    /// Whether it is parked for good for no other reason.
    pub fn is_lent(&self) -> bool {
        self.holding.lent.load(Ordering::Relaxed) != 0
    }

    pub fn park_rx_for_good(&self, fd: c_int) {
        self.holding.lent.store(0, Ordering::Relaxed);
        if let Ok(_rx) = self.lock_rx(fd) {
            let receiver = self.receiver();
            receiver.never_offer();
            self.park_rx(&receiver);
        }
    }

    pub fn park_tx_for_good(&self, fd: c_int) {
        self.holding.lent.store(0, Ordering::Relaxed);
        if let Ok(_tx) = self.lock_tx(fd) {
            self.reset_if_passed_by(fd);
            // A broken direction shows itself at the next call.
            let _ = self.sender().park_for_good();
        }
    }
}
