//! What this process has at a descriptor: the table's entries, as objects.
//!
//! Storey 3: connection.

use core::ffi::c_int;

use crate::conn::{self, Conn};
use crate::set::{self, Set};
use crate::table::{Candidate, Kind};
use crate::{process, table};

pub enum Entry {
    Nothing,
    Candidate(Candidate),
    Conn(&'static Conn),
    Set(&'static Set),
    /// A descriptor of the library's own: the broker's, a residue, a TCP socket behind.
    Own,
    /// A TCP socket, made by this process and not used yet.
    Fresh,
    /// Another thread is about to close it, or to replace it.
    Leaving,
    /// A connection that goes by vsock, with the TCP socket behind it.
    Guest(c_int),
}

#[inline]
fn decode(raw: u64) -> Entry {
    match table::kind(raw) {
        Kind::Nothing | Kind::Ghost(_) => Entry::Nothing,
        Kind::Candidate(candidate) => Entry::Candidate(candidate),
        // SAFETY: an address that the table holds.
        Kind::Conn(address) => Entry::Conn(unsafe { conn::of_address(address) }),
        // SAFETY: as above.
        Kind::Set(address) => Entry::Set(unsafe { set::of_address(address) }),
        Kind::Own => Entry::Own,
        Kind::Fresh => Entry::Fresh,
        Kind::Leaving => Entry::Leaving,
        Kind::Guest(behind) => Entry::Guest(behind),
    }
}

/// What the calling process has at `fd`.
#[inline]
pub fn get(fd: c_int) -> Entry {
    match table::raw(fd) {
        0 => Entry::Nothing,
        raw if process::is_borrowed() => {
            // The lender's own descriptors are not the child's to close either.
            if matches!(table::kind(raw), Kind::Own) { Entry::Own } else { Entry::Nothing }
        }
        raw => decode(raw),
    }
}

/// The same, or what comes there next.
pub fn after_leaving(fd: c_int) -> Entry {
    match get(fd) {
        Entry::Leaving => {
            table::await_leaving(fd);
            get(fd)
        }
        entry => entry,
    }
}

/// What the process has there whose memory this is.
pub fn of_lender(fd: c_int) -> Entry {
    decode(table::raw(fd))
}

pub fn conn_of(fd: c_int) -> Option<&'static Conn> {
    match get(fd) {
        Entry::Conn(conn) => Some(conn),
        _ => None,
    }
}

/// A descriptor more names the connection.
pub fn name(conn: &'static Conn, fd: c_int) {
    conn.one_more_name(fd);
    table::set_conn(fd, conn.address());
    set::numbers::number_is_back(conn, fd);
}
