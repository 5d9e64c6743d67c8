//! The receiving side with several threads, and a sender that goes by ring or TCP as it must.

use loom::sync::Mutex;
use loom::sync::atomic::AtomicUsize;
use yasmin_ring::{Publish, Room, View};

use super::Link;

/// `extra` is what one model has beside that.
pub struct Side<Extra> {
    pub link: Link,
    pub lock: Mutex<()>,
    pub sleepers: AtomicUsize,
    pub extra: Extra,
}

impl<Extra> Side<Extra> {
    pub fn new(unit_bytes: usize, extra: Extra) -> Self {
        let (link, lock) = (Link::new(unit_bytes, 0), Mutex::new(()));
        Self { link, lock, sleepers: AtomicUsize::new(0), extra }
    }

    pub fn look(&self) -> View {
        self.link.rx().look(|| self.link.own_tcp_position()).unwrap()
    }

    pub fn take_tcp(&self) -> Option<u8> {
        let unit = self.link.tcp.recv_now(1).first().copied();
        self.link.rx().took_tcp(unit.map_or(0, |_| self.link.unit_bytes() as u64));
        unit
    }

    /// Sends units 1, 2 and so on. `hints`: as `preload`, which tells of what goes by TCP.
    pub fn send(&self, units: u8, hints: bool) {
        for unit in 1..=units {
            while !self.send_one(unit, hints) {}
        }
    }

    fn send_one(&self, unit: u8, hints: bool) -> bool {
        let (tx, unit_bytes) = (self.link.tx(), self.link.unit_bytes());
        match tx.room_to_send(unit_bytes).unwrap() {
            Room::Tcp => {
                self.link.tcp.send(unit);
                if hints {
                    tx.hint();
                }
                true
            }
            Room::Full => {
                tx.park().unwrap();
                false
            }
            Room::Ring(write) => {
                let bytes = vec![unit; unit_bytes];
                // SAFETY: `bytes` is readable for its length.
                unsafe { tx.fill(&write, 0, bytes.as_ptr(), bytes.len()) };
                let tcp_position = self.link.tcp.sent() * unit_bytes as u64;
                tx.publish(&write, unit_bytes as u32, tcp_position).unwrap() == Publish::Done
            }
        }
    }
}
