//! What the kernel knows of a TCP connection.
//!
//! Storey 1: system.

use core::ffi::c_int;

use yasmin_call::receive::Ahead;

use crate::sys::{
    self, EAGAIN, FIONREAD, IoVec, MsgHdr, PollFd, Ret, SIOCOUTQ, SOL_SOCKET, SOL_TCP, TCP_INFO,
    call,
};
use crate::timeout::Timeout;
use crate::{process, real};

/// Offsets in struct tcp_info (linux/tcp.h).
pub const BYTES_ACKED: usize = 120;
pub const BYTES_RECEIVED: usize = 128;
const NOTSENT_BYTES: usize = 144;
pub const BYTES_SENT: usize = 200;
const BYTES_RETRANS: usize = 208;
/// What every supported kernel tells.
const INFO_BYTES: usize = 216;

const ESTABLISHED: u8 = 1;
const OPT_SYN_DATA: u8 = 0x20;

/// Two looks that must agree; a connection under full traffic needs a few.
const TRIES: u32 = 1000;

fn info(fd: c_int) -> Option<[u8; INFO_BYTES]> {
    let mut info = [0u8; INFO_BYTES];
    let mut len = INFO_BYTES as u32;
    // SAFETY: the kernel fills at most `len` bytes of `info`.
    let ret = unsafe { call!(getsockopt, fd, SOL_TCP, TCP_INFO, info.as_mut_ptr(), &raw mut len) };
    (ret >= 0 && len as usize == INFO_BYTES).then_some(info)
}

/// The connection's state (TCP_ESTABLISHED and so on), 0 if it cannot be had.
pub fn state(fd: c_int) -> u8 {
    info(fd).map_or(0, |info| info[0])
}

fn u64_at(info: &[u8; INFO_BYTES], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&info[at..at + 8]);
    u64::from_ne_bytes(raw)
}

fn u32_at(info: &[u8; INFO_BYTES], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&info[at..at + 4]);
    u32::from_ne_bytes(raw)
}

/// Bytes that can be read from the kernel.
pub fn unread(fd: c_int) -> usize {
    queue(fd, FIONREAD).unwrap_or(0) as usize
}

/// Bytes that the peer's kernel did not acknowledge, those included that were not sent yet.
pub fn unacknowledged(fd: c_int) -> u64 {
    queue(fd, SIOCOUTQ).unwrap_or(0)
}

fn queue(fd: c_int, request: usize) -> Option<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one int.
    let ret = unsafe { call!(ioctl, fd, request, &raw mut bytes) };
    (ret >= 0 && bytes >= 0).then_some(bytes as u64)
}

/// The kernel's name for the socket, which no other one ever has.
pub fn cookie(fd: c_int) -> Option<u64> {
    sys::getsockopt_u64(fd, SOL_SOCKET, sys::SO_COOKIE, 8)
}

/// Whether it is a TCP socket, without waiting for its lock.
pub fn is_tcp(fd: c_int) -> bool {
    sys::getsockopt_u64(fd, SOL_SOCKET, sys::SO_PROTOCOL, 4) == Some(sys::IPPROTO_TCP as u64)
}

/// Takes the error that the next call would tell of, 0 for none.
pub fn take_error(fd: c_int) -> i32 {
    const SO_ERROR: c_int = 4;
    if sys::poll_now(fd, 0) & sys::POLLERR == 0 {
        return 0;
    }
    sys::getsockopt_u64(fd, SOL_SOCKET, SO_ERROR, 4).unwrap_or(0) as i32
}

/// Whether it has an error to tell of, and nothing that comes before it.
pub fn is_at_error(fd: c_int) -> bool {
    has_nothing_but_error(fd, sys::poll_now(fd, 0))
}

fn has_nothing_but_error(fd: c_int, found: i16) -> bool {
    found & sys::POLLERR != 0 && queue(fd, FIONREAD).is_none_or(|len| len == 0)
}

/// What a read that has something already finds behind it.
pub fn ahead(fd: c_int) -> Ahead {
    let found = sys::poll_now(fd, sys::POLLIN);
    if has_nothing_but_error(fd, found) || queue(fd, sys::SIOCATMARK) == Some(1) {
        return Ahead::Stop;
    }
    // poll does not tell of fewer than SO_RCVLOWAT.
    let is_some = found & sys::POLLIN != 0 || queue(fd, FIONREAD).is_some_and(|len| len > 0);
    if is_some { Ahead::Bytes } else { Ahead::Nothing }
}

/// Whether an urgent byte is among what is unread, and the program has not taken it.
pub fn is_at_urgent(fd: c_int) -> bool {
    sys::poll_now(fd, sys::POLLPRI) & sys::POLLPRI != 0 || queue(fd, sys::SIOCATMARK) == Some(1)
}

/// Whether it is established and began without data in its SYN.
pub fn is_plain_established(fd: c_int) -> bool {
    info(fd).is_some_and(|info| info[0] == ESTABLISHED && info[5] & OPT_SYN_DATA == 0)
}

/// What went over an established connection before this process had it.
pub struct History {
    /// It called connect.
    pub is_connector: bool,
    /// As `sent_position` and `read_position`.
    pub sent: u64,
    pub read: u64,
}

/// `None`: it is no such connection, or the kernel does not tell which end it is.
///
/// A connector's SYN counts as acknowledged (see `sent_position`) and not as sent. So what was
/// acknowledged, with what is under way, is what was sent, or one more, unless a queueing
/// discipline dropped a segment and the kernel counted it twice: then nobody can say.
pub fn history(fd: c_int) -> Option<History> {
    // First: of what is no socket, ioctl may ask for anything.
    if !is_plain_established(fd) {
        return None;
    }
    let before = queue(fd, SIOCOUTQ)?;
    let info = info(fd)?;
    if queue(fd, SIOCOUTQ)? != before {
        return None;
    }
    let not_sent = u64::from(u32_at(&info, NOTSENT_BYTES));
    let acked = u64_at(&info, BYTES_ACKED);
    let once = u64_at(&info, BYTES_SENT).checked_sub(u64_at(&info, BYTES_RETRANS))?;
    let is_connector = match (acked + before).checked_sub(not_sent + once)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let sent = (acked + before).checked_sub(u64::from(is_connector))?;
    Some(History { is_connector, sent, read: read_position(fd, 0)? })
}

/// Bytes that this end wrote to the connection so far. Nobody else may be writing. `counted`: what
/// this end counted itself, which is never more.
///
/// Acknowledged plus still queued: unlike bytes_sent, exact also when a queueing discipline
/// dropped a segment at its first attempt. The connector's count includes its SYN.
pub fn sent_position(fd: c_int, is_connector: bool, counted: u64) -> Option<u64> {
    let mut queued = queue(fd, SIOCOUTQ)?;
    for _ in 0..TRIES {
        let acked = u64_at(&info(fd)?, BYTES_ACKED);
        let position = (acked + queued).checked_sub(u64::from(is_connector));
        // What was acknowledged between the two makes the sum too large, as do others' bytes.
        if position == Some(counted) {
            return position;
        }
        let again = queue(fd, SIOCOUTQ)?;
        if again == queued {
            return position;
        }
        queued = again;
    }
    None
}

/// Bytes that this end's program took from the connection so far. Nobody else may be reading.
///
/// The kernel counts the peer's FIN as a byte received (measured), but not as unread. Once the
/// connection is closed it does not say whether a FIN came: then `counted` is the answer, which
/// this end kept itself. It is never more than was taken.
pub fn read_position(fd: c_int, counted: u64) -> Option<u64> {
    const TIME_WAIT: u8 = 6;
    const CLOSE: u8 = 7;
    const CLOSE_WAIT: u8 = 8;
    const LAST_ACK: u8 = 9;
    const CLOSING: u8 = 11;
    let has_fin = |state| matches!(state, TIME_WAIT | CLOSE_WAIT | LAST_ACK | CLOSING);
    let mut unread = queue(fd, FIONREAD)?;
    for _ in 0..TRIES {
        // The kernel reads the state before it locks the socket, and the counters after: a FIN
        // in between is counted and not told. Two readings that agree had none.
        let first = info(fd)?;
        let received = u64_at(&first, BYTES_RECEIVED);
        // A FIN that is told was counted, and what came since `unread` makes the difference too
        // large, as do a FIN that is not told and what others took.
        if received.checked_sub(u64::from(has_fin(first[0])) + unread) == Some(counted) {
            return Some(counted);
        }
        let second = info(fd)?;
        let is_steady = first[0] == second[0] && received == u64_at(&second, BYTES_RECEIVED);
        let again = queue(fd, FIONREAD)?;
        if again == unread && is_steady {
            if first[0] == CLOSE {
                return Some(counted);
            }
            return received.checked_sub(u64::from(has_fin(first[0])) + unread);
        }
        unread = again;
    }
    None
}

/// Whether this end's FIN is still to come, and no reset was: until then each byte that was
/// acknowledged is one of the program's.
pub fn may_send(fd: c_int) -> bool {
    const ESTABLISHED: u8 = 1;
    const CLOSE_WAIT: u8 = 8;
    info(fd).is_some_and(|info| matches!(info[0], ESTABLISHED | CLOSE_WAIT))
}

/// Whether the kernel has seen the peer go, or an error.
pub fn is_over(fd: c_int) -> bool {
    let over = sys::POLLERR | sys::POLLHUP | sys::POLLRDHUP;
    sys::poll_now(fd, sys::POLLRDHUP) & over != 0
}

/// Whether the peer's FIN is here, or more.
pub fn is_ended(fd: c_int) -> bool {
    sys::poll_now(fd, sys::POLLRDHUP) & sys::POLLRDHUP != 0
}

/// Whether the program wants to be told with what it receives how much is unread.
pub fn tells_unread(fd: c_int) -> bool {
    sys::getsockopt_u64(fd, SOL_TCP, sys::TCP_INQ, 4).is_some_and(|value| value != 0)
}

/// What the kernel tells by TCP_INQ, which is set: bytes behind an urgent mark, too, unlike
/// FIONREAD. Moves where peeks begin, if SO_PEEK_OFF is set.
///
/// # Errors
/// Minus errno: the connection's own error, which the kernel has told with that.
pub fn inquiry(fd: c_int) -> Result<c_int, Ret> {
    const CONTROL_BYTES: usize = 256;
    const HEAD_BYTES: usize = 16;
    let mut byte = 0u8;
    let mut piece = IoVec { base: (&raw mut byte).cast(), len: 1 };
    // As many as other options may have the kernel tell beside it.
    let mut control = [0u64; CONTROL_BYTES / 8];
    let mut message = MsgHdr {
        name: core::ptr::null_mut(),
        namelen: 0,
        iov: &raw mut piece,
        iovlen: 1,
        control: control.as_mut_ptr().cast(),
        controllen: CONTROL_BYTES,
        flags: 0,
    };
    let flags = sys::MSG_PEEK | sys::MSG_DONTWAIT;
    // SAFETY: the kernel writes into the byte and the control buffer.
    match unsafe { call!(recvmsg, fd, &raw mut message, flags) } {
        // Nothing, or an urgent byte.
        error if error == -(EAGAIN as Ret) => {
            return Ok(c_int::from(queue(fd, sys::SIOCATMARK) == Some(1)));
        }
        error if error < 0 => return Err(error),
        _ => {}
    }
    let word = |at: usize| (control[at / 8] >> (at % 8 * 8)) as u32;
    let mut at = 0;
    while at + HEAD_BYTES + 4 <= message.controllen.min(CONTROL_BYTES) {
        if (word(at + 8), word(at + 12)) == (SOL_TCP as u32, sys::TCP_INQ as u32) {
            return Ok(word(at + HEAD_BYTES) as c_int);
        }
        at += (control[at / 8] as usize).max(HEAD_BYTES).next_multiple_of(8);
    }
    Ok(queue(fd, FIONREAD).unwrap_or(0) as c_int + c_int::from(is_ended(fd)))
}

/// Where a peek begins, in bytes behind the first unread one that the kernel has: SO_PEEK_OFF.
/// `None`: the option is off.
pub fn peek_offset(fd: c_int) -> Option<usize> {
    let (mut offset, mut len): (c_int, u32) = (-1, 4);
    // SAFETY: the kernel writes at most four bytes.
    unsafe {
        call!(getsockopt, fd, SOL_SOCKET, sys::SO_PEEK_OFF, &raw mut offset, &raw mut len);
    }
    usize::try_from(offset).ok()
}

pub fn set_peek_offset(fd: c_int, offset: usize) {
    let offset = c_int::try_from(offset).unwrap_or(c_int::MAX);
    // SAFETY: the kernel reads four bytes.
    unsafe { call!(setsockopt, fd, SOL_SOCKET, sys::SO_PEEK_OFF, &raw const offset, 4) };
}

/// Sends a reset to the peer; the descriptor stays.
pub fn reset(fd: c_int) {
    if process::is_sandboxed() {
        return;
    }
    let unspecified = [0u16; 8];
    // SAFETY: an AF_UNSPEC address of 16 bytes: tcp_disconnect.
    unsafe { call!(connect, fd, unspecified.as_ptr(), 16) };
}

/// SO_RCVTIMEO or SO_SNDTIMEO.
pub fn timeout(fd: c_int, option: c_int) -> Timeout {
    let mut time = [0i64; 2];
    let mut len = 16u32;
    // SAFETY: a struct timeval of ours.
    let ret = unsafe { call!(getsockopt, fd, SOL_SOCKET, option, time.as_mut_ptr(), &raw mut len) };
    let ns = time[0].saturating_mul(1_000_000_000).saturating_add(time[1] * 1000);
    Timeout { ns: if ret < 0 || ns == 0 { -1 } else { ns } }
}

/// Whether the descriptor's calls do not wait.
pub fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: no memory involved.
    let flags = unsafe { call!(fcntl, fd, sys::F_GETFL) };
    flags & sys::O_NONBLOCK as isize != 0
}

/// Sleeps until one of `events` is there, in libc's poll: any handler ends it. Returns what
/// poll found, or minus errno: EAGAIN after the socket's own timeout.
pub fn sleep_until(fd: c_int, events: i16, option: c_int) -> Ret {
    poll(fd, events, timeout(fd, option))
}

/// The same, with a timeout of its own.
pub fn poll(fd: c_int, events: i16, timeout: Timeout) -> Ret {
    let mut one = PollFd { fd, events, revents: 0 };
    // SAFETY: one pollfd of ours.
    let ret = unsafe { real::poll(&raw mut one, 1, timeout.ms()) };
    match ret {
        0 => -(EAGAIN as Ret),
        1.. => Ret::from(one.revents),
        _ => -(sys::errno() as Ret),
    }
}

/// SO_RCVLOWAT, in bytes.
pub fn set_low_water(fd: c_int, bytes: u32) {
    sys::setsockopt_bytes(fd, sys::SOL_SOCKET, sys::SO_RCVLOWAT, &bytes.to_ne_bytes());
}
