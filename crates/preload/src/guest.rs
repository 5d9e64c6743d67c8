//! TCP connections to other guests of this host, moved to vsock (docs/architecture.md "Guests").
//!
//! connect and accept make the TCP connection as always. If the peer's address is another
//! guest's, the brokers of the two join a vsock connection, which is put under the program's
//! number before the call returns; the TCP socket stays behind it at a high number, and answers
//! for names and options (`behind`). From then on the program's calls are the kernel's own.
//!
//! Nothing is sent by TCP before, and afterwards only its end. The connector decides; so either
//! both ends change over, or none.

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use yasmin_control::directory::{self, Address, TABLE_BYTES, TABLE_WORDS};
use yasmin_control::guest::{self, Endpoint};
use yasmin_control::{CONTROL_VERSION, FromBroker, Role, SYSTEM_DIR, ToBroker};

use crate::broker::{self, Passed};
use crate::iov::Buffers;
use crate::sys::MsgHdr;
use crate::sys::{self, EINTR, MSG_DONTWAIT, MSG_NOSIGNAL, POLLIN, POLLOUT, SOL_SOCKET, call};
use crate::table::{self, Entry};
use crate::{clock, config, memory, process, real, tcp};

type Table = [AtomicU64; TABLE_WORDS];

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// How long to believe that there is no table.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;
/// The acceptor has said READY: the connector answers at once, or something is very wrong.
const GO_WITHIN_MS: u64 = 2000;
/// Beyond what the broker was given, for its answer to arrive.
const ANSWER_MORE_MS: u64 = 50;

static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());
static LOOK_AGAIN_AT_NS: AtomicU64 = AtomicU64::new(0);

/// The directory, if there are other guests.
fn table() -> Option<&'static Table> {
    let at = TABLE.load(Ordering::Acquire);
    // SAFETY: null, or a mapping that stays.
    if let Some(table) = unsafe { at.as_ref() }
        && directory::is_live(table)
    {
        return Some(table);
    }
    let now = clock::now_ns();
    if now < LOOK_AGAIN_AT_NS.load(Ordering::Relaxed) {
        return None;
    }
    LOOK_AGAIN_AT_NS.store(now + LOOK_AGAIN_NS, Ordering::Relaxed);
    let saved = sys::errno();
    let found = map_table();
    sys::set_errno(saved);
    // The one before stays mapped: another thread may be looking at it.
    TABLE.store(found?, Ordering::Release);
    // SAFETY: mapped just now, for good.
    unsafe { found?.as_ref() }.filter(|table| directory::is_live(table))
}

/// Beside the broker's socket.
fn map_table() -> Option<*mut Table> {
    const O_RDONLY_CLOEXEC_NOFOLLOW: c_int = 0o2000000 | 0o400000;
    let mut path = [0u8; config::SOCKET_BYTES + 8];
    let mut len = 0;
    let mut push = |byte: u8| {
        path[len.min(config::SOCKET_BYTES + 7)] = byte;
        len += 1;
    };
    let folder = config::socket_path().collect_len();
    match folder {
        Some(bytes) => config::socket_path().take(bytes).for_each(&mut push),
        None => SYSTEM_DIR.bytes().chain(*b"/").for_each(&mut push),
    }
    directory::FILE_NAME.bytes().for_each(&mut push);
    if len >= path.len() {
        return None;
    }
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { call!(open, path.as_ptr(), O_RDONLY_CLOEXEC_NOFOLLOW, 0) } as c_int;
    if fd < 0 {
        return None;
    }
    let at = if is_trusted(fd) { sys::map_file_to_read(fd, TABLE_BYTES) } else { None };
    sys::close(fd);
    at.map(<*mut u8>::cast)
}

trait FolderLength {
    fn collect_len(self) -> Option<usize>;
}

impl<I: Iterator<Item = u8>> FolderLength for I {
    /// How long the path's folder is, with its slash; `None` for an empty path.
    fn collect_len(self) -> Option<usize> {
        let mut len = None;
        for (i, byte) in self.enumerate() {
            if byte == b'/' {
                len = Some(i + 1);
            } else if len.is_none() {
                len = Some(0);
            }
        }
        len
    }
}

/// A table of root's or of this user's own, whole.
fn is_trusted(fd: c_int) -> bool {
    // struct stat: st_uid at 28, st_size at 48.
    let mut stat = [0u8; 144];
    // SAFETY: the kernel writes 144 bytes.
    if unsafe { call!(fstat, fd, stat.as_mut_ptr()) } != 0 {
        return false;
    }
    let uid = u32::from_ne_bytes([stat[28], stat[29], stat[30], stat[31]]);
    let mut size = [0; 8];
    size.copy_from_slice(&stat[48..56]);
    (uid == 0 || uid == process::effective_ids().0)
        && i64::from_ne_bytes(size) >= TABLE_BYTES as i64
}

/// Whether a new socket may come to be moved.
pub fn marks(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    matches!(domain as u16, AF_INET | AF_INET6)
        && kind & 0xff == 1
        && matches!(protocol, 0 | sys::IPPROTO_TCP)
        && table().is_some()
}

/// # Safety
/// `addr` is readable for `len`.
unsafe fn endpoint(addr: *const u8, len: usize) -> Option<Endpoint> {
    let mut raw = [0u8; 28];
    let len = len.min(raw.len());
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(addr, raw.as_mut_ptr(), len) };
    let port = u16::from_be_bytes([raw[2], raw[3]]);
    let mut address: Address = [0; 16];
    match u16::from_ne_bytes([raw[0], raw[1]]) {
        AF_INET if len >= 16 => address = directory::mapped([raw[4], raw[5], raw[6], raw[7]]),
        AF_INET6 if len >= 24 => address.copy_from_slice(&raw[8..24]),
        _ => return None,
    }
    Some(Endpoint { address, port })
}

/// A connection to the broker for one connection of the program; closed at the end.
pub struct Errand {
    fd: c_int,
}

impl Drop for Errand {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

impl Errand {
    fn ask(
        &self,
        message: ToBroker,
        passed: Option<c_int>,
        until_ns: u64,
    ) -> Option<(FromBroker, Passed)> {
        if !broker::send_once(self.fd, message, passed) || !wait(self.fd, POLLIN, until_ns) {
            return None;
        }
        broker::receive_once(self.fd)
    }
}

/// Waits for `fd`, through signals; false: the time is up.
fn wait(fd: c_int, events: i16, until_ns: u64) -> bool {
    loop {
        let left_ns = until_ns.saturating_sub(clock::now_ns());
        let mut one = sys::PollFd { fd, events, revents: 0 };
        // SAFETY: one pollfd of ours.
        let ret = unsafe { call!(poll, &raw mut one, 1, left_ns.div_ceil(1_000_000)) };
        if ret != -(EINTR as isize) {
            return ret > 0;
        }
        if left_ns == 0 {
            return false;
        }
    }
}

fn wait_ns() -> u64 {
    u64::from(config::GUEST_WAIT_MS.load(Ordering::Relaxed)) * 1_000_000
}

/// Before the program's connect: `Some` if the peer is in another guest that may answer.
///
/// # Safety
/// `addr` as the program passed it.
pub unsafe fn prepare(fd: c_int, addr: *const c_void, len: u32) -> Option<Errand> {
    let table = table()?;
    let addr = addr.cast::<u8>();
    let len = len as usize;
    if !matches!(table::get(fd), Entry::Fresh) || !memory::is_readable(addr, len.min(28)) {
        return None;
    }
    // SAFETY: readable.
    let to = unsafe { endpoint(addr, len) }?;
    directory::find(table, &to.address)?;
    process::refresh();
    if process::is_borrowed() || !fits(fd) || is_watched(fd) {
        return None;
    }
    let saved = sys::errno();
    let errand = broker::open().map(|fd| Errand { fd });
    let message = ToBroker::Prepare { version: CONTROL_VERSION, to };
    let until_ns = clock::now_ns() + wait_ns();
    let errand = errand.filter(|errand| {
        matches!(errand.ask(message, None, until_ns), Some((FromBroker::Prepared, _)))
    });
    sys::set_errno(saved);
    errand
}

/// What the vsock connection could not stand in for.
fn fits(fd: c_int) -> bool {
    const O_ASYNC: isize = 0o20000;
    /// Timestamps (29, 35, 37, 63 to 65), a peek offset (42), zero copy (60).
    const UNWANTED: [c_int; 8] = [29, 35, 37, 42, 60, 63, 64, 65];
    const TCP_FASTOPEN_CONNECT: c_int = 30;
    let option = |level, name| sys::getsockopt_u64(fd, level, name, 4).unwrap_or(0) as i32;
    // SAFETY: no memory involved.
    let flags = unsafe { call!(fcntl, fd, sys::F_GETFL) };
    flags >= 0
        && flags & O_ASYNC == 0
        && option(SOL_SOCKET, sys::SO_PROTOCOL) == sys::IPPROTO_TCP
        && option(SOL_SOCKET, sys::SO_RCVLOWAT) <= 1
        && option(sys::SOL_TCP, TCP_FASTOPEN_CONNECT) == 0
        && UNWANTED.iter().all(|name| matches!(option(SOL_SOCKET, *name), 0 | -1))
}

/// A set watches the TCP socket by now, and would go on to.
fn is_watched(fd: c_int) -> bool {
    table::watch(fd).is_none_or(|watch| {
        !watch.set.load(Ordering::Relaxed).is_null() || watch.has(table::Watch::PRESENT)
    })
}

/// After the program's connect, which has succeeded or is in progress: true if the connection
/// goes by vsock now.
pub fn connected(fd: c_int, errand: &Errand, is_in_progress: bool) -> bool {
    let saved = sys::errno();
    let until_ns = clock::now_ns() + wait_ns();
    // A connect that does not wait may still tell its error to the program: nothing is asked
    // here that would take it away.
    let stands = !is_in_progress || wait(fd, POLLOUT, until_ns);
    let is_moved = stands && tcp::is_plain_established(fd) && move_connector(fd, errand, until_ns);
    sys::set_errno(saved);
    is_moved
}

fn move_connector(fd: c_int, errand: &Errand, until_ns: u64) -> bool {
    let Some((vsock, _)) = join(fd, errand, Role::Connector, until_ns) else { return false };
    let Some(change) = Change::begin(fd, vsock) else { return false };
    if say(vsock, &guest::GO) != guest::GO.len() as isize {
        return false;
    }
    change.finish();
    true
}

/// The vsock connection that the broker has for us, and the proof to send on it.
fn join(fd: c_int, errand: &Errand, role: Role, until_ns: u64) -> Option<(c_int, u64)> {
    let left_ns = until_ns.saturating_sub(clock::now_ns());
    let wait_ms = left_ns.div_ceil(1_000_000);
    let message = ToBroker::Join { version: CONTROL_VERSION, role, wait_ms };
    let answer = errand.ask(message, Some(fd), until_ns + ANSWER_MORE_MS * 1_000_000)?;
    let (FromBroker::Joined { proof }, mut passed) = answer else { return None };
    passed.take(0).map(|vsock| (vsock, proof))
}

fn say(fd: c_int, bytes: &[u8]) -> isize {
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    // SAFETY: bytes of ours.
    unsafe { call!(sendto, fd, bytes.as_ptr(), bytes.len(), flags, 0, 0) }
}

/// What becomes of an accepted connection.
pub enum Accepted {
    Tcp,
    Vsock,
    /// The peer may have changed over or not: it was reset, and is not the program's any more.
    Reset,
}

/// After the program's accept.
pub fn accepted(fd: c_int) -> Accepted {
    let Some(table) = table() else { return Accepted::Tcp };
    let saved = sys::errno();
    let mut raw = [0u8; 28];
    let mut len = 28u32;
    // SAFETY: the kernel writes at most `len` bytes.
    let ret = unsafe { call!(getpeername, fd, raw.as_mut_ptr(), &raw mut len) };
    // SAFETY: bytes of ours.
    let peer = if ret == 0 { unsafe { endpoint(raw.as_ptr(), len as usize) } } else { None };
    let is_guest = peer.is_some_and(|peer| directory::find(table, &peer.address).is_some());
    let result = if is_guest && !process::is_borrowed() && fits(fd) {
        move_acceptor(fd)
    } else {
        Accepted::Tcp
    };
    sys::set_errno(saved);
    result
}

fn move_acceptor(fd: c_int) -> Accepted {
    // What has come by TCP says that the connector stays there.
    if sys::int_ioctl(fd, sys::FIONREAD) != 0 {
        return Accepted::Tcp;
    }
    let Some(errand) = broker::open().map(|fd| Errand { fd }) else { return Accepted::Tcp };
    let until_ns = clock::now_ns() + wait_ns();
    let joined = join(fd, &errand, Role::Acceptor, until_ns);
    let Some((vsock, proof)) = joined else { return Accepted::Tcp };
    let Some(change) = Change::begin(fd, vsock) else { return Accepted::Tcp };
    let ready = guest::ready(proof);
    if say(vsock, &ready) != ready.len() as isize {
        return Accepted::Tcp;
    }
    let until_ns = clock::now_ns() + GO_WITHIN_MS * 1_000_000;
    let mut go = [0u8; guest::GO.len()];
    let mut len = 0;
    while len < go.len() {
        if !wait(vsock, POLLIN, until_ns) {
            drop(change);
            sys::setsockopt_bytes(fd, SOL_SOCKET, sys::SO_LINGER, &LINGER_0);
            sys::close(fd);
            return Accepted::Reset;
        }
        let (at, left) = (go[len..].as_mut_ptr(), go.len() - len);
        // SAFETY: what is left of our buffer. No more: the program's bytes come next.
        let ret = unsafe { call!(recvfrom, vsock, at, left, MSG_DONTWAIT, 0, 0) };
        match ret {
            1.. => len += ret as usize,
            _ if ret == -(sys::EAGAIN as isize) => {}
            _ => return Accepted::Tcp,
        }
    }
    if go != guest::GO {
        return Accepted::Tcp;
    }
    change.finish();
    Accepted::Vsock
}

/// struct linger: on, after 0 seconds.
const LINGER_0: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

/// A vsock connection about to take a TCP socket's number. All that can fail is done at the
/// beginning; undone unless finished.
struct Change {
    fd: c_int,
    vsock: c_int,
    behind: c_int,
    cloexec: c_int,
}

impl Change {
    fn begin(fd: c_int, vsock: c_int) -> Option<Self> {
        // SAFETY: no memory involved.
        let (status, flags) =
            unsafe { (call!(fcntl, fd, sys::F_GETFL), call!(fcntl, fd, sys::F_GETFD)) };
        let cloexec = if flags & sys::FD_CLOEXEC as isize != 0 { 0o2000000 } else { 0 };
        let change = Self { fd, vsock, behind: broker::copy_high(fd), cloexec };
        let status = status & sys::O_NONBLOCK as isize;
        // SAFETY: no memory involved.
        let is_set = unsafe { call!(fcntl, vsock, sys::F_SETFL, status) } == 0;
        (change.behind >= 0 && is_set && copy_options(fd, vsock)).then_some(change)
    }

    fn finish(self) {
        // SAFETY: no memory involved; the number is the program's, and it is in our call.
        unsafe { call!(dup3, self.vsock, self.fd, self.cloexec) };
        table::set_guest(self.fd, self.behind);
        sys::close(self.vsock);
        core::mem::forget(self);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if self.behind >= 0 {
            sys::close(self.behind);
        }
        sys::close(self.vsock);
    }
}

/// Those that the kernel looks at in calls on the vsock connection.
const SHARED_OPTIONS: [(c_int, usize); 3] =
    [(sys::SO_RCVTIMEO, 16), (sys::SO_SNDTIMEO, 16), (sys::SO_LINGER, 8)];

fn copy_options(from: c_int, to: c_int) -> bool {
    SHARED_OPTIONS.into_iter().all(|(name, size)| {
        let mut value = [0u8; 16];
        let mut len = size as u32;
        let (at, len_at) = (value.as_mut_ptr(), &raw mut len);
        // SAFETY: the kernel writes at most `len` bytes.
        let ret = unsafe { call!(getsockopt, from, SOL_SOCKET, name, at, len_at) };
        ret == 0 && sys::setsockopt_bytes(to, SOL_SOCKET, name, &value[..len as usize]) == 0
    })
}

/// Whether an option that the program sets on the TCP socket behind is set on the vsock
/// connection too.
pub fn shares_option(level: c_int, name: c_int) -> bool {
    /// SO_RCVTIMEO and SO_SNDTIMEO with 64-bit times on 32-bit machines.
    const NEW_TIMEOUTS: [c_int; 2] = [66, 67];
    level == SOL_SOCKET
        && (SHARED_OPTIONS.iter().any(|(shared, _)| *shared == name)
            || name == sys::SO_RCVLOWAT
            || NEW_TIMEOUTS.contains(&name))
}

/// Options that would promise what only TCP itself can do.
pub fn refuses_option(level: c_int, name: c_int) -> bool {
    const SO_ZEROCOPY: c_int = 60;
    match level {
        SOL_SOCKET => name == SO_ZEROCOPY,
        sys::SOL_TCP => matches!(name, sys::TCP_ULP | sys::TCP_ZEROCOPY_RECEIVE),
        _ => false,
    }
}

/// One descriptor less names the connection: with the last, the TCP socket behind is closed.
pub fn unname(fd: c_int, behind: c_int) {
    let is_shared = table::is_guest_shared(fd);
    table::clear(fd);
    if !table::unname_behind(behind) {
        return;
    }
    if !is_shared {
        end_unread(fd, behind);
    }
    sys::close(behind);
}

/// As TCP does: who lets go of unread bytes resets.
pub fn end_unread(fd: c_int, behind: c_int) {
    let mut byte = 0u8;
    let flags = MSG_DONTWAIT | sys::MSG_PEEK;
    // SAFETY: one byte of ours.
    if unsafe { call!(recvfrom, fd, &raw mut byte, 1, flags, 0, 0) } > 0 {
        sys::setsockopt_bytes(behind, SOL_SOCKET, sys::SO_LINGER, &LINGER_0);
    }
}

/// The program puts something else under the number of a socket behind.
pub fn abandon(behind: c_int) {
    for fd in 0..table::end() {
        if matches!(table::get(fd), Entry::Guest(at) if at == behind) {
            table::clear(fd);
        }
    }
    table::clear(behind);
}

/// After a receive on a connection that goes by vsock, for what TCP says otherwise.
pub fn received(fd: c_int, behind: c_int, wanted: usize, ret: isize) -> isize {
    const ENOTCONN: i32 = 107;
    if ret > 0 || wanted == 0 {
        return ret;
    }
    if ret < 0 {
        // After its error was told, TCP tells of the end.
        return if sys::errno() == ENOTCONN { 0 } else { ret };
    }
    if !table::guest_ended(fd) && is_reset(behind) {
        sys::set_errno(sys::ECONNRESET);
        return -1;
    }
    ret
}

/// The end has come by vsock. Whether it is a reset the TCP connection says, whose own end
/// comes at about the same time.
fn is_reset(behind: c_int) -> bool {
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT: [u8; 2] = [4, 5];
    const CLOSE: u8 = 7;
    let saved = sys::errno();
    let until_ns = clock::now_ns() + wait_ns();
    let state = loop {
        let state = tcp::state(behind);
        let is_open = state == ESTABLISHED || FIN_WAIT.contains(&state);
        if !is_open || !wait(behind, POLLIN | sys::POLLRDHUP, until_ns) {
            break state;
        }
        let now = tcp::state(behind);
        if now == state {
            // Shut down by ourselves.
            break state;
        }
    };
    sys::set_errno(saved);
    state == CLOSE && error_of(behind) == sys::ECONNRESET as u64
}

fn error_of(fd: c_int) -> u64 {
    const SO_ERROR: c_int = 4;
    sys::getsockopt_u64(fd, SOL_SOCKET, SO_ERROR, 4).unwrap_or(0)
}

/// A send on a connection that goes by vsock: no signal but ours, which not all kernels send.
pub fn send(fd: c_int, behind: c_int, from: Buffers<'_>, flags: c_int) -> isize {
    let pieces = from.pieces();
    let message = MsgHdr {
        name: core::ptr::null_mut(),
        namelen: 0,
        iov: pieces.as_ptr().cast_mut(),
        iovlen: pieces.len(),
        control: core::ptr::null_mut(),
        controllen: 0,
        flags: 0,
    };
    // SAFETY: the program's pieces.
    let ret = unsafe { real::sendmsg(fd, &raw const message, flags | MSG_NOSIGNAL) };
    sent(behind, flags, ret)
}

/// After a send with MSG_NOSIGNAL on a connection that goes by vsock, for what TCP says
/// otherwise; `flags` are the program's.
pub fn sent(behind: c_int, flags: c_int, ret: isize) -> isize {
    const EPIPE: i32 = 32;
    const ENOTCONN: i32 = 107;
    const SIGPIPE: usize = 13;
    if ret >= 0 || !matches!(sys::errno(), EPIPE | ENOTCONN) {
        return ret;
    }
    let error = error_of(behind) as i32;
    if error != 0 {
        sys::set_errno(error);
        return -1;
    }
    if flags & MSG_NOSIGNAL == 0 {
        // SAFETY: no memory involved.
        unsafe { call!(tgkill, sys::getpid(), call!(gettid), SIGPIPE) };
    }
    sys::set_errno(EPIPE);
    -1
}

/// FIONREAD, which AF_VSOCK has not.
pub fn unread(fd: c_int) -> c_int {
    /// No ring is larger.
    const MOST: usize = 1 << 21;
    let Some(scratch) = sys::map_private(MOST) else { return 0 };
    let flags = MSG_DONTWAIT | sys::MSG_PEEK;
    // SAFETY: MOST bytes of ours.
    let ret = unsafe { call!(recvfrom, fd, scratch, MOST, flags, 0, 0) };
    // SAFETY: mapped above.
    unsafe { sys::unmap(scratch, MOST) };
    ret.max(0) as c_int
}

/// By TCP and, by `kernel`, on the vsock connection.
pub fn shutdown(behind: c_int, how: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    // First by TCP, so that a peer that learns of it by vsock finds it there.
    // SAFETY: no memory involved.
    let ret = unsafe { call!(shutdown, behind, how) };
    if ret < 0 {
        return sys::returned(ret) as c_int;
    }
    kernel()
}

const _: () = assert!(size_of::<Table>() == TABLE_BYTES);
