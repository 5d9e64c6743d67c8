//! Sockets that go to another process over a Unix socket (SCM_RIGHTS).
//!
//! What is passed on is parked for good, and once its ring is drained it is plain TCP in every
//! respect. What lies unread in the ring is left with the broker, as a residue, before the
//! message is sent; the library of the process that receives the message claims it, and both
//! read on under the locks in it. The socket is marked meanwhile, so that nobody asks the broker
//! for sockets that bring nothing, and set to end by a reset, should nobody ever claim it.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use yasmin_channel::residue::MARK;
use yasmin_channel::side::FOREIGN;
use yasmin_control::{CONTROL_VERSION, Decline, FromBroker, ToBroker};

use crate::conn::{Conn, Unlocked};
use crate::entry::{self, Entry};
use crate::request::{Answer, Request};
use crate::sys::{self, MsgHdr, SO_PEERCRED, SOL_SOCKET, call};
use crate::{
    broker, clock, conn, filter, handover, image, life, process, promote, residue, set, table, tcp,
};

const SCM_RIGHTS: c_int = 1;

/// The broker answers at once, or the machine is in trouble.
const ANSWER_WITHIN_MS: u64 = 2000;

fn mark(fd: c_int) {
    residue::set_linger(fd, u64::from_ne_bytes(sys::LINGER_0));
    residue::set_lowat(fd, MARK);
}

fn until_ns() -> u64 {
    clock::now_ns() + ANSWER_WITHIN_MS * 1_000_000
}

/// Before a message that passes descriptors on, over socket `via`.
///
/// # Safety
/// The message as the program passed it, its control data readable.
pub unsafe fn before(via: c_int, msg: &MsgHdr) {
    // All is parked and known to the kernel already; what is unread stays.
    if process::is_sandboxed() {
        return;
    }
    let saved = sys::errno();
    // SAFETY: the caller's.
    unsafe { for_each_right(msg, |fd| pass(fd, via)) };
    sys::set_errno(saved);
}

/// Such a message was not sent.
///
/// # Safety
/// As above.
pub unsafe fn failed(msg: &MsgHdr) {
    if residue::has_passed() && !process::is_sandboxed() {
        let saved = sys::errno();
        // SAFETY: the caller's.
        unsafe { for_each_right(msg, take_back) };
        sys::set_errno(saved);
    }
}

/// A message came over socket `via`, and may have brought descriptors.
///
/// What another user sent stays TCP, and is asked nothing that takes the socket's lock: a thread of
/// that user's may hold it for as long as it likes, and who waits for it cannot be killed. Only this
/// user's processes and root's leave residues for this one.
///
/// # Safety
/// The message as the kernel left it.
pub unsafe fn received(via: c_int, msg: &MsgHdr) {
    // Nothing gets a ring in a sandbox, and nothing can be claimed.
    if msg.controllen == 0 || process::is_sandboxed() {
        return;
    }
    let saved = sys::errno();
    let mut sender = Sender { via, is_trusted: None, is_broker_late: false };
    // SAFETY: the caller's.
    unsafe { for_each_right(msg, |fd| take(fd, &mut sender)) };
    sys::set_errno(saved);
}

/// Who sent a message, and what came of asking about it.
struct Sender {
    via: c_int,
    /// As far as it was looked at.
    is_trusted: Option<bool>,
    /// The broker did not answer: it is not asked for the message's other descriptors.
    is_broker_late: bool,
}

impl Sender {
    /// Whether it is a process of this user or root's.
    fn is_trusted(&mut self) -> bool {
        let via = self.via;
        *self.is_trusted.get_or_insert_with(|| may_leave(via))
    }
}

/// # Safety
/// The message's control data are readable.
unsafe fn for_each_right(msg: &MsgHdr, mut each: impl FnMut(c_int)) {
    const HEAD_BYTES: usize = 16;
    let (base, len) = (msg.control.cast::<u8>(), msg.controllen);
    let mut at = 0;
    while at + HEAD_BYTES <= len {
        // SAFETY: inside the control data.
        let (size, level, kind) = unsafe {
            let head = base.add(at);
            (
                head.cast::<usize>().read_unaligned(),
                head.add(8).cast::<c_int>().read_unaligned(),
                head.add(12).cast::<c_int>().read_unaligned(),
            )
        };
        if size < HEAD_BYTES || size > len - at {
            return;
        }
        if level == SOL_SOCKET && kind == SCM_RIGHTS {
            for i in 0..(size - HEAD_BYTES) / 4 {
                // SAFETY: inside this control message.
                each(unsafe { base.add(at + HEAD_BYTES).cast::<c_int>().add(i).read_unaligned() });
            }
        }
        at += (size + 7) & !7;
    }
}

fn pass(fd: c_int, via: c_int) {
    match entry::get(fd) {
        Entry::Conn(conn) => {
            process::refresh();
            life::leave_to_others(fd);
            // Other threads may drain it meanwhile, and be done with it.
            if conn.is_at(fd)
                && !life::retires_drained(conn, fd)
                && let Some(_pin) = conn.pin(fd)
            {
                residue::note_passed();
                if conn.has_moved() {
                    // Whoever reads it would do so behind a gap.
                    tcp::reset(fd);
                } else if may_claim(via) && leave(conn, fd) {
                    filter::holds_back(conn, fd, true);
                } else {
                    handover::stays_here(conn, fd, true);
                }
            }
        }
        Entry::Candidate(_) if !life::withdraw(fd) => pass(fd, via),
        Entry::Fresh => table::clear(fd),
        Entry::Set(set) => set::numbers::passed_on(set),
        _ => {}
    }
}

/// Whether the process at the other end of a Unix socket may have the library, and what this one
/// leaves. Of a pair the kernel tells who made it, whose children have what it has.
fn may_claim(via: c_int) -> bool {
    let own = process::effective_ids().0;
    peer_at(via).is_some_and(|Peer { pid, uid }| {
        (own == uid || own == 0) && (pid == process::pid() || image::is_in(pid))
    })
}

/// Whether the process at the other end is one whose residues this one may claim.
fn may_leave(via: c_int) -> bool {
    peer_at(via).is_some_and(|peer| process::trusts(peer.uid))
}

struct Peer {
    pid: u32,
    uid: u32,
}

/// The process at the other end of a Unix socket.
fn peer_at(via: c_int) -> Option<Peer> {
    let mut cred = [0u32; 3];
    let mut len = 12u32;
    // SAFETY: struct ucred is three 32-bit words.
    let ret =
        unsafe { call!(getsockopt, via, SOL_SOCKET, SO_PEERCRED, cred.as_mut_ptr(), &raw mut len) };
    let [pid, uid, _] = cred;
    (ret == 0).then_some(Peer { pid, uid })
}

/// Leaves what is unread with the broker. False: it stays here.
fn leave(conn: &'static Conn, fd: c_int) -> bool {
    // A child that borrows this memory has numbers of its own.
    if process::is_borrowed() {
        return false;
    }
    let Some(number) = handover::residue_for(conn, fd, true, true) else { return false };
    let until_ns = clock::now_ns() + ROOM_WITHIN_NS;
    loop {
        match leave_once(conn, fd, number) {
            Left::Leaves => return true,
            Left::Stays => return false,
            Left::NoRoom => {}
        }
        let now = clock::now_ns();
        if now >= until_ns {
            NO_ROOM_UNTIL_NS.store(now + ROOM_WITHIN_NS, Ordering::Relaxed);
        }
        if now < NO_ROOM_UNTIL_NS.load(Ordering::Relaxed) {
            return false;
        }
        // SAFETY: no memory involved: a sleep of some milliseconds.
        unsafe { call!(poll, 0, 0, 5) };
    }
}

/// How long who passes on waits for room with the broker: who has got the ones before may be about to
/// claim them.
const ROOM_WITHIN_NS: u64 = 1_000_000_000;

/// Until then nobody waits: there was no room for so long.
static NO_ROOM_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

enum Left {
    Leaves,
    Stays,
    /// The broker keeps as many as it may at the moment.
    NoRoom,
}

fn leave_once(conn: &Conn, fd: c_int, number: c_int) -> Left {
    const IS_FULL: FromBroker = FromBroker::Decline { id: 0, reason: Decline::TooMany };
    let (Some(request), Some(socket)) = (Request::open(), broker::named(fd)) else {
        return Left::Stays;
    };
    let message = ToBroker::Leave { version: CONTROL_VERSION, socket };
    match request.hear(message, &[], until_ns()) {
        Answer::Message(FromBroker::Send, _) => {}
        Answer::Message(IS_FULL, _) => return Left::NoRoom,
        _ => return Left::Stays,
    }
    // Before anybody can claim it.
    conn.one_more_holds();
    match request.hear(ToBroker::Keep, &[number, fd], until_ns()) {
        Answer::Message(FromBroker::Left, _) => mark(fd),
        Answer::Message(answer, _) => {
            conn.one_less_holds();
            return if matches!(answer, IS_FULL) { Left::NoRoom } else { Left::Stays };
        }
        Answer::None => {
            conn.one_less_holds();
            return Left::Stays;
        }
        // Whether it is kept, and who is counted, nobody here can say any more.
        Answer::Late => tcp::reset(fd),
    }
    Left::Leaves
}

fn take_back(fd: c_int) {
    if let Entry::Conn(conn) = entry::get(fd)
        && let Some(_pin) = conn.pin(fd)
        && residue::lowat(fd) == Some(MARK)
        && let Claimed::Residue { memfd, left } = claim(fd)
    {
        let settings = residue::own(conn, fd, memfd);
        unmark(fd, left, settings);
    }
}

/// This process got `fd`.
fn take(fd: c_int, sender: &mut Sender) {
    if !tcp::is_tcp(fd) {
        if let Some(set) = set::adopted::came(fd) {
            set::adopted::reads(set);
        }
        return;
    }
    process::refresh();
    if process::is_borrowed() {
        return;
    }
    let may_be_known = residue::has_passed() || conn::any_is_shared();
    let cookie = if may_be_known { tcp::cookie(fd) } else { None };
    let holder = cookie.and_then(|cookie| named_as_holder(cookie, fd));
    if !sender.is_trusted() {
        return;
    }
    if residue::lowat(fd) != Some(MARK) {
        if holder.is_none() {
            promote::begin_received(fd);
        }
        return;
    }
    // It may be lost on the way.
    if sender.is_broker_late {
        return tcp::reset(fd);
    }
    let Some(cookie) = tcp::cookie(fd) else { return };
    let (memfd, left) = match claim_marked(fd) {
        Claimed::Residue { memfd, left } => (memfd, left),
        Claimed::Nothing if holder.is_some() => return,
        // Whoever passed this one on had nothing unread, and who got another one has claimed that.
        Claimed::Nothing if residue::lowat(fd) != Some(MARK) => return promote::begin_received(fd),
        // Not claimed in time, or not for this process. What is unread is the giver's affair, who
        // may be gone: a reset is an error that the program knows, a gap is none.
        Claimed::Nothing => return tcp::reset(fd),
        Claimed::Late => {
            sender.is_broker_late = true;
            return tcp::reset(fd);
        }
    };
    residue::note_passed();
    let settings = match holder.and_then(|conn| Some((conn, conn.pin(fd)?))) {
        Some((conn, _pin)) => residue::own(conn, fd, memfd),
        // Also where another thread has drained it meanwhile.
        None => residue::adopt_for(fd, memfd, cookie),
    };
    unmark(fd, left, settings);
    if settings.is_none() {
        // What is unread is lost, and so the connection.
        tcp::reset(fd);
    }
}

enum Claimed {
    /// And so many more are left.
    Residue {
        memfd: c_int,
        left: u64,
    },
    Nothing,
    Late,
}

/// What the broker has for `fd`, which is marked. Of several that get the socket at the same time another one
/// may have claimed the last, and takes the mark off: it is waited for a little.
fn claim_marked(fd: c_int) -> Claimed {
    const TRIES: u32 = 40;
    for _ in 1..TRIES {
        let claimed = claim(fd);
        if !matches!(claimed, Claimed::Nothing) || residue::lowat(fd) != Some(MARK) {
            return claimed;
        }
        // SAFETY: no memory involved: a sleep of a millisecond.
        unsafe { call!(poll, 0, 0, 1) };
    }
    claim(fd)
}

/// What the broker has for `fd`.
fn claim(fd: c_int) -> Claimed {
    let (Some(request), Some(socket)) = (Request::open(), broker::named(fd)) else {
        return Claimed::Nothing;
    };
    let message = ToBroker::Claim { version: CONTROL_VERSION, socket };
    match request.hear(message, &[], until_ns()) {
        Answer::Message(FromBroker::Residue { left }, mut passed) => match passed.take(0) {
            Some(memfd) => Claimed::Residue { memfd, left },
            // There was no free number for it.
            None => Claimed::Late,
        },
        Answer::Message(..) | Answer::None => Claimed::Nothing,
        Answer::Late => Claimed::Late,
    }
}

fn unmark(fd: c_int, left: u64, own: Option<residue::Settings>) {
    if left == 0 {
        let own = own.unwrap_or(residue::Settings { lowat: 0, linger: 0 });
        if let Entry::Conn(conn) = entry::get(fd)
            && let Some(_pin) = conn.pin(fd)
            && conn.side().rx.foreign.load(Ordering::SeqCst) & FOREIGN == 0
        {
            filter::lets_through(conn, fd);
        }
        residue::set_lowat(fd, own.lowat);
        residue::set_linger(fd, own.linger);
    }
}

/// What this process has of the socket already, and `fd` names now, too.
fn named_as_holder(cookie: u64, fd: c_int) -> Option<&'static Conn> {
    let holder = |at| match entry::get(at) {
        Entry::Conn(conn) if tcp::cookie(at) == Some(cookie) => Some((conn, at)),
        _ => None,
    };
    while let Some((conn, at)) = (0..table::end()).find_map(holder) {
        let lock = conn.lock_rx(at);
        // Another thread may be done with it.
        if !matches!(lock, Err(Unlocked::Gone)) {
            entry::name(conn, fd);
            return Some(conn);
        }
    }
    None
}
