//! epoll_ctl: what the program asks for, and when the kernel hears of it.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_ring::Phase;

use super::{
    ADD, DEL, EXCLUSIVE, IN, LIST_MAX, MOD, NESTED, ONESHOT, OUT, RDNORM, Set, forget, leave,
};
use crate::conn::Conn;
use crate::sys::{self, EEXIST, EpollEvent, call};
use crate::table::{self, Entry, Watch};
use crate::{process, real};

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
        self.touch();
        let ret = {
            let Some(_guard) = self.lock.acquire() else { return kernel() };
            let ret = self.ctl_locked(op, fd, watch, asked, conn, kernel);
            // Who goes to sleep counts itself, /then/ tells the kernel, under this lock.
            if self.sleepers.load(Ordering::SeqCst) != 0 {
                self.flush();
            }
            ret
        };
        if let (Entry::Set(inner), 0) = (table::get(fd), ret) {
            if op == DEL || asked.events == 0 {
                inner.foreign.fetch_and(!NESTED, Ordering::SeqCst);
            } else {
                self.outer.store(1, Ordering::Relaxed);
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
        if owner.is_null() || core::ptr::eq(owner, self) || !watch.has(Watch::DIRTY) {
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
        // One that is left of a closed number the kernel tells of, and the program cannot change.
        let is_orphan = watch.has(Watch::ORPHAN);
        let is_present = is_ours && watch.has(Watch::PRESENT) && !is_orphan;
        let was_exclusive = watch.events.load(Ordering::Relaxed) & EXCLUSIVE != 0;
        let is_special = asked.events & (ONESHOT | EXCLUSIVE) != 0 || was_exclusive;
        let is_special = is_special || watch.has(Watch::MANY_SETS);
        let stays_here =
            conn.is_some() && is_ours && !is_special && !is_orphan && !self.is_foreign();
        if is_ours && watch.has(Watch::SPENT) && !is_orphan {
            return self.ctl_spent(op, fd, watch, asked, kernel);
        }
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
                    // What lies unread in the ring is told here, by the newest set.
                    watch.add(Watch::MANY_SETS);
                    if watch.has(Watch::SPENT) {
                        return ret;
                    }
                    watch.remove(Watch::DIRTY);
                }
                self.note(watch, asked);
                watch.remove(Watch::ORPHAN);
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

    /// Others sleep on the set, and `fd` has bytes in its ring, which the kernel would tell
    /// them of. It tells that the socket can be written instead, in a registration that only
    /// `told` sees: who wakes looks at the rings.
    fn wake_sleepers(&self, fd: c_int, watch: &Watch) {
        self.woken.store(1, Ordering::SeqCst);
        let mut event = EpollEvent { events: OUT, data: core::ptr::from_ref(watch) as u64 };
        let set = self.fd.load(Ordering::Relaxed);
        // SAFETY: event is ours.
        unsafe { call!(epoll_ctl, set, MOD, fd, &raw mut event) };
    }

    /// Takes the events of `wake_sleepers` out of the `count` behind `skip` that the kernel
    /// gave, and gives those registrations back what the program asked for.
    pub(super) fn told(&self, events: *mut EpollEvent, skip: usize, count: c_int) -> c_int {
        if count <= 0 || self.woken.load(Ordering::Relaxed) == 0 {
            return count;
        }
        let mut kept = skip;
        for at in skip..skip + count as usize {
            // SAFETY: the kernel filled these in.
            let event = unsafe { events.add(at).read_unaligned() };
            let Some(fd) = table::watched_by(event.data) else {
                // SAFETY: as above.
                unsafe { events.add(kept).write_unaligned(event) };
                kept += 1;
                continue;
            };
            let Some(watch) = table::watch(fd) else { continue };
            if core::ptr::eq(watch.set.load(Ordering::Relaxed), self) && !watch.has(Watch::SPENT) {
                self.kernel_ctl(MOD, fd, watch);
            }
        }
        (kept - skip) as c_int
    }

    /// The kernel does not have it, the program has.
    fn ctl_spent(
        &self,
        op: c_int,
        fd: c_int,
        watch: &Watch,
        asked: EpollEvent,
        kernel: impl Fn() -> c_int,
    ) -> c_int {
        match op {
            MOD if asked.events & EXCLUSIVE == 0 => {
                self.note(watch, asked);
                watch.remove(Watch::SPENT);
                watch.add(Watch::IN_KERNEL);
                self.kernel_ctl(ADD, fd, watch);
                0
            }
            DEL => {
                self.let_go(fd, watch);
                0
            }
            ADD => {
                sys::set_errno(EEXIST);
                -1
            }
            _ => kernel(),
        }
    }

    /// The ring told of a one-shot registration: nothing more is told until it is armed again.
    pub(super) fn spend(&self, fd: c_int, watch: &Watch) {
        self.kernel_ctl(DEL, fd, watch);
        watch.remove(Watch::IN_KERNEL | Watch::DIRTY);
        watch.add(Watch::SPENT);
    }

    fn note(&self, watch: &Watch, asked: EpollEvent) {
        watch.events.store(asked.events, Ordering::Relaxed);
        watch.data.store(asked.data, Ordering::Relaxed);
    }

    /// A connection was registered, or registered anew.
    fn registered(&self, conn: &'static Conn, fd: c_int, watch: &Watch, events: u32) {
        let is_first = core::ptr::eq(watch.set.load(Ordering::Acquire), self);
        // Of several numbers the one in a set is what the set looks at.
        let is_named = table::watch(conn.fd())
            .is_some_and(|watch| !watch.set.load(Ordering::Acquire).is_null());
        if is_first && conn.fd() != fd && !is_named {
            conn.goes_by(fd);
        }
        if is_first && !core::ptr::eq(conn.hot_set.load(Ordering::Acquire), self) {
            leave(conn);
        }
        let Some(_guard) = self.lock.acquire() else { return };
        let Ok(_rx) = conn.lock_rx(fd) else { return };
        let receiver = conn.receiver();
        // Said, /then/ parked, both under the receive lock, under which others offer.
        let is_elsewhere = conn.is_shared() && process::watches_rx(&conn.side().rx);
        // Told again, as the kernel does after MOD.
        conn.edge_told.store(u64::MAX, Ordering::Relaxed);
        // Not for good: programs move a connection from such a set to another one.
        let is_special = watch.has(Watch::MANY_SETS) || events & (ONESHOT | EXCLUSIVE) != 0;
        let is_asleep = self.sleepers.load(Ordering::SeqCst) != 0;
        if is_special || is_elsewhere || self.is_foreign() || is_asleep {
            conn.park_rx(&receiver);
        }
        if !is_first {
            return;
        }
        let is_hot = receiver.phase() != Phase::Parked || receiver.unread_bytes() > 0;
        if is_hot && conn.hot.load(Ordering::Relaxed) == 0 {
            self.push_hot(conn);
        }
        let is_asked = events & (IN | RDNORM) != 0;
        if is_asked && receiver.unread_bytes() > 0 && self.sleepers.load(Ordering::SeqCst) != 0 {
            self.wake_sleepers(fd, watch);
        }
    }
}
