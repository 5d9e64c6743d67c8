//! All that a connection shows, and waiting until it shows what is expected.

use std::io::Result;
use std::time::{Duration, Instant};

use yasmin_tests::sys::{self, Ready, errno_name, libc};

use crate::wait::{event_names, events_of};
use crate::{Script, ok, wrong};

pub fn run(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        ["look", name] => look(script, name),
        ["await", name, ref expected @ ..] => {
            let expected = expected.join(" ");
            until(|| look(script, name), |found| found == expected)
        }
        ["awaitunread", name, expected] => {
            until(|| unread(script, name), |found| found == expected)
        }
        ["selectnow", name, events] => {
            let wanted = events_of(events)?;
            let has = |bit: i32| wanted & bit.cast_unsigned() != 0;
            let want = Ready { readable: has(libc::EPOLLIN), writable: has(libc::EPOLLOUT) };
            let ready = sys::select(script.object(name)?.fd, want, 0)?;
            Ok(format!("{} {}", u8::from(ready.readable), u8::from(ready.writable)))
        }
        ["drainnow", name] => drain_now(script, name),
        _ => Err(wrong(&words.join(" "))),
    }
}

fn unread(script: &Script, name: &str) -> Result<String> {
    let fd = script.object(name)?.fd;
    Ok(sys::unread(fd).map_or_else(|error| errno_name(&error), |len| len.to_string()))
}

/// Unread bytes, events, and the kernel's state, but for what an acknowledgement changes.
fn look(script: &Script, name: &str) -> Result<String> {
    let fd = script.object(name)?.fd;
    let events = sys::poll_events(fd, events_of("in+out+rdhup+pri")? as i16, 0)?;
    let events = event_names(u32::from(events.cast_unsigned()));
    let state = match sys::tcp_state(fd)? {
        1 => "established",
        4 | 5 => "finished",
        8 => "closing",
        _ => "over",
    };
    Ok(format!("{} {events} {state}", unread(script, name)?))
}

/// Looks until it is as expected; `ok`, or what it is after a while.
fn until(look: impl Fn() -> Result<String>, is_it: impl Fn(&str) -> bool) -> Result<String> {
    let begun = Instant::now();
    loop {
        let found = look()?;
        if is_it(&found) {
            return Ok(ok(()));
        }
        if begun.elapsed() > Duration::from_secs(2) {
            return Ok(format!("found {found}"));
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Receives what is there, and says what comes then.
fn drain_now(script: &Script, name: &str) -> Result<String> {
    let (fd, _, stream) = script.streams(name)?;
    let mut buffer = vec![0; 128 << 10];
    let mut done = 0;
    loop {
        match sys::recv(fd, &mut buffer, libc::MSG_DONTWAIT) {
            Ok(0) => return Ok(format!("{done} then eof")),
            Ok(got) => {
                if let Err(mismatch) = stream.pattern.check(stream.at(), &buffer[..got]) {
                    return Ok(format!("{done} then WRONG: {mismatch}"));
                }
                stream.advance(got);
                done += got;
            }
            Err(error) => return Ok(format!("{done} then {}", errno_name(&error))),
        }
    }
}
