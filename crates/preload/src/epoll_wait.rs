//! epoll_wait: rings first, the kernel now and then, parked before it sleeps.
//!
//! Storey 6: waits.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use yasmin_ring::{Park, Phase, Room, View};
use yasmin_wire::State;

use crate::conn::{Conn, Parked};
use crate::set::registration::Registration;
use crate::set::{
    EDGE, ERR, HUP, IDLE_LOOKS, IN, LOOK_US, ONESHOT, OUT, RDHUP, RDNORM, Set, WRNORM, is_telling,
    note_end_told, note_kernel_told,
};
use crate::signals::{self, Handled};
use crate::spin::{Budget, Found, Interests, Watched};
use crate::sys::{self, EpollEvent, call};
use crate::timeout::Timeout;
use crate::{clock, epoll_ctl, process, real, spin, tcp};

/// One epoll_wait in any of its forms, with the program's own buffer.
pub struct Wait {
    pub fd: c_int,
    pub events: *mut EpollEvent,
    pub max: c_int,
    pub timeout: Timeout,
    pub mask: *const c_void,
    /// It was epoll_pwait2: the kernel takes nanoseconds.
    pub precise: bool,
}

impl Wait {
    /// The kernel's own wait, in libc, with `skip` events already there.
    fn kernel(&self, skip: usize, timeout: Timeout) -> c_int {
        let ret = self.libc(skip, timeout);
        self.note_told(skip, ret);
        ret
    }

    fn note_told(&self, skip: usize, count: c_int) {
        note_kernel_told(count);
        let told = skip..skip + count.max(0) as usize;
        // SAFETY: the kernel wrote so many events behind those that were there.
        let events = told.map(|at| unsafe { self.events.add(at).read_unaligned().events });
        if events.into_iter().any(|events| events & (ERR | HUP | RDHUP) != 0) {
            note_end_told();
        }
    }

    fn libc(&self, skip: usize, timeout: Timeout) -> c_int {
        let (events, max) = (self.events.wrapping_add(skip), self.max - skip as c_int);
        // SAFETY: the program's buffer and mask.
        unsafe {
            if self.precise {
                let time = timeout.timespec();
                let at = if timeout.ns < 0 { core::ptr::null() } else { &raw const time };
                return real::epoll_pwait2(self.fd, events, max, at, self.mask);
            }
            if self.mask.is_null() {
                return real::epoll_wait(self.fd, events, max, timeout.ms());
            }
            real::epoll_pwait(self.fd, events, max, timeout.ms(), self.mask)
        }
    }

    /// One look that does not wait, by the kernel's own entry: no cancellation point, since
    /// the set's lock is held. Returns the count or minus errno.
    fn look(&self, skip: usize) -> c_int {
        let (events, max) = (self.events.wrapping_add(skip), self.max - skip as c_int);
        // SAFETY: the program's buffer and mask; a signal set of the kernel's is 8 bytes.
        let ret = unsafe { call!(epoll_pwait, self.fd, events, max, 0, self.mask, 8) as c_int };
        self.note_told(skip, ret);
        ret
    }
}

/// Rings' and kernel's events are only told in one wait where to find pairs of them takes no
/// more steps than this.
const MERGE_STEPS: u32 = 1 << 16;

/// How often the kernel is asked about a one-shot registration that its open ring tells of, in
/// microseconds.
const KERNEL_LOOK_US: u64 = 500;

/// Puts events of one registration that both the rings and the kernel told into one: the first
/// `found` are of the one, the `more` behind them of the other. Returns how many of the `more`
/// remain.
fn merge(events: *mut EpollEvent, found: usize, more: usize) -> usize {
    let mut kept = 0;
    for i in found..found + more {
        // SAFETY: inside the program's buffer, filled so far.
        unsafe {
            let event = events.add(i).read_unaligned();
            let twin = (0..found).find(|&at| {
                let data = events.add(at).read_unaligned().data;
                data == event.data
            });
            if let Some(at) = twin {
                let mut both = events.add(at).read_unaligned();
                both.events |= event.events;
                events.add(at).write_unaligned(both);
            } else {
                events.add(found + kept).write_unaligned(event);
                kept += 1;
            }
        }
    }
    kept
}

/// Whether a send would find room in the ring.
fn writable(conn: &'static Conn, fd: c_int) -> bool {
    let Ok(_tx) = conn.lock_tx(fd) else { return false };
    matches!(conn.sender().room(1), Ok(Room::Ring(write)) if !write.opens())
}

/// Whether bytes came and were read that no wait has told of: TCP tells of that edge with what
/// is ready still.
fn has_past_edge(one: &Registration, conn: &'static Conn) -> bool {
    let receiver = conn.receiver();
    let (tail, told) = (receiver.tail_seen(), one.edge_told.load(Ordering::Relaxed));
    if told == tail || receiver.unread_bytes() > 0 {
        return false;
    }
    one.edge_told.store(tail, Ordering::Relaxed);
    // Registered anew: the kernel tells.
    told != u64::MAX
}

/// epoll_wait in all its forms. Returns as libc does.
pub fn wait(set: &'static Set, wait: &Wait) -> c_int {
    process::cancellation_point();
    set.touch();
    if wait.max <= 0 {
        return wait.kernel(0, wait.timeout);
    }
    if wait.timeout.is_now() && !set.hot.is_empty() {
        spin::try_polling(&set.polling, |budget| watch(set, budget));
    }
    let serial = set.serial.load(Ordering::Relaxed);
    let told = spin::wait(&mut Waiting {
        set,
        wait,
        serial,
        start: clock::Since::now(),
        handled: Handled::now(),
        is_plain: false,
        has_slept: false,
        naps: false,
    });
    if set.shows()
        && let Some(_guard) = set.lock.acquire()
        && set.serial.load(Ordering::Relaxed) == serial
    {
        set.show();
    }
    told
}

/// A wait under way.
struct Waiting<'a> {
    set: &'static Set,
    wait: &'a Wait,
    /// The set's when the wait began: closed by another thread, its memory may serve another set.
    serial: u32,
    start: clock::Since,
    handled: Handled,
    /// The last look found nothing in the set that the kernel does not know.
    is_plain: bool,
    has_slept: bool,
    /// A ring has bytes behind those that TCP has yet to give.
    naps: bool,
}

impl Waiting<'_> {
    fn heard(&self, ret: c_int) -> Found<c_int> {
        heard(self.set, self.wait, ret, self.serial).map_or(Found::Nothing, Found::Answer)
    }
}

impl Interests for Waiting<'_> {
    type Answer = c_int;

    fn look(&mut self, budget: Option<&Budget>) -> Found<c_int> {
        let (set, wait) = (self.set, self.wait);
        loop {
            let watches = budget.is_some_and(|budget| !budget.is_spent());
            self.is_plain = !watches && set.hot.is_empty() && set.dirty.is_empty();
            if !self.is_plain {
                break;
            }
            if !wait.timeout.is_now() {
                return Found::Nothing;
            }
            if let found @ Found::Answer(_) = self.heard(wait.kernel(0, wait.timeout)) {
                return found;
            }
        }
        let Some(_guard) = set.lock.acquire() else {
            // In a handler that interrupted this thread's own use of the set.
            let told = wait.kernel(0, wait.timeout);
            return Found::Answer(epoll_ctl::told_inside(set, wait.events, told));
        };
        if set.serial.load(Ordering::Relaxed) != self.serial {
            return Found::Answer(wait.kernel(0, wait.timeout.less(&self.start)));
        }
        set.reread();
        look(set, wait, budget.is_some()).map_or(Found::Nothing, Found::Answer)
    }

    fn budget(&mut self) -> Budget {
        // Which signals may interrupt under the program's mask only the kernel can tell.
        let is_worth_it = !self.is_plain || self.set.wanted.swap(0, Ordering::Relaxed) != 0;
        let watches = is_worth_it
            && !spin::is_off()
            && self.wait.mask.is_null()
            && spin::allows_watch(&self.set.spin);
        if !watches {
            return Budget::new(0);
        }
        spin::budget_within(self.wait.timeout, self.set.hot.len())
    }

    fn is_watchable(&self) -> bool {
        !self.handled.is_past()
    }

    fn watch(&mut self, budget: &mut Budget) -> Watched {
        let watched = watch(self.set, budget);
        if watched == Watched::InVain {
            self.set.spin.was_vain(clock::ticks());
        }
        watched
    }

    fn park(&mut self) -> Found<c_int> {
        self.set.falls_asleep();
        // Under the lock, also when nothing is hot: who is about to offer either put its
        // registrations into the list before, or sees this sleeper.
        match park_all(self.set) {
            Parked::Whole => self.naps = false,
            Parked::BehindTcp => self.naps = true,
            Parked::Not => {
                self.set.wakes_up();
                return Found::Nothing;
            }
        }
        Found::Asleep
    }

    fn sleep(&mut self) -> Found<c_int> {
        let wait = self.wait;
        let is_whole = self.is_plain && !self.has_slept;
        let left = if is_whole { wait.timeout } else { wait.timeout.less(&self.start) };
        let ret = if !self.is_plain && self.handled.is_past() {
            signals::interrupted()
        } else {
            wait.kernel(0, if self.naps { left.nap() } else { left })
        };
        self.has_slept = true;
        self.set.wakes_up();
        if ret == 0 && self.naps && !left.is_now() { Found::Nothing } else { self.heard(ret) }
    }
}

/// What rings and kernel have without waiting; `None`: nothing. Under the lock.
///
/// One wait tells of all that is ready, as the kernel's does: it is asked unless it had
/// nothing a moment ago, so that what it has is late by `LOOK_US` at most.
fn look(set: &Set, wait: &Wait, has_watched: bool) -> Option<c_int> {
    let mut is_due = is_kernel_due(set);
    let hot = set.hot.len();
    let max = wait.max as u32;
    // Rings could fill the program's buffer each time, and nothing else be told.
    let fills = hot >= max || hot.saturating_mul(max) > MERGE_STEPS;
    if fills && follow_tcp(set) {
        is_due = true;
        set.kernel_first.store(0, Ordering::Relaxed);
    }
    if is_due && fills && set.kernel_first.swap(1, Ordering::Relaxed) == 0 {
        let told = ask_kernel(set, wait, 0);
        if told != 0 {
            let has_room = told > 0 && hot.saturating_mul(told as u32) <= MERGE_STEPS;
            let more = if has_room { add_rings(set, wait, told as usize, false) } else { 0 };
            return Some(sys::returned((told + more as c_int) as isize) as c_int);
        }
    }
    set.kernel_first.store(0, Ordering::Relaxed);
    set.follows_tcp.store(0, Ordering::Relaxed);
    let found = collect(set, wait, 0, fills);
    if found > 0 {
        if has_watched {
            set.spin.won();
        }
        let follows = set.follows_tcp.load(Ordering::Relaxed) != 0;
        let asks = (is_due || follows) && !fills && found as u32 != max;
        let more = if asks { ask_kernel(set, wait, found).max(0) as usize } else { 0 };
        if asks && found + more == max as usize {
            complete(set, wait, found);
        }
        let more = merge(wait.events, found, more);
        if follows {
            turn(wait.events, found, more);
        }
        return Some((found + more) as c_int);
    }
    if is_due || !has_watched || wait.timeout.is_now() {
        let told = ask_kernel(set, wait, 0);
        if told > 0 && hot.saturating_mul(told as u32) <= MERGE_STEPS {
            // What came by ring since then came before what the kernel has, unless its sender
            // says that it did not.
            let told = told as usize;
            let more = add_rings(set, wait, told, fills);
            if set.follows_tcp.load(Ordering::Relaxed) == 0 {
                turn(wait.events, told, more);
            }
            return Some((told + more) as c_int);
        }
        if told == 0 && wait.timeout.is_now() {
            set.polling.found_nothing(clock::ticks());
        }
        if told != 0 || wait.timeout.is_now() {
            return Some(sys::returned(told as isize) as c_int);
        }
    }
    None
}

/// Whether any of the rings may have bytes whose sender did something by TCP before, of which the
/// kernel was not asked since. Under the lock.
fn follow_tcp(set: &Set) -> bool {
    let mut any = false;
    for one in set.each_hot() {
        any |= one.conn().is_some_and(|conn| follows_tcp(one, conn));
    }
    any
}

/// The same of one: the kernel has to be asked.
fn follows_tcp(one: &Registration, conn: &Conn) -> bool {
    let said = conn.receiver().block.tcp_elsewhere();
    one.elsewhere_seen.swap(said, Ordering::Relaxed) != said
}

/// Puts the `second` events behind the `first` before them.
fn turn(events: *mut EpollEvent, first: usize, second: usize) {
    if first > 0 && second > 0 {
        // SAFETY: inside the program's buffer, filled so far; an event has no alignment.
        unsafe { core::slice::from_raw_parts_mut(events, first + second) }.rotate_left(first);
    }
}

/// What the kernel's own wait gave, as the program is to see it. `None`: look at the rings.
fn heard(set: &Set, wait: &Wait, ret: c_int, serial: u32) -> Option<c_int> {
    if ret <= 0 || set.tokens.load(Ordering::Relaxed) == 0 {
        return Some(ret);
    }
    let Some(_guard) = set.lock.acquire() else { return Some(ret) };
    if set.serial.load(Ordering::Relaxed) != serial {
        return Some(ret);
    }
    let kept = told_by_kernel(set, wait.events, 0, ret);
    if kept == ret {
        return Some(ret);
    }
    let kept = ask_again(set, wait, 0, kept);
    // This thread has taken the event that was to tell of ring bytes: it tells of them, or
    // another one does.
    // A full buffer: the kernel may have had more.
    let found = kept + add_rings(set, wait, kept as usize, ret == wait.max) as c_int;
    if found == wait.max
        && set.sleepers.load(Ordering::SeqCst) != 0
        && let Some(one) = set
            .each_hot()
            .find(|one| one.conn().is_some_and(|conn| is_telling(one, conn, &conn.receiver())))
    {
        epoll_ctl::wake_sleepers(set, one);
    }
    (found > 0).then_some(found)
}

fn is_kernel_due(set: &Set) -> bool {
    let gone = clock::ticks().wrapping_sub(set.looked_at.load(Ordering::Relaxed));
    set.kernel_due.load(Ordering::Relaxed) != 0 || gone > clock::us(LOOK_US)
}

/// Asks the kernel without waiting, behind the `found` events that are there already.
/// Returns how many more there are, or minus errno. Under the lock.
fn ask_kernel(set: &Set, wait: &Wait, found: usize) -> c_int {
    // Of room in a ring this library tells by itself: programs ask for it and no more with each
    // message.
    set.flush_but(|one| {
        one.hot.load(Ordering::Relaxed) != 0
            && one.asks_for_room_anew().is_some()
            && one.conn().is_some_and(|conn| writable(conn, one.at()))
    });
    set.looked_at.store(clock::ticks(), Ordering::Relaxed);
    let told = wait.look(found);
    // What is told of as long as it lasts may be told again at once.
    set.kernel_due.store(u32::from(told > 0), Ordering::Relaxed);
    let kept = told_by_kernel(set, wait.events, found, told);
    if kept < told { ask_again(set, wait, found, kept) } else { told }
}

/// The kernel's answer had wake-ups, in the place of other events maybe, and what is armed again
/// may tell at once. Returns how many events there are behind the `found`, of which `kept` were
/// told before. Under the lock.
fn ask_again(set: &Set, wait: &Wait, found: usize, kept: c_int) -> c_int {
    let before = found + kept as usize;
    let told = wait.look(before);
    let more = told_by_kernel(set, wait.events, before, told).max(0) as usize;
    kept + merge(wait.events, before, more) as c_int
}

fn told_by_kernel(set: &Set, events: *mut EpollEvent, skip: usize, count: c_int) -> c_int {
    epoll_ctl::told(set, events, skip, count, |one| {
        let is_hot = one.hot.load(Ordering::Relaxed) != 0;
        one.conn().filter(|_| is_hot).map_or(0, |conn| readable(set, one, conn))
    })
}

/// Adds what the rings have to the `told` events that the kernel gave, also where there is
/// no room for more events; says how many these became more. `whole` as in `collect`. Under
/// the lock.
fn add_rings(set: &Set, wait: &Wait, told: usize, whole: bool) -> usize {
    for at in 0..told {
        // SAFETY: filled in by the kernel.
        let mut event = unsafe { wait.events.add(at).read_unaligned() };
        let mut index = 0;
        while let Some(one) = set.hot.get(index) {
            index += 1;
            if one.data.load(Ordering::Relaxed) != event.data {
                continue;
            }
            // The next one has its turn first.
            if set.cursor.load(Ordering::Relaxed) % set.hot.len() + 1 == index {
                set.cursor.store(index, Ordering::Relaxed);
            }
            let is_it = one.is_armed();
            let Some(conn) = one.conn().filter(|_| is_it) else { continue };
            let more = readable(set, one, conn);
            event.events |= more;
            if more != 0 && one.asked() & ONESHOT != 0 {
                epoll_ctl::spend(set, one);
            }
        }
        // SAFETY: as above.
        unsafe { wait.events.add(at).write_unaligned(event) };
    }
    let more = collect(set, wait, told, whole);
    merge(wait.events, told, more)
}

/// Adds what the kernel had no room for to the first `found` events, which the rings told. Under
/// the lock.
fn complete(set: &Set, wait: &Wait, found: usize) {
    for at in 0..found {
        // SAFETY: inside the program's buffer, filled so far.
        let EpollEvent { mut events, data } = unsafe { wait.events.add(at).read_unaligned() };
        for one in set.each_hot().filter(|one| one.data.load(Ordering::Relaxed) == data) {
            events |= missing(one, events);
        }
        // SAFETY: as above.
        unsafe { wait.events.add(at).write_unaligned(EpollEvent { events, data }) };
    }
}

/// What only the kernel knows of a registration, beside the `events` of it that are told already:
/// an event is whole, however small the program's buffer.
fn missing(one: &Registration, events: u32) -> u32 {
    let asked = one.asked();
    // An edge was completed when it was told, and what tells once is told already.
    let is_level = asked & (EDGE | ONESHOT) == 0 && one.is_armed();
    if is_level && asked & !(IN | RDNORM) & !events != 0 {
        u32::from(one.poll_now(asked as i16) as u16)
    } else {
        0
    }
}

/// Fills in what the hot registrations have, behind `skip` events. Returns how many are
/// more. `whole`: the kernel is not asked for the rest of them. Under the lock.
fn collect(set: &Set, wait: &Wait, skip: usize, whole: bool) -> usize {
    let mut found = skip;
    let mut index = set.cursor.load(Ordering::Relaxed);
    // Under the lock: no other thread writes these.
    let round = set.round.load(Ordering::Relaxed).wrapping_add(1);
    set.round.store(round, Ordering::Relaxed);
    // What is dropped on the way moves another one to its place, which may have been here.
    for _ in 0..set.hot.len() {
        if found as c_int == wait.max {
            break;
        }
        if index >= set.hot.len() {
            index = 0;
        }
        let Some(one) = set.hot.get(index) else { break };
        if one.round.load(Ordering::Relaxed) == round {
            index += 1;
            continue;
        }
        one.round.store(round, Ordering::Relaxed);
        let mut events = ready(set, one);
        if events != 0 {
            one.idle.store(0, Ordering::Relaxed);
            let asked = one.asked();
            if asked & ONESHOT != 0 {
                if kernel_may_have_more(one) {
                    // It is asked now or never: it tells one event of this, too.
                    events |= u32::from(one.poll_now(asked as i16) as u16);
                }
                epoll_ctl::spend(set, one);
            } else if whole {
                events |= missing(one, events);
            }
            let event = EpollEvent { events, data: one.data.load(Ordering::Relaxed) };
            // SAFETY: the program's buffer of `max` events.
            unsafe { wait.events.add(found).write_unaligned(event) };
            found += 1;
        }
        if one.hot.load(Ordering::Relaxed) == index + 1 {
            index += 1;
        }
    }
    set.cursor.store(index, Ordering::Relaxed);
    found - skip
}

/// Whether the kernel may have something to tell of a one-shot registration whose ring does. Who
/// ends a connection parks it; one whose end was killed shows within a short time.
fn kernel_may_have_more(one: &Registration) -> bool {
    let known = ONESHOT | EDGE | IN | RDNORM | OUT | WRNORM | RDHUP;
    one.asked() & !known != 0
        || one.conn().is_none_or(|conn| {
            conn.receiver().phase() != Phase::Open || conn.due(&conn.rx.looked_at, KERNEL_LOOK_US)
        })
}

/// What a hot registration has to tell, besides what the kernel knows.
fn ready(set: &Set, one: &'static Registration) -> u32 {
    if !one.is_armed() {
        return 0;
    }
    let Some(conn) = one.conn() else { return 0 };
    let asked = one.asked();
    let mut events = 0;
    let receiver = conn.receiver();
    let stirs = receiver.is_moved() || is_telling(one, conn, &receiver);
    let idle = one.idle.load(Ordering::Relaxed);
    one.idle.store(idle.wrapping_add(1), Ordering::Relaxed);
    if stirs || idle >= IDLE_LOOKS {
        events |= readable(set, one, conn);
    } else if receiver.phase() == Phase::Offered && receiver.hinted() {
        to_kernel(set, one, conn);
    }
    if one.hot.load(Ordering::Relaxed) == 0 {
        // All is the kernel's now, and nothing keeps the connection mapped any more.
        return events;
    }
    // Once the kernel alone has told of it, nobody else may tell again.
    let wants_out = asked & (OUT | WRNORM) != 0 && !one.is_kernels_alone();
    if wants_out && (events != 0 || asked & EDGE == 0 || has_past_edge(one, conn)) {
        // An edge tells of everything that is ready, and of this one the kernel knows nothing.
        let asks_kernel = || asked & EDGE != 0 && one.poll_now(sys::POLLOUT) != 0;
        if writable(conn, one.at()) || asks_kernel() {
            events |= asked & (OUT | WRNORM);
        } else {
            set.kernel_due.store(1, Ordering::Relaxed);
        }
    }
    events
}

fn readable(set: &Set, one: &'static Registration, conn: &'static Conn) -> u32 {
    let Ok(_rx) = conn.lock_rx(one.at()) else { return 0 };
    let receiver = conn.receiver();
    let Ok(view) = receiver.look(|| conn.read_position()) else {
        // The kernel reports the reset.
        tcp::reset(one.at());
        set.drop_hot(one);
        set.kernel_due.store(1, Ordering::Relaxed);
        return 0;
    };
    if is_telling(one, conn, &receiver) {
        // After the look, which saw what the sender stored before it published.
        if follows_tcp(one, conn) {
            set.follows_tcp.store(1, Ordering::Relaxed);
        }
        if one.asked() & EDGE != 0 {
            one.edge_told.store(receiver.tail_seen(), Ordering::Relaxed);
        }
        return one.asked() & (IN | RDNORM);
    }
    match view {
        // Told of already, or not asked for.
        View::Ring { .. } => {}
        View::TcpUpTo { .. } => set.kernel_due.store(1, Ordering::Relaxed),
        View::Tcp => {
            set.drop_hot(one);
            set.kernel_due.store(1, Ordering::Relaxed);
        }
        View::Empty { state } => {
            let is_idle = one.idle.load(Ordering::Relaxed) >= IDLE_LOOKS;
            if is_idle && receiver.park() == Park::Parked {
                if state == State::Offered {
                    conn.rx.offers.failed();
                }
                set.drop_hot(one);
                set.kernel_due.store(1, Ordering::Relaxed);
            }
        }
    }
    0
}

/// Bytes came by TCP to an offered direction: the kernel tells of them.
fn to_kernel(set: &Set, one: &Registration, conn: &'static Conn) {
    set.kernel_due.store(1, Ordering::Relaxed);
    let Ok(_rx) = conn.lock_rx(one.at()) else { return };
    let receiver = conn.receiver();
    if receiver.park() == Park::Parked && receiver.is_drained() {
        set.drop_hot(one);
    }
}

/// Watches the hot registrations as long as the budget lasts, or until the kernel is due.
fn watch(set: &Set, budget: &mut Budget) -> Watched {
    let peer_cpu = || {
        let Some(_guard) = set.lock.try_acquire() else { return spin::NO_CPU };
        let conn = set.hot.get(0).and_then(Registration::conn);
        conn.map_or(spin::NO_CPU, |conn| conn.receiver().block.sender_cpu())
    };
    let stirs = || {
        if is_kernel_due(set) {
            return true;
        }
        let Some(_guard) = set.lock.try_acquire() else { return false };
        set.each_hot().any(|one| {
            let Some(conn) = one.conn() else { return false };
            let receiver = conn.receiver();
            receiver.is_moved()
                || is_telling(one, conn, &receiver)
                || receiver.phase() == Phase::Offered && receiver.is_hinted()
        })
    };
    spin::watch_many(budget, peer_cpu, stirs, 8)
}

/// Parks every hot connection, so that the thread may sleep.
fn park_all(set: &Set) -> Parked {
    let Some(_guard) = set.lock.acquire() else { return Parked::Whole };
    set.flush();
    let mut parked = Parked::Whole;
    let mut index = 0;
    while let Some(one) = set.hot.get(index) {
        let Some(Ok((conn, _rx))) = one.conn().map(|it| it.lock_rx(one.at()).map(|rx| (it, rx)))
        else {
            // Its connection is about to leave.
            index += 1;
            continue;
        };
        match conn.park_to_sleep(one.at(), |receiver| is_telling(one, conn, receiver)) {
            Parked::Not => return Parked::Not,
            Parked::BehindTcp if one.is_armed() && one.asked() & (IN | RDNORM) != 0 => {
                parked = Parked::BehindTcp;
            }
            _ => {}
        }
        let receiver = conn.receiver();
        // Ring bytes behind TCP's, or not asked for now, are told of later.
        if receiver.is_drained() || receiver.is_broken() {
            set.drop_hot(one);
        } else {
            index += 1;
        }
    }
    parked
}
