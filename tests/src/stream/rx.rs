//! Receiving and checking the next bytes of a stream by any call.

use std::io::{Error, ErrorKind};

use crate::pattern::{Pattern, Rng};
use crate::sys::{self, Fd, libc};

use super::{Config, Exchange, Pause, RxForm, Stop, failed};

/// What a peek waits for has to lie in the buffers of the kernel as a whole.
const PEEKED_MOST: usize = 1000;

pub struct Receiver {
    pub fd: Fd,
    pattern: Pattern,
    form: RxForm,
    /// The next byte's position.
    pub position: u64,
    /// Where the peer's stream ends.
    end: u64,
    max_bytes: usize,
    peeked_most: usize,
    pause: Pause,
    rng: Rng,
    buffer: Vec<u8>,
    pipe: Option<(Fd, Fd)>,
}

impl Receiver {
    /// # Errors
    /// When a call fails.
    pub fn new(fd: Fd, config: &Config, pattern: Pattern, seed: u64) -> Result<Self, Stop> {
        let pipe = match config.rx {
            RxForm::Splice => Some(sys::pipe().map_err(failed("pipe"))?),
            _ => None,
        };
        Ok(Self {
            fd,
            pattern,
            form: config.rx,
            position: 0,
            end: match config.exchange {
                Exchange::Duplex | Exchange::Mutual => config.receives_bytes(),
                Exchange::Echo | Exchange::Survive => u64::MAX,
            },
            max_bytes: config.max_bytes,
            peeked_most: if config.buffer_bytes == 0 { PEEKED_MOST } else { 0 },
            pause: config.rx_pause,
            rng: Rng::new(seed),
            buffer: vec![0; config.max_bytes],
            pipe,
        })
    }

    /// One call, whose bytes are checked; how many they were, `None` for EAGAIN. The peer sends
    /// at least up to `target` without an answer; the end of the stream is `Stop::Eof`.
    ///
    /// # Errors
    /// When the call fails otherwise, or the bytes are wrong.
    pub fn step(&mut self, target: u64, flags: i32) -> Result<Option<usize>, Stop> {
        super::exchange::pause(self.pause, &mut self.rng);
        let mut form = self.form;
        while form == RxForm::Mixed {
            form = RxForm::ALL[self.rng.below(RxForm::ALL.len() as u64) as usize];
            if form == RxForm::Splice {
                form = RxForm::Mixed;
            }
        }
        match self.call(form, target, flags) {
            Ok(0) => Err(Stop::Eof),
            Ok(len) => {
                self.pattern.check(self.position, &self.buffer[..len]).map_err(Stop::Corrupt)?;
                self.position += len as u64;
                if self.position > self.end {
                    return Err(failed("receive")(Error::other("more than was sent")));
                }
                Ok(Some(len))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Stop::Failed { call: form.text(), error }),
        }
    }

    fn call(&mut self, form: RxForm, target: u64, flags: i32) -> Result<usize, Error> {
        let fd = self.fd;
        let len = self.rng.size(self.max_bytes);
        // These have no flags of their own.
        let fits = flags == 0;
        let cut = self.rng.below(len as u64 + 1) as usize;
        let peeks = len <= self.peeked_most && self.rng.below(2) == 0;
        let buffer = &mut self.buffer[..len];
        match form {
            RxForm::Read if fits => sys::read(fd, buffer),
            RxForm::Readv if fits => {
                let (one, two) = buffer.split_at_mut(cut);
                sys::readv(fd, &mut [one, two])
            }
            RxForm::Peek => {
                let peeked = sys::recv(fd, buffer, flags | libc::MSG_PEEK)?;
                let first = buffer[..peeked].to_vec();
                if peeked == 0 {
                    return Ok(0);
                }
                let taken = sys::recv(fd, &mut buffer[..peeked], flags)?;
                if taken == 0 || first[..taken] != buffer[..taken] {
                    return Err(Error::other(format!(
                        "peeked {peeked} bytes, received {taken} others"
                    )));
                }
                Ok(taken)
            }
            RxForm::WaitAll => {
                let left = usize::try_from(target - self.position).unwrap_or(len);
                let buffer = &mut buffer[..len.min(left.max(1))];
                let flags = flags | libc::MSG_WAITALL;
                let peeked = if peeks { sys::recv(fd, buffer, flags | libc::MSG_PEEK)? } else { 0 };
                let first = buffer[..peeked].to_vec();
                let taken = sys::recv(fd, buffer, flags)?;
                if taken < peeked || first[..] != buffer[..peeked] {
                    return Err(Error::other(format!(
                        "peeked {peeked} bytes, received {taken}, or others"
                    )));
                }
                Ok(taken)
            }
            RxForm::RecvFrom => sys::recvfrom(fd, buffer, flags),
            RxForm::RecvMsg => {
                let (one, two) = buffer.split_at_mut(cut);
                sys::recvmsg(fd, &mut [one, two], flags)
            }
            RxForm::RecvMmsg => {
                let half = len.div_ceil(2);
                let (one, two) = buffer.split_at_mut(half);
                let mut parts = vec![one];
                if !two.is_empty() {
                    parts.push(two);
                }
                let lens = sys::recvmmsg(fd, &mut parts, flags | libc::MSG_WAITFORONE)?;
                let (first, second) =
                    (lens.first().copied().unwrap_or(0), lens.get(1).copied().unwrap_or(0));
                buffer.copy_within(half..half + second, first);
                Ok(first + second)
            }
            RxForm::Splice => {
                let (read_end, write_end) = self.pipe.unwrap_or((-1, -1));
                let moved = sys::splice(fd, write_end, len.min(60 << 10), 0)?;
                let mut done = 0;
                while done < moved {
                    done += sys::read(read_end, &mut buffer[done..moved])?;
                }
                Ok(moved)
            }
            _ => sys::recv(fd, buffer, flags),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some((read_end, write_end)) = self.pipe {
            let _ = sys::close(read_end);
            let _ = sys::close(write_end);
        }
    }
}
