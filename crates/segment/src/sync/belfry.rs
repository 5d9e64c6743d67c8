//! What a guest's bells are made of: a page that all guests share, one of this guest, and the broker.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::bells::Ringing;
use super::primitive::{AtomicU32, AtomicU64, Ordering};
use super::waiter::{Futex, Waiter, sleep_on, wake};
use yasmin_control::segment::{BELLS, BELLS_AT};

/// Has the broker ring a bell in other guests, a bit for each.
pub type Ring = Box<dyn Fn(u64, usize) + Send + Sync>;

pub struct Belfry {
    /// The first page of the segment: the marks.
    shared: Page,
    /// The first page of this guest's file of locks: how often each bell was rung in this guest.
    own: Page,
    ring: Ring,
    clock: Futex,
}

impl Belfry {
    /// Both are open for writing, and as long as a page at least, as the broker that gave them made
    /// them.
    pub fn new(memory: BorrowedFd<'_>, locks: BorrowedFd<'_>, ring: Ring) -> io::Result<Self> {
        let (shared, own) = (Page::map(memory)?, Page::map(locks)?);
        Ok(Self { shared, own, ring, clock: Futex::new() })
    }

    fn count(&self, bell: usize) -> &AtomicU32 {
        const _: () = assert!(BELLS * size_of::<AtomicU32>() <= PAGE_BYTES);
        assert!(bell < BELLS);
        // SAFETY: inside the page and aligned; all processes go by atomics there.
        unsafe { &*self.own.start.cast::<AtomicU32>().add(bell) }
    }
}

impl Ringing for Belfry {
    fn marks(&self) -> &[AtomicU64] {
        // SAFETY: inside the page (`yasmin_control` asserts so) and aligned; all go by atomics there.
        unsafe { std::slice::from_raw_parts(self.shared.start.byte_add(BELLS_AT).cast(), BELLS) }
    }

    fn rung(&self, bell: usize) -> u32 {
        self.count(bell).load(Ordering::Acquire)
    }

    fn rest(&self, bell: usize, rung: u32, limit_ns: u64) {
        sleep_on(std::ptr::from_ref(self.count(bell)).cast(), rung, limit_ns);
    }

    fn ring(&self, bell: usize) {
        self.count(bell).fetch_add(1, Ordering::AcqRel);
        wake(std::ptr::from_ref(self.count(bell)).cast(), u32::MAX);
    }

    fn ring_in(&self, guests: u64, bell: usize) {
        (self.ring)(guests, bell);
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn looks(&self) -> u32 {
        self.clock.looks()
    }
}

const PAGE_BYTES: usize = 4096;

/// The first page of a file.
struct Page {
    start: *mut u8,
}

// SAFETY: it is an address; whoever goes through it goes by atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        let (rights, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new mapping, where nothing is.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), PAGE_BYTES, rights, libc::MAP_SHARED, fd, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast() })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped nowhere else.
        unsafe { libc::munmap(self.start.cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Bells;
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};
    use std::sync::{Arc, OnceLock};

    fn page() -> OwnedFd {
        // SAFETY: makes a descriptor, which is then this one's alone.
        let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"page".as_ptr(), 0)) };
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), PAGE_BYTES as i64) }, 0);
        file
    }

    /// Two guests with a file each, whose brokers are the test: a sleep at a bell ends by its ring.
    #[test]
    fn a_ring_in_another_guest_wakes() {
        let (shared, locks) = (page(), [page(), page()]);
        let word = AtomicU64::new(7);
        let rings = Arc::new(AtomicU32::new(0));
        let other: Arc<OnceLock<Belfry>> = Arc::default();
        let belfry =
            |own: &OwnedFd, ring: Ring| Belfry::new(shared.as_fd(), own.as_fd(), ring).unwrap();
        let (to, seen) = (Arc::clone(&other), Arc::clone(&rings));
        let ring_there: Ring = Box::new(move |guests, bell| {
            assert_eq!(guests, 1 << 5);
            seen.fetch_add(1, Ordering::AcqRel);
            to.get().unwrap().ring(bell);
        });
        let no_ring: Ring = Box::new(|_, _| unreachable!("nobody is asked to ring here"));
        assert!(other.set(belfry(&locks[1], Box::new(|_, _| unreachable!()))).is_ok());
        let (waker, sleeper) = (
            Bells::new(1, belfry(&locks[0], ring_there)),
            Bells::new(5, belfry(&locks[1], no_ring)),
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !sleeper.sleep(&word, 7, u64::MAX) && word.load(Ordering::Acquire) == 7 {}
            });
            // Until it has asked.
            let marks = belfry(&locks[0], Box::new(|_, _| ()));
            while marks.marks().iter().all(|mark| mark.load(Ordering::Acquire) == 0) {
                std::thread::yield_now();
            }
            word.store(8, Ordering::Release);
            waker.wake(&word, 1);
        });
        assert_eq!(rings.load(Ordering::Acquire), 1);
    }
}
