//! The entries that stand in front of libc's.
//!
//! Each looks its descriptor up and takes one of three ways: nothing there, libc; a candidate,
//! libc and a count; a connection with a channel, `recv`, `send`, `poll` or `set`.

use core::ffi::{c_int, c_void};

use crate::conn::Conn;
use crate::iov::{self, Buffers};
use crate::poll::Poll;
use crate::select::Sets;
use crate::send::Source;
use crate::set::{self, Wait};
use crate::sys::{
    self, EpollEvent, IoVec, MMsgHdr, MSG_DONTWAIT, MsgHdr, PollFd, Ret, TimeSpec, call,
};
use crate::table::{self, Candidate, Entry};
use crate::timeout::Timeout;
use crate::{clock, options, process, promote, real, recv, send};

/// Runs `kernel` on a candidate and counts it.
#[inline]
fn counted(fd: c_int, kernel: impl FnOnce() -> isize) -> isize {
    if !table::enter(fd) {
        return kernel();
    }
    let ret = kernel();
    if let Some(candidate) = table::leave(fd, ret.max(0) as usize, ret > 0) {
        promote::after_call(fd, candidate);
    }
    ret
}

/// The three ways of a receive.
#[inline]
fn receive(
    fd: c_int,
    to: Option<Buffers<'_>>,
    flags: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    match table::get(fd) {
        Entry::Conn(conn) => {
            process::refresh();
            match to.and_then(|to| recv::recv(conn, fd, to, flags)) {
                Some(ret) => sys::returned(ret),
                None => kernel(),
            }
        }
        Entry::Candidate(_) => counted(fd, kernel),
        _ => kernel(),
    }
}

/// The three ways of a send.
#[inline]
fn transmit(
    fd: c_int,
    from: Option<Buffers<'_>>,
    flags: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    match table::get(fd) {
        Entry::Conn(conn) => {
            process::refresh();
            match from.and_then(|from| send::send(conn, fd, Source::Buffers(from), flags)) {
                Some(ret) => sys::returned(ret),
                None => kernel(),
            }
        }
        Entry::Candidate(_) => counted(fd, kernel),
        _ => kernel(),
    }
}

fn piece(base: *const u8, len: usize) -> IoVec {
    IoVec { base: base.cast_mut(), len }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buf: *mut u8, len: usize) -> isize {
    let one = piece(buf, len);
    // SAFETY: the program's own arguments.
    receive(fd, Some(Buffers::one(&one)), 0, || unsafe { real::read(fd, buf, len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, buf: *mut u8, len: usize, size: usize) -> isize {
    check(len, size);
    // SAFETY: the program's own arguments.
    unsafe { read(fd, buf, len) }
}

/// What _FORTIFY_SOURCE wants: a length past the buffer ends the program.
fn check(len: usize, size: usize) {
    if len > size {
        sys::abort();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buf: *const u8, len: usize) -> isize {
    let one = piece(buf, len);
    // SAFETY: the program's own arguments.
    transmit(fd, Some(Buffers::one(&one)), 0, || unsafe { real::write(fd, buf, len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, buf: *mut u8, len: usize, flags: c_int) -> isize {
    let one = piece(buf, len);
    // SAFETY: the program's own arguments.
    receive(fd, Some(Buffers::one(&one)), flags, || unsafe { real::recv(fd, buf, len, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buf: *mut u8,
    len: usize,
    size: usize,
    flags: c_int,
) -> isize {
    check(len, size);
    // SAFETY: the program's own arguments.
    unsafe { recv(fd, buf, len, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, buf: *const u8, len: usize, flags: c_int) -> isize {
    let one = piece(buf, len);
    // SAFETY: the program's own arguments.
    transmit(fd, Some(Buffers::one(&one)), flags, || unsafe { real::send(fd, buf, len, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    buf: *mut u8,
    len: usize,
    flags: c_int,
    addr: *mut c_void,
    addrlen: *mut u32,
) -> isize {
    let one = piece(buf, len);
    let mut asked_kernel = false;
    let ret = receive(fd, Some(Buffers::one(&one)), flags, || {
        asked_kernel = true;
        // SAFETY: the program's own arguments.
        unsafe { real::recvfrom(fd, buf, len, flags, addr, addrlen) }
    });
    if ret >= 0 && !asked_kernel && !addr.is_null() && !addrlen.is_null() {
        // TCP gives no address here.
        // SAFETY: the program's own variable.
        unsafe { *addrlen = 0 };
    }
    ret
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut u8,
    len: usize,
    size: usize,
    flags: c_int,
    addr: *mut c_void,
    addrlen: *mut u32,
) -> isize {
    check(len, size);
    // SAFETY: the program's own arguments.
    unsafe { recvfrom(fd, buf, len, flags, addr, addrlen) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    buf: *const u8,
    len: usize,
    flags: c_int,
    addr: *const c_void,
    addrlen: u32,
) -> isize {
    let one = piece(buf, len);
    // An address on a connected TCP socket is ignored by the kernel too.
    transmit(fd, Some(Buffers::one(&one)), flags, || {
        // SAFETY: the program's own arguments.
        unsafe { real::sendto(fd, buf, len, flags, addr, addrlen) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, pieces: *const IoVec, count: c_int) -> isize {
    // SAFETY: the program's own arguments.
    let to = unsafe { iov::count(count).and_then(|count| Buffers::many(pieces, count)) };
    // SAFETY: as above.
    receive(fd, to, 0, || unsafe { real::readv(fd, pieces, count) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, pieces: *const IoVec, count: c_int) -> isize {
    if table::raw(fd) == 0 {
        // SAFETY: the program's own arguments.
        return unsafe { real::writev(fd, pieces, count) };
    }
    // SAFETY: the program's own arguments.
    let from = unsafe { iov::count(count).and_then(|count| Buffers::many(pieces, count)) };
    // SAFETY: as above.
    transmit(fd, from, 0, || unsafe { real::writev(fd, pieces, count) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn preadv2(
    fd: c_int,
    pieces: *const IoVec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    options::leave_to_others(fd);
    // SAFETY: the program's own arguments.
    unsafe { real::preadv2(fd, pieces, count, offset, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev2(
    fd: c_int,
    pieces: *const IoVec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    options::leave_to_others(fd);
    // SAFETY: the program's own arguments.
    unsafe { real::pwritev2(fd, pieces, count, offset, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut MsgHdr, flags: c_int) -> isize {
    if table::raw(fd) == 0 || msg.is_null() {
        // SAFETY: the program's own arguments.
        return unsafe { real::recvmsg(fd, msg, flags) };
    }
    // SAFETY: the program's own message.
    let to = unsafe { Buffers::many((*msg).iov, (*msg).iovlen) };
    let mut asked_kernel = false;
    let ret = receive(fd, to, flags, || {
        asked_kernel = true;
        // SAFETY: the program's own arguments.
        unsafe { real::recvmsg(fd, msg, flags) }
    });
    if ret >= 0 && !asked_kernel {
        // SAFETY: the program's own message; TCP gives neither name nor control data.
        unsafe {
            (*msg).namelen = 0;
            (*msg).controllen = 0;
            (*msg).flags = 0;
        }
    }
    ret
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, msg: *const MsgHdr, flags: c_int) -> isize {
    if msg.is_null() {
        // SAFETY: the program's own arguments.
        return unsafe { real::sendmsg(fd, msg, flags) };
    }
    // SAFETY: the program's own message.
    let (has_control, from) = unsafe {
        let has_control = !(*msg).control.is_null() && (*msg).controllen > 0;
        if has_control {
            passes_descriptors(&*msg);
        }
        (has_control, Buffers::many((*msg).iov, (*msg).iovlen))
    };
    if has_control && let Entry::Conn(conn) = table::get(fd) {
        conn.park_tx_for_good(fd);
    }
    // SAFETY: the program's own arguments.
    transmit(fd, from, flags, || unsafe { real::sendmsg(fd, msg, flags) })
}

/// Descriptors that another process gets: it knows nothing of their rings.
///
/// # Safety
/// The message's control data as the program passed it.
unsafe fn passes_descriptors(msg: &MsgHdr) {
    let (base, len) = (msg.control.cast::<u8>(), msg.controllen);
    let mut at = 0;
    while at + 16 <= len {
        // SAFETY: inside the control data.
        let (size, level, kind) = unsafe {
            let head = base.add(at);
            (
                head.cast::<usize>().read_unaligned(),
                head.add(8).cast::<c_int>().read_unaligned(),
                head.add(12).cast::<c_int>().read_unaligned(),
            )
        };
        if size < 16 || size > len - at {
            return;
        }
        if level == sys::SOL_SOCKET && kind == 1 {
            for i in 0..(size - 16) / 4 {
                // SAFETY: inside this control message.
                let fd = unsafe { base.add(at + 16).cast::<c_int>().add(i).read_unaligned() };
                options::leave_to_others(fd);
            }
        }
        at += (size + 7) & !7;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    fd: c_int,
    msgs: *mut MMsgHdr,
    count: u32,
    flags: c_int,
    timeout: *mut TimeSpec,
) -> c_int {
    if !matches!(table::get(fd), Entry::Conn(_)) {
        // SAFETY: the program's own arguments.
        return counted_if_candidate(fd, || unsafe {
            real::recvmmsg(fd, msgs, count, flags, timeout) as isize
        }) as c_int;
    }
    // SAFETY: the program's own arguments.
    let limit = if timeout.is_null() { None } else { unsafe { Timeout::from_timespec(timeout) } };
    let start_ns = clock::now_ns();
    let mut flags = flags;
    for i in 0..count.min(iov::PIECES_MAX as u32) {
        // SAFETY: the program's array of `count`.
        let ret = unsafe {
            let one = &raw mut (*msgs.add(i as usize));
            let ret = recvmsg(fd, &raw mut (*one).hdr, flags & !sys::MSG_WAITFORONE);
            if ret >= 0 {
                (*one).len = ret as u32;
            }
            ret
        };
        if ret < 0 {
            return if i > 0 { i as c_int } else { -1 };
        }
        if flags & sys::MSG_WAITFORONE != 0 {
            flags |= MSG_DONTWAIT;
        }
        if limit.is_some_and(|limit| limit.ns > 0 && limit.less(start_ns).ns == 0) {
            return i as c_int + 1;
        }
    }
    count as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(fd: c_int, msgs: *mut MMsgHdr, count: u32, flags: c_int) -> c_int {
    if !matches!(table::get(fd), Entry::Conn(_)) {
        // SAFETY: the program's own arguments.
        return counted_if_candidate(fd, || unsafe {
            real::sendmmsg(fd, msgs, count, flags) as isize
        }) as c_int;
    }
    let count = count.min(iov::PIECES_MAX as u32);
    for i in 0..count {
        // SAFETY: the program's array of `count`.
        unsafe {
            let one = &raw mut (*msgs.add(i as usize));
            let ret = sendmsg(fd, &raw const (*one).hdr, flags);
            if ret < 0 {
                return if i > 0 { i as c_int } else { -1 };
            }
            (*one).len = ret as u32;
            // A message that was cut short is the last one.
            let whole = Buffers::many((*one).hdr.iov, (*one).hdr.iovlen);
            if whole.is_none_or(|whole| whole.len_bytes > ret as usize) {
                return i as c_int + 1;
            }
        }
    }
    count as c_int
}

fn counted_if_candidate(fd: c_int, kernel: impl FnOnce() -> isize) -> isize {
    if matches!(table::get(fd), Entry::Candidate(_)) { counted(fd, kernel) } else { kernel() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::sendfile(out, from, offset, count) };
    let conn = match table::get(out) {
        Entry::Conn(conn) => conn,
        Entry::Candidate(_) => return counted(out, kernel),
        _ => return kernel(),
    };
    process::refresh();
    let start = if offset.is_null() {
        // SAFETY: no memory involved.
        unsafe { call!(lseek, from, 0, 1) as i64 }
    } else {
        // SAFETY: the program's own variable.
        unsafe { *offset }
    };
    // SAFETY: no memory involved.
    if start < 0 || table::raw(from) != 0 || unsafe { call!(lseek, from, 0, 1) } < 0 {
        // Not a file with positions.
        conn.park_tx_for_good(out);
        return kernel();
    }
    let source = Source::File { fd: from, offset: start, len_bytes: count.min(0x7fff_f000) };
    let Some(ret) = send::send(conn, out, source, 0) else { return kernel() };
    if ret > 0 {
        // SAFETY: the program's own variable, or no memory involved.
        unsafe {
            if offset.is_null() {
                call!(lseek, from, start + ret as i64, 0);
            } else {
                *offset = start + ret as i64;
            }
        }
    }
    sys::returned(ret)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize {
    // SAFETY: the program's own arguments.
    unsafe { sendfile(out, from, offset, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    off_in: *mut i64,
    to: c_int,
    off_out: *mut i64,
    len: usize,
    flags: u32,
) -> isize {
    if let Entry::Conn(conn) = table::get(to) {
        conn.park_tx_for_good(to);
    }
    if let Entry::Conn(conn) = table::get(from) {
        conn.park_rx_for_good(from);
        if let Some(ret) = splice_ring(conn, from, to, len) {
            return sys::returned(ret);
        }
    }
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::splice(from, off_in, to, off_out, len, flags) };
    if matches!(table::get(from), Entry::Candidate(_)) {
        return counted(from, kernel);
    }
    counted_if_candidate(to, kernel)
}

/// What is unread in the ring goes into the pipe before anything that splice takes from TCP.
fn splice_ring(conn: &'static Conn, fd: c_int, pipe: c_int, len: usize) -> Option<Ret> {
    let mut bytes = [0u8; 4096];
    let one = IoVec { base: bytes.as_mut_ptr(), len: len.min(bytes.len()) };
    let unread = {
        let _rx = conn.lock_rx(fd).ok()?;
        conn.receiver().unread_bytes() as usize
    };
    if unread == 0 {
        return None;
    }
    let to = Buffers::one(&one);
    let seen = recv::recv(conn, fd, to, sys::MSG_PEEK | MSG_DONTWAIT)?.min(unread as Ret);
    if seen <= 0 {
        return None;
    }
    // SAFETY: bytes of ours.
    let written = unsafe { call!(write, pipe, bytes.as_ptr(), seen) };
    if written > 0 {
        let one = IoVec { base: bytes.as_mut_ptr(), len: written as usize };
        recv::recv(conn, fd, Buffers::one(&one), MSG_DONTWAIT);
    }
    Some(written)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut PollFd, count: u64, timeout: c_int) -> c_int {
    if fds.is_null() || count == 0 || count > table::CAPACITY as u64 {
        // SAFETY: the program's own arguments.
        return unsafe { real::poll(fds, count, timeout) };
    }
    // SAFETY: the program's own array.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds, count as usize) };
    process::refresh();
    let timeout = Timeout::from_ms(timeout);
    Poll { fds, timeout, mask: core::ptr::null(), precise: false }.wait()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    fds: *mut PollFd,
    count: u64,
    timeout: c_int,
    size: usize,
) -> c_int {
    check(count as usize * size_of::<PollFd>(), size);
    // SAFETY: the program's own arguments.
    unsafe { poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut PollFd,
    count: u64,
    timeout: *const TimeSpec,
    mask: *const c_void,
) -> c_int {
    // SAFETY: the program's own arguments.
    let limit = unsafe { Timeout::from_timespec(timeout) };
    let (Some(timeout), false, 1..=0xf_ffff) = (limit, fds.is_null(), count) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::ppoll(fds, count, timeout, mask) };
    };
    // SAFETY: the program's own array.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds, count as usize) };
    process::refresh();
    Poll { fds, timeout, mask, precise: true }.wait()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut PollFd,
    count: u64,
    timeout: *const TimeSpec,
    mask: *const c_void,
    size: usize,
) -> c_int {
    check(count as usize * size_of::<PollFd>(), size);
    // SAFETY: the program's own arguments.
    unsafe { ppoll(fds, count, timeout, mask) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut u64,
    write: *mut u64,
    except: *mut u64,
    timeout: *mut TimeSpec,
) -> c_int {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::select(count, read, write, except, timeout) };
    let sets = Sets { count, read, write, except };
    if count <= 0 || !sets.concerns() {
        return kernel();
    }
    // A timeval: microseconds, which libc accepts unnormalised.
    let limit = if timeout.is_null() {
        Timeout { ns: -1 }
    } else {
        // SAFETY: the program's own variable.
        let time = unsafe { *timeout };
        if time.sec < 0 || time.nsec < 0 {
            return kernel();
        }
        Timeout {
            ns: time
                .sec
                .saturating_mul(1_000_000_000)
                .saturating_add(time.nsec.saturating_mul(1000)),
        }
    };
    process::refresh();
    let start_ns = clock::now_ns();
    let Some(ret) = sets.wait(limit, core::ptr::null()) else { return kernel() };
    if !timeout.is_null() {
        let left = limit.less(start_ns).timespec();
        // SAFETY: the program's own variable; Linux leaves what is left there.
        unsafe { *timeout = TimeSpec { sec: left.sec, nsec: left.nsec / 1000 } };
    }
    ret
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut u64,
    write: *mut u64,
    except: *mut u64,
    timeout: *const TimeSpec,
    mask: *const c_void,
) -> c_int {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::pselect(count, read, write, except, timeout, mask) };
    let sets = Sets { count, read, write, except };
    // SAFETY: as above.
    let Some(limit) = (unsafe { Timeout::from_timespec(timeout) }) else { return kernel() };
    if count <= 0 || !sets.concerns() {
        return kernel();
    }
    process::refresh();
    sets.wait(limit, mask).unwrap_or_else(kernel)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: no memory involved.
    made_set(unsafe { real::epoll_create(size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: no memory involved.
    made_set(unsafe { real::epoll_create1(flags) })
}

fn made_set(fd: c_int) -> c_int {
    if fd >= 0 {
        options::renumbered(fd);
        if !process::is_borrowed() {
            set::created(fd);
        }
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    set_fd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut EpollEvent,
) -> c_int {
    match table::get(set_fd) {
        Entry::Set(set) => {
            process::refresh();
            // SAFETY: the program's own arguments.
            unsafe { set.ctl(set_fd, op, fd, event) }
        }
        _ => {
            // A set that this library does not know watches it.
            if op == 1 {
                options::leave_to_others(fd);
                set::watched_from_outside(fd);
            }
            // SAFETY: the program's own arguments.
            unsafe { real::epoll_ctl(set_fd, op, fd, event) }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    fd: c_int,
    events: *mut EpollEvent,
    max: c_int,
    timeout: c_int,
) -> c_int {
    let Entry::Set(set) = table::get(fd) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::epoll_wait(fd, events, max, timeout) };
    };
    process::refresh();
    let timeout = Timeout::from_ms(timeout);
    set.wait(&Wait { fd, events, max, timeout, mask: core::ptr::null(), precise: false })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    fd: c_int,
    events: *mut EpollEvent,
    max: c_int,
    timeout: c_int,
    mask: *const c_void,
) -> c_int {
    let Entry::Set(set) = table::get(fd) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::epoll_pwait(fd, events, max, timeout, mask) };
    };
    process::refresh();
    set.wait(&Wait { fd, events, max, timeout: Timeout::from_ms(timeout), mask, precise: false })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    fd: c_int,
    events: *mut EpollEvent,
    max: c_int,
    timeout: *const TimeSpec,
    mask: *const c_void,
) -> c_int {
    // SAFETY: the program's own arguments.
    let limit = unsafe { Timeout::from_timespec(timeout) };
    let (Entry::Set(set), Some(limit)) = (table::get(fd), limit) else {
        // SAFETY: the program's own arguments.
        return unsafe { real::epoll_pwait2(fd, events, max, timeout, mask) };
    };
    process::refresh();
    set.wait(&Wait { fd, events, max, timeout: limit, mask, precise: true })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::shutdown(fd, how) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::close(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::close_range(first, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the program's own arguments.
    unsafe { options::close_range(first.max(0) as u32, u32::MAX, 0) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if matches!(table::get(fd), Entry::Broker) {
        sys::set_errno(sys::EBADF);
        return -1;
    }
    // SAFETY: no memory involved.
    let ret = unsafe { real::dup(fd) };
    if ret >= 0 {
        options::duplicated(fd, ret);
    }
    ret
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::dup_onto(from, to, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::dup_onto(from, to, Some(flags)) }
}

// Variadic in C; on x86-64 an int or pointer argument arrives in the same register.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::fcntl(fd, cmd, arg) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, cmd: c_int, arg: usize) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::fcntl(fd, cmd, arg) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: usize, arg: usize) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::ioctl(fd, request, arg) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: u32,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::setsockopt(fd, level, name, value, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut u32,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { options::getsockopt(fd, level, name, value, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: no memory involved.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd >= 0 {
        options::renumbered(fd);
        set::descriptor_closed(fd);
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, addr: *const c_void, len: u32) -> c_int {
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    const EINPROGRESS: i32 = 115;
    let family = if addr.is_null() || len < 2 {
        0
    } else {
        // SAFETY: the program's own address.
        unsafe { addr.cast::<u16>().read_unaligned() }
    };
    if let (Entry::Conn(conn), 0) = (table::get(fd), family) {
        // AF_UNSPEC dissolves the association.
        conn.unname(fd);
    }
    // SAFETY: the program's own arguments.
    let ret = unsafe { real::connect(fd, addr, len) };
    let begun = ret == 0 || sys::errno() == EINPROGRESS;
    if begun && matches!(family, AF_INET | AF_INET6) && table::raw(fd) == 0 {
        process::refresh();
        if !process::is_borrowed() {
            table::set_candidate(fd, Candidate::new(false));
            if ret == 0 {
                promote::at_once(fd);
            }
        }
    }
    ret
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, addr: *mut c_void, len: *mut u32) -> c_int {
    // SAFETY: the program's own arguments.
    accepted(unsafe { real::accept(fd, addr, len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(fd: c_int, addr: *mut c_void, len: *mut u32, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    accepted(unsafe { real::accept4(fd, addr, len, flags) })
}

fn accepted(fd: c_int) -> c_int {
    if fd >= 0 {
        options::renumbered(fd);
        set::descriptor_closed(fd);
        process::refresh();
        table::set_candidate(fd, Candidate::new(true));
        promote::at_once(fd);
    }
    fd
}
