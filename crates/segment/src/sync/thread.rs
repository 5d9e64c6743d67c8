//! A thread of this process, and what it holds.
//!
//! The list is private memory: nothing that another member writes leads anywhere. When a thread
//! ends (it returns, calls pthread_exit or is cancelled), what it still holds goes to the next
//! ones as that of a dead owner, as with robust mutexes of pthread. A thread that leaves by the bare
//! system call `exit` is not noticed before its process ends.
//!
//! A segment is unmapped only when no thread holds anything in it.

use std::cell::{Cell, RefCell};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64 as Bits, Ordering};

use super::holder::MAX_THREADS;
use super::owner::Owner;
use super::rwlock::RwLock;
use super::{Futex, Holder, Number};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thing {
    Owner(*const Owner),
    Read(*const RwLock),
}

struct Held {
    thing: Thing,
    number: Number,
}

/// One thread; used by no other.
pub struct Thread {
    /// From 1; 0: there are too many.
    number: Cell<u16>,
    held: RefCell<Vec<Held>>,
    incarnation: Cell<u64>,
}

impl Thread {
    /// A thread with a number that the caller knows to be its own in this process.
    pub fn new(number: u16) -> Self {
        let number = if number > MAX_THREADS { 0 } else { number };
        Self {
            number: Cell::new(number),
            held: RefCell::default(),
            incarnation: Cell::new(incarnation()),
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number.get()
    }

    /// A fork holds nothing of what its parent did. Called before it is a member by itself, and
    /// before anything is given back.
    pub(crate) fn forget_the_parent(&self) {
        let now = incarnation();
        if self.incarnation.replace(now) != now {
            self.held.borrow_mut().clear();
        }
    }

    pub(crate) fn hold(&self, thing: Thing, number: Number) {
        self.held.borrow_mut().push(Held { thing, number });
    }

    /// Whether it was in the list.
    pub(crate) fn let_go(&self, thing: Thing, number: Number) -> bool {
        let mut held = self.held.borrow_mut();
        let is_it = |one: &Held| one.thing == thing && one.number == number;
        // The last one in is most often the first one out.
        if held.last().is_some_and(is_it) {
            held.pop();
            return true;
        }
        match held.iter().rposition(is_it) {
            Some(index) => {
                held.swap_remove(index);
                true
            }
            None => false,
        }
    }

    pub(crate) fn holds(&self, thing: Thing, number: Number) -> bool {
        self.held.borrow().iter().any(|one| one.thing == thing && one.number == number)
    }

    /// Gives everything back as a dead owner's.
    pub(crate) fn end(&self) {
        self.forget_the_parent();
        let waiter = Futex::default();
        for Held { thing, number } in self.held.borrow_mut().drain(..) {
            let holder = Holder { number, thread: self.number() };
            match thing {
                // SAFETY: a segment stays mapped while a thread holds something in it.
                Thing::Owner(owner) => unsafe { (*owner).abandon(holder, &waiter) },
                // SAFETY: as above.
                Thing::Read(lock) => unsafe {
                    (*lock).leave(number, &waiter);
                },
            }
        }
    }
}

#[cfg(not(loom))]
mod current {
    use super::*;

    /// Numbers in use, a bit each.
    static NUMBERS: [Bits; (MAX_THREADS as usize + 1) / 64] =
        [const { Bits::new(0) }; (MAX_THREADS as usize + 1) / 64];

    struct Registered(Thread);

    thread_local! {
        static CURRENT: Registered = Registered(Thread::new(take_number()));
    }

    impl Drop for Registered {
        fn drop(&mut self) {
            self.0.end();
            let number = usize::from(self.0.number());
            if number != 0 {
                NUMBERS[number / 64].fetch_and(!(1 << (number % 64)), Ordering::Release);
            }
        }
    }

    /// 0 where all are in use.
    fn take_number() -> u16 {
        for (index, word) in NUMBERS.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            loop {
                // Number 0 is none.
                let free = !(bits | u64::from(index == 0));
                if free == 0 {
                    break;
                }
                let bit = free & free.wrapping_neg();
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                match word.compare_exchange(bits, bits | bit, order.0, order.1) {
                    Ok(_) => return (index * 64) as u16 + bit.trailing_zeros() as u16,
                    Err(now) => bits = now,
                }
            }
        }
        0
    }

    impl Thread {
        /// Runs `act` with the calling thread; None in its very last moments.
        pub fn with_current<T>(act: impl FnOnce(&Self) -> T) -> Option<T> {
            CURRENT.try_with(|current| act(&current.0)).ok()
        }
    }
}

#[cfg(not(loom))]
pub(crate) use fork::incarnation;

#[cfg(loom)]
fn incarnation() -> u64 {
    1
}

#[cfg(not(loom))]
mod fork {
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    /// A page that the kernel wipes in a fork.
    static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
    static LAST: AtomicU64 = AtomicU64::new(0);

    /// A number that is another one in a fork of this process, however it forked; 0 where the
    /// kernel has no memory for it.
    pub(crate) fn incarnation() -> u64 {
        let page = PAGE.load(Ordering::Acquire);
        if !page.is_null() {
            // SAFETY: once set it is a mapping that stays for good.
            let value = unsafe { (*page).load(Ordering::Acquire) };
            if value != 0 {
                return value;
            }
        }
        begin(page)
    }

    #[cold]
    fn begin(mut page: *mut AtomicU64) -> u64 {
        if page.is_null() {
            page = match map().map(|new| (new, publish(new))) {
                None => return 0,
                Some((new, Ok(()))) => new,
                Some((_, Err(others))) => others,
            };
        }
        // Above all that the parent ever had: the count itself is copied by a fork.
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        // SAFETY: as in `incarnation`.
        let word = unsafe { &*page };
        match word.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => next,
            Err(others) => others,
        }
    }

    const LEN_BYTES: usize = 4096;

    fn map() -> Option<*mut AtomicU64> {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        // SAFETY: a new mapping.
        let page = unsafe {
            let kind = kind | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), LEN_BYTES, rights, kind, -1, 0)
        };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping is ours.
        let wiped = unsafe { libc::madvise(page, LEN_BYTES, libc::MADV_WIPEONFORK) } == 0;
        if !wiped {
            // SAFETY: ours, and nobody was told of it.
            unsafe { libc::munmap(page, LEN_BYTES) };
        }
        wiped.then_some(page.cast())
    }

    fn publish(new: *mut AtomicU64) -> Result<(), *mut AtomicU64> {
        let none = std::ptr::null_mut();
        match PAGE.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(others) => {
                // SAFETY: ours, and nobody was told of it.
                unsafe { libc::munmap(new.cast(), LEN_BYTES) };
                Err(others)
            }
        }
    }
}
