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
        {
            let (Ok(_rx), Ok(_tx)) = (self.lock_rx(fd), self.lock_tx(fd)) else { return false };
            let (receiver, sender) = (self.receiver(), self.sender());
            if self.is_unread() || receiver.is_broken() {
                return false;
            }
            if receiver.is_never() || sender.is_never() {
                if !self.is_lent() {
                    return false;
                }
            } else {
                self.reset_if_passed_by(fd);
                receiver.never_offer();
                // A broken direction shows itself at the next call.
                let _ = sender.park_for_good();
                self.side().rx.lent.store(1, Ordering::SeqCst);
            }
        }
        self.settle(fd);
        true
    }

    /// Whether it is parked for good for no other reason, by this process or one that it forked.
    pub fn is_lent(&self) -> bool {
        self.side().rx.lent.load(Ordering::SeqCst) != 0
    }

    /// Whether this process gives the channel back, once it can, so that the connection gets another one.
    pub fn comes_back(&self) -> bool {
        self.is_lent() && self.is_own()
    }

    /// What is parked for good stays so. Under a lock.
    pub fn stays_for_good(&self) {
        self.side().rx.lent.store(0, Ordering::SeqCst);
    }

    pub fn park_rx_for_good(&self, fd: c_int) {
        if let Ok(_rx) = self.lock_rx(fd) {
            self.stays_for_good();
            let receiver = self.receiver();
            receiver.never_offer();
            self.park_rx(&receiver);
        }
    }

    pub fn park_tx_for_good(&self, fd: c_int) {
        if let Ok(_tx) = self.lock_tx(fd) {
            self.stays_for_good();
            self.reset_if_passed_by(fd);
            // A broken direction shows itself at the next call.
            let _ = self.sender().park_for_good();
        }
    }
}
