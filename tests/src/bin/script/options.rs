//! Socket options by name.

use std::io::{Error, Result};

use yasmin_tests::sys::{self, Fd, errno_name, libc};

use crate::{ok, wrong};

fn option_of(name: &str) -> Result<(i32, i32)> {
    let socket = libc::SOL_SOCKET;
    Ok(match name {
        "nodelay" => (libc::SOL_TCP, libc::TCP_NODELAY),
        "cork" => (libc::SOL_TCP, libc::TCP_CORK),
        "maxseg" => (libc::SOL_TCP, libc::TCP_MAXSEG),
        "keepidle" => (libc::SOL_TCP, libc::TCP_KEEPIDLE),
        "usertimeout" => (libc::SOL_TCP, libc::TCP_USER_TIMEOUT),
        "timestamp" => (socket, libc::SO_TIMESTAMP),
        "keepalive" => (socket, libc::SO_KEEPALIVE),
        "lowat" => (socket, libc::SO_RCVLOWAT),
        "error" => (socket, libc::SO_ERROR),
        "type" => (socket, libc::SO_TYPE),
        "domain" => (socket, libc::SO_DOMAIN),
        "protocol" => (socket, libc::SO_PROTOCOL),
        "listening" => (socket, libc::SO_ACCEPTCONN),
        "rcvbuf" => (socket, libc::SO_RCVBUF),
        "sndbuf" => (socket, libc::SO_SNDBUF),
        "oobinline" => (socket, libc::SO_OOBINLINE),
        "reuseaddr" => (socket, libc::SO_REUSEADDR),
        "zerocopy" => (socket, libc::SO_ZEROCOPY),
        "timestamping" => (socket, libc::SO_TIMESTAMPING),
        "timestampnew" => (socket, 63),
        "timestampnsnew" => (socket, 64),
        "peekoff" => (socket, libc::SO_PEEK_OFF),
        "busypoll" => (socket, libc::SO_BUSY_POLL),
        "timestampns" => (socket, libc::SO_TIMESTAMPNS),
        "timestampingnew" => (socket, 65),
        "inq" => (libc::SOL_TCP, libc::TCP_INQ),
        "fastopen" => (libc::SOL_TCP, libc::TCP_FASTOPEN),
        "fastopenconnect" => (libc::SOL_TCP, libc::TCP_FASTOPEN_CONNECT),
        "notsent" => (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT),
        "priority" => (socket, libc::SO_PRIORITY),
        other => return Err(wrong(other)),
    })
}

pub fn set(fd: Fd, option: &str, value: i32) -> Result<String> {
    match option {
        "rcvtimeo" => sys::set_timeout(fd, libc::SO_RCVTIMEO, value.into()),
        "sndtimeo" => sys::set_timeout(fd, libc::SO_SNDTIMEO, value.into()),
        // SIGIO for what comes, by the one call or the other.
        "async" => sys::set_async(fd, value != 0, false),
        "asyncbyioctl" => sys::set_async(fd, value != 0, true),
        "linger" => sys::set_linger(fd, (value >= 0).then_some(value)),
        other => {
            let (level, option) = option_of(other)?;
            sys::set_int(fd, level, option, value)
        }
    }
    .map(ok)
}

pub fn get(fd: Fd, option: &str) -> Result<String> {
    if option == "zerocopy" {
        let [length, skip, unread] = sys::zerocopy_receive(fd)?;
        return Ok(format!("{length} mapped, {skip} to read, {unread} unread"));
    }
    let (level, number) = option_of(option)?;
    let value = sys::get_int(fd, level, number)?;
    if option == "error" && value != 0 {
        return Ok(errno_name(&Error::from_raw_os_error(value)));
    }
    Ok(value.to_string())
}
