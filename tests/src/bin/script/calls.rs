//! Calls that few programs make, and calls from signal handlers.

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use yasmin_tests::sys::memory::{self, Part};
use yasmin_tests::sys::{self, errno_name, extras, libc, pointers, signals};

use crate::bytes::flags_of;
use crate::{Object, Script, number, ok, wrong};

pub fn run(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        ["vec", name, form, parts] => vector(script, name, form, parts, ""),
        ["vec", name, form, parts, flags] => vector(script, name, form, parts, flags),
        ["badheader", name, form, kind] => {
            let moved = memory::bad_header(script.object(name)?.fd, form, kind)?;
            moved.map(|moved| moved.to_string()).ok_or_else(|| wrong(&words.join(" ")))
        }
        // Every call that takes a pointer, with one to memory of that kind.
        ["badpointers", name, kind] => {
            let at = pointers::bad_memory(kind)?.ok_or_else(|| wrong(kind))?;
            pointers::call_with(script.object(name)?.fd, at).map(|told| told.join(", "))
        }
        ["errqueue", name] => extras::error_queue(script.object(name)?.fd),
        ["recvcontrol", name, len] => {
            let (fd, _, stream) = script.streams(name)?;
            let mut data = vec![0; number(len)?];
            let (got, kinds) = extras::receive_with_control(fd, &mut data)?;
            if let Err(mismatch) = stream.pattern.check(stream.at(), &data[..got]) {
                return Ok(format!("{got} WRONG: {mismatch}"));
            }
            stream.advance(got);
            Ok(format!("{got} {kinds:?}"))
        }
        ["ulp", name] => extras::upper_layer(script.object(name)?.fd).map(ok),
        ["tlskey", name, how] => extras::tls_key(script.object(name)?.fd, how == "tx").map(ok),
        ["sendrecord", name, len, kind] => {
            let (fd, stream, _) = script.streams(name)?;
            let mut data = vec![0; number(len)?];
            stream.pattern.fill(stream.at(), &mut data);
            let sent = extras::send_record(fd, &data, number(kind)?)?;
            stream.advance(sent);
            Ok(sent.to_string())
        }
        ["sendopen", name, len, ip, port] => {
            let (fd, stream, _) = script.streams(name)?;
            let mut data = vec![0; number(len)?];
            stream.pattern.fill(stream.at(), &mut data);
            let to = SocketAddr::new(number(ip)?, number(port)?);
            let sent = extras::send_fast_open(fd, &data, to)?;
            stream.advance(sent);
            Ok(sent.to_string())
        }
        // A TCP socket that is not connected yet.
        ["socket", name, family] => {
            let family = if family == "v4" { libc::AF_INET } else { libc::AF_INET6 };
            let fd = sys::socket(family, libc::SOCK_CLOEXEC)?;
            script.add(name, script.connection(name, fd, true));
            Ok("ok".to_owned())
        }
        ["disconnect", name] => extras::disconnect(script.object(name)?.fd).map(ok),
        // Both directions begin anew, as after another connect of the same socket.
        ["renew", name] => {
            let object = script.object(name)?;
            let connects = script.connection(name, object.fd, true);
            script.add(name, connects);
            Ok("ok".to_owned())
        }
        ["listenon", name, port, backlog] => {
            let fd = sys::socket(libc::AF_INET6, libc::SOCK_CLOEXEC)?;
            sys::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
            let any = std::net::Ipv6Addr::UNSPECIFIED.into();
            sys::bind(fd, SocketAddr::new(any, number(port)?))?;
            sys::listen(fd, number(backlog)?)?;
            script.add(name, Object { fd, streams: None });
            Ok(sys::getsockname(fd)?.port().to_string())
        }
        ["unsentnow", name] => extras::unsent(script.object(name)?.fd).map(|len| len.to_string()),
        ["count", signal] => signals::count_signal(signal_of(signal)?).map(ok),
        ["caught", signal] => Ok(signals::caught(signal_of(signal)?).to_string()),
        ["own", name] => signals::own_signals(script.object(name)?.fd).map(ok),
        ["uses", name, how] => {
            signals::handler_uses(script.object(name)?.fd, how == "sends").map(ok)
        }
        ["did"] => {
            let (done, _, strange) = signals::handler_did();
            Ok(format!("{done} errno {strange}"))
        }
        ["storm", name, messages] => storm(script, name, number(messages)?),
        ["tally", name] => tally(script, name),
        ["stormread", name, total] => storm_read(script, name, number(total)?),
        _ => Err(wrong(&words.join(" "))),
    }
}

fn signal_of(name: &str) -> Result<i32> {
    Ok(match name {
        "pipe" => libc::SIGPIPE,
        "urg" => libc::SIGURG,
        "io" => libc::SIGIO,
        "usr2" => libc::SIGUSR2,
        other => return Err(wrong(other)),
    })
}

/// One call on parts such as `100`, `null20` or `none4096`; what good parts got is checked.
fn vector(script: &Script, name: &str, form: &str, parts: &str, flags: &str) -> Result<String> {
    let (fd, sends, receives) = script.streams(name)?;
    let flags = flags_of(flags)?;
    let mut all = Vec::new();
    let mut at = sends.at();
    for part in parts.split(',').filter(|part| !part.is_empty()) {
        let digits = part.find(|c: char| c.is_ascii_digit()).unwrap_or(part.len());
        let (kind, len) = part.split_at(digits);
        let mut made = Part::new(kind, number(len)?)?.ok_or_else(|| wrong(part))?;
        if let Part::Good(bytes) = &mut made {
            sends.pattern.fill(at, bytes);
            at += bytes.len() as u64;
        }
        all.push(made);
    }
    let moved = memory::vector_call(fd, form, &mut all, flags)?.ok_or_else(|| wrong(form))?;
    if form.starts_with("send") || form.starts_with("write") {
        sends.advance(moved);
        return Ok(moved.to_string());
    }
    let mut got = Vec::new();
    for part in &all {
        match part {
            Part::Good(bytes) => {
                got.extend_from_slice(&bytes[..bytes.len().min(moved - got.len())])
            }
            Part::Raw(..) => break,
        }
    }
    if flags & libc::MSG_TRUNC == 0
        && let Err(mismatch) = receives.pattern.check(receives.at(), &got)
    {
        return Ok(format!("{moved} WRONG: {mismatch}"));
    }
    if flags & libc::MSG_PEEK == 0 {
        receives.advance(moved);
    }
    Ok(moved.to_string())
}

const BETWEEN_KICKS: Duration = Duration::from_micros(10);

/// Signals this thread again and again while it acts.
fn kicking<T>(signal: i32, act: impl FnOnce() -> T) -> T {
    let thread = sys::thread_id();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let _ = sys::kill_thread(thread, signal);
                // A thread whose next signal waits when a handler returns runs nothing else: the
                // handler alone would go on, and finds what its thread holds.
                let next = Instant::now() + BETWEEN_KICKS;
                while Instant::now() < next {
                    std::thread::yield_now();
                }
            }
        });
        let result = act();
        stop.store(true, Ordering::SeqCst);
        result
    })
}

/// Sends blocks of 100 bytes while a handler sends marks on the same socket, then ends the
/// stream. Says whether every block went whole; how many marks there are, `did send` tells.
fn storm(script: &Script, name: &str, messages: usize) -> Result<String> {
    let fd = script.object(name)?.fd;
    signals::handler_uses(fd, true)?;
    let block = [b'm'; 100];
    kicking(libc::SIGUSR2, || -> Result<()> {
        for _ in 0..messages {
            let mut done = 0;
            while done < block.len() {
                done += sys::send(fd, &block[done..], libc::MSG_NOSIGNAL)?;
            }
        }
        Ok(())
    })?;
    sys::shutdown(fd, libc::SHUT_WR).map(ok)
}

/// Reads to the end of the stream; says how many bytes of blocks and how many marks came.
fn tally(script: &Script, name: &str) -> Result<String> {
    let fd = script.object(name)?.fd;
    let mut buffer = vec![0; 16 << 10];
    let (mut blocks, mut marks) = (0usize, 0usize);
    loop {
        let got = sys::recv(fd, &mut buffer, 0)?;
        if got == 0 {
            return Ok(format!("{blocks} and {marks}"));
        }
        let found = buffer[..got].iter().filter(|byte| **byte == signals::MARK).count();
        marks += found;
        blocks += buffer[..got].iter().filter(|byte| **byte == b'm').count();
    }
}

/// Receives `total` bytes while a handler takes some of them too: none is lost, none comes
/// twice.
fn storm_read(script: &Script, name: &str, total: u64) -> Result<String> {
    let (fd, _, stream) = script.streams(name)?;
    signals::handler_uses(fd, false)?;
    let mut expected = vec![0; total as usize];
    stream.pattern.fill(stream.at(), &mut expected);
    stream.advance(expected.len());
    let expected: u64 = expected.iter().map(|byte| u64::from(*byte)).sum();
    let mut buffer = [0u8; 500];
    let (mut done, mut sum) = (0u64, 0u64);
    let end = kicking(libc::SIGUSR2, || {
        // The handler may take the last bytes: the end of the stream ends both.
        loop {
            match sys::recv(fd, &mut buffer, 0) {
                Ok(0) => return "eof".to_owned(),
                Ok(got) => {
                    done += got as u64;
                    sum += buffer[..got].iter().map(|byte| u64::from(*byte)).sum::<u64>();
                }
                Err(error) => return errno_name(&error),
            }
        }
    });
    let (taken, taken_sum, strange) = signals::handler_did();
    let whole = done + taken == total && sum + taken_sum == expected;
    if !whole {
        return Err(Error::other(format!("{done} and {taken} of {total}")));
    }
    Ok(format!("whole then {end} errno {strange}"))
}
