//! epoll_wait: rings first, the kernel now and then, parked before it sleeps.
//!
//! Storey 6: waits.

use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::Ordering;

use yasmin_wait::Pause;
use yasmin_wire::State;

use crate::conn::Parked;
use crate::ready::{Look, gather, gather_but, note_told, readable, writable};
use crate::set::hot::is_telling;
use crate::set::kernel::{note_end_told, note_kernel_told};
use crate::set::registration::{Idea, Registration, SPENT};
use crate::set::{EDGE, ERR, HUP, IN, LOOK_US, ONESHOT, OUT, RDHUP, RDNORM, Ready, Set, WRNORM};
use crate::signals::{self, Handled};
use crate::spin::{Budget, Found, Interests, NO_CPU, Peers, Watched};
use crate::sys::{self, EpollEvent, call};
use crate::timeout::Timeout;
use crate::{answer, clock, epoll_ctl, process, real, request, set, spin};

/// One epoll_wait in any of its forms, with the program's own buffer.
pub struct Wait {
    pub fd: c_int,
    pub events: *mut EpollEvent,
    pub max: c_int,
    pub timeout: Timeout,
    pub mask: *const c_void,
    pub form: Form,
}

/// As which call it came: the kernel is asked by the same one, as a filter (seccomp) may let no other through.
#[derive(Clone, Copy, PartialEq)]
pub enum Form {
    Wait,
    /// epoll_pwait.
    Masked,
    /// epoll_pwait2: it takes nanoseconds.
    Precise,
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
            match self.form {
                Form::Wait => real::epoll_wait(self.fd, events, max, timeout.ms()),
                Form::Masked => real::epoll_pwait(self.fd, events, max, timeout.ms(), self.mask),
                Form::Precise => {
                    let time = timeout.timespec();
                    let at = if timeout.ns < 0 { core::ptr::null() } else { &raw const time };
                    real::epoll_pwait2(self.fd, events, max, at, self.mask)
                }
            }
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

/// How often the kernel is asked about a registration that its open ring tells of, and that it is not asked about
/// with the others, in microseconds.
const KERNEL_LOOK_US: u64 = 500;

/// epoll_wait in all its forms. Returns as libc does.
pub fn wait(set: &'static Set, wait: &Wait) -> c_int {
    process::cancellation_point();
    set.touch();
    if wait.max <= 0 {
        return wait.kernel(0, wait.timeout);
    }
    if process::is_sandboxed() {
        return wait_in_sandbox(set, wait);
    }
    if set.doubted.load(Ordering::Relaxed) != 0 {
        let handled = Handled::now();
        asks_who_holds(set, wait.fd);
        // The wait has begun, as the program sees it.
        if handled.is_past() && !wait.timeout.is_now() {
            return signals::interrupted();
        }
    }
    if wait.timeout.is_now() && !set.hot.is_empty() {
        spin::try_polling(&set.polling, |budget| watch(set, wait.timeout, budget));
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
    if told >= 0 && set.serial.load(Ordering::Relaxed) == serial {
        // SAFETY: the program's buffer, filled so far.
        let event = |at: usize| unsafe { wait.events.add(at).read_unaligned() };
        set.ends_wait((0..told as usize).map(event));
    }
    if set.shows()
        && let Some(_guard) = set.lock.acquire()
        && set.serial.load(Ordering::Relaxed) == serial
    {
        set.show();
    }
    told
}

/// By the program's own system call alone. Nothing comes by ring any more but what is unread, and the
/// kernel knows all that the program asks for.
fn wait_in_sandbox(set: &'static Set, wait: &Wait) -> c_int {
    let mut found = 0;
    if let Some(_guard) = set.lock.acquire() {
        let look = Look::now(set);
        gather(set, &look, wait.max as u32);
        found = emit(set, wait, 0, &look, false);
    }
    if found == wait.max as usize {
        return wait.max;
    }
    let start = clock::Since::now();
    let mut left = if found > 0 { Timeout::from_ms(0) } else { wait.timeout };
    loop {
        let told = wait.libc(found, left);
        if told <= 0 {
            return if found > 0 { found as c_int } else { told };
        }
        let kept = not_spent(set, wait.events, found, told as usize);
        if found + kept > 0 {
            return (found + answer::merge(wait.events, found, kept)) as c_int;
        }
        if left.ns > 0 {
            left = wait.timeout.less(&start);
        }
    }
}

/// Of the `count` events that the kernel told behind `skip`, keeps those of registrations that their rings
/// have not spent without its knowing. Returns how many these are.
fn not_spent(set: &Set, events: *mut EpollEvent, skip: usize, count: usize) -> usize {
    // SAFETY: the program's buffer, filled so far.
    let data_of = |at: usize| unsafe { events.add(at).read_unaligned() }.data;
    let mut kept = skip;
    for at in skip..skip + count {
        let data = data_of(at);
        let is_told_now = (0..skip).any(|at| data_of(at) == data);
        if is_told_now || set.by_data(data).is_none_or(|one| !one.has(SPENT)) {
            // SAFETY: as above.
            unsafe { events.add(kept).write_unaligned(events.add(at).read_unaligned()) };
            kept += 1;
        }
    }
    kept - skip
}

/// A process that got the set over a fork, and then was killed, or left it to another program by
/// exec, has not said that it holds it no more. The kernel's count of references says so, of which
/// this process has one. A thread that waits has one, too.
#[cold]
fn asks_who_holds(set: &'static Set, fd: c_int) {
    // So long at most others wait for the set.
    const PATIENCE_NS: u64 = 10_000_000;
    let pause = Pause::of_bits(set.doubts.load(Ordering::Relaxed));
    let second = clock::second();
    if pause.is_any() && pause.lasts(second) || process::is_borrowed() {
        return;
    }
    let saved = sys::errno();
    let can_tell = || {
        let is_lent = set.lent.load(Ordering::SeqCst) != 0;
        let is_waited_on = set.sleepers.load(Ordering::SeqCst) != 0;
        let is_alone = set.names.load(Ordering::Relaxed) == 1;
        !is_lent && !is_waited_on && is_alone && !set.is_foreign() && !process::is_forking()
    };
    if let Some(_guard) = set.lock.acquire()
        && can_tell()
    {
        set.doubted.store(0, Ordering::Relaxed);
        set.doubts.store(pause.longer(second).bits(), Ordering::Relaxed);
        // A fork that begins meanwhile waits for the lock, and counts afterwards.
        if request::references(fd, clock::now_ns() + PATIENCE_NS) == Some(1) && can_tell() {
            set.is_left_alone();
        }
    }
    sys::set_errno(saved);
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
            self.is_plain = !watches
                && set.hot.is_empty()
                && set.dirty.is_empty()
                && set.differs.load(Ordering::Relaxed) == 0
                && !set.may_lack();
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
        let watched = watch(self.set, self.wait.timeout, budget);
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
        let left = if is_whole { wait.timeout } else { wait.timeout.to_sleep(&self.start) };
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
/// One wait tells of all that is ready, as the kernel's does: it is asked behind each look that found ring
/// bytes, whoever sent them. Who writes into a pipe, ends a connection, or has another process do so, and then
/// sends by ring, is heard in this order. Where only the kernel has something it is late by `LOOK_US` at most.
fn look(set: &Set, wait: &Wait, has_watched: bool) -> Option<c_int> {
    let is_due = is_kernel_due(set);
    let hot = set.hot.len();
    let max = wait.max as u32;
    // Rings could fill the program's buffer each time, and nothing else be told.
    let fills = hot >= max || hot.saturating_mul(max) > MERGE_STEPS;
    if fills && follow_tcp(set) {
        set.kernel_first.store(0, Ordering::Relaxed);
    }
    let asks_first = fills && set.kernel_first.swap(1, Ordering::Relaxed) == 0;
    if asks_first {
        let told = ask_kernel(set, wait, 0);
        // Where it filled the buffer, it has its turn again behind the rings.
        set.known_at.store(set.looked_at.load(Ordering::Relaxed), Ordering::Relaxed);
        if told != 0 {
            let has_room = told > 0 && hot.saturating_mul(told as u32) <= MERGE_STEPS;
            let look = Look::as_of_kernel(set);
            let more = if has_room { add_rings(set, wait, told as usize, &look, false) } else { 0 };
            return Some(sys::returned((told + more as c_int) as isize) as c_int);
        }
    }
    set.kernel_first.store(0, Ordering::Relaxed);
    let look = if asks_first { Look::as_of_kernel(set) } else { Look::now(set) };
    gather(set, &look, max);
    set.emits_at.store(look.time, Ordering::Relaxed);
    let found = emit(set, wait, 0, &look, fills);
    if found > 0 {
        if has_watched {
            set.spin.won();
        }
        let has_room = !fills && found as u32 != max;
        let told = if has_room { ask_kernel_beside(set, wait, found) } else { 0 };
        return Some(complete_in_order(set, wait, &look, found..found + told) as c_int);
    }
    if is_due || !has_watched || wait.timeout.is_now() {
        let told = ask_kernel(set, wait, 0);
        if told > 0 && hot.saturating_mul(told as u32) <= MERGE_STEPS {
            let look = Look { asked_at: look.asked_at, ..Look::as_of_kernel(set) };
            add_to_told(set, wait, told as usize, &look);
            return Some(complete_in_order(set, wait, &look, 0..told as usize) as c_int);
        }
        if told == 0 {
            set.list_is_empty();
            if wait.timeout.is_now() {
                set.polling.found_nothing(clock::ticks());
            }
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
    let look = Look::now(set);
    let mut any = false;
    for one in set.each_hot() {
        any |= one.conn().is_some_and(|conn| {
            let said = conn.receiver().block.tcp_elsewhere();
            if conn.shares_clock() {
                said > look.asked_at
            } else {
                one.elsewhere_seen.swap(said, Ordering::Relaxed) != said
            }
        });
    }
    any
}

/// What the kernel's own wait gave, as the program is to see it. `None`: look at the rings.
fn heard(set: &Set, wait: &Wait, ret: c_int, serial: u32) -> Option<c_int> {
    if ret > 0 {
        set.is_mixed.store(1, Ordering::Relaxed);
    }
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
    let look = Look::now(set);
    let found = kept + add_rings(set, wait, kept as usize, &look, ret == wait.max) as c_int;
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
    // Of room in a ring this library tells by itself, and what the kernel tells beyond what is asked
    // for it takes out: programs ask for room, and for nothing else meanwhile, with each message.
    set.flush_but(|one| {
        !set.is_followed()
            && one.hot.load(Ordering::Relaxed) != 0
            && match one.kernels_idea() {
                Idea::Same | Idea::More => true,
                Idea::LacksRoom => one.conn().is_some_and(|conn| writable(conn, one.at())),
                Idea::Other => false,
            }
    });
    let now = clock::ticks();
    set.looked_at.store(now, Ordering::Relaxed);
    let told = wait.look(found);
    if told > 0 {
        set.is_mixed.store(1, Ordering::Relaxed);
    }
    if told >= 0 && told < wait.max - found as c_int {
        set.known_at.store(now, Ordering::Relaxed);
    }
    // What is told of as long as it lasts may be told again at once.
    set.kernel_due.store(u32::from(told > 0), Ordering::Relaxed);
    let kept = told_by_kernel(set, wait.events, found, told);
    if kept < told { ask_again(set, wait, found, kept) } else { told }
}

/// Asks the kernel for what is ready besides the `found` events that the rings told. Where a connection has
/// bytes in the ring and by TCP, it tells of that once more, in the place of others. Returns how many
/// more there are. Under the lock.
fn ask_kernel_beside(set: &Set, wait: &Wait, found: usize) -> usize {
    let (mut count, mut told_in_all) = (found, 0);
    loop {
        let room = wait.max as usize - count;
        let told = ask_kernel(set, wait, count).max(0) as usize;
        told_in_all += told;
        count += answer::merge(wait.events, count, told);
        if count == wait.max as usize {
            complete(set, wait, found);
            return count - found;
        }
        // What it tells goes to the end of its list, so it begins anew only when it has told of all.
        if told < room || told_in_all > count {
            return count - found;
        }
    }
}

/// The kernel's answer had wake-ups, or what nobody asks for by now, in the place of other events
/// maybe, and what is armed again may tell at once. Returns how many events there are behind the
/// `found`, of which `kept` were told before. Under the lock.
fn ask_again(set: &Set, wait: &Wait, found: usize, kept: c_int) -> c_int {
    // It answers with more of the kind otherwise.
    set.flush();
    let before = found + kept as usize;
    let told = wait.look(before);
    let more = told_by_kernel(set, wait.events, before, told).max(0) as usize;
    kept + answer::merge(wait.events, before, more) as c_int
}

fn told_by_kernel(set: &Set, events: *mut EpollEvent, skip: usize, count: c_int) -> c_int {
    epoll_ctl::told(set, events, skip, count, |one| {
        let is_hot = one.hot.load(Ordering::Relaxed) != 0;
        let Some(conn) = one.conn().filter(|_| is_hot) else { return 0 };
        let events = readable(set, one, conn);
        note_told(one, events, clock::ticks());
        events
    })
}

/// Adds what the rings have to the `told` events that the kernel gave, also where there is
/// no room for more events; says how many these became more. `whole` as in `emit`. Under the lock.
fn add_rings(set: &Set, wait: &Wait, told: usize, look: &Look, whole: bool) -> usize {
    add_to_told(set, wait, told, look);
    gather(set, look, wait.max as u32 - told as u32);
    let more = emit(set, wait, told, look, whole);
    answer::merge(wait.events, told, more)
}

/// The first half of that: rings of registrations that the kernel told of.
fn add_to_told(set: &Set, wait: &Wait, told: usize, look: &Look) {
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
            if more == 0 || look.place(one, conn, more).is_none() {
                continue;
            }
            event.events |= more;
            note_told(one, more, clock::ticks());
            if one.asked() & ONESHOT != 0 {
                epoll_ctl::spend(set, one);
            }
        }
        // SAFETY: as above.
        unsafe { wait.events.add(at).write_unaligned(event) };
    }
}

/// The events in `told` the kernel gave, behind those of the ready list. Adds what was sent by ring since
/// `before` looked, but before the kernel was asked, and puts all of them into one order. Returns how many
/// they are. Under the lock.
fn complete_in_order(set: &Set, wait: &Wait, before: &Look, told: Range<usize>) -> usize {
    if told.is_empty() || !answer::place(set, wait.events, told.clone()) {
        return told.end;
    }
    let room = wait.max as usize - told.end;
    let mut count = told.end;
    if room > 0 && set.hot.len().saturating_mul(told.len() as u32) <= MERGE_STEPS {
        let look = Look { asked_at: before.asked_at, ..Look::as_of_kernel(set) };
        let is_told = |one: &Registration| one.told_at.load(Ordering::Relaxed) >= before.time;
        gather_but(set, &look, room as u32, is_told);
        let late = emit(set, wait, count, &look, false);
        count += answer::merge(wait.events, count, late);
        answer::place_late(set, wait.events, told.end..count);
    }
    let is_kernels = told == (0..count);
    if !answer::arrange(set, wait.events) && is_kernels {
        set.differs.store(0, Ordering::Relaxed);
    }
    count
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
    if is_level
        && (asked & !(IN | RDNORM) & !events != 0 || one.conn().is_some() && may_have_ended(one))
    {
        u32::from(one.poll_now(asked as i16) as u16)
    } else {
        0
    }
}

/// Tells of what was gathered, behind `skip` events. Returns how many are more. `whole`: the kernel is
/// not asked for the rest of them. Under the lock.
fn emit(set: &Set, wait: &Wait, skip: usize, look: &Look, whole: bool) -> usize {
    let mut count = skip;
    for index in 0..set.ready.len() {
        let Some(Ready { one, mut events, follows, .. }) = set.ready.get(index) else { break };
        let asked = one.asked();
        // Told again before they are read, they are told in this order.
        note_told(one, events, look.time + u64::from(index));
        if follows && let Some(conn) = one.conn() {
            let said = conn.receiver().block.tcp_elsewhere();
            one.elsewhere_seen.store(said, Ordering::Relaxed);
        }
        if asked & ONESHOT != 0 && process::is_sandboxed() {
            one.add(SPENT);
        } else if asked & ONESHOT != 0 {
            if kernel_may_have_more(one, events) {
                // It is asked now or never: it tells one event of this, too.
                events |= u32::from(one.poll_now(asked as i16) as u16);
            }
            epoll_ctl::spend(set, one);
        } else if whole {
            events |= missing(one, events);
        }
        let event = EpollEvent { events, data: one.data.load(Ordering::Relaxed) };
        // SAFETY: the program's buffer of `max` events.
        unsafe { wait.events.add(count).write_unaligned(event) };
        count += 1;
    }
    if count > skip {
        set.differs.store(1, Ordering::Relaxed);
    }
    count - skip
}

/// Whether the connection may have an error or its end to tell, which nobody need ask for. Who ends one parks it; one whose
/// end was killed shows within a short time.
fn may_have_ended(one: &Registration) -> bool {
    one.conn().is_none_or(|conn| {
        conn.receiver().state_seen() != State::Open || conn.due(&conn.rx.looked_at, KERNEL_LOOK_US)
    })
}

/// Whether the kernel may have something to tell of a one-shot registration whose rings tell of `events`.
fn kernel_may_have_more(one: &Registration, events: u32) -> bool {
    let known = ONESHOT | EDGE | IN | RDNORM | OUT | WRNORM | RDHUP;
    let room = one.asked() & (OUT | WRNORM);
    one.asked() & !known != 0 || room & !events != 0 || may_have_ended(one)
}

/// Watches the hot registrations as long as the budget lasts, or until the kernel is due.
fn watch(set: &Set, timeout: Timeout, budget: &mut Budget) -> Watched {
    let of =
        |one: &Registration| one.conn().map_or(NO_CPU, |conn| conn.receiver().block.sender_cpu());
    let peers = Peers {
        cpu: || {
            let Some(_guard) = set.lock.try_acquire() else { return NO_CPU };
            set.hot.get(0).map_or(NO_CPU, of)
        },
        are_all_on: |cpu| {
            let guard = if timeout.is_short() { None } else { set.lock.try_acquire() };
            guard.is_some_and(|_guard| {
                (0..set.hot.len()).filter_map(|nth| set.hot.get(nth)).all(|one| of(one) == cpu)
            })
        },
    };
    let stirs = || {
        // Who watches holds the lock most of the time: others have their turn between two looks.
        let is_free = !set.lock.is_wanted();
        is_kernel_due(set) || is_free && set.lock.try_acquire().is_some_and(|_guard| stirs(set))
    };
    spin::watch_many(budget, &peers, stirs, 8)
}

/// Whether anything came into the rings. Under the lock.
fn stirs(set: &Set) -> bool {
    set.each_hot().any(|one| {
        let Some(conn) = one.conn() else {
            return Set::followed(one)
                .is_some_and(|inner| inner.lock.try_acquire().is_some_and(|_guard| stirs(inner)));
        };
        let receiver = conn.receiver();
        receiver.is_moved()
            || is_telling(one, conn, &receiver)
            || receiver.state_seen() == State::Offered && receiver.is_hinted()
    })
}

/// Parks every hot connection, so that the thread may sleep.
fn park_all(set: &Set) -> Parked {
    let Some(_guard) = set.lock.acquire() else { return Parked::Whole };
    set.flush();
    let mut parked = Parked::Whole;
    let mut index = 0;
    while let Some(one) = set.hot.get(index) {
        if one.conn().is_none()
            && let Some(inner) = set::of(one.at())
        {
            // In a handler that interrupted this thread's own use of that set it cannot be had.
            let guard = inner.lock.acquire();
            if guard.is_some() {
                inner.park_hot();
                // What is unread the kernel is shown.
                inner.show();
            }
            if guard.is_some() && inner.hot.is_empty() || !inner.is_followed() {
                set.drop_hot(one);
            } else {
                index += 1;
            }
            continue;
        }
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
