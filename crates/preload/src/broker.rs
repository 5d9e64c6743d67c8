//! The broker, as this process talks to it: one SEQPACKET socket. It is told numbers of sockets, and never gets one.
//!
//! Messages are sent without waiting and read when the mailbox says that there are some. What
//! finds no room and has to be said is said later (`owed`): a close then gives the broker a moment. A
//! broker that is gone is looked for again at growing intervals; meanwhile everything is TCP.
//!
//! Storey 4: life.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use yasmin_channel::region::Region;
use yasmin_control::{CONTROL_VERSION, message::COMM_BYTES};
use yasmin_control::{
    Decline, FromBroker, MESSAGE_BYTES, Role, SOCKET_NAME, SYSTEM_DIR, Socket, Then, ToBroker,
    guest::Endpoint,
};

use yasmin_wire::layout;

use crate::conn::Handout;
use crate::guest::directory;
use crate::lock::Lock;
use crate::sys::{self, EAGAIN, IoVec, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_NOSIGNAL, MsgHdr, call};
use crate::table::Candidate;
use crate::{clock, config, owed, process, table, tcp};

static FD: AtomicI32 = AtomicI32::new(-1);
static MAILBOX: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
static MAIL_SEEN: AtomicU64 = AtomicU64::new(0);
/// Raised with each connection to a broker: offers of an earlier one are void.
static EPOCH: AtomicU32 = AtomicU32::new(0);
static RETRY_AT_TICKS: AtomicU64 = AtomicU64::new(0);
static RETRY_MS: AtomicU64 = AtomicU64::new(0);
static SEQUENCE: AtomicU64 = AtomicU64::new(0);
static LOCK: Lock = Lock::new();

const RETRY_MAX_MS: u64 = 5000;

/// Where the name of an end that is to be released says what becomes of its connection.
const THEN_SHIFT: u32 = 62;

fn epoch() -> u64 {
    u64::from(EPOCH.load(Ordering::Relaxed) & 0x3fff)
}

/// An offer's identifier, of 62 bits: the epoch, a sequence number, the descriptor.
pub fn offer_id(fd: c_int) -> u64 {
    let epoch = epoch();
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed) & 0xfff_ffff;
    epoch << 48 | sequence << 20 | fd as u64
}

/// Whether the broker that got this offer is still the one that is listened to.
pub fn is_current(id: u64) -> bool {
    FD.load(Ordering::Relaxed) >= 0 && id >> 48 == epoch()
}

pub fn descriptor_of(id: u64) -> c_int {
    (id & 0xf_ffff) as c_int
}

/// Whether there may be messages. One load.
#[inline]
pub fn has_news() -> bool {
    let mailbox = MAILBOX.load(Ordering::Acquire);
    if mailbox.is_null() {
        // Before WELCOME there is no mailbox: ask the socket itself.
        return FD.load(Ordering::Relaxed) >= 0;
    }
    // SAFETY: a page that stays mapped.
    unsafe { (*mailbox).load(Ordering::Acquire) != MAIL_SEEN.load(Ordering::Relaxed) }
}

/// Offers the connection. `holders` as in OFFER. False: no broker now.
pub fn offer(fd: c_int, id: u64, candidate: Candidate, holders: u8) -> bool {
    let role = if candidate.is_acceptor() { Role::Acceptor } else { Role::Connector };
    // What is to be released may be an end of the same socket.
    pays_up()
        && named(fd).is_some_and(|socket| send(ToBroker::Offer { id, role, holders, socket }, &[]))
}

/// A busy connection is not offered: `yasmin status` says why. The first ones of a process are
/// enough, and the broker shows no more.
pub fn stays(fd: c_int, candidate: Candidate, reason: Decline) {
    const MOST: u32 = 16;
    static TOLD: AtomicU32 = AtomicU32::new(0);
    if TOLD.fetch_add(1, Ordering::Relaxed) >= MOST {
        TOLD.store(MOST, Ordering::Relaxed);
        return;
    }
    let role = if candidate.is_acceptor() { Role::Acceptor } else { Role::Connector };
    if let Some(socket) = named(fd) {
        send(ToBroker::Stays { role, reason, socket }, &[]);
    }
}

/// `fd` as the broker is told of it. `None`: it is no socket with addresses.
pub fn named(fd: c_int) -> Option<Socket> {
    let mut raw = [0u8; 28];
    let mut end = |is_peer: bool| -> Option<Endpoint> {
        let mut len = raw.len() as u32;
        // SAFETY: the kernel writes at most `len` bytes.
        let ret = unsafe {
            if is_peer {
                call!(getpeername, fd, raw.as_mut_ptr(), &raw mut len)
            } else {
                call!(getsockname, fd, raw.as_mut_ptr(), &raw mut len)
            }
        };
        // SAFETY: bytes of ours.
        if ret == 0 { unsafe { directory::endpoint(raw.as_ptr(), len as usize) } } else { None }
    };
    // A connection that has ended has no peer any more; then its cookie says enough.
    let local = end(false)?;
    let peer = end(true).unwrap_or(local);
    let cookie = tcp::cookie(fd)?;
    Some(Socket { number: fd as u32, cookie, local, peer })
}

/// The end is closed, or its offer withdrawn; or the connection goes on, and is to be TCP at both ends.
pub fn release(id: u64, then: Then) {
    let name = id | (then as u64) << THEN_SHIFT;
    if is_current(id) && !(pays_up() && releases(name)) {
        owed::push(name);
    }
}

fn releases(name: u64) -> bool {
    let id = name & !(3 << THEN_SHIFT);
    !is_current(id) || send(ToBroker::Release { id, then: Then::of_bits(name >> THEN_SHIFT) }, &[])
}

/// Tells the broker what it could not be told before. False: it cannot now.
#[inline]
pub fn pays_up() -> bool {
    !owed::any() || owed::pay(releases)
}

/// After a close, which holds no lock: where the broker's socket is full, lets the broker have the CPU.
#[inline]
pub fn gives_way() {
    if owed::any() && awaits_room() {
        pays_up();
    }
}

/// In this time the broker reads some hundred messages, or it is stopped, and is not waited for again for a while.
#[cold]
fn awaits_room() -> bool {
    const PATIENCE_MS: usize = 5;
    const PAUSE_US: u64 = 1_000_000;
    static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
    if clock::ticks() < NOT_BEFORE.load(Ordering::Relaxed) {
        return false;
    }
    let mut one = sys::PollFd { fd: FD.load(Ordering::Relaxed), events: sys::POLLOUT, revents: 0 };
    // SAFETY: one pollfd of ours.
    let has_room = unsafe { call!(poll, &raw mut one, 1, PATIENCE_MS) } > 0;
    if !has_room {
        NOT_BEFORE.store(clock::ticks() + clock::us(PAUSE_US), Ordering::Relaxed);
    }
    has_room
}

/// False: it cannot be told now.
pub fn grow(id: u64, class: u8) -> bool {
    is_current(id) && send(ToBroker::Grow { id, class }, &[])
}

/// A broker to talk to, found if need be. Never waits.
pub fn is_there() -> bool {
    if FD.load(Ordering::Relaxed) >= 0 {
        return true;
    }
    if clock::ticks() < RETRY_AT_TICKS.load(Ordering::Relaxed) {
        return false;
    }
    let Some(_guard) = LOCK.acquire() else { return false };
    if FD.load(Ordering::Relaxed) >= 0 {
        return true;
    }
    if let Some(fd) = connect() {
        RETRY_MS.store(0, Ordering::Relaxed);
        EPOCH.fetch_add(1, Ordering::Relaxed);
        MAILBOX.store(core::ptr::null_mut(), Ordering::Release);
        table::set_broker(fd);
        FD.store(fd, Ordering::Release);
        return true;
    }
    let wait = (RETRY_MS.load(Ordering::Relaxed) * 2).clamp(100, RETRY_MAX_MS);
    RETRY_MS.store(wait, Ordering::Relaxed);
    RETRY_AT_TICKS.store(clock::ticks() + clock::us(wait * 1000), Ordering::Relaxed);
    false
}

/// A connection for one request, without HELLO.
pub fn open() -> Option<c_int> {
    let fd = socket()?;
    if !connect_to_path(fd) || !is_trusted(fd) {
        sys::close(fd);
        return None;
    }
    Some(fd)
}

/// On such a connection.
pub fn send_once(fd: c_int, message: ToBroker, passed: &[c_int]) -> bool {
    transmit(fd, message, passed) == MESSAGE_BYTES as isize
}

/// What has come on such a connection.
pub fn receive_once(fd: c_int) -> Option<(FromBroker, Passed)> {
    let mut raw = [0u8; MESSAGE_BYTES];
    let (ret, passed) = receive(fd, &mut raw);
    let message = FromBroker::decode(raw.get(..usize::try_from(ret).ok()?)?).ok()?;
    Some((message, passed))
}

fn socket() -> Option<c_int> {
    const AF_UNIX: c_int = 1;
    const SEQPACKET_NONBLOCK_CLOEXEC: c_int = 5 | 0o4000 | 0o2000000;
    // SAFETY: no memory involved.
    let low = unsafe { call!(socket, AF_UNIX, SEQPACKET_NONBLOCK_CLOEXEC, 0) };
    c_int::try_from(low).ok().filter(|fd| *fd >= 0)
}

fn connect() -> Option<c_int> {
    let fd = move_up(socket()?);
    if !connect_to_path(fd) || !is_trusted(fd) || !greet(fd) {
        sys::close(fd);
        return None;
    }
    Some(fd)
}

/// Programs expect the lowest free number for what they open: keep out of their way.
fn move_up(low: c_int) -> c_int {
    let top = table::own_below();
    let from = if top > 128 { top - 64 } else { top / 2 };
    // SAFETY: no memory involved.
    let high = unsafe { call!(fcntl, low, sys::F_DUPFD_CLOEXEC, from) };
    if high < 0 {
        return low;
    }
    sys::close(low);
    high as c_int
}

/// Another number for `fd`, in the upper half, below the broker's and the residues' where those
/// leave room; negative if there is none.
pub fn copy_high(fd: c_int) -> c_int {
    let top = table::own_below();
    // SAFETY: no memory involved.
    unsafe { call!(fcntl, fd, sys::F_DUPFD_CLOEXEC, top / 2) as c_int }
}

fn connect_to_path(fd: c_int) -> bool {
    let mut address = [0u8; 110];
    address[0] = 1;
    let mut len = 2;
    let mut push = |byte: u8| {
        if len < 109 {
            address[len] = byte;
        }
        len += 1;
    };
    if config::socket_path().next().is_some() {
        config::socket_path().for_each(&mut push);
    } else {
        SYSTEM_DIR.bytes().chain(*b"/").chain(SOCKET_NAME.bytes()).for_each(&mut push);
    }
    if len >= 109 {
        return false;
    }
    // SAFETY: a sockaddr_un of `len` + 1 bytes, NUL-terminated.
    unsafe { call!(connect, fd, address.as_ptr(), len + 1) == 0 }
}

/// Only root's broker and this user's own are told anything, wherever they listen: in a changed
/// root anybody may have made the system's directory.
fn is_trusted(fd: c_int) -> bool {
    let mut cred = [0u32; 3];
    let mut len = 12u32;
    // SAFETY: struct ucred is three 32-bit words.
    let ret = unsafe {
        call!(getsockopt, fd, sys::SOL_SOCKET, sys::SO_PEERCRED, cred.as_mut_ptr(), &raw mut len)
    };
    ret == 0 && process::trusts(cred[1])
}

fn greet(fd: c_int) -> bool {
    const PR_GET_NAME: usize = 16;
    let mut comm = [0u8; COMM_BYTES];
    // SAFETY: the kernel writes 16 bytes.
    unsafe { call!(prctl, PR_GET_NAME, comm.as_mut_ptr()) };
    send_on(fd, ToBroker::Hello { version: CONTROL_VERSION, comm }, &[])
}

fn send(message: ToBroker, passed: &[c_int]) -> bool {
    let fd = FD.load(Ordering::Relaxed);
    fd >= 0 && send_on(fd, message, passed)
}

fn send_on(fd: c_int, message: ToBroker, passed: &[c_int]) -> bool {
    let ret = transmit(fd, message, passed);
    if ret < 0 && ret != -(EAGAIN as isize) {
        lose(fd);
    }
    ret == MESSAGE_BYTES as isize
}

/// With at most two descriptors beside it.
fn transmit(fd: c_int, message: ToBroker, passed: &[c_int]) -> isize {
    let mut raw = message.encode();
    let mut piece = IoVec { base: raw.as_mut_ptr(), len: raw.len() };
    // One cmsghdr: length, SOL_SOCKET, SCM_RIGHTS, descriptors.
    let passed = &passed[..passed.len().min(2)];
    let mut control = [16 + 4 * passed.len() as u64, 1 << 32 | 1, 0];
    for (at, fd) in passed.iter().enumerate() {
        control[2] |= u64::from(*fd as u32) << (32 * at);
    }
    let message = MsgHdr {
        name: core::ptr::null_mut(),
        namelen: 0,
        iov: &raw mut piece,
        iovlen: 1,
        control: if passed.is_empty() {
            core::ptr::null_mut()
        } else {
            control.as_mut_ptr().cast()
        },
        controllen: if passed.is_empty() { 0 } else { 24 },
        flags: 0,
    };
    // SAFETY: message and what it names are ours.
    unsafe { call!(sendmsg, fd, &raw const message, MSG_DONTWAIT | MSG_NOSIGNAL) }
}

/// The broker is gone: offers that were out are void.
fn lose(fd: c_int) {
    if FD.compare_exchange(fd, -1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        table::clear(fd);
        sys::close(fd);
        RETRY_AT_TICKS.store(0, Ordering::Relaxed);
        RETRY_MS.store(0, Ordering::Relaxed);
    }
}

/// The program puts something else under the socket's number.
pub fn abandon(fd: c_int) {
    if FD.compare_exchange(fd, -1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        table::clear(fd);
    }
}

/// Until `after_fork` no message is read, and no channel attached that one brings: the child has no memory
/// that nobody there knows of.
pub fn before_fork() {
    LOCK.before_fork();
}

pub fn after_fork() {
    LOCK.after_fork();
}

/// In a forked child: the socket is the parent's.
pub fn forget_in_child() {
    LOCK.reset();
    owed::forget();
    hang_up();
}

/// This process needs it no more.
pub fn leave() {
    if let Some(_guard) = LOCK.acquire() {
        hang_up();
    }
}

fn hang_up() {
    let fd = FD.swap(-1, Ordering::AcqRel);
    if fd >= 0 {
        table::clear(fd);
        sys::close(fd);
    }
    MAILBOX.store(core::ptr::null_mut(), Ordering::Release);
    EPOCH.fetch_add(1, Ordering::Relaxed);
    RETRY_AT_TICKS.store(0, Ordering::Relaxed);
    RETRY_MS.store(0, Ordering::Relaxed);
}

/// Descriptors that came with a message; closed unless taken.
pub struct Passed {
    fds: [c_int; 4],
    count: usize,
}

impl Passed {
    pub fn take(&mut self, index: usize) -> Option<c_int> {
        let fd = core::mem::replace(self.fds.get_mut(index).filter(|_| index < self.count)?, -1);
        Some(fd)
    }

    /// The first two, or none.
    fn take_both(&mut self) -> Option<[c_int; 2]> {
        let second = self.take(1)?;
        Some([self.take(0)?, second])
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        for fd in &self.fds[..self.count] {
            if *fd >= 0 {
                sys::close(*fd);
            }
        }
    }
}

/// What the broker says to an offer.
pub enum Reply {
    Channel { handout: Handout, cookie: u64 },
    Declined { id: u64, reason: Decline },
}

/// Reads what the broker sent, and hands on its replies. Bounded, never waits. Of several threads one does it, for all.
pub fn read_messages(mut reply: impl FnMut(Reply)) {
    let Some(_guard) = LOCK.try_acquire() else { return };
    pays_up();
    for _ in 0..64 {
        let fd = FD.load(Ordering::Relaxed);
        if fd < 0 {
            return;
        }
        let mailbox = MAILBOX.load(Ordering::Acquire);
        if !mailbox.is_null() {
            // Before the read: what comes during it is news again.
            // SAFETY: a page that stays mapped.
            MAIL_SEEN.store(unsafe { (*mailbox).load(Ordering::Acquire) }, Ordering::Relaxed);
        }
        let mut raw = [0u8; MESSAGE_BYTES];
        let (ret, passed) = receive(fd, &mut raw);
        if ret == -(EAGAIN as isize) {
            return;
        }
        if ret <= 0 {
            lose(fd);
            return;
        }
        match FromBroker::decode(&raw[..ret as usize]) {
            Ok(message) => {
                if let Some(one) = take(fd, message, passed) {
                    reply(one);
                }
            }
            Err(_) => lose(fd),
        }
    }
    // More than that are left for the next call.
    MAIL_SEEN.store(u64::MAX, Ordering::Relaxed);
}

fn receive(fd: c_int, raw: &mut [u8; MESSAGE_BYTES]) -> (isize, Passed) {
    let mut piece = IoVec { base: raw.as_mut_ptr(), len: raw.len() };
    let mut control = [0u64; 4];
    let mut message = MsgHdr {
        name: core::ptr::null_mut(),
        namelen: 0,
        iov: &raw mut piece,
        iovlen: 1,
        control: control.as_mut_ptr().cast(),
        controllen: 32,
        flags: 0,
    };
    // SAFETY: message and what it names are ours.
    let ret = unsafe { call!(recvmsg, fd, &raw mut message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) };
    let mut passed = Passed { fds: [-1; 4], count: 0 };
    if ret > 0 && message.controllen >= 16 && control[1] == (1 << 32 | 1) {
        let bytes = (control[0] as usize).saturating_sub(16).min(16);
        passed.count = bytes / 4;
        for i in 0..passed.count {
            passed.fds[i] = (control[2 + i / 2] >> (32 * (i % 2))) as u32 as c_int;
        }
    }
    (ret, passed)
}

fn take(fd: c_int, message: FromBroker, mut passed: Passed) -> Option<Reply> {
    match message {
        FromBroker::Welcome { .. } => {
            let mailbox = passed.fds.first().map(|at| Region::first(*at, layout::PAGE_BYTES));
            let sound = mailbox.filter(Region::is_sound);
            // SAFETY: nobody can cut it.
            if let Some(Ok(page)) = sound.map(|page| unsafe { page.map_to_read() }) {
                MAIL_SEEN.store(u64::MAX, Ordering::Relaxed);
                MAILBOX.store(page.keep().cast(), Ordering::Release);
            }
            None
        }
        FromBroker::Refused { .. } => {
            lose(fd);
            RETRY_AT_TICKS.store(u64::MAX, Ordering::Relaxed);
            None
        }
        FromBroker::Channel { id, cookie, role, max_class, medium, .. } => {
            // Where this process has one number left, one comes alone.
            let Some([channel_fd, side_fd]) = passed.take_both() else {
                send(ToBroker::Release { id, then: Then::Closes }, &[]);
                return Some(Reply::Declined { id, reason: Decline::Memory });
            };
            let is_acceptor = role == Role::Acceptor;
            let handout = Handout { id, is_acceptor, max_class, medium, channel_fd, side_fd };
            Some(Reply::Channel { handout, cookie })
        }
        FromBroker::Decline { id, reason } => Some(Reply::Declined { id, reason }),
        // To those who ask on a connection of their own.
        FromBroker::Status { .. }
        | FromBroker::Prepared
        | FromBroker::Joined { .. }
        | FromBroker::Send
        | FromBroker::Left
        | FromBroker::Residue { .. }
        | FromBroker::Counted { .. } => None,
    }
}

/// Waits up to `timeout_ms` for a message. Only for tests that want the channel at once.
pub fn wait(timeout_ms: u64) {
    let mut one = sys::PollFd { fd: FD.load(Ordering::Relaxed), events: sys::POLLIN, revents: 0 };
    // SAFETY: one pollfd of ours.
    unsafe { call!(poll, &raw mut one, 1, timeout_ms) };
}
