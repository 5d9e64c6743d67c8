//! Socket options, flags, ioctl, shutdown, dup and close of what is in the table.
//!
//! Storey 5: calls.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{self, AtomicU32, Ordering};

use crate::conn::names::Goes;
use crate::conn::{Conn, Unlocked};
use crate::entry::{self, Entry};
use crate::life::Rest;
use crate::sys::{self, EINVAL, SOL_SOCKET, SOL_TCP, TCP_CORK, TCP_NODELAY, call};
use crate::{
    broker, elsewhere, filter, guest, handouts, handover, life, memory, process, real, recv,
    residue, set, settings, streams, table, tcp,
};

/// # Safety
/// `value` as the program passed it.
pub unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: u32,
) -> c_int {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::setsockopt(fd, level, name, value, len) };
    let entry = entry::get(fd);
    if let Entry::Guest(behind) = entry {
        // SAFETY: the program's own arguments.
        return unsafe { set_guest_option(fd, behind, (level, name), value, len) };
    }
    if !matches!(entry, Entry::Conn(_) | Entry::Candidate(_)) {
        return kernel();
    }
    // To the kernel the length is signed: it refuses the upper half.
    let has_number = (4..=i32::MAX.cast_unsigned()).contains(&len);
    let number = if has_number { memory::get(value.cast::<u32>()) } else { None };
    let mut is_kept = false;
    if let Entry::Conn(conn) = entry
        && level == SOL_TCP
        && !conn.is_plain()
        && let Some(number) = number
    {
        match name {
            TCP_NODELAY => {
                conn.settings.nodelay.store(u32::from(number != 0), Ordering::Relaxed);
                is_kept = true;
            }
            TCP_CORK => {
                cork(conn, fd, number != 0);
                is_kept = true;
            }
            _ => {}
        }
        // Where another thread gives it back to TCP, one of the two tells the kernel.
        atomic::fence(Ordering::SeqCst);
        if is_kept && !conn.is_plain() && conn.is_at(fd) {
            return 0;
        }
    }
    let ret = kernel();
    if ret == 0 && settings::is_needed_by(fd, level, name) {
        life::leave_to_others(fd);
    }
    if let Entry::Conn(conn) = entry
        && (ret, level, name) == (0, SOL_SOCKET, sys::SO_RCVLOWAT)
    {
        conn.set_low_water(fd);
    }
    if let Entry::Conn(conn) = entry
        && (ret, level, name) == (0, SOL_TCP, sys::TCP_INQ)
        && let Some(_pin) = conn.pin(fd)
    {
        conn.settings.tells_unread.store(u32::from(tcp::tells_unread(fd)), Ordering::Relaxed);
    }
    ret
}

/// On the TCP socket behind, and on the vsock connection where it matters there.
///
/// # Safety
/// `value` as the program passed it.
unsafe fn set_guest_option(
    fd: c_int,
    behind: c_int,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: u32,
) -> c_int {
    const EOPNOTSUPP: i32 = 95;
    if guest::refuses_option(level, name) {
        sys::set_errno(EOPNOTSUPP);
        return -1;
    }
    // SAFETY: the program's own arguments.
    let ret = unsafe { real::setsockopt(behind, level, name, value, len) };
    if ret == 0 && guest::shares_option(level, name) {
        // SAFETY: as above; the kernel has just taken it.
        unsafe { call!(setsockopt, fd, level, name, value, len) };
    }
    ret
}

/// # Safety
/// `value` and `len` as the program passed them.
unsafe fn get_guest_option(
    fd: c_int,
    behind: c_int,
    (level, name): (c_int, c_int),
    value: *mut c_void,
    len: *mut u32,
) -> c_int {
    const EOPNOTSUPP: i32 = 95;
    const SO_ERROR: c_int = 4;
    if guest::refuses_option(level, name) && name != sys::TCP_ULP {
        sys::set_errno(EOPNOTSUPP);
        return -1;
    }
    let own = level == SOL_SOCKET && name == SO_ERROR && sys::poll_now(fd, 0) & sys::POLLERR != 0;
    // SAFETY: the program's own arguments.
    unsafe { real::getsockopt(if own { fd } else { behind }, level, name, value, len) }
}

/// The kernel hears of a cork only when something goes by TCP under it.
fn cork(conn: &'static Conn, fd: c_int, on: bool) {
    conn.settings.cork.store(u32::from(on), Ordering::Relaxed);
    let Ok(_tx) = conn.lock_tx(fd) else { return };
    if !on && conn.settings.kernel_corked.swap(0, Ordering::Relaxed) != 0 {
        sys::setsockopt_bytes(fd, SOL_TCP, TCP_CORK, &0u32.to_ne_bytes());
    }
}

/// # Safety
/// `value` and `len` as the program passed them.
pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut u32,
) -> c_int {
    if let Entry::Guest(behind) = entry::get(fd) {
        // SAFETY: the program's own arguments.
        return unsafe { get_guest_option(fd, behind, (level, name), value, len) };
    }
    if level == SOL_TCP
        && name == sys::TCP_ZEROCOPY_RECEIVE
        && let Entry::Conn(conn) = entry::get(fd)
    {
        conn.park_rx_for_good(fd);
        // SAFETY: the program's own arguments.
        if unsafe { skip_ring(conn, fd, value, len) } {
            return 0;
        }
    }
    // SAFETY: the program's own arguments.
    let ret = unsafe { real::getsockopt(fd, level, name, value, len) };
    if ret != 0 {
        return ret;
    }
    if (level, name) == (SOL_TCP, sys::TCP_INFO)
        && let Entry::Conn(conn) = entry::get(fd)
    {
        // SAFETY: the kernel just wrote `len` bytes there.
        unsafe { count_ring_bytes(conn, fd, value.cast(), (*len) as usize) };
    }
    if let Some(own) = own_setting(fd, level, name) {
        // SAFETY: the kernel just wrote up to 4 bytes there.
        unsafe {
            let bytes = own.to_ne_bytes();
            let len = (*len as usize).min(4);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), len);
        }
    }
    ret
}

/// Adds to the kernel's struct tcp_info what went by ring. What lies there is sent, acknowledged
/// and received: no segment of it is on its way.
///
/// # Safety
/// `info` is writable for `len` bytes.
unsafe fn count_ring_bytes(conn: &'static Conn, fd: c_int, info: *mut u8, len: usize) {
    let Some((read, unread)) = recv::ring_counts(conn, fd) else { return };
    let Some(_pin) = conn.pin(fd) else { return };
    let sent = conn.side().tx.ring_bytes.get();
    let received = read.wrapping_add(u64::from(unread));
    for (at, more) in
        [(tcp::BYTES_ACKED, sent), (tcp::BYTES_SENT, sent), (tcp::BYTES_RECEIVED, received)]
    {
        if at + size_of::<u64>() <= len {
            // SAFETY: inside what the kernel wrote.
            unsafe {
                let counter = info.add(at).cast::<u64>();
                counter.write_unaligned(counter.read_unaligned().wrapping_add(more));
            }
        }
    }
}

/// What the program has set, where the kernel has something else.
fn own_setting(fd: c_int, level: c_int, name: c_int) -> Option<u32> {
    let is_one = [(SOL_TCP, TCP_NODELAY), (SOL_TCP, TCP_CORK), (SOL_SOCKET, sys::SO_RCVLOWAT)];
    if !is_one.contains(&(level, name)) {
        return None;
    }
    let conn = entry::conn_of(fd)?;
    let load = |own: &AtomicU32| own.load(Ordering::Relaxed);
    match name {
        sys::SO_RCVLOWAT => Some(load(&conn.settings.low_water)).filter(|bytes| *bytes != 0),
        _ if conn.is_plain() => None,
        TCP_NODELAY => Some(load(&conn.settings.nodelay)),
        _ => Some(load(&conn.settings.cork)),
    }
}

/// TCP_ZEROCOPY_RECEIVE maps what came by TCP. What comes before that has to be read, as the
/// kernel itself says of bytes that it cannot map. False: nothing comes before.
///
/// # Safety
/// `value` and `len` as the program passed them to getsockopt.
unsafe fn skip_ring(conn: &'static Conn, fd: c_int, value: *mut c_void, len: *mut u32) -> bool {
    /// Words of struct tcp_zerocopy_receive: the address takes two.
    const LENGTH: usize = 2;
    const RECV_SKIP_HINT: usize = 3;
    const INQ: usize = 4;
    const ERR: usize = 5;
    let skip = recv::before_tcp(conn, fd);
    let len = memory::get(len).unwrap_or(0);
    let words = value.cast::<u32>();
    if skip == 0 || len < 16 || !memory::is_writable(words, 6.min(len as usize / 4)) {
        return false;
    }
    let unread = sys::int_ioctl(fd, sys::FIONREAD).saturating_add(recv::ring_unread(conn, fd));
    // SAFETY: the program vouches for `len` bytes, at least 16.
    unsafe {
        words.add(LENGTH).write_unaligned(0);
        words.add(RECV_SKIP_HINT).write_unaligned(skip);
        if len >= 20 {
            words.add(INQ).write_unaligned(unread as u32);
        }
        if len >= 24 {
            words.add(ERR).write_unaligned(0);
        }
    }
    true
}

/// # Safety
/// `arg` as the program passed it.
pub unsafe fn ioctl(fd: c_int, request: usize, arg: usize) -> c_int {
    if let Entry::Guest(behind) = entry::get(fd) {
        match request & 0xffff_ffff {
            sys::FIONREAD if memory::is_writable(arg as *mut c_int, 1) => {
                // SAFETY: the program's own variable.
                unsafe { (arg as *mut c_int).write_unaligned(guest::unread(fd)) };
                return 0;
            }
            sys::SIOCATMARK | sys::SIOCOUTQ => {
                // SAFETY: the program's own arguments.
                return unsafe { real::ioctl(behind, request, arg) };
            }
            _ => {}
        }
    }
    // SAFETY: the program's own arguments.
    let ret = unsafe { real::ioctl(fd, request, arg) };
    // The kernel takes 32 bits of the request.
    let request = request & 0xffff_ffff;
    // SIOCOUTQ counts what the peer's kernel has not got: what lies in a ring is there.
    let concerns = [sys::FIONREAD, sys::FIONBIO, sys::SIOCATMARK, settings::FIOASYNC];
    if ret != 0 || !concerns.contains(&request) {
        return ret;
    }
    let value = arg as *mut c_int;
    let conn = match entry::get(fd) {
        Entry::Conn(conn) => Some(conn),
        Entry::Candidate(_) => None,
        _ => return ret,
    };
    let _pin = match conn.map(|conn| conn.pin(fd)) {
        Some(None) => return ret,
        pin => pin,
    };
    // SAFETY: the kernel just read or wrote an int there.
    let number = unsafe { value.read_unaligned() };
    let told = match (request, conn) {
        (settings::FIOASYNC, _) => {
            if number != 0 {
                life::leave_to_others(fd);
            }
            return ret;
        }
        (sys::FIONBIO, Some(conn)) => {
            conn.set_nonblocking(number != 0);
            return ret;
        }
        (sys::FIONREAD, Some(conn)) => {
            // It may ask again until there are as many as it needs.
            filter::lets_through(conn, fd);
            number.saturating_add(recv::ring_unread(conn, fd))
        }
        // What lies in the ring stands before the mark.
        (sys::SIOCATMARK, Some(conn)) if number != 0 => {
            c_int::from(recv::before_tcp(conn, fd) == 0)
        }
        _ => return ret,
    };
    // SAFETY: the kernel just wrote an int there.
    unsafe { value.write_unaligned(told) };
    ret
}

/// What the program is to be told of unread bytes with what it receives, if it asked for that.
pub fn told_unread(conn: &'static Conn, fd: c_int) -> Option<c_int> {
    // Of processes that share it each may set it.
    let is_told = if conn.is_shared() && !process::is_sandboxed() {
        tcp::tells_unread(fd)
    } else {
        conn.settings.tells_unread.load(Ordering::Relaxed) != 0
    };
    is_told.then(|| recv::inquiry(conn, fd))
}

/// # Safety
/// `arg` as the program passed it.
pub unsafe fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    if matches!(entry::get(fd), Entry::Own) {
        sys::set_errno(sys::EBADF);
        return -1;
    }
    // SAFETY: the program's own arguments.
    let ret = unsafe { real::fcntl(fd, cmd, arg) };
    if ret < 0 {
        return ret;
    }
    match cmd {
        sys::F_DUPFD | sys::F_DUPFD_CLOEXEC => duplicated(fd, ret),
        sys::F_SETFL => {
            if let Entry::Conn(conn) = entry::get(fd)
                && let Some(_pin) = conn.pin(fd)
            {
                conn.set_nonblocking(arg & sys::O_NONBLOCK as usize != 0);
            }
            if settings::is_needed_by_flags(arg) {
                life::leave_to_others(fd);
            }
        }
        _ => {}
    }
    ret
}

/// `to` names what `from` names.
pub fn duplicated(from: c_int, to: c_int) {
    if process::is_borrowed() {
        return handover::lend(from);
    }
    renumbered(to);
    match entry::get(from) {
        Entry::Conn(conn) => {
            match conn.lock_rx(from) {
                Ok(_rx) => {
                    entry::name(conn, to);
                    // Which descriptor a set knows it by is no longer one question.
                    conn.park_rx(&conn.receiver());
                }
                // Another thread renewed it, or closed it.
                Err(Unlocked::Gone) => return duplicated(from, to),
                Err(Unlocked::Reentered) => entry::name(conn, to),
            }
            if streams::hides(to) {
                conn.park_tx_for_good(to);
                if to == 0 {
                    leave_to_stream(to);
                }
            }
        }
        Entry::Candidate(_) if !life::duplicated(from, to) => duplicated(from, to),
        Entry::Set(set) => set::numbers::named(set, to),
        Entry::Fresh => table::clear(from),
        Entry::Guest(behind) => table::name_guest(from, to, behind),
        _ => {}
    }
}

/// `to` is new here, and may be a copy of a socket that this process has.
pub fn copied(to: c_int) {
    renumbered(to);
    let saved = sys::errno();
    if let Some(own) = tcp::cookie(to) {
        let is_same = |fd: &c_int| {
            *fd != to
                && matches!(entry::get(*fd), Entry::Conn(_) | Entry::Candidate(_))
                && tcp::cookie(*fd) == Some(own)
        };
        if let Some(from) = (0..table::end()).find(is_same) {
            duplicated(from, to);
        }
    }
    sys::set_errno(saved);
}

/// A stream of libc's reads `fd` unseen (`streams`): TCP from now on. It would read on behind what is unread in a ring.
pub fn leave_to_stream(fd: c_int) {
    life::leave_to_others(fd);
    if let Entry::Conn(conn) = entry::get(fd)
        && !life::retires_drained(conn, fd)
    {
        tcp::reset(fd);
    }
}

/// The kernel gave `fd` to something new: whatever the table has there is stale, closed in a
/// way that this library did not see.
pub fn renumbered(fd: c_int) {
    if table::raw(fd) != 0 && !process::is_borrowed() {
        drop(forget(fd, Goes::Unseen));
    }
}

/// The program is about to close `fd`: bookkeeping only. What is left to do can be done behind that.
fn forget(fd: c_int, goes: Goes) -> Option<Rest> {
    let mut rest = None;
    match entry::get(fd) {
        Entry::Conn(conn) => rest = life::unname(conn, fd, goes),
        Entry::Set(set) => set::numbers::unnamed(set, fd),
        Entry::Candidate(_) if !life::number_closes(fd) => return forget(fd, goes),
        Entry::Own => {
            broker::abandon(fd);
            residue::abandon(fd);
            handouts::abandon(fd);
            guest::abandon(fd);
        }
        Entry::Fresh => table::clear(fd),
        Entry::Guest(behind) => guest::unname(fd, behind),
        Entry::Candidate(_) | Entry::Nothing => {}
        // Who made it leave has yet to say what the number names next.
        Entry::Leaving => {}
    }
    set::numbers::number_closed(fd);
    rest
}

/// # Safety
/// As libc's close.
pub unsafe fn close(fd: c_int) -> c_int {
    // SAFETY: the program's own argument.
    close_by(fd, || unsafe { real::close(fd) })
}

/// By `kernel`.
pub fn close_by(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if matches!(entry::get(fd), Entry::Own) {
        // The program closes what it never opened, as daemons do in a loop.
        sys::set_errno(sys::EBADF);
        return -1;
    }
    let is_stream = matches!(entry::get(fd), Entry::Conn(_) | Entry::Candidate(_));
    let rest = goes(fd, Goes::Closed);
    let ret = kernel();
    if is_stream {
        table::has_left(fd);
        elsewhere::note_step();
    }
    drop(rest);
    ret
}

/// The program is about to close `fd`, which it opened, by a call of libc's that ends unseen.
pub fn closes(fd: c_int) {
    drop(goes(fd, Goes::Unseen));
}

fn goes(fd: c_int, goes: Goes) -> Option<Rest> {
    match entry::get(fd) {
        Entry::Nothing => set::numbers::number_closed(fd),
        Entry::Own => {}
        _ => {
            process::refresh();
            if !process::is_borrowed() {
                return forget(fd, goes);
            }
        }
    }
    None
}

/// # Safety
/// As libc's close_range.
pub unsafe fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    const CLOSE_RANGE_UNSHARE: c_int = 2;
    const CLOSE_RANGE_CLOEXEC: c_int = 4;
    if flags & CLOSE_RANGE_UNSHARE != 0 && handover::unshares() {
        // What goes is this thread's own from now on.
        // SAFETY: the program's own arguments.
        return unsafe { real::close_range(first, last, flags) };
    }
    if flags & CLOSE_RANGE_CLOEXEC != 0 || first > last || process::is_borrowed() {
        // SAFETY: the program's own arguments.
        return unsafe { real::close_range(first, last, flags) };
    }
    process::refresh();
    let mut from = first;
    let mut ret = 0;
    let end = (table::end() as u32).min(last.saturating_add(1));
    for fd in first..end.max(first) {
        match entry::get(fd as c_int) {
            Entry::Own => {
                if fd > from {
                    // SAFETY: part of the program's range.
                    ret |= unsafe { real::close_range(from, fd - 1, flags) };
                }
                from = fd + 1;
            }
            Entry::Nothing => set::numbers::number_closed(fd as c_int),
            _ => drop(forget(fd as c_int, Goes::Unseen)),
        }
    }
    if from <= last {
        // SAFETY: the rest of the program's range.
        ret |= unsafe { real::close_range(from, last, flags) };
    }
    ret
}

/// # Safety
/// As libc's dup2 and dup3 (`flags`: of dup3; `None` for dup2).
pub unsafe fn dup_onto(from: c_int, to: c_int, flags: Option<c_int>) -> c_int {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe {
        flags.map_or_else(|| real::dup2(from, to), |flags| real::dup3(from, to, flags))
    };
    if matches!(entry::get(from), Entry::Own) {
        sys::set_errno(sys::EBADF);
        return -1;
    }
    if process::is_sandboxed() {
        let ret = kernel();
        if ret >= 0 && from != to {
            duplicated(from, to);
        }
        return ret;
    }
    // SAFETY: no memory involved.
    let is_open = unsafe { call!(fcntl, from, sys::F_GETFD) } >= 0;
    let concerns = table::raw(from) != 0 || table::raw(to) != 0;
    if from == to || !is_open || !concerns || process::is_borrowed() {
        if from != to && is_open {
            set::numbers::number_closed(to);
        }
        let ret = kernel();
        if ret >= 0 && process::is_borrowed() {
            handover::lend(from);
        }
        return ret;
    }
    if flags.is_some_and(|flags| flags & !0o2000000 != 0) {
        sys::set_errno(EINVAL);
        return -1;
    }
    let rest = forget(to, Goes::Replaced);
    // What is done by this number from here on is done on the other socket, as it is known here.
    table::set_leaving(to);
    let ret = kernel();
    if ret >= 0 {
        duplicated(from, to);
    }
    table::has_left(to);
    drop(rest);
    ret
}

/// # Safety
/// As libc's shutdown.
pub unsafe fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Entry::Conn(conn) = entry::get(fd) {
        if how == 0 || how == 2 {
            conn.park_rx_for_good(fd);
        }
        if how == 1 || how == 2 {
            conn.park_tx_for_good(fd);
        }
    }
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::shutdown(fd, how) };
    let ret = match entry::get(fd) {
        Entry::Guest(behind) => guest::shutdown(behind, how, kernel),
        _ => kernel(),
    };
    elsewhere::note_step();
    ret
}
