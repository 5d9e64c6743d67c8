//! epoll_ctl: what the program asks for, and when the kernel hears of it.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use super::registration::{self, DIRTY, IN_KERNEL, PRESENT, REGISTRY, Registration, SPENT};
use super::{
    ADD, DEL, EDGE, EXCLUSIVE, MOD, NESTED, ONESHOT, OUT, Set, WRNORM, is_kernels, is_telling,
};
use crate::conn::Conn;
use crate::sys::{self, EEXIST, EpollEvent, call};
use crate::table::{self, Entry};
use crate::{memory, process, real};

impl Set {
    /// Whether any set that watches this one wants events of it.
    fn is_asked_for(&self) -> bool {
        let Some(_registry) = REGISTRY.acquire() else { return true };
        registration::all(|one| one.has(PRESENT) && one.asked() != 0)
            .any(|one| table::is_set(one.at(), self))
    }

    fn mark_dirty(&self, one: &'static Registration) {
        let is_edge_of_room = one.asked() & EDGE != 0 && one.asked() & (OUT | WRNORM) != 0;
        if one.hot.load(Ordering::Relaxed) == 0 || is_edge_of_room {
            // Only the kernel knows what there is to tell.
            self.kernel_due.store(1, Ordering::Relaxed);
        }
        if one.has(DIRTY) {
            return;
        }
        one.add(DIRTY);
        if self.dirty.push(one).is_none() {
            self.tell_kernel(one);
        }
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
        if op != DEL && !memory::is_readable(event, 1) {
            return kernel();
        }
        let asked = if op == DEL {
            EpollEvent { events: 0, data: 0 }
        } else {
            // SAFETY: readable.
            unsafe { event.read_unaligned() }
        };
        self.touch();
        let ret = {
            let Some(_guard) = self.lock.acquire() else { return kernel() };
            let ret = self.ctl_locked(op, fd, asked, kernel);
            // Who goes to sleep counts itself, /then/ tells the kernel, under this lock.
            if self.sleepers.load(Ordering::SeqCst) != 0 {
                self.flush();
            }
            // It may have become a connection meanwhile.
            if let (0, true, Some(conn)) = (ret, op != DEL, table::conn_of(fd))
                && let Some(one) = registration::find(self, fd)
            {
                self.registered(conn, one);
            }
            ret
        };
        if let (Entry::Set(inner), 0) = (table::get(fd), ret) {
            if op == DEL || asked.events == 0 {
                if !inner.is_asked_for() {
                    inner.foreign.fetch_and(!NESTED, Ordering::SeqCst);
                }
            } else {
                self.outer.store(1, Ordering::Relaxed);
                inner.make_foreign(NESTED);
            }
        }
        ret
    }

    /// Under the lock.
    fn ctl_locked(
        &'static self,
        op: c_int,
        fd: c_int,
        asked: EpollEvent,
        kernel: impl Fn() -> c_int,
    ) -> c_int {
        let Some(one) = registration::find(self, fd) else {
            let ret = kernel();
            if op == ADD && ret == 0 {
                self.added(fd, asked);
            }
            return ret;
        };
        if one.has(SPENT) {
            return self.ctl_spent(op, one, asked, kernel);
        }
        let is_present = one.has(PRESENT);
        let special = (asked.events | one.asked()) & (ONESHOT | EXCLUSIVE) != 0;
        let is_late = table::conn_of(fd).is_some() && !special && !self.is_foreign();
        match op {
            ADD if is_late && !is_present => {
                one.add(PRESENT);
                one.note(asked);
                self.mark_dirty(one);
                0
            }
            MOD if is_late && is_present => {
                one.note(asked);
                self.mark_dirty(one);
                0
            }
            DEL if is_late && is_present => {
                one.remove(PRESENT);
                self.mark_dirty(one);
                0
            }
            ADD if !is_present => {
                // Taken back, and the kernel has not been told yet.
                self.flush();
                let ret = kernel();
                if ret == 0 {
                    self.added(fd, asked);
                }
                ret
            }
            _ => {
                self.flush();
                let ret = kernel();
                if ret == 0 && is_present {
                    if op == DEL {
                        self.let_go(one);
                    } else {
                        one.note(asked);
                    }
                }
                ret
            }
        }
    }

    /// The kernel took it.
    fn added(&'static self, fd: c_int, asked: EpollEvent) {
        let Some(one) = registration::make(self, fd) else {
            // No memory to know it by: what the kernel alone watches is the kernel's alone.
            self.make_foreign(super::FOR_GOOD);
            return;
        };
        one.note(asked);
        one.add(PRESENT | IN_KERNEL);
    }

    fn let_go(&self, one: &'static Registration) {
        self.drop_hot(one);
        one.free();
    }

    /// The kernel does not have it, the program has.
    fn ctl_spent(
        &self,
        op: c_int,
        one: &'static Registration,
        asked: EpollEvent,
        kernel: impl Fn() -> c_int,
    ) -> c_int {
        match op {
            MOD if asked.events & EXCLUSIVE == 0 => {
                one.note(asked);
                one.remove(SPENT);
                one.add(IN_KERNEL);
                self.kernel_ctl(ADD, one);
                0
            }
            DEL => {
                self.let_go(one);
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
    pub(super) fn spend(&self, one: &Registration) {
        self.kernel_ctl(DEL, one);
        one.remove(IN_KERNEL | DIRTY);
        one.add(SPENT);
    }

    /// Others sleep on the set, and the socket has bytes in its ring, which the kernel would
    /// tell them of. It tells that the socket can be written instead, in a registration that
    /// only `told` sees: who wakes looks at the rings.
    pub(super) fn wake_sleepers(&self, one: &Registration) {
        self.woken.store(1, Ordering::SeqCst);
        // What comes by TCP still wakes, too.
        let asked = one.asked() & !(EDGE | ONESHOT | EXCLUSIVE);
        let mut event = EpollEvent { events: OUT | asked, data: one.token() };
        let set = self.fd.load(Ordering::Relaxed);
        // SAFETY: event is ours.
        unsafe { call!(epoll_ctl, set, MOD, one.number(), &raw mut event) };
    }

    /// Takes the events of `wake_sleepers` out of the `count` behind `skip` that the kernel
    /// gave, and gives those registrations back what the program asked for. Who gets one has to
    /// look at the rings. Under the lock.
    pub(super) fn told(&self, events: *mut EpollEvent, skip: usize, count: c_int) -> c_int {
        if count <= 0 || self.woken.load(Ordering::Relaxed) == 0 {
            return count;
        }
        let mut kept = skip;
        for at in skip..skip + count as usize {
            // SAFETY: the kernel filled these in.
            let event = unsafe { events.add(at).read_unaligned() };
            if registration::is_token(event.data) {
                let one = registration::by_token(event.data);
                if let Some(one) = one.filter(|one| one.is_of(self) && !one.has(SPENT)) {
                    self.kernel_ctl(MOD, one);
                }
                continue;
            }
            // SAFETY: as above.
            unsafe { events.add(kept).write_unaligned(event) };
            kept += 1;
        }
        (kept - skip) as c_int
    }

    /// A connection was registered, or registered anew. Under the lock.
    fn registered(&self, conn: &'static Conn, one: &'static Registration) {
        let Ok(_rx) = conn.lock_rx(one.at()) else { return };
        let receiver = conn.receiver();
        // Said, /then/ parked, both under the receive lock, under which others offer.
        let is_elsewhere = conn.is_shared() && process::watches_rx(&conn.side().rx);
        // Told again, as the kernel does after MOD.
        one.edge_told.store(u64::MAX, Ordering::Relaxed);
        // Not for good: programs move a connection from such a set to another one.
        let is_special = one.asked() & (ONESHOT | EXCLUSIVE) != 0;
        let has_room = is_kernels(&receiver) || self.push_hot(one);
        if is_special || is_elsewhere || !self.may_offer() || !has_room {
            conn.park_rx(&receiver);
        }
        if is_telling(one, &receiver) && self.sleepers.load(Ordering::SeqCst) != 0 {
            self.wake_sleepers(one);
        }
    }
}
