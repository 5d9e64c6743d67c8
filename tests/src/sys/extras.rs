//! Calls that few programs make: the error queue, control data, TLS in the kernel, data with
//! the SYN.

use std::io::Result;
use std::mem::{size_of, zeroed};
use std::net::SocketAddr;

use super::{Fd, check, check_int, encode, header_of, set_option, vector_of, vector_of_mut};
use crate::sys::libc::{self, c_int, c_void, socklen_t};

/// Room for control data, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 512]);

/// One message from the error queue: the ranges of zero-copy sends that are done.
pub fn error_queue(fd: Fd) -> Result<String> {
    let mut control = Control([0; 512]);
    let mut header = header_of(&mut []);
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Control>() as _;
    // SAFETY: header and control data outlive the call.
    check(unsafe { libc::recvmsg(fd, &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) })?;
    // SAFETY: the kernel filled the control data and its length.
    let found = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const header);
        if head.is_null() {
            return Ok("empty".to_owned());
        }
        libc::CMSG_DATA(head).cast::<libc::sock_extended_err>().read_unaligned()
    };
    Ok(format!("origin {} {}-{}", found.ee_origin, found.ee_info, found.ee_data))
}

/// recvmsg with room for control data: the bytes, and the kinds of control messages.
pub fn receive_with_control(fd: Fd, out: &mut [u8]) -> Result<(usize, Vec<(c_int, c_int)>)> {
    let mut control = Control([0; 512]);
    let mut vector = [vector_of_mut(out)];
    let mut header = header_of(&mut vector);
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Control>() as _;
    // SAFETY: header, buffer and control data outlive the call.
    let got = check(unsafe { libc::recvmsg(fd, &raw mut header, 0) })?;
    let mut kinds = Vec::new();
    // SAFETY: the kernel filled the control data and its length.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&raw const header);
        while !head.is_null() {
            kinds.push(((*head).cmsg_level, (*head).cmsg_type));
            head = libc::CMSG_NXTHDR(&raw const header, head);
        }
    }
    Ok((got, kinds))
}

/// sendmsg of a TLS record of `kind`, as alerts and handshakes are.
pub fn send_record(fd: Fd, data: &[u8], kind: u8) -> Result<usize> {
    const TLS_SET_RECORD_TYPE: c_int = 1;
    let mut control = Control([0; 512]);
    let mut vector = [vector_of(data)];
    let mut header = header_of(&mut vector);
    header.msg_control = (&raw mut control).cast();
    // SAFETY: the control data has room for one byte's message; all outlives the call.
    check(unsafe {
        header.msg_controllen = libc::CMSG_SPACE(1) as _;
        let head = libc::CMSG_FIRSTHDR(&raw const header);
        (*head).cmsg_level = libc::SOL_TLS;
        (*head).cmsg_type = TLS_SET_RECORD_TYPE;
        (*head).cmsg_len = libc::CMSG_LEN(1) as _;
        libc::CMSG_DATA(head).write(kind);
        libc::sendmsg(fd, &raw const header, libc::MSG_NOSIGNAL)
    })
}

/// The kernel's TLS under the connection.
pub fn upper_layer(fd: Fd) -> Result<()> {
    let name = *b"tls";
    set_option(fd, libc::SOL_TCP, libc::TCP_ULP, &name)
}

/// A key that both ends know, for one direction.
pub fn tls_key(fd: Fd, sends: bool) -> Result<()> {
    // SAFETY: plain numbers.
    let mut info: libc::tls12_crypto_info_aes_gcm_128 = unsafe { zeroed() };
    info.info.version = libc::TLS_1_2_VERSION;
    info.info.cipher_type = libc::TLS_CIPHER_AES_GCM_128;
    info.key = [7; 16];
    info.salt = [3; 4];
    let direction = if sends { libc::TLS_TX } else { libc::TLS_RX };
    set_option(fd, libc::SOL_TLS, direction, &info)
}

/// Connects with the first bytes in the SYN, where the kernel may.
pub fn send_fast_open(fd: Fd, data: &[u8], to: SocketAddr) -> Result<usize> {
    let (name, len) = encode(to);
    let at = data.as_ptr().cast::<c_void>();
    // SAFETY: data and address outlive the call.
    check(unsafe {
        let flags = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
        libc::sendto(fd, at, data.len(), flags, (&raw const name).cast(), len)
    })
}

/// connect to no family: the association is dissolved.
pub fn disconnect(fd: Fd) -> Result<()> {
    // SAFETY: all-zero is AF_UNSPEC.
    let name: libc::sockaddr = unsafe { zeroed() };
    let len = size_of::<libc::sockaddr>() as socklen_t;
    // SAFETY: `name` outlives the call.
    check_int(unsafe { libc::connect(fd, &raw const name, len) }).map(drop)
}

/// Bytes not yet sent: SIOCOUTQNSD.
pub fn unsent(fd: Fd) -> Result<usize> {
    const SIOCOUTQNSD: libc::c_ulong = 0x894b;
    super::count_of(fd, SIOCOUTQNSD)
}
