//! What goes through a connection, checked on arrival.

use std::io::{Error, Result};
use std::net::{Ipv4Addr, SocketAddr};

use yasmin_tests::sys::{self, Fd, by_number, errno_name, libc, past, stdio, ways};

use crate::{Script, number, wrong};

pub fn run(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        ["send", name, len] => send(script, name, len, "", "send"),
        ["send", name, len, flags] => send(script, name, len, flags, "send"),
        ["send", name, len, flags, form] => send(script, name, len, flags, form),
        ["recv", name, len] => recv(script, name, len, "", "recv"),
        ["recv", name, len, flags] => recv(script, name, len, flags, "recv"),
        ["recv", name, len, flags, form] => recv(script, name, len, flags, form),
        // As many sends as it takes, as programs do whose sends are cut short.
        ["whole", name, len, flags, form] => whole(script, name, number(len)?, flags, form),
        ["sendall", name, len] => send_all(script, name, number(len)?),
        ["recvall", name, len] => receive_all(script, name, number(len)?),
        ["drain", name] => receive_all(script, name, u64::MAX),
        ["fill", name] => fill(script, name),
        ["brim", name] => brim(script, name),
        ["flood", name, ref len @ ..] => flood(script.object(name)?.fd, len),
        ["soak", name, ref len @ ..] => soak(script.object(name)?.fd, len),
        ["urgent", name] => {
            let (fd, ..) = script.streams(name)?;
            sys::send(fd, b"!", libc::MSG_OOB).map(|sent| sent.to_string())
        }
        ["badsend", name] => {
            sys::bad_address(script.object(name)?.fd, true, 100).map(|sent| sent.to_string())
        }
        ["badrecv", name] => {
            sys::bad_address(script.object(name)?.fd, false, 100).map(|len| len.to_string())
        }
        ["manyparts", name, count] => {
            let (fd, ..) = script.streams(name)?;
            let parts = vec![&b"x"[..]; number(count)?];
            let sent =
                sys::sendmsg(fd, &parts, 0).map_or_else(|e| errno_name(&e), |n| n.to_string());
            let wrote = sys::writev(fd, &parts).map_or_else(|e| errno_name(&e), |n| n.to_string());
            Ok(format!("{sent} {wrote}"))
        }
        _ => Err(wrong(&words.join(" "))),
    }
}

pub fn flags_of(text: &str) -> Result<i32> {
    let mut flags = 0;
    for word in text.split('+').filter(|word| !word.is_empty() && *word != "-") {
        flags |= match word {
            "peek" => libc::MSG_PEEK,
            "waitall" => libc::MSG_WAITALL,
            "dontwait" => libc::MSG_DONTWAIT,
            "trunc" => libc::MSG_TRUNC,
            "oob" => libc::MSG_OOB,
            "more" => libc::MSG_MORE,
            "zerocopy" => libc::MSG_ZEROCOPY,
            "nosignal" => libc::MSG_NOSIGNAL,
            "cloexec" => libc::MSG_CMSG_CLOEXEC,
            other => return Err(wrong(other)),
        };
    }
    Ok(flags)
}

/// Buffers of even lengths go in two pieces, others in up to 33.
fn piece_bytes(len_bytes: usize) -> usize {
    let pieces = if len_bytes.is_multiple_of(2) { 2 } else { 33 };
    len_bytes.div_ceil(pieces).max(1)
}

fn pieces(data: &[u8]) -> Vec<&[u8]> {
    data.chunks(piece_bytes(data.len())).collect()
}

fn send(script: &Script, name: &str, len: &str, flags: &str, form: &str) -> Result<String> {
    let (fd, stream, _) = script.streams(name)?;
    let flags = flags_of(flags)?;
    let mut data = vec![0; number(len)?];
    stream.pattern.fill(stream.at(), &mut data);
    let half = data.len() / 2;
    let parts = [&data[..half], &data[half..]];
    let sent = match form {
        "send" => sys::send(fd, &data, flags),
        "write" => sys::write(fd, &data),
        "writebynumber" => by_number::write(fd, &data),
        "writev" => sys::writev(fd, &pieces(&data)),
        "pwritev2" => stdio::write_at(fd, &data, -1, 0),
        "pwritev2nowait" => stdio::write_at(fd, &data, -1, libc::RWF_NOWAIT),
        "pwritev2at" => stdio::write_at(fd, &data, 5, 0),
        "fwrite" => stdio::write_stream(sys::dup(fd)?, &data),
        "sendto" => sys::sendto(fd, &data, flags, None),
        // TCP ignores the address of a connected socket.
        "sendtoaddress" => {
            let nowhere = SocketAddr::new(Ipv4Addr::new(203, 0, 113, 1).into(), 9);
            sys::sendto(fd, &data, flags, Some(nowhere))
        }
        "sendmsg" => sys::sendmsg(fd, &pieces(&data), flags),
        "sendmmsg" => sys::sendmmsg(fd, &parts, flags).map(|sent| sent.iter().sum()),
        "sendmmsglens" => {
            let lens = sys::sendmmsg(fd, &parts, flags)?;
            stream.advance(lens.iter().sum());
            return Ok(format!("{lens:?}"));
        }
        // The second asks for more than the file has.
        "sendfile" | "sendfilepast" => {
            let file = sys::anonymous_file()?;
            sys::write(file, &data)?;
            let past = if form == "sendfile" { 0 } else { 5000 };
            let sent = sys::sendfile(fd, file, 0, data.len() + past);
            sys::close(file)?;
            sent
        }
        "splice" => {
            let (read_end, write_end) = sys::pipe()?;
            sys::write(write_end, &data)?;
            let sent = sys::splice(read_end, fd, data.len(), 0);
            sys::close(read_end)?;
            sys::close(write_end)?;
            sent
        }
        other => match ways::send(other, fd, &data)? {
            Some(sent) => Ok(sent),
            None => past::write(other, fd, &data)?.ok_or_else(|| wrong(other)),
        },
    }?;
    stream.advance(sent);
    Ok(sent.to_string())
}

fn recv(script: &Script, name: &str, len: &str, flags: &str, form: &str) -> Result<String> {
    let (fd, _, stream) = script.streams(name)?;
    let flags = flags_of(flags)?;
    let mut data = vec![0; number(len)?];
    let half = data.len() / 2;
    let piece_bytes = piece_bytes(data.len());
    // Where a peek begins; no offset is -1.
    let offset = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    let skip = if flags & libc::MSG_PEEK == 0 { 0 } else { offset.unwrap_or(0).max(0) };
    let peeked_at = stream.at() + u64::from(skip.cast_unsigned());
    let got = match form {
        "recv" => sys::recv(fd, &mut data, flags),
        "read" => sys::read(fd, &mut data),
        "readbynumber" => by_number::read(fd, &mut data),
        "readv" => sys::readv(fd, &mut data.chunks_mut(piece_bytes).collect::<Vec<_>>()),
        "preadv2" => stdio::read_at(fd, &mut data, -1, 0),
        "preadv2nowait" => stdio::read_at(fd, &mut data, -1, libc::RWF_NOWAIT),
        "preadv2at" => stdio::read_at(fd, &mut data, 5, 0),
        "fread" => stdio::read_stream(sys::dup(fd)?, &mut data),
        "streamread" => stdio::read_exactly(sys::dup(fd)?, &mut data),
        "recvfrombynumber" => by_number::recvfrom(fd, &mut data, flags),
        "recvfrom" => sys::recvfrom(fd, &mut data, flags),
        "recvmsg" => sys::recvmsg(fd, &mut data.chunks_mut(piece_bytes).collect::<Vec<_>>(), flags),
        // Two messages; says how many there were and how long each was.
        "recvmmsg" => {
            let (one, two) = data.split_at_mut(half);
            let lens = sys::recvmmsg(fd, &mut [one, two], flags)?;
            if flags & libc::MSG_PEEK == 0 && lens.iter().any(|len| *len > 0) {
                let first = lens[0];
                stream.pattern.check(stream.at(), &data[..first]).map_err(Error::other)?;
                let second = lens.get(1).copied().unwrap_or(0);
                let at = stream.at() + first as u64;
                let there = &data[half..half + second];
                stream.pattern.check(at, there).map_err(Error::other)?;
                stream.advance(first + second);
            }
            return Ok(format!("{lens:?}"));
        }
        // What comes beside the bytes, in room for so much; of times only that they came.
        "control" | "smallcontrol" | "nocontrol" => {
            let room = match form {
                "control" => 256,
                "smallcontrol" => 18,
                _ => 0,
            };
            let (got, told, control) = sys::recvmsg_control(fd, &mut data, room, flags)?;
            let control: Vec<String> = control
                .iter()
                .map(|(level, kind, bytes)| match *level {
                    libc::SOL_SOCKET => format!("{level}/{kind}"),
                    _ => format!("{level}/{kind} {bytes:?}"),
                })
                .collect();
            stream.pattern.check(stream.at(), &data[..got]).map_err(Error::other)?;
            stream.advance(got);
            return Ok(format!("{got} flags {told} {control:?}"));
        }
        "splice" => {
            let (read_end, write_end) = sys::pipe()?;
            let moved = sys::splice(fd, write_end, data.len(), 0)?;
            let got = sys::read(read_end, &mut data[..moved])?;
            sys::close(read_end)?;
            sys::close(write_end)?;
            Ok(got)
        }
        // sendfile takes from a socket when it gives to a pipe.
        "sendfile" => {
            let (read_end, write_end) = sys::pipe()?;
            let moved = sys::sendfile_on(write_end, fd, data.len())?;
            let got = sys::read(read_end, &mut data[..moved])?;
            sys::close(read_end)?;
            sys::close(write_end)?;
            Ok(got)
        }
        other => match ways::receive(other, fd, &mut data)? {
            Some(got) => Ok(got),
            None => past::read(other, fd, &mut data)?.ok_or_else(|| wrong(other)),
        },
    }?;
    if flags & libc::MSG_OOB != 0 {
        return Ok(format!("{got} {:?}", String::from_utf8_lossy(&data[..got])));
    }
    let truncates = flags & libc::MSG_TRUNC != 0;
    if !truncates && let Err(mismatch) = stream.pattern.check(peeked_at, &data[..got]) {
        return Ok(format!("{got} WRONG: {mismatch}"));
    }
    if flags & libc::MSG_PEEK == 0 {
        stream.advance(got);
    }
    Ok(got.to_string())
}

fn whole(script: &Script, name: &str, len: usize, flags: &str, form: &str) -> Result<String> {
    let mut done = 0;
    loop {
        match send(script, name, &(len - done).to_string(), flags, form) {
            Ok(sent) => done += number::<usize>(&sent)?,
            Err(error) if done > 0 => return Ok(format!("{done} then {}", errno_name(&error))),
            Err(error) => return Err(error),
        }
        if done >= len {
            return Ok(done.to_string());
        }
    }
}

pub fn send_all(script: &Script, name: &str, len: usize) -> Result<String> {
    let (fd, stream, _) = script.streams(name)?;
    let mut data = vec![0; len];
    stream.pattern.fill(stream.at(), &mut data);
    let mut done = 0;
    while done < len {
        match sys::send(fd, &data[done..], libc::MSG_NOSIGNAL) {
            Ok(sent) => {
                stream.advance(sent);
                done += sent;
            }
            Err(error) => return Ok(format!("{done} then {}", errno_name(&error))),
        }
    }
    Ok(done.to_string())
}

fn receive_all(script: &Script, name: &str, len: u64) -> Result<String> {
    let (fd, _, stream) = script.streams(name)?;
    let mut buffer = vec![0; 128 << 10];
    let mut done = 0;
    while done < len {
        let room = buffer.len().min(usize::try_from(len - done).unwrap_or(usize::MAX));
        match sys::recv(fd, &mut buffer[..room], 0) {
            Ok(0) => return Ok(format!("{done} then eof")),
            Ok(got) => {
                if let Err(mismatch) = stream.pattern.check(stream.at(), &buffer[..got]) {
                    return Ok(format!("{done} then WRONG: {mismatch}"));
                }
                stream.advance(got);
                done += got as u64;
            }
            Err(error) => return Ok(format!("{done} then {}", errno_name(&error))),
        }
    }
    Ok(done.to_string())
}

/// Sends until EAGAIN comes and comes again after a wait for room that nobody makes.
fn fill(script: &Script, name: &str) -> Result<String> {
    let (fd, stream, _) = script.streams(name)?;
    let mut data = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        stream.pattern.fill(stream.at(), &mut data);
        match sys::send(fd, &data, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
            Ok(sent) => {
                stream.advance(sent);
                total += sent;
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                if sys::poll_events(fd, libc::POLLOUT, 100)? == 0 {
                    return Ok(total.to_string());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Sends until there is no room for a single byte.
fn brim(script: &Script, name: &str) -> Result<String> {
    fill(script, name)?;
    let (fd, stream, _) = script.streams(name)?;
    let mut data = vec![0; 1024];
    let mut refused = 0;
    // Room comes back as long as the peer's kernel takes what was queued, which on a busy
    // machine it does late: full is what stays full.
    while refused < 10 {
        stream.pattern.fill(stream.at(), &mut data);
        match sys::send(fd, &data, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
            Ok(sent) => {
                stream.advance(sent);
                refused = 0;
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                refused += usize::from(data.len() == 1);
                data.truncate(1);
                sys::poll_events(fd, 0, 20)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok("ok".to_owned())
}

/// Sends zeroes, without a position: for processes that are killed. For ever, or so many.
fn flood(fd: Fd, len: &[&str]) -> Result<String> {
    let mut left = limit(len)?;
    while left > 0 {
        let now = left.min(3000);
        match sys::send(fd, &[0; 3000][..now], libc::MSG_NOSIGNAL) {
            Ok(sent) => left -= sent,
            Err(error) => return Ok(errno_name(&error)),
        }
    }
    Ok("all".to_owned())
}

/// The other side of `flood`: until the end, or so many bytes.
fn soak(fd: Fd, len: &[&str]) -> Result<String> {
    let mut left = limit(len)?;
    let mut buffer = [0; 5000];
    while left > 0 {
        let most = left.min(buffer.len());
        match sys::recv(fd, &mut buffer[..most], 0) {
            Ok(0) => return Ok("eof".to_owned()),
            Ok(got) if buffer[..got].iter().all(|byte| *byte == 0) => left -= got,
            Ok(_) => return Ok("WRONG: no zeroes".to_owned()),
            Err(error) => return Ok(errno_name(&error)),
        }
    }
    Ok("all".to_owned())
}

fn limit(words: &[&str]) -> Result<usize> {
    words.first().map_or(Ok(usize::MAX), |text| number(text))
}
