//! Sockets that other programs get by exec or by being started; see `passing` for the others.
//!
//! What is handed over is parked for good, and once its ring is drained it is plain TCP in
//! every respect. While bytes lie unread in the ring:
//!
//! | who gets it | the bytes |
//! |---|---|
//! | a program with the library, of a process that is the only one that holds the socket | shared with it, as a residue |
//! | any other | stay with the processes that share the ring |
//!
//! What a program that is started merely inherits, with nothing unread, is only lent: it gets a ring again once nobody else
//! has it.
//!
//! Where the last of these lets go of them, the connection is reset, since the other program
//! would otherwise read on behind a gap. Only a process that starts another program leaves them with
//! those that share the ring: most of what is inherited nobody reads. Who sends the socket in a
//! message means it to be read there, and the bytes go along.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use yasmin_channel::side::FOREIGN;

use crate::conn::{self, Conn};
use crate::entry::{self, Entry};
use crate::image::Image;
use crate::life::Ends;
use crate::set::hot::is_kernels;
use crate::sys::{self, F_GETFD, FD_CLOEXEC, SO_LINGER, SOL_SOCKET, call};
use crate::{clock, filter, holders, life, process, promote, residue, set, table, tcp};

/// How long an exec waits for other processes to let go of what has bytes unread, all of its
/// connections together.
const OTHERS_WITHIN_MS: u64 = 200;

static WALK: AtomicU32 = AtomicU32::new(0);

fn closes_on_exec(fd: c_int) -> bool {
    // SAFETY: no memory involved.
    let flags = unsafe { call!(fcntl, fd, F_GETFD) };
    flags < 0 || flags & FD_CLOEXEC as isize != 0
}

/// How the other program comes to be.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// This process becomes it.
    Exec,
    /// A child that borrows this memory becomes it.
    Borrowed,
    /// A child will be started with it; this process lives on.
    Start,
}

/// Whether all there is to do for another program is done already: in a sandbox everything is parked and the
/// kernel knows it. A connection with bytes unread is handed on all the same, since a gap is worse than an end.
fn is_done() -> bool {
    process::is_sandboxed() && !conn::any_is_unread()
}

/// Before an exec: what the program inherits.
pub fn before_exec(image: impl Fn() -> Image) {
    process::refresh();
    if is_done() {
        return;
    }
    let way = if process::is_borrowed() { Way::Borrowed } else { Way::Exec };
    let walk = hand_on(way, &image);
    if way == Way::Borrowed {
        return;
    }
    set::before_exec(closes_on_exec);
    // What it does not inherit is closed.
    for fd in 0..table::end() {
        match entry::get(fd) {
            Entry::Conn(conn) if conn.fd() == fd && !conn.holding.handed.is_of(walk) => {
                conn.holding.handed.begin(walk);
                closes_by_exec(conn, fd);
            }
            Entry::Candidate(_) => {
                if let Some(candidate) = table::take_candidate(fd) {
                    holders::drop_slot(candidate.slot());
                }
            }
            _ => {}
        }
    }
}

/// Before a fork: the child may become a program that reads on where this one stopped, while this one holds
/// the socket, too. What is unread by now becomes a residue, which all of them share, and nothing more comes by
/// ring until somebody receives.
///
/// It costs the connection its ring for good. So those that an exec would close and that lie in an epoll set keep
/// it: a server with such a set, which forks with many of them unread, does not give them to other programs.
pub fn before_fork(conn: &'static Conn, fd: c_int) {
    let lock = || conn.lock_rx(fd).ok().map(|rx| (rx, conn.receiver()));
    let is_kernels = || lock().is_none_or(|(_rx, receiver)| is_kernels(&receiver));
    let is_kept = || closes_on_exec(fd) && set::numbers::watches(fd);
    if process::is_sandboxed() || is_kernels() || is_kept() {
        return;
    }
    let is_unread = lock().is_some_and(|(_rx, receiver)| {
        conn.park_rx(&receiver);
        receiver.unread_bytes() > 0
    });
    if is_unread {
        conn.park_for_good(fd);
        becomes_residue(conn, fd);
    }
}

/// What is unread. Parked for good.
fn becomes_residue(conn: &'static Conn, fd: c_int) {
    if !life::retires_drained(conn, fd)
        && let Some(_pin) = conn.pin(fd)
    {
        let _ = residue_for(conn, fd, true, holders::reads_alone(&conn.side().rx));
    }
}

/// Before a child is started by a call that does the exec itself.
pub fn before_start(image: impl Fn() -> Image) {
    process::refresh();
    if is_done() {
        return;
    }
    hand_on(Way::Start, &image);
    set::before_start(closes_on_exec);
}

/// Before vfork. The child's numbers are its own, so what it may leave to another program is told to the kernel
/// now. What an exec leaves open is parked for good, and what is unread then becomes a residue of this process's:
/// one that the child made would be nobody's here, and the next child would take it away from the first.
pub extern "C" fn before_vfork() {
    process::refresh();
    if process::is_sandboxed() {
        return;
    }
    set::before_start(closes_on_exec);
    let end = if process::is_borrowed() { 0 } else { table::end() };
    for fd in (0..end).filter(|&fd| table::is_stream(fd) && !closes_on_exec(fd)) {
        life::lends(fd);
        if let Entry::Conn(conn) = entry::get(fd)
            && !lends(conn, fd)
        {
            life::leave_to_others(fd);
            if let Entry::Conn(conn) = entry::get(fd) {
                becomes_residue(conn, fd);
            }
        }
    }
    // Last: whatever asks who runs takes it back.
    process::before_lending();
}

const CLONE_FILES: c_int = 0x400;

/// Before unshare, or a clone that copies the caller's memory: with these flags a number may be one file in this
/// thread and another elsewhere, or change unseen. Rings end.
pub extern "C" fn before_unshare(flags: c_int) {
    process::refresh();
    if flags & CLONE_FILES != 0 && !process::is_borrowed() {
        set::before_start(|_| false);
        promote::leave_all();
    }
}

/// Before a thread closes what it has no longer in common with others. False: there is nobody else.
pub fn unshares() -> bool {
    let is_shared = process::has_threads();
    if is_shared {
        before_unshare(CLONE_FILES);
    }
    is_shared
}

/// Before clone, which takes a function, a stack and flags.
pub fn before_clone(flags: c_int) {
    process::refresh();
    if flags & CLONE_FILES == 0 {
        set::before_start(closes_on_exec);
    }
    process::before_cloning(flags);
}

fn hand_on(way: Way, image: &impl Fn() -> Image) -> u32 {
    let walk = WALK.fetch_add(1, Ordering::Relaxed) + 1;
    let until_ns = clock::now_ns() + OTHERS_WITHIN_MS * 1_000_000;
    for fd in 0..table::end() {
        match entry::of_lender(fd) {
            Entry::Candidate(_) if closes_on_exec(fd) => {}
            Entry::Candidate(_) if way != Way::Exec => life::lends(fd),
            Entry::Candidate(_) => {
                life::withdraw(fd);
            }
            Entry::Conn(conn) => {
                if let Some(number) = residue::of(conn)
                    && !conn.holding.handed.is_leaving()
                {
                    residue::set_inherited(number, false);
                }
            }
            _ => {}
        }
    }
    // What other threads made connections of meanwhile is one of them now.
    for fd in 0..table::end() {
        let Entry::Conn(conn) = entry::of_lender(fd) else { continue };
        let is_lent = conn.holding.handed.is_lent();
        let closes = closes_on_exec(fd);
        if closes && !is_lent || conn.holding.handed.is_of(walk) {
            continue;
        }
        if way == Way::Borrowed && (closes || !conn.is_behind(fd)) {
            // Such a child passes it on only under numbers that it has put it at itself.
            if let Some(number) = is_lent.then(|| inherited_number(conn)).flatten() {
                conn.holding.handed.begin(walk);
                at_own_number(conn, fd, number, || hand_over(conn, fd, way, image, until_ns));
            }
            continue;
        }
        conn.holding.handed.begin(walk);
        hand_over(conn, fd, way, image, until_ns);
    }
    walk
}

/// Where the program that a borrowing child becomes will find the connection.
fn inherited_number(conn: &Conn) -> Option<c_int> {
    let end = table::end().max(table::own_below() as c_int);
    (0..end).find(|&fd| conn.is_behind(fd) && !closes_on_exec(fd))
}

/// Does it with the connection at the number that it has in the table, where a borrowing child may have
/// another file, or none.
fn at_own_number(conn: &Conn, fd: c_int, number: c_int, hand_over: impl Fn()) {
    if conn.is_behind(fd) {
        return hand_over();
    }
    // SAFETY: no memory involved.
    let flags = unsafe { call!(fcntl, fd, F_GETFD) };
    let other = (flags >= 0).then(|| {
        // SAFETY: as above.
        unsafe { call!(fcntl, fd, sys::F_DUPFD_CLOEXEC, 0) as c_int }
    });
    if other.is_some_and(|other| other < 0) {
        // There is no number for the other file meanwhile.
        return;
    }
    // SAFETY: as above.
    if unsafe { call!(dup3, number, fd, sys::O_CLOEXEC) } == fd as isize {
        hand_over();
    }
    let Some(other) = other else {
        sys::close(fd);
        return;
    };
    let flags = if flags & FD_CLOEXEC as isize != 0 { sys::O_CLOEXEC } else { 0 };
    // SAFETY: as above.
    unsafe { call!(dup3, other, fd, flags) };
    sys::close(other);
}

/// The exec failed: this program goes on.
pub fn exec_failed() {
    let saved = sys::errno();
    let walk = WALK.load(Ordering::Relaxed);
    set::exec_failed();
    for fd in 0..table::end() {
        if let Entry::Conn(conn) = entry::of_lender(fd)
            && let Some(_pin) = conn.pin(fd)
            && conn.holding.handed.is_of(walk)
        {
            takes_back(conn, fd);
        }
    }
    sys::set_errno(saved);
}

/// libc will write to `fd` by itself.
pub fn leave_writes(fd: c_int) {
    match entry::get(fd) {
        Entry::Conn(conn) => conn.park_tx_for_good(fd),
        _ => life::leave_to_others(fd),
    }
}

/// A child that borrows this memory gives `fd` another number, which it may leave to the program
/// that it becomes.
pub fn lend(fd: c_int) {
    match entry::of_lender(fd) {
        // What it has put there itself it gave a number before.
        Entry::Conn(conn) if !conn.is_behind(fd) => {}
        Entry::Conn(conn) => {
            conn.holding.handed.lent.store(1, Ordering::Relaxed);
            conn.park_for_good(fd);
            if !conn.is_at(fd) {
                table::clear(fd);
            }
        }
        Entry::Candidate(_) if table::take_candidate(fd).is_none() => lend(fd),
        _ => {}
    }
}

/// The same of a child that will be started by a call that does the exec itself.
pub fn will_lend(fd: c_int) {
    match entry::get(fd) {
        Entry::Candidate(_) if life::withdraw(fd) => {}
        Entry::Candidate(_) | Entry::Conn(_) => lend(fd),
        _ => {}
    }
}

/// A program is started that may use the connection, and most do not. Nothing goes by ring any more, and as soon as no
/// call is in the kernel it is a candidate, which the kernel says who has. False: it is handed over.
fn lends(conn: &'static Conn, fd: c_int) -> bool {
    let is_alone = conn.is_own() && conn.is_sole_holder();
    let is_lent = is_alone && !conn.holding.handed.is_lent() && conn.lends(fd);
    if is_lent {
        life::renew(conn, fd, Ends::Lent);
    }
    is_lent
}

fn hand_over(conn: &'static Conn, fd: c_int, way: Way, image: &impl Fn() -> Image, until_ns: u64) {
    if way != Way::Exec && lends(conn, fd) {
        return;
    }
    // Since a fork another process has it, which goes on.
    let is_lent = way == Way::Exec && !conn.is_sole_holder() && conn.lends(fd);
    if !is_lent {
        conn.park_for_good(fd);
    }
    // Another thread may have renewed it.
    if life::withdraw(fd) {
        return;
    }
    if life::retires_drained(conn, fd) {
        return;
    }
    let Some(_pin) = conn.pin(fd) else { return };
    let image = image();
    if image == Image::Missing {
        return;
    }
    if image == Image::Library && way == Way::Exec && !is_input(conn) {
        await_others(conn, until_ns);
    }
    let is_heir = image == Image::Library && leaves(conn, fd, way);
    let handed = &conn.holding.handed;
    match way {
        // Counted here, since this process may let go before the other has begun.
        Way::Start | Way::Borrowed if is_heir => {
            conn.one_more_holds();
            handed.counted.store(1, Ordering::Relaxed);
        }
        // Most of what is inherited nobody reads, unless it is put where the program looks for it.
        Way::Start | Way::Borrowed => stays_here(conn, fd, handed.is_lent()),
        Way::Exec if is_heir => {}
        Way::Exec => {
            stays_here(conn, fd, !conn.is_sole_holder());
            handed.counted.store(-1, Ordering::Relaxed);
            if conn.lets_go() {
                tcp::reset(fd);
            }
        }
    }
}

/// What was handed on to a program whose calls go past this library: nobody reads it. The program gets a reset, not
/// a gap.
pub fn nobody_reads() {
    for fd in 0..table::end() {
        if let Entry::Conn(conn) = entry::get(fd)
            && conn.lets_go()
        {
            tcp::reset(fd);
        }
    }
}

/// A server that starts a program for each connection forks, and closes it in the parent:
/// that may come after the child's exec. A parent that keeps it costs this wait.
/// What is a residue already may be shared.
fn await_others(conn: &Conn, until_ns: u64) {
    if residue::of(conn).is_some() {
        return;
    }
    while !conn.is_sole_holder() && clock::now_ns() < until_ns {
        // SAFETY: no memory involved: a sleep of a millisecond.
        unsafe { call!(poll, 0, 0, 1) };
    }
}

/// Its residue, made if need be, and if so entered when it `is_own`. `None`: other processes
/// hold the end too, and share the ring as it is, unless it `leaves_others` without.
pub fn residue_for(
    conn: &'static Conn,
    fd: c_int,
    is_own: bool,
    leaves_others: bool,
) -> Option<c_int> {
    let (Ok(_rx), Ok(_tx)) = (conn.lock_rx(fd), conn.lock_tx(fd)) else { return None };
    // Under the locks: a second one would take what is unread away from whoever has the first.
    if let Some(number) = residue::of(conn) {
        return Some(number);
    }
    if conn.has_moved() || !leaves_others && !conn.is_sole_holder() {
        return None;
    }
    let number = residue::make(conn, fd)?;
    if is_own {
        residue::set(conn, number);
    }
    Some(number)
}

/// What is unread is read here or by nobody, and whoever else has the socket may not have the
/// library. If that one is `to_read`, it finds nothing until it is.
pub fn stays_here(conn: &'static Conn, fd: c_int, to_read: bool) {
    conn.side().rx.foreign.fetch_or(FOREIGN, Ordering::SeqCst);
    if to_read {
        let is_own = residue_for(conn, fd, !process::is_borrowed(), false).is_some();
        filter::holds_back(conn, fd, is_own);
    }
}

/// Parked for good, it is about to be read without a system call of this library's own: what TCP has before
/// what is unread in the ring goes there, too.
pub fn keeps_unread(conn: &'static Conn, fd: c_int) {
    conn.settle(fd);
    filter::lets_through(conn, fd);
    if residue_for(conn, fd, true, false).is_some() {
        filter::gathers(conn, fd);
    }
}

/// Whether it is the program's standard input, and so that program's to read, whoever else has the socket.
fn is_input(conn: &Conn) -> bool {
    conn.is_at(0)
}

/// Has the next program inherit what is unread. False: it stays here.
fn leaves(conn: &'static Conn, fd: c_int, way: Way) -> bool {
    // A child that borrows this memory has numbers of its own.
    let is_own = way != Way::Borrowed;
    let is_next_input = way == Way::Exec && is_input(conn);
    let leaves_others = is_next_input || holders::reads_alone(&conn.side().rx);
    let Some(number) = residue_for(conn, fd, is_own, leaves_others) else { return false };
    if way == Way::Start {
        conn.holding.handed.leaves();
    }
    residue::set_inherited(number, true);
    true
}

fn closes_by_exec(conn: &'static Conn, fd: c_int) {
    let Ok(_rx) = conn.lock_rx(fd) else { return };
    conn.holding.handed.counted.store(-1, Ordering::Relaxed);
    if conn.lets_go() && conn.is_unread() {
        conn.holding.handed.lingers.store(1, Ordering::Relaxed);
        conn.end_unread(fd);
    }
}

fn takes_back(conn: &'static Conn, fd: c_int) {
    let handed = &conn.holding.handed;
    if handed.lingers.swap(0, Ordering::Relaxed) != 0 {
        sys::setsockopt_bytes(fd, SOL_SOCKET, SO_LINGER, &[0; 8]);
    }
    match handed.counted.swap(0, Ordering::Relaxed) {
        1 => {
            conn.one_less_holds();
        }
        -1 => conn.holds_again(),
        _ => {}
    }
}
