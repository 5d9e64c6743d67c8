//! From a candidate to a connection with a channel.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use yasmin_control::Decline;

use crate::broker::{self, Reply};
use crate::conn::{self, Conn, Handout};
use crate::entry::{self, Entry};
use crate::lock::Lock;
use crate::set::listed::INHERITED_BELOW;
use crate::sys::{self, PollFd, SOL_TCP, call};
use crate::table::{self, Candidate};
use crate::twins::{self, Twins};
use crate::{
    clock, config, handouts, handover, holders, in_flight, life, offer, pace, process, residue,
    set, settings, streams, tcp, text,
};

/// Of several threads one offers a candidate.
static LOCK: Lock = Lock::new();

/// All connections are plain TCP from now on. One with bytes unread in its ring stays what it is.
#[cold]
pub fn leave_all() {
    process::refresh();
    if process::is_borrowed() {
        return;
    }
    let saved = sys::errno();
    process::leaves_rings();
    let mut are_all_left = true;
    for fd in 0..table::end() {
        life::leave_to_others(fd);
        if let Entry::Conn(conn) = entry::get(fd) {
            are_all_left &= life::retires_drained(conn, fd);
        }
    }
    if are_all_left {
        // Children need not close it.
        broker::leave();
    }
    sys::set_errno(saved);
}

/// The program is about to forbid itself system calls (seccomp), among them those that only this library
/// makes. What is unread in a ring is read without any from then on.
#[cold]
pub fn enter_sandbox() {
    if process::is_sandboxed() {
        return;
    }
    leave_all();
    if process::is_borrowed() {
        return;
    }
    let saved = sys::errno();
    for fd in 0..table::end() {
        if let Entry::Conn(conn) = entry::get(fd) {
            handover::keeps_unread(conn, fd);
        }
    }
    set::enter_sandbox();
    broker::leave();
    process::enters_sandbox(conn::any_is_unread());
    sys::set_errno(saved);
}

/// A connection of this process's begins, or was accepted.
pub fn begin(fd: c_int, is_acceptor: bool) {
    broker::pays_up();
    if !process::has_left_rings() {
        table::set_candidate(fd, Candidate::new(is_acceptor));
    }
}

/// This process got a TCP socket from another one, over a Unix socket or an exec. Only the broker can tell whether
/// somebody else still holds it; what went over it before, and which end it is, the kernel tells.
pub fn begin_handed(fd: c_int) {
    if table::raw(fd) != 0 || process::has_left_rings() {
        return;
    }
    if let Some(history) = tcp::history(fd) {
        let candidate = Candidate::new(!history.is_connector).with_handed();
        table::set_candidate_at(fd, candidate, history.sent as u32, history.read as u32);
    }
}

/// The same of one that a message brought.
pub fn begin_received(fd: c_int) {
    if !set::adopted::may_have_others() {
        begin_handed(fd);
    }
}

/// When the library is loaded: what the program before left open. Servers hand a connection to the
/// program that serves it at a low number, or as its standard input and output.
pub fn begin_inherited() {
    const NUMBERS: usize = INHERITED_BELOW as usize;
    const POLLNVAL: i16 = 0x20;
    if set::adopted::are_unclear() {
        return;
    }
    let mut numbers = [PollFd { fd: 0, events: 0, revents: 0 }; NUMBERS];
    for (number, one) in (0..).zip(&mut numbers) {
        one.fd = number;
    }
    // SAFETY: an array of ours; a timeout of 0.
    unsafe { call!(poll, numbers.as_mut_ptr(), NUMBERS, 0) };
    for one in numbers.iter().filter(|one| one.revents & POLLNVAL == 0) {
        if !is_another_number(one.fd) {
            begin_handed(one.fd);
        }
    }
}

/// `fd` was inherited. Whether it names a socket that was, too, by a lower number.
fn is_another_number(fd: c_int) -> bool {
    // Most processes have no candidate yet, and no system call is made for them.
    let others = || (0..fd.min(table::end())).filter(|&at| table::is_candidate(at));
    if table::raw(fd) != 0 || others().next().is_none() {
        return false;
    }
    let Some(own) = tcp::cookie(fd) else { return false };
    let first = others().find(|&at| tcp::cookie(at) == Some(own));
    first.is_some_and(|first| life::duplicated(first, fd))
}

/// A call on a candidate ended, and is counted: it may have proven busy, or its channel may be there.
#[inline]
pub fn after_call(fd: c_int, candidate: Candidate) {
    let Some(counts) = table::counts(fd) else { return };
    if candidate.is_pending() {
        if broker::has_news() || handouts::one_waits(fd) {
            look_for_answer(fd);
        }
        return;
    }
    if counts.messages() >= config::PROMOTE_MESSAGES.load(Ordering::Relaxed)
        || counts.bytes() >= config::PROMOTE_BYTES.load(Ordering::Relaxed)
    {
        offer(fd, candidate);
    }
}

/// The candidate must prove busy once more.
fn start_over(fd: c_int) {
    table::change(fd, |candidate| candidate.with_pending(false));
    if let Some(counts) = table::counts(fd) {
        counts.forget();
    }
}

/// The socket of a candidate stays TCP, by all numbers that it has here.
fn stays_tcp(fd: c_int) {
    if let Some(candidate) = table::take_candidate(fd) {
        for (at, _) in twins::at(candidate.slot()) {
            life::withdraw(at);
        }
    }
}

/// For tests: offers at connect or accept, or at the first call after a connect that was in
/// progress. Whether it did anything.
#[inline]
pub fn at_once(fd: c_int) -> bool {
    config::is_forced() && offer_now(fd)
}

#[cold]
fn offer_now(fd: c_int) -> bool {
    match entry::get(fd) {
        Entry::Candidate(candidate) if candidate.is_pending() => look_for_answer(fd),
        Entry::Candidate(candidate) => offer(fd, candidate),
        _ => {}
    }
    true
}

#[cold]
fn look_for_answer(fd: c_int) {
    process::refresh();
    let saved = sys::errno();
    read_replies();
    attach_waiting(fd);
    let is_void =
        table::offer(fd).is_none_or(|offer| !broker::is_current(offer.load(Ordering::Relaxed)));
    if is_void {
        // That broker is gone; try again with the next one.
        start_over(fd);
    }
    sys::set_errno(saved);
}

#[cold]
fn offer(fd: c_int, candidate: Candidate) {
    process::refresh();
    let saved = sys::errno();
    offer_kept(fd, candidate);
    sys::set_errno(saved);
}

fn offer_kept(fd: c_int, candidate: Candidate) {
    if candidate.is_pending() || process::is_borrowed() {
        return;
    }
    if is_paused(candidate) || streams::hides(fd) {
        start_over(fd);
        return;
    }
    if candidate.is_unmet() && !has_been_fast(fd, candidate) {
        start_over(fd);
        return;
    }
    // First, as it takes no system call: without a broker this comes again and again.
    if !broker::is_there() {
        start_over(fd);
        return;
    }
    let Some(twins) = Twins::of(fd, candidate) else {
        start_over(fd);
        held_elsewhere(fd);
        return;
    };
    if let Some(other) = twins.pending_other() {
        start_over(fd);
        look_for_answer(other);
        return;
    }
    if !text::is_clean() {
        if text::is_careful() {
            broker::stays(fd, candidate, Decline::OwnCalls);
            stays_tcp(fd);
        }
        // Else the next call looks on.
        return;
    }
    if !tcp::is_plain_established(fd) {
        // Not TCP at all, or not yet connected: only the first never changes.
        if tcp::is_tcp(fd) {
            start_over(fd);
        } else {
            stays_tcp(fd);
        }
        return;
    }
    let decline = if settings::need_tcp(fd) {
        Some(Decline::Option)
    } else if process::is_translated() || !residue::may_be_made() {
        Some(Decline::Confined)
    } else {
        None
    };
    if let Some(reason) = decline {
        broker::stays(fd, candidate, reason);
        stays_tcp(fd);
        return;
    }
    // Else another one holds it as soon as the kernel was asked.
    if candidate.is_by_kernel() && process::is_forking() {
        start_over(fd);
        return;
    }
    let Some(id) = becomes_pending(fd, &twins) else { return };
    let holders = twins.holders();
    if !broker::offer(fd, id, candidate, holders) {
        start_over(fd);
        return;
    }
    let wait_ms = u64::from(config::PROMOTE_WAIT_MS.load(Ordering::Relaxed));
    // Of one that is to have another channel the other end may not know yet.
    if wait_ms > 0 && !candidate.is_again() {
        await_answer(fd, wait_ms);
    } else if holders != 0 && process::has_threads() {
        // There a call under way counts as one more holder: not before the broker has counted the thread begins its next.
        await_answer(fd, COUNTED_WITHIN_MS);
    }
}

/// The candidate is held elsewhere: whoever handed it over is about to close it, or uses it too.
fn found_shared(fd: c_int) {
    if !is_shared_once_more(fd) {
        let second = clock::second();
        table::change(fd, |candidate| {
            candidate.paused(second).with_by_kernel(false).with_held(true)
        });
    }
    start_over(fd);
}

/// Whether the candidate, whose offers nobody met, proved busy twice within two seconds: at such a rate the other end is
/// busy too, even if it counts fewer messages.
fn has_been_fast(fd: c_int, candidate: Candidate) -> bool {
    let second = clock::second();
    let is_fast = candidate.pause().lasts(second);
    if !is_fast {
        table::change(fd, |candidate| candidate.with_window(second));
    }
    is_fast
}

fn is_paused(candidate: Candidate) -> bool {
    let is_let_go = || {
        let slot = candidate.slot();
        candidate.is_held() && slot != 0 && holders::is_sole_holder(slot)
    };
    candidate.pause().is_any()
        && !candidate.is_unmet()
        && !(candidate.is_seldom() && pace::is_busy(candidate.times_seldom()))
        && candidate.pause().lasts(clock::second())
        && !is_let_go()
}

/// The candidate was found held elsewhere. False: it was so too often before.
fn is_shared_once_more(fd: c_int) -> bool {
    let is_full = |candidate: Candidate| candidate.shared_once_more().is_none();
    let is_more = matches!(entry::get(fd), Entry::Candidate(candidate) if !is_full(candidate));
    if is_more {
        table::change(fd, |candidate| candidate.shared_once_more().unwrap_or(candidate));
    }
    is_more
}

/// By its slot another number names the candidate. One that went with a killed process was never
/// closed: after a few times the kernel is asked, and says what went over the connection meanwhile.
fn held_elsewhere(fd: c_int) {
    if is_shared_once_more(fd) {
        return;
    }
    let Some(_guard) = LOCK.try_acquire() else { return };
    let Entry::Candidate(candidate) = entry::get(fd) else { return };
    if candidate.is_in_flight() || candidate.is_pending() || process::is_forking() {
        return;
    }
    // Of several numbers here the kernel counts as many holders.
    if twins::at(candidate.slot()).any(|(at, _)| at != fd) {
        return;
    }
    let closed = candidate.with_gate(true);
    if !table::swap(fd, candidate, closed.0) {
        return;
    }
    let is_known = in_flight::is_clear(fd)
        && tcp::history(fd)
            .zip(table::counts(fd))
            .map(|(history, counts)| counts.begin(history.sent as u32, history.read as u32))
            .is_some();
    // A fork or a copy meanwhile: the entry is another one's then.
    if !table::swap(fd, closed, candidate.with_by_kernel(is_known).0) {
        table::change(fd, |candidate| candidate.with_gate(false));
    }
}

/// Of several threads that found the candidate busy one offers it.
fn becomes_pending(fd: c_int, twins: &Twins) -> Option<u64> {
    let _guard = LOCK.try_acquire()?;
    let is_free = matches!(entry::get(fd), Entry::Candidate(now) if !now.is_pending());
    if !is_free || twins.pending_other().is_some() {
        return None;
    }
    let id = broker::offer_id(fd);
    table::offer(fd)?.store(id, Ordering::Relaxed);
    table::change(fd, |candidate| candidate.with_pending(true));
    Some(id)
}

/// How long the broker may take to count who holds a socket. It says nothing where nobody else does.
const COUNTED_WITHIN_MS: u64 = 2;

fn await_answer(fd: c_int, wait_ms: u64) {
    let until = clock::now_ns() + wait_ms * 1_000_000;
    loop {
        read_replies();
        attach_waiting(fd);
        let now = clock::now_ns();
        let waits = match entry::get(fd) {
            Entry::Candidate(at) => at.is_pending(),
            // The other end is about to attach too: then nothing goes by TCP before the ring.
            Entry::Conn(conn) => !offer::at_once(conn, fd),
            _ => false,
        };
        if !waits || now >= until {
            return;
        }
        // Another thread may read the message that this one waits for.
        broker::wait(if entry::conn_of(fd).is_some() { 1 } else { wait_ms.min(5) });
    }
}

fn read_replies() {
    broker::read_messages(|reply| match reply {
        Reply::Channel { handout, cookie } => {
            handed_out(broker::descriptor_of(handout.id), handout, cookie);
        }
        Reply::Declined { id, reason } => declined(broker::descriptor_of(id), id, reason),
    });
}

/// The broker declined: the connection stays what it is, for good or for now.
fn declined(fd: c_int, id: u64, reason: Decline) {
    if !is_answer_to(fd, id) {
        return;
    }
    let Entry::Candidate(candidate) = entry::get(fd) else { return };
    if reason == Decline::Shared {
        return found_shared(fd);
    }
    // What it had once it may have again: on another host, or when its peer is back. What others hold
    // they may let go of.
    let is_for_good = matches!(reason, Decline::NotTcp | Decline::SelfConnected);
    let is_held = candidate.is_by_kernel();
    let has_no_room = matches!(reason, Decline::Memory | Decline::TooMany | Decline::Later);
    let is_for_now = is_held || candidate.is_again() || has_no_room;
    let second = clock::second();
    if is_for_now && !is_for_good {
        table::change(fd, |candidate| {
            candidate.paused(second).with_by_kernel(false).with_held(is_held)
        });
        start_over(fd);
        return;
    }
    let is_unmet = matches!(reason, Decline::NoProof | Decline::NoGuest);
    if is_unmet && candidate.unmet_once_more(second).is_some() {
        table::change(fd, |candidate| candidate.unmet_once_more(second).unwrap_or(candidate));
        start_over(fd);
        return;
    }
    stays_tcp(fd);
}

fn is_answer_to(fd: c_int, id: u64) -> bool {
    let pending = matches!(entry::get(fd), Entry::Candidate(at) if at.is_pending());
    pending && table::offer(fd).is_some_and(|offer| offer.load(Ordering::Relaxed) == id)
}

/// The broker handed out a channel.
fn handed_out(fd: c_int, handout: Handout, cookie: u64) {
    let is_same = is_answer_to(fd, handout.id) && tcp::cookie(fd) == Some(cookie);
    if !is_same {
        handouts::refuse(&handout);
        return;
    }
    if attach(fd, &handout) {
        return;
    }
    let Err(handout) = handouts::keep(handout, |id| is_answer_to(fd, id)) else { return };
    if !is_answer_to(fd, handout.id) {
        handouts::refuse(&handout);
        return;
    }
    // Of hundreds of connections, each read by a thread of its own, more get their channels at a time than may wait.
    handouts::give_back(&handout);
    let second = clock::second();
    table::change(fd, |candidate| candidate.paused(second));
    start_over(fd);
}

/// Attaches a handout that had to wait, if there is one for `fd`.
fn attach_waiting(fd: c_int) {
    handouts::retry(|handout| {
        let at = broker::descriptor_of(handout.id);
        if !is_answer_to(at, handout.id) {
            handouts::refuse(handout);
            return true;
        }
        at == fd && attach(fd, handout)
    });
}

/// In a forked child.
pub fn reset() {
    LOCK.reset();
}

/// False: calls are in flight on the descriptor; the handout is kept for later.
fn attach(fd: c_int, handout: &Handout) -> bool {
    let Entry::Candidate(candidate) = entry::get(fd) else {
        return false;
    };
    if process::is_forking() {
        return false;
    }
    let Some(mut twins) = Twins::of(fd, candidate).filter(|twins| !twins.are_in_flight()) else {
        return false;
    };
    let Some(conn) = Conn::attach(fd, handout) else {
        handouts::refuse(handout);
        stays_tcp(fd);
        return true;
    };
    prepare(fd, conn);
    conn.times_seldom.store(candidate.times_seldom(), Ordering::Relaxed);
    // Once it is in the table another thread may close it.
    let _pin = conn.pin_fresh();
    let is_alone = twins.close();
    // With nobody inside, what was counted is what the kernel counts, or some of it went past.
    let is_known = is_alone && has_seen_all(fd, &twins, conn);
    if !is_known || !twins.become_conn(conn.address(), |at| conn.one_more_name(at)) {
        // Who comes now is counted in the entry, and moves bytes that are not counted yet.
        let is_still_alone = is_alone && twins.are_closed();
        let is_unseen = is_still_alone && !is_known && !has_seen_all(fd, &twins, conn);
        let is_unseen = is_unseen && twins.are_closed();
        twins.open();
        drop(_pin);
        conn.discard();
        if is_unseen {
            handouts::refuse(handout);
            // Of one that this end has ended meanwhile the FIN counts as a byte that was acknowledged.
            if tcp::is_plain_established(fd) {
                broker::stays(fd, candidate, Decline::Unseen);
            }
            life::leave_to_others(fd);
            twins.others().for_each(life::leave_to_others);
            return true;
        }
        return false;
    }
    // From now on what goes by TCP raises the hint; the receiver waits for the first one.
    conn.sender().hint();
    if config::is_forced() {
        offer::at_once(conn, fd);
    }
    // All that it counted.
    holders::free_slot(candidate.slot());
    handouts::close(handout);
    if conn.settings.nodelay.load(Ordering::Relaxed) == 0 {
        // Replies by ring carry no acknowledgement: Nagle would hold back what goes by TCP.
        sys::setsockopt_bytes(fd, SOL_TCP, sys::TCP_NODELAY, &1u32.to_ne_bytes());
    }
    true
}

/// Whether all that ever went over the connection went through this library. A program that also
/// sends or receives in ways that nobody sees would go past the ring.
fn has_seen_all(fd: c_int, twins: &Twins, conn: &Conn) -> bool {
    let Some((sent, received)) = twins.moved() else { return false };
    let (Some(position), Some(read)) = (
        tcp::sent_position(fd, conn.is_connector(), u64::from(sent)),
        tcp::read_position(fd, u64::from(received)),
    ) else {
        return false;
    };
    conn.begins_at(position, read);
    position as u32 == sent && read as u32 == received
}

/// The kernel's settings that the library watches over from now on.
fn prepare(fd: c_int, conn: &Conn) {
    // SAFETY: no memory involved.
    let flags = unsafe { call!(fcntl, fd, sys::F_GETFL) };
    conn.set_nonblocking(flags & sys::O_NONBLOCK as isize != 0);
    let nodelay = sys::getsockopt_u64(fd, SOL_TCP, sys::TCP_NODELAY, 4).unwrap_or(0);
    conn.settings.nodelay.store(nodelay as u32, Ordering::Relaxed);
    let tells_unread = u32::from(tcp::tells_unread(fd));
    conn.settings.tells_unread.store(tells_unread, Ordering::Relaxed);
    let cork = sys::getsockopt_u64(fd, SOL_TCP, sys::TCP_CORK, 4).unwrap_or(0);
    conn.settings.cork.store(cork as u32, Ordering::Relaxed);
    conn.settings.kernel_corked.store(cork as u32, Ordering::Relaxed);
}
