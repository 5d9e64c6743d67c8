//! epoll_ctl: what the program asks for, and when the kernel hears of it.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_ring::Phase;

use super::{ADD, DEL, EXCLUSIVE, LIST_MAX, MOD, NESTED, ONESHOT, Set, forget, leave};
use crate::conn::Conn;
use crate::real;
use crate::sys::{EpollEvent, call};
use crate::table::{self, Entry, Watch};

impl Set {
    fn mark_dirty(&self, fd: c_int, watch: &Watch) {
        if watch.has(Watch::DIRTY) {
            return;
        }
        let len = self.dirty_len.load(Ordering::Relaxed);
        if len as usize >= LIST_MAX {
            self.flush();
            return self.mark_dirty(fd, watch);
        }
        // SAFETY: below LIST_MAX.
        unsafe {
            (*self.dirty.load(Ordering::Relaxed).add(len as usize)).store(fd, Ordering::Relaxed)
        };
        self.dirty_len.store(len + 1, Ordering::Relaxed);
        watch.add(Watch::DIRTY);
    }

    /// Tells the kernel what changed. Under the lock, before the kernel is asked.
    pub(super) fn flush(&self) {
        let len = self.dirty_len.swap(0, Ordering::Relaxed);
        for i in 0..len {
            // SAFETY: below LIST_MAX.
            let fd = unsafe {
                (*self.dirty.load(Ordering::Relaxed).add(i as usize)).load(Ordering::Relaxed)
            };
            let Some(watch) = table::watch(fd) else { continue };
            let is_ours = core::ptr::eq(watch.set.load(Ordering::Relaxed), self);
            if !is_ours || !watch.has(Watch::DIRTY) {
                continue;
            }
            watch.remove(Watch::DIRTY);
            if watch.has(Watch::PRESENT) {
                self.kernel_ctl(MOD, fd, watch);
            } else {
                self.kernel_ctl(DEL, fd, watch);
                self.let_go(fd, watch);
            }
        }
    }

    /// The set no longer watches `fd`. Under the lock.
    fn let_go(&self, fd: c_int, watch: &Watch) {
        if let Some(conn) = table::conn_of(fd) {
            self.drop_hot(conn);
        }
        forget(watch);
    }

    pub(super) fn kernel_ctl(&self, op: c_int, fd: c_int, watch: &Watch) {
        let mut event = EpollEvent {
            events: watch.events.load(Ordering::Relaxed),
            data: watch.data.load(Ordering::Relaxed),
        };
        let set = self.fd.load(Ordering::Relaxed);
        // SAFETY: event is ours.
        unsafe { call!(epoll_ctl, set, op, fd, &raw mut event) };
    }

    /// epoll_ctl. Returns as libc does.
    ///
    /// # Safety
    /// `event` as the program passed it.
    pub unsafe fn ctl(
        &'static self,
        set_fd: c_int,
        op: c_int,
        fd: c_int,
        event: *mut EpollEvent,
    ) -> c_int {
        // SAFETY: the program's own arguments.
        let kernel = || unsafe { real::epoll_ctl(set_fd, op, fd, event) };
        let Some(watch) = table::watch(fd) else { return kernel() };
        if event.is_null() && op != DEL {
            return kernel();
        }
        let asked = if op == DEL {
            EpollEvent { events: 0, data: 0 }
        } else {
            // SAFETY: not null; a bad pointer faults here as it would give EFAULT there.
            unsafe { event.read_unaligned() }
        };
        let conn = table::conn_of(fd);
        if op == ADD {
            self.settle_elsewhere(watch);
        }
        let ret = {
            let Some(_guard) = self.lock.acquire() else { return kernel() };
            self.ctl_locked(op, fd, watch, asked, conn, kernel)
        };
        if let (Entry::Set(inner), 0) = (table::get(fd), ret) {
            if op == DEL || asked.events == 0 {
                inner.foreign.fetch_and(!NESTED, Ordering::SeqCst);
            } else {
                inner.make_foreign(NESTED);
            }
        }
        // It may have become a connection meanwhile.
        if let Some(conn) = table::conn_of(fd).filter(|_| ret == 0 && op != DEL) {
            self.registered(conn, fd, watch, asked.events);
        }
        ret
    }

    /// Another set that the program took the descriptor from may not have told the kernel yet.
    fn settle_elsewhere(&self, watch: &Watch) {
        let owner = watch.set.load(Ordering::Acquire);
        if owner.is_null() || core::ptr::eq(owner, self) || watch.has(Watch::PRESENT) {
            return;
        }
        // SAFETY: a set's memory stays a set's.
        let owner = unsafe { &*owner };
        if let Some(_guard) = owner.lock.acquire() {
            owner.flush();
        }
    }

    fn ctl_locked(
        &self,
        op: c_int,
        fd: c_int,
        watch: &Watch,
        asked: EpollEvent,
        conn: Option<&'static Conn>,
        kernel: impl Fn() -> c_int,
    ) -> c_int {
        let owner = watch.set.load(Ordering::Relaxed);
        let is_ours = core::ptr::eq(owner, self);
        let is_present = is_ours && watch.has(Watch::PRESENT);
        let is_special = asked.events & (ONESHOT | EXCLUSIVE) != 0;
        let stays_here = conn.is_some() && is_ours && !is_special && !self.is_foreign();
        match op {
            ADD if stays_here && watch.has(Watch::IN_KERNEL) && !is_present => {
                watch.add(Watch::PRESENT);
                self.note(watch, asked);
                self.mark_dirty(fd, watch);
                0
            }
            MOD if stays_here && is_present => {
                self.note(watch, asked);
                self.mark_dirty(fd, watch);
                0
            }
            DEL if stays_here && is_present => {
                watch.remove(Watch::PRESENT);
                self.mark_dirty(fd, watch);
                0
            }
            ADD => {
                if is_ours && !is_present {
                    // Taken back, and the kernel has not been told yet.
                    self.flush();
                }
                let ret = kernel();
                if ret != 0 {
                    return ret;
                }
                if !watch.set.load(Ordering::Acquire).is_null() {
                    // Also when that set is about to let it go: it does so under its own lock.
                    watch.add(Watch::MANY_SETS);
                    return ret;
                }
                self.note(watch, asked);
                watch.add(Watch::PRESENT | Watch::IN_KERNEL);
                watch.set.store(core::ptr::from_ref(self).cast_mut(), Ordering::Release);
                table::reaches(fd);
                ret
            }
            _ => {
                if is_ours && watch.has(Watch::DIRTY) {
                    self.flush();
                }
                let ret = kernel();
                if ret == 0 && is_ours {
                    if op == DEL {
                        self.let_go(fd, watch);
                    } else {
                        self.note(watch, asked);
                    }
                }
                ret
            }
        }
    }

    fn note(&self, watch: &Watch, asked: EpollEvent) {
        watch.events.store(asked.events, Ordering::Relaxed);
        watch.data.store(asked.data, Ordering::Relaxed);
    }

    /// A connection was registered, or registered anew.
    fn registered(&self, conn: &'static Conn, fd: c_int, watch: &Watch, events: u32) {
        if watch.has(Watch::MANY_SETS) || events & (ONESHOT | EXCLUSIVE) != 0 {
            conn.park_rx_for_good(fd);
        }
        if !core::ptr::eq(conn.hot_set.load(Ordering::Acquire), self) {
            leave(conn);
        }
        let Some(_guard) = self.lock.acquire() else { return };
        let Ok(_rx) = conn.lock_rx(fd) else { return };
        let receiver = conn.receiver();
        // Told again, as the kernel does after MOD.
        conn.edge_told.store(u64::MAX, Ordering::Relaxed);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            conn.park_rx(&receiver);
        }
        let is_hot = receiver.phase() != Phase::Parked || receiver.unread_bytes() > 0;
        if is_hot && conn.hot.load(Ordering::Relaxed) == 0 {
            self.push_hot(conn);
        }
    }
}
