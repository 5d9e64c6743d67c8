//! TCP connections to other guests of this host, moved to vsock (docs/architecture.md "Guests").
//!
//! connect and accept make the TCP connection as always. If the peer's address is another
//! guest's, the brokers of the two join a vsock connection, which is put under the program's
//! number before the call returns; the TCP socket stays behind it at a high number, and answers
//! for names and options (`behind`). From then on the program's calls are the kernel's own.
//!
//! Nothing is sent by TCP before, and afterwards only its end. The connector decides; so either
//! both ends change over, or none.
//!
//! | file | noun |
//! |---|---|
//! | `directory` | which address is which guest's |
//! | `backlog` | connections that wait for this process while it connects |
//! | `change` | the vsock connection takes the socket's place |
//! | `options`, `moved` | options and calls afterwards |
//!
//! Storey 4: life.

mod backlog;
mod change;
pub mod directory;
mod moved;
mod options;

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use yasmin_control::{CONTROL_VERSION, FromBroker, Role, ToBroker, guest, negative};

use crate::entry::{self, Entry};
use crate::request::{Request, wait, wait_ns, wait_readable};
use crate::sys::{self, MSG_DONTWAIT, MSG_NOSIGNAL, POLLIN, POLLOUT, SOL_SOCKET, call};
use crate::{clock, memory, process, settings, table, tcp};

pub use moved::{abandon, end_unread, received, send, sent, shutdown, unname, unread};
pub use options::{refuses_option, shares_option};

use backlog::Backlog;
use change::Change;
pub use change::looked_in_vain;
pub use directory::endpoint;
use directory::{AF_INET, AF_INET6, table};

/// The acceptor has said READY: the connector answers at once, or something is very wrong.
const GO_WITHIN_MS: u64 = 2000;

/// Whether a new socket may come to be moved.
pub fn marks(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    matches!(domain as u16, AF_INET | AF_INET6)
        && kind & 0xff == 1
        && matches!(protocol, 0 | sys::IPPROTO_TCP)
        && table().is_some()
}

/// Before the program's connect: `Some` if the peer is in another guest that may answer.
///
/// # Safety
/// `addr` as the program passed it.
pub unsafe fn prepare(fd: c_int, addr: *const c_void, len: u32) -> Option<Request> {
    let table = table()?;
    let addr = addr.cast::<u8>();
    let len = len as usize;
    if !matches!(entry::get(fd), Entry::Fresh) || !memory::is_readable(addr, len.min(28)) {
        return None;
    }
    // SAFETY: readable.
    let to = unsafe { endpoint(addr, len) }?;
    yasmin_control::directory::find(table, &to.address)?;
    if negative::holds(table, &to, clock::now_ns()) {
        return None;
    }
    process::refresh();
    if process::is_borrowed() || !fits(fd) || is_watched(fd) {
        return None;
    }
    let saved = sys::errno();
    let request = Request::open();
    let message = ToBroker::Prepare { version: CONTROL_VERSION, to };
    let until_ns = clock::now_ns() + wait_ns();
    let request = request.filter(|request| {
        matches!(request.ask(message, &[], until_ns), Some((FromBroker::Prepared, _)))
    });
    sys::set_errno(saved);
    request
}

/// What the vsock connection could not stand in for.
fn fits(fd: c_int) -> bool {
    const SO_ZEROCOPY: c_int = 60;
    const TCP_FASTOPEN_CONNECT: c_int = 30;
    let option = |level, name| sys::getsockopt_u64(fd, level, name, 4).unwrap_or(0) as i32;
    option(SOL_SOCKET, sys::SO_PROTOCOL) == sys::IPPROTO_TCP
        && option(SOL_SOCKET, SO_ZEROCOPY) == 0
        && option(sys::SOL_TCP, TCP_FASTOPEN_CONNECT) == 0
        && !settings::need_tcp(fd)
}

/// A set watches the TCP socket by now, and would go on to.
fn is_watched(fd: c_int) -> bool {
    table::watched(fd).is_none_or(|first| !first.load(Ordering::Relaxed).is_null())
}

/// After the program's connect, which has succeeded or is in progress: true if the connection
/// goes by vsock now.
pub fn connected(fd: c_int, request: &Request, is_in_progress: bool) -> bool {
    let saved = sys::errno();
    let until_ns = clock::now_ns() + wait_ns();
    // A connect that does not wait may still tell its error to the program: nothing is asked
    // here that would take it away.
    let stands = !is_in_progress || wait(fd, POLLOUT, until_ns);
    let is_moved = stands
        && tcp::is_plain_established(fd)
        && move_connector(fd, request, is_in_progress, until_ns);
    sys::set_errno(saved);
    is_moved
}

fn move_connector(fd: c_int, request: &Request, is_in_progress: bool, until_ns: u64) -> bool {
    let joined = if is_in_progress {
        let mut backlog = Backlog::of(fd);
        request.join(fd, Role::Connector, until_ns, |fd, until_ns| backlog.wait(fd, until_ns))
    } else {
        request.join(fd, Role::Connector, until_ns, wait_readable)
    };
    let Some((vsock, _)) = joined else { return false };
    let Some(change) = Change::begin(fd, vsock) else { return false };
    if say(vsock, &guest::GO) != guest::GO.len() as isize {
        return false;
    }
    change.finish();
    true
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
    let is_guest = directory::peer_end(fd)
        .is_some_and(|peer| yasmin_control::directory::find(table, &peer.address).is_some());
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
    let Some(request) = Request::open() else { return Accepted::Tcp };
    let until_ns = clock::now_ns() + wait_ns();
    let joined = request.join(fd, Role::Acceptor, until_ns, wait_readable);
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
            sys::setsockopt_bytes(fd, SOL_SOCKET, sys::SO_LINGER, &sys::LINGER_0);
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
