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
use core::sync::atomic::Ordering;

use yasmin_channel::residue::MARK;
use yasmin_channel::side::FOREIGN;
use yasmin_control::{CONTROL_VERSION, FromBroker, ToBroker};

use crate::conn::Conn;
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
    if residue::has_passed() {
        let saved = sys::errno();
        // SAFETY: the caller's.
        unsafe { for_each_right(msg, take_back) };
        sys::set_errno(saved);
    }
}

/// A message came over socket `via`, and may have brought descriptors.
///
/// The mark on one proves nothing: anybody can set it. So the broker is asked only for what a
/// process of this user or root sent, as only such a one leaves residues for it, and when it does
/// not answer it is not asked for the message's other descriptors.
///
/// # Safety
/// The message as the kernel left it.
pub unsafe fn received(via: c_int, msg: &MsgHdr) {
    if msg.controllen == 0 {
        return;
    }
    let saved = sys::errno();
    let mut asks = None;
    // SAFETY: the caller's.
    unsafe { for_each_right(msg, |fd| take(fd, via, &mut asks)) };
    sys::set_errno(saved);
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
            if !conn.is_at(fd) {
                return;
            }
            conn.settle(fd);
            if !life::retires_drained(conn, fd) {
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
        Entry::Candidate(candidate) => life::withdraw(fd, candidate),
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
    let (Some(request), Some(socket)) = (Request::open(), broker::named(fd)) else { return false };
    let message = ToBroker::Leave { version: CONTROL_VERSION, socket };
    match request.hear(message, &[], until_ns()) {
        Answer::Message(FromBroker::Send, _) => {}
        _ => return false,
    }
    // Before anybody can claim it.
    conn.one_more_holds();
    match request.hear(ToBroker::Keep, &[number, fd], until_ns()) {
        Answer::Message(FromBroker::Left, _) => mark(fd),
        Answer::Message(..) | Answer::None => {
            conn.one_less_holds();
            return false;
        }
        // Whether it is kept, and who is counted, nobody here can say any more.
        Answer::Late => tcp::reset(fd),
    }
    true
}

fn take_back(fd: c_int) {
    if let Entry::Conn(conn) = entry::get(fd)
        && residue::lowat(fd) == Some(MARK)
        && let Claimed::Residue { memfd, left } = claim(fd)
    {
        let settings = residue::own(conn, fd, memfd);
        unmark(fd, left, settings);
    }
}

/// This process got `fd`. `asks`: whether the broker is asked, if that is known.
fn take(fd: c_int, via: c_int, asks: &mut Option<bool>) {
    let Some(lowat) = residue::lowat(fd) else { return set::numbers::came_back(fd) };
    let is_marked = lowat == MARK && *asks.get_or_insert_with(|| may_leave(via));
    process::refresh();
    if process::is_borrowed() {
        return;
    }
    if !is_marked && !residue::has_passed() && !conn::any_is_shared() {
        return promote::begin_handed(fd);
    }
    let Some(cookie) = tcp::cookie(fd) else { return };
    let holder = holder_of(cookie);
    if let Some(conn) = holder {
        entry::name(conn, fd);
    }
    if !is_marked {
        if holder.is_none() {
            promote::begin_handed(fd);
        }
        return;
    }
    let (memfd, left) = match claim(fd) {
        Claimed::Residue { memfd, left } => (memfd, left),
        // Not claimed in time, or not for this process. What is unread is the giver's affair, who
        // may be gone: a reset is an error that the program knows, a gap is none.
        Claimed::Nothing if holder.is_none() => return tcp::reset(fd),
        Claimed::Nothing => return,
        // It may be lost on the way.
        Claimed::Late => {
            *asks = Some(false);
            return tcp::reset(fd);
        }
    };
    residue::note_passed();
    let settings = match holder {
        Some(conn) => residue::own(conn, conn.fd(), memfd),
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
            && conn.side().rx.foreign.load(Ordering::SeqCst) & FOREIGN == 0
        {
            filter::lets_through(conn, fd);
        }
        residue::set_lowat(fd, own.lowat);
        residue::set_linger(fd, own.linger);
    }
}

/// What this process has of the socket already.
fn holder_of(cookie: u64) -> Option<&'static Conn> {
    (0..table::end()).find_map(|at| match entry::get(at) {
        Entry::Conn(conn) if tcp::cookie(at) == Some(cookie) => Some(conn),
        _ => None,
    })
}
