//! Waits by bare system calls, in the peer that is built with them.

use std::io::Result;

use yasmin_tests::sys::{Fd, Ready, bare, libc};

use crate::wait::{event_list, event_names, events_of};
use crate::{Script, number, wrong};

pub fn run(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        [how @ ("barepoll" | "bareppoll" | "aiopoll"), name, events, timeout_ms] => {
            let (fd, events) = (script.object(name)?.fd, events_of(events)? as i16);
            let timeout_ms = number(timeout_ms)?;
            let found = match how {
                "barepoll" => bare::poll(fd, events, timeout_ms)?,
                "bareppoll" => bare::ppoll(fd, events, timeout_ms)?,
                _ => bare::aio_poll(fd, events, timeout_ms)?,
            };
            Ok(event_names(u32::from(found.cast_unsigned())))
        }
        ["bareselect", name, events, timeout_ms] => {
            let wanted = events_of(events)?;
            let has = |bit: i32| wanted & bit.cast_unsigned() != 0;
            let want = Ready { readable: has(libc::EPOLLIN), writable: has(libc::EPOLLOUT) };
            let ready = bare::select(script.object(name)?.fd, want, number(timeout_ms)?)?;
            Ok(format!("{} {}", u8::from(ready.readable), u8::from(ready.writable)))
        }
        ["bareepwait", set, timeout_ms] => {
            bare::epoll_wait(script.object(set)?.fd, 64, number(timeout_ms)?).map(event_list)
        }
        _ => Err(wrong(&words.join(" "))),
    }
}

/// `None` where this is no wait of ours.
pub fn wait(fd: Fd, how: &str, timeout_ms: i32) -> Result<Option<bool>> {
    let want = Ready { readable: true, writable: false };
    Ok(Some(match how {
        "barepoll" => bare::poll(fd, libc::POLLIN, timeout_ms)? != 0,
        "bareppoll" => bare::ppoll(fd, libc::POLLIN, timeout_ms)? != 0,
        "bareselect" => bare::select(fd, want, timeout_ms)?.readable,
        "aiopoll" => bare::aio_poll(fd, libc::POLLIN, timeout_ms)? != 0,
        _ => return Ok(None),
    }))
}

pub fn set_tells(set: Fd, timeout_ms: i32) -> Result<bool> {
    Ok(!bare::epoll_wait(set, 8, timeout_ms)?.is_empty())
}
