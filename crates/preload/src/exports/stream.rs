//! read, write, recv, send and their kin.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use yasmin_call::receive::Ahead;

use super::{check, counted, counted_if, entered, piece, piece_cut, receive, transmit, way_of};
use crate::clock::Since;
use crate::conn::Conn;
use crate::entry::Entry;
use crate::iov::{self, Buffers, By};
use crate::send::Source;
use crate::sys::{self, IoVec, MMsgHdr, MSG_DONTWAIT, MsgHdr, Ret, TimeSpec, call};
use crate::table::{self, Way};
use crate::tcp;
use crate::timeout::Timeout;
use crate::{entry, guest, in_flight, life, memory, options, passing, process, real, recv, send};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buf: *mut u8, len: usize) -> isize {
    let one = piece(buf, len);
    // SAFETY: the program's own arguments.
    receive(fd, some_bytes(Buffers::one(&one)), 0, || unsafe { real::read(fd, buf, len) })
}

/// read and readv of no bytes, unlike recv of none, neither wait nor look.
fn some_bytes(to: Buffers<'_>) -> Option<Buffers<'_>> {
    (to.len_bytes > 0).then_some(to.by(By::Read))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, buf: *mut u8, len: usize, size: usize) -> isize {
    check(len, size);
    // SAFETY: the program's own arguments.
    unsafe { read(fd, buf, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buf: *const u8, len: usize) -> isize {
    let one = piece(buf, len);
    // SAFETY: the program's own arguments.
    transmit(fd, Some(Buffers::one(&one)), 0, || unsafe { real::write(fd, buf, len) })
}

/// Also on what is no eventfd: libc writes 8 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn eventfd_write(fd: c_int, value: u64) -> c_int {
    let one = piece((&raw const value).cast(), size_of::<u64>());
    // SAFETY: eight bytes of this frame's.
    let wrote = transmit(fd, Some(Buffers::one(&one)), 0, || unsafe {
        if real::eventfd_write(fd, value) == 0 { size_of::<u64>() as isize } else { -1 }
    });
    if wrote == size_of::<u64>() as isize { 0 } else { -1 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, buf: *mut u8, len: usize, flags: c_int) -> isize {
    let one = piece_cut(buf, len);
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
pub unsafe extern "C" fn send(fd: c_int, buf: *const u8, len: usize, flags: c_int) -> isize {
    let one = piece_cut(buf, len);
    // SAFETY: the program's own arguments.
    transmit(fd, Some(Buffers::one(&one)), flags, || unsafe { real::send(fd, buf, len, flags) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    buf: *mut u8,
    len: usize,
    flags: c_int,
    addr: *mut c_void,
    addrlen: *mut u32,
) -> isize {
    let one = piece_cut(buf, len);
    let mut asked_kernel = false;
    let ret = receive(fd, Some(Buffers::one(&one)), flags, || {
        asked_kernel = true;
        // SAFETY: the program's own arguments.
        unsafe { real::recvfrom(fd, buf, len, flags, addr, addrlen) }
    });
    if ret < 0 || asked_kernel || addr.is_null() {
        return ret;
    }
    // TCP gives no address here. What was read is gone, as it is behind the kernel's own call.
    match memory::get(addrlen).map(u32::cast_signed) {
        Some(0..) if memory::put(addrlen, 0) => ret,
        Some(i32::MIN..=-1) => sys::returned(-(sys::EINVAL as Ret)),
        _ => sys::returned(-(sys::EFAULT as Ret)),
    }
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
pub unsafe extern "C" fn sendto(
    fd: c_int,
    buf: *const u8,
    len: usize,
    flags: c_int,
    addr: *const c_void,
    addrlen: u32,
) -> isize {
    let one = piece_cut(buf, len);
    // An address on a connected TCP socket is ignored by the kernel too, once it has read it.
    let from = (addr.is_null() || is_address(addr, addrlen)).then_some(Buffers::one(&one));
    transmit(fd, from, flags, || {
        // SAFETY: the program's own arguments.
        unsafe { real::sendto(fd, buf, len, flags, addr, addrlen) }
    })
}

/// Whether the kernel takes it for an address to send to.
fn is_address(addr: *const c_void, len: u32) -> bool {
    const MOST: u32 = 128;
    len <= MOST && memory::is_readable(addr.cast::<u8>(), len as usize)
}

/// Whether the kernel takes a message's name, which no TCP connection looks at.
fn is_named_well(msg: &MsgHdr, sends: bool) -> bool {
    const MOST: u32 = 128;
    let len = msg.namelen;
    msg.name.is_null() || len.cast_signed() >= 0 && (!sends || is_address(msg.name, len.min(MOST)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, pieces: *const IoVec, count: c_int) -> isize {
    if table::raw(fd) == 0 {
        // SAFETY: the program's own arguments.
        return unsafe { real::readv(fd, pieces, count) };
    }
    // SAFETY: the program's own arguments.
    let to = unsafe { iov::count(count).and_then(|count| Buffers::many(pieces, count)) };
    // SAFETY: as above.
    receive(fd, to.and_then(some_bytes), 0, || unsafe { real::readv(fd, pieces, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, pieces: *const IoVec, count: c_int) -> isize {
    if table::raw(fd) == 0 {
        // SAFETY: the program's own arguments.
        return unsafe { real::writev(fd, pieces, count) };
    }
    // SAFETY: the program's own arguments.
    let from = unsafe { iov::count(count).and_then(|count| Buffers::many(pieces, count)) };
    // SAFETY: as above.
    transmit(fd, from, 0, || unsafe { real::writev(fd, pieces, count) })
}

/// On a stream preadv2 and pwritev2 are readv and writev, at no other place than its own and
/// with one flag that says something: not to wait. `None`: the kernel refuses it, or knows a
/// flag that this library does not.
fn stream_flags(fd: c_int, offset: i64, flags: c_int) -> Option<c_int> {
    const RWF_NOWAIT: c_int = 8;
    // RWF_HIPRI, DSYNC, SYNC and APPEND: of files.
    const FILES: c_int = 1 | 2 | 4 | 0x10;
    if offset != -1 {
        return None;
    }
    match flags & !FILES {
        0 => Some(0),
        RWF_NOWAIT => Some(MSG_DONTWAIT),
        _ => {
            life::leave_to_others(fd);
            None
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(
    fd: c_int,
    pieces: *const IoVec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::preadv2(fd, pieces, count, offset, flags) };
    if table::raw(fd) == 0 {
        return kernel();
    }
    let Some(own) = stream_flags(fd, offset, flags) else { return kernel() };
    // SAFETY: the program's own arguments.
    let to = unsafe { iov::count(count).and_then(|count| Buffers::many(pieces, count)) };
    receive(fd, to.and_then(some_bytes), own, kernel)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    pieces: *const IoVec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::pwritev2(fd, pieces, count, offset, flags) };
    if table::raw(fd) == 0 {
        return kernel();
    }
    let Some(own) = stream_flags(fd, offset, flags) else { return kernel() };
    // SAFETY: the program's own arguments.
    let from = unsafe { iov::count(count).and_then(|count| Buffers::many(pieces, count)) };
    transmit(fd, from, own, kernel)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut MsgHdr, flags: c_int) -> isize {
    let kernel = || {
        // SAFETY: the program's own arguments, and what the kernel made of them.
        unsafe {
            let ret = real::recvmsg(fd, msg, flags);
            if ret >= 0 {
                passing::received(fd, &*msg);
            }
            ret
        }
    };
    if table::raw(fd) == 0 || !memory::is_writable(msg, 1) {
        return kernel();
    }
    // SAFETY: the program's own message, readable.
    let to = unsafe {
        let to = Buffers::many((*msg).iov, (*msg).iovlen);
        to.filter(|_| is_named_well(&*msg, false))
    };
    let mut asked_kernel = false;
    let ret = receive(fd, to, flags, || {
        asked_kernel = true;
        kernel()
    });
    if ret >= 0 && !asked_kernel {
        // SAFETY: the program's own message, which can be written; TCP gives no name.
        unsafe {
            if !(*msg).name.is_null() {
                (*msg).namelen = 0;
            }
            (*msg).flags = flags & sys::MSG_CMSG_CLOEXEC;
            let unread = entry::conn_of(fd).and_then(|conn| options::told_unread(conn, fd));
            put_control(&mut *msg, unread);
        }
    }
    ret
}

/// The only control data that does not come from the kernel: how much is unread, in the ring
/// too (TCP_CM_INQ); none without it.
///
/// # Safety
/// The message as the program passed it.
unsafe fn put_control(msg: &mut MsgHdr, unread: Option<c_int>) {
    const HEAD_BYTES: usize = 16;
    let (room, Some(unread)) = (msg.controllen, unread) else {
        msg.controllen = 0;
        return;
    };
    msg.controllen = 0;
    if msg.control.is_null() || room < HEAD_BYTES {
        msg.flags |= sys::MSG_CTRUNC;
        return;
    }
    let mut raw = [0u8; HEAD_BYTES + 8];
    let len = room.min(HEAD_BYTES + 4);
    raw[..8].copy_from_slice(&len.to_ne_bytes());
    raw[8..12].copy_from_slice(&sys::SOL_TCP.to_ne_bytes());
    raw[12..16].copy_from_slice(&sys::TCP_INQ.to_ne_bytes());
    raw[16..20].copy_from_slice(&unread.to_ne_bytes());
    if len < HEAD_BYTES + 4 {
        msg.flags |= sys::MSG_CTRUNC;
    }
    let len = room.min(raw.len());
    // The kernel goes on without what it cannot put there.
    if !memory::is_writable(msg.control.cast::<u8>(), len) {
        return;
    }
    msg.controllen = len;
    // SAFETY: the program's buffer of `room` bytes, of which so many can be written.
    unsafe { core::ptr::copy_nonoverlapping(raw.as_ptr(), msg.control.cast::<u8>(), len) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, msg: *const MsgHdr, flags: c_int) -> isize {
    if !memory::is_readable(msg, 1) {
        // SAFETY: the program's own arguments.
        return unsafe { real::sendmsg(fd, msg, flags) };
    }
    // SAFETY: the program's own message, readable.
    let (control, len, iov, count) =
        unsafe { ((*msg).control.cast::<u8>(), (*msg).controllen, (*msg).iov, (*msg).iovlen) };
    let has_control = len > 0 && memory::is_readable(control, len);
    if has_control {
        // SAFETY: as above, and so are the control data.
        unsafe { passing::before(fd, &*msg) };
    }
    if table::raw(fd) == 0 {
        // SAFETY: the program's own arguments.
        let ret = unsafe { real::sendmsg(fd, msg, flags) };
        if ret < 0 && has_control {
            // SAFETY: as above.
            unsafe { passing::failed(&*msg) };
        }
        return ret;
    }
    if len > 0
        && let Entry::Conn(conn) = entry::get(fd)
    {
        conn.park_tx_for_good(fd);
    }
    // SAFETY: the program's own message, readable.
    let from = unsafe { Buffers::many(iov, count).filter(|_| is_named_well(&*msg, true)) };
    // SAFETY: the program's own arguments.
    transmit(fd, from, flags, || unsafe { real::sendmsg(fd, msg, flags) })
}

/// Bytes of so many messages, or what the call gave instead.
fn sum_of(msgs: *const MMsgHdr, count: c_int) -> isize {
    let len = |at| memory::get(msgs.wrapping_add(at)).map_or(0, |one| one.len as isize);
    if count > 0 { (0..count as usize).map(len).sum() } else { count as isize }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    msgs: *mut MMsgHdr,
    count: u32,
    flags: c_int,
    timeout: *mut TimeSpec,
) -> c_int {
    let way = way_of(fd, Way::In, flags, sys::MSG_PEEK | sys::MSG_ERRQUEUE);
    let (entry, inside) = entered(fd, false);
    let Entry::Conn(conn) = entry else {
        let mut received = 0;
        counted_if(fd, inside, way, || {
            // SAFETY: the program's own arguments.
            received = unsafe { real::recvmmsg(fd, msgs, count, flags, timeout) };
            sum_of(msgs, received)
        });
        for i in 0..received.max(0) as usize {
            // SAFETY: the kernel has filled so many.
            unsafe { passing::received(fd, &(*msgs.add(i)).hdr) };
        }
        return received;
    };
    let Some(limit) = Timeout::from_timespec(timeout) else {
        // SAFETY: the program's own arguments, which the kernel refuses.
        return unsafe { real::recvmmsg(fd, msgs, count, flags, timeout) };
    };
    // Unlike the other calls this one tells of an error before the bytes that came before it.
    let error = if flags & sys::MSG_ERRQUEUE == 0 { tcp::take_error(fd) } else { 0 };
    if error != 0 {
        return sys::returned(-(error as Ret)) as c_int;
    }
    let start = Since::now();
    let saved = sys::errno();
    let mut flags = flags;
    let mut done = 0;
    let mut ret = 0;
    while done < count.min(iov::PIECES_MAX as u32) {
        if done > 0 && recv::ring_unread(conn, fd) == 0 && tcp::is_at_error(fd) {
            // That is the next call's.
            break;
        }
        let one = msgs.wrapping_add(done as usize);
        if !memory::is_writable(one, 1) {
            ret = sys::returned(-(sys::EFAULT as Ret));
            break;
        }
        // SAFETY: one of the program's messages, which can be read and written.
        ret = unsafe { recvmsg(fd, &raw mut (*one).hdr, flags & !sys::MSG_WAITFORONE) };
        if ret < 0 {
            break;
        }
        // SAFETY: as above.
        unsafe { (*one).len = ret as u32 };
        done += 1;
        if flags & sys::MSG_WAITFORONE != 0 {
            flags |= MSG_DONTWAIT;
        }
        if limit.ns >= 0 && limit.less(&start).ns == 0 {
            break;
        }
    }
    if done == 0 {
        return ret.min(0) as c_int;
    }
    // Of the message after the last the caller does not hear.
    sys::set_errno(saved);
    if !timeout.is_null() && !memory::put(timeout, limit.less(&start).timespec()) {
        return sys::returned(-(sys::EFAULT as Ret)) as c_int;
    }
    done as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    msgs: *mut MMsgHdr,
    count: u32,
    flags: c_int,
) -> c_int {
    let way = way_of(fd, Way::Out, flags, 0);
    let (entry, inside) = entered(fd, false);
    if !matches!(entry, Entry::Conn(_) | Entry::Guest(_)) {
        let with_control = |from: usize, each: &dyn Fn(&MsgHdr)| {
            for i in from..(count as usize).min(iov::PIECES_MAX) {
                let Some(one) = memory::get(msgs.wrapping_add(i)) else { return };
                let (control, len) = (one.hdr.control.cast::<u8>(), one.hdr.controllen);
                if len > 0 && memory::is_readable(control, len) {
                    each(&one.hdr);
                }
            }
        };
        // SAFETY: the control data are readable.
        with_control(0, &|msg| unsafe { passing::before(fd, msg) });
        let mut sent = 0;
        counted_if(fd, inside, way, || {
            // SAFETY: the program's own arguments.
            sent = unsafe { real::sendmmsg(fd, msgs, count, flags) };
            sum_of(msgs, sent)
        });
        // SAFETY: as above.
        with_control(sent.max(0) as usize, &|msg| unsafe { passing::failed(msg) });
        return sent;
    }
    let count = count.min(iov::PIECES_MAX as u32);
    let saved = sys::errno();
    for i in 0..count {
        let one = msgs.wrapping_add(i as usize);
        if !memory::is_writable(one, 1) {
            if i > 0 {
                return i as c_int;
            }
            return sys::returned(-(sys::EFAULT as Ret)) as c_int;
        }
        // SAFETY: one of the program's messages, which can be read and written.
        unsafe {
            let ret = sendmsg(fd, &raw const (*one).hdr, flags);
            if ret < 0 && i > 0 {
                // Of the message after the last the caller does not hear.
                sys::set_errno(saved);
                return i as c_int;
            }
            if ret < 0 {
                return -1;
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    out: c_int,
    from: c_int,
    offset: *mut i64,
    count: usize,
) -> isize {
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::sendfile(out, from, offset, count) };
    // Into a pipe it takes from a socket too.
    if table::raw(from) != 0
        && let Some(ret) = leave_to_pipe(from, offset, out, count, 0)
    {
        return sys::returned(ret);
    }
    let conn = match entered(out, false) {
        (Entry::Conn(conn), _) => conn,
        (_, Some(inside)) => return counted(out, inside, Way::Out, kernel),
        (Entry::Guest(behind), None) => return guest::sent(behind, 0, kernel()),
        _ => return kernel(),
    };
    process::refresh();
    let start = if offset.is_null() {
        // SAFETY: no memory involved.
        unsafe { call!(lseek, from, 0, 1) as i64 }
    } else {
        // Where it cannot be written, the kernel sends all the same.
        memory::get(offset).filter(|_| memory::is_writable(offset, 1)).unwrap_or(-1)
    };
    // SAFETY: no memory involved.
    if start < 0 || table::raw(from) != 0 || unsafe { call!(lseek, from, 0, 1) } < 0 {
        // Not a file with positions.
        conn.park_tx_for_good(out);
        if conn.is_at(out) {
            return kernel();
        }
        // Another thread has made it a candidate: a call on one is counted.
        // SAFETY: the program's own arguments.
        return unsafe { sendfile(out, from, offset, count) };
    }
    let source = Source::File { fd: from, offset: start, len_bytes: count.min(0x7fff_f000) };
    let id = conn.id.load(Ordering::Relaxed);
    let Some(ret) = send::send(conn, out, source, 0) else {
        if !conn.is_at(out) || conn.id.load(Ordering::Relaxed) != id {
            if let Some(error) = conn.number_went(out, id) {
                return sys::returned(error);
            }
            // SAFETY: the program's own arguments.
            return unsafe { sendfile(out, from, offset, count) };
        }
        let ret = kernel();
        send::sent_verbatim(conn, out, ret);
        return ret;
    };
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
pub unsafe extern "C" fn splice(
    from: c_int,
    off_in: *mut i64,
    to: c_int,
    off_out: *mut i64,
    len: usize,
    flags: u32,
) -> isize {
    if !real::LIBC.is_musl() {
        process::cancellation_point();
    }
    let (source, from_inside) = entered(from, false);
    let (sink, to_inside) = entered(to, false);
    let mut is_renewed = false;
    if let Entry::Conn(conn) = sink {
        conn.park_tx_for_good(to);
        is_renewed = !conn.is_at(to);
    }
    if let Entry::Conn(conn) = source {
        if let Some(ret) = leave_to_pipe(from, off_in, to, len, flags) {
            if let Some(inside) = to_inside {
                in_flight::leave(to, inside);
            }
            return sys::returned(ret);
        }
        is_renewed |= !conn.is_at(from);
    }
    if is_renewed {
        // Another thread has made one a candidate: a call on one is counted.
        for (fd, inside) in [(from, from_inside), (to, to_inside)] {
            if let Some(inside) = inside {
                in_flight::leave(fd, inside);
            }
        }
        // SAFETY: the program's own arguments.
        return unsafe { splice(from, off_in, to, off_out, len, flags) };
    }
    // SAFETY: the program's own arguments.
    let kernel = || unsafe { real::splice(from, off_in, to, off_out, len, flags) };
    match from_inside {
        Some(inside) => {
            let ret = counted(from, inside, Way::In, kernel);
            if let Some(inside) = to_inside {
                in_flight::leave(to, inside);
            }
            ret
        }
        None => counted_if(to, to_inside, Way::Out, kernel),
    }
}

/// The kernel takes what comes on `from` from now on. `Some`: something was unread in its ring.
fn leave_to_pipe(
    from: c_int,
    offset: *const i64,
    pipe: c_int,
    len: usize,
    flags: u32,
) -> Option<Ret> {
    const F_GETPIPE_SZ: c_int = 1032;
    let conn = entry::conn_of(from)?;
    conn.park_rx_for_good(from);
    // SAFETY: no memory involved.
    let is_pipe = unsafe { call!(fcntl, pipe, F_GETPIPE_SZ) } >= 0;
    if offset.is_null() && is_pipe { splice_ring(conn, from, pipe, len, flags) } else { None }
}

/// SPLICE_F_NONBLOCK.
const NONBLOCK: u32 = 2;

/// What is unread in the ring goes into the pipe before anything that splice takes from TCP, and
/// what TCP has by then behind it.
pub fn splice_ring(
    conn: &'static Conn,
    fd: c_int,
    pipe: c_int,
    len: usize,
    flags: u32,
) -> Option<Ret> {
    let mut done = 0;
    // The first piece waits for room in the pipe, if it may; the others take what there is.
    while (done as usize) < len {
        let is_first = done == 0;
        if (!is_first || flags & NONBLOCK != 0) && sys::poll_now(pipe, sys::POLLOUT) == 0 {
            return Some(if is_first { -(sys::EAGAIN as Ret) } else { done });
        }
        match splice_piece(conn, fd, pipe, len - done as usize) {
            Some(written @ 1..) => done += written,
            None if !is_first => {
                return Some(done + splice_tcp(fd, pipe, len - done as usize));
            }
            other => return if is_first { other } else { Some(done) },
        }
    }
    (done > 0).then_some(done)
}

/// What TCP has, and the pipe has room for; waits for neither.
fn splice_tcp(fd: c_int, pipe: c_int, len: usize) -> Ret {
    // The kernel's own splice waits for bytes as the socket says.
    if tcp::ahead(fd) != Ahead::Bytes {
        return 0;
    }
    // SAFETY: no memory involved.
    unsafe { call!(splice, fd, 0, pipe, 0, len, NONBLOCK) }.max(0)
}

fn splice_piece(conn: &'static Conn, fd: c_int, pipe: c_int, len: usize) -> Option<Ret> {
    // So much a pipe that can be written takes at once (PIPE_BUF).
    let mut bytes = [0u8; 4096];
    let one = IoVec { base: bytes.as_mut_ptr(), len: len.min(bytes.len()) };
    let (unread, offset) = {
        let _rx = conn.lock_rx(fd).ok()?;
        let receiver = conn.receiver();
        (receiver.unread_bytes() as usize, recv::ring_offset(&receiver, fd))
    };
    if unread == 0 {
        return None;
    }
    if offset.is_some() {
        tcp::set_peek_offset(fd, 0);
    }
    let to = Buffers::one(&one);
    let seen = recv::recv(conn, fd, to, sys::MSG_PEEK | MSG_DONTWAIT).unwrap_or(0);
    let seen = seen.min(unread as Ret);
    // SAFETY: bytes of ours.
    let written = if seen > 0 { unsafe { call!(write, pipe, bytes.as_ptr(), seen) } } else { 0 };
    if written > 0 {
        let one = IoVec { base: bytes.as_mut_ptr(), len: written as usize };
        recv::recv(conn, fd, Buffers::one(&one), MSG_DONTWAIT);
    }
    // What is spliced does not count for it.
    if let Some(offset) = offset {
        tcp::set_peek_offset(fd, offset);
    }
    (seen > 0).then_some(written)
}
