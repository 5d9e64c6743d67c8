//! Numbers, copies and flags of descriptors, and Unix sockets that carry them.

use std::io::Result;
use std::os::fd::IntoRawFd;
use std::os::unix::net::{UnixListener, UnixStream};

use yasmin_tests::sys::{self, errno_name, libc};

use crate::{Object, Script, lock, number, ok, programs, wrong};

pub fn run(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        ["dup", name, copy] => {
            let object = script.object(name)?;
            let fd = sys::dup(object.fd)?;
            script.add(copy, Object { fd, ..object });
            Ok("ok".to_owned())
        }
        ["dupfd", name, copy, least] => {
            let object = script.object(name)?;
            let fd = sys::dup_above(object.fd, libc::F_DUPFD_CLOEXEC, number(least)?)?;
            script.add(copy, Object { fd, ..object });
            Ok(fd.to_string())
        }
        // `onto` becomes a copy of `name`; what it was is closed.
        [how @ ("dup2" | "dup3"), name, onto] => {
            let (object, old) = (script.object(name)?, script.object(onto)?);
            let fd = match how {
                "dup2" => sys::dup2(object.fd, old.fd)?,
                _ => sys::dup3(object.fd, old.fd, libc::O_CLOEXEC)?,
            };
            script.add(onto, Object { fd, ..object });
            Ok("ok".to_owned())
        }
        ["cloexec", name, on] => sys::set_close_on_exec(script.object(name)?.fd, on == "1").map(ok),
        ["closesonexec", name] => {
            sys::closes_on_exec(script.object(name)?.fd).map(|on| on.to_string())
        }
        ["blocks", name] => {
            sys::is_nonblocking(script.object(name)?.fd).map(|on| (!on).to_string())
        }
        ["number", name] => Ok(script.object(name)?.fd.to_string()),
        ["pair", one, other] => {
            let ends = sys::socket_pair()?;
            script.add(one, Object { fd: ends.0, streams: None });
            script.add(other, Object { fd: ends.1, streams: None });
            Ok("ok".to_owned())
        }
        ["unixlisten", name, path] => {
            let fd = UnixListener::bind(path)?.into_raw_fd();
            script.add(name, Object { fd, streams: None });
            Ok("ok".to_owned())
        }
        ["unixconnect", name, path] => {
            let fd = UnixStream::connect(path)?.into_raw_fd();
            script.add(name, Object { fd, streams: None });
            Ok("ok".to_owned())
        }
        ["unixaccept", listener, name] => {
            let (fd, _) = sys::accept(script.object(listener)?.fd, libc::SOCK_CLOEXEC)?;
            script.add(name, Object { fd, streams: None });
            Ok("ok".to_owned())
        }
        ["give", socket, name] => {
            let (socket, object) = (script.object(socket)?, script.object(name)?);
            let text = programs::describe(name, object);
            sys::give(socket.fd, object.fd, text.as_bytes()).map(ok)
        }
        ["take", socket, name] => {
            let (fd, text) = sys::take(script.object(socket)?.fd)?;
            let (_, object) = programs::object(&String::from_utf8_lossy(&text), script.words)?;
            script.add(name, Object { fd, ..object });
            Ok("ok".to_owned())
        }
        ["select", name, timeout_ms] => {
            let fd = script.object(name)?.fd;
            sys::select_wide(fd, number(timeout_ms)?).map(|[read, write]| format!("{read} {write}"))
        }
        ["lowest"] => sys::lowest_free().map(|fd| fd.to_string()),
        ["limit", most] => sys::limit_descriptors(number(most)?).map(ok),
        // Everything from the object's number on but what commands and results need.
        [how @ ("closerange" | "closefrom" | "closeall"), from] => {
            let first = match script.object(from) {
                Ok(object) => object.fd,
                Err(_) => number(from)?,
            };
            close_from(script, how, first)
        }
        _ => Err(wrong(&words.join(" "))),
    }
}

fn close_from(script: &Script, how: &str, first: i32) -> Result<String> {
    // Out of the way of what is closed, as daemons do it: low numbers are kept.
    let (commands, results) = *lock(&script.wires);
    let keeps = [commands, results, script.words_fd];
    let last_kept = keeps.iter().copied().filter(|fd| *fd >= first).max();
    let mut closed = 0;
    if let Some(last) = last_kept {
        for fd in first..=last {
            if !keeps.contains(&fd) && sys::close(fd).is_ok() {
                closed += 1;
            }
        }
    }
    let first = last_kept.map_or(first, |last| last + 1);
    match how {
        "closerange" => sys::close_range(first, i32::MAX)?,
        "closefrom" => sys::close_from(first),
        _ => {
            for fd in first..4096 {
                match sys::close(fd) {
                    Ok(()) => closed += 1,
                    Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
                    Err(error) => return Ok(format!("{fd}: {}", errno_name(&error))),
                }
            }
            return Ok(closed.to_string());
        }
    }
    Ok("ok".to_owned())
}
