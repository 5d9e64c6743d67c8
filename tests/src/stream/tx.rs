//! Sending the next bytes of a stream by any call.

use std::io::{Error, ErrorKind};

use crate::pattern::{Pattern, Rng};
use crate::sys::{self, Fd, libc};

use super::{Config, Exchange, Pause, Stop, TxForm, failed};

/// Where sendfile's file ends; a stream that is longer goes on by send.
const FILE_BYTES: u64 = 4 << 20;

pub struct Sender {
    pub fd: Fd,
    pattern: Pattern,
    form: TxForm,
    /// The next byte's position.
    pub position: u64,
    max_bytes: usize,
    /// Every call as large as it may be, instead of a random size.
    whole: bool,
    pause: Pause,
    rng: Rng,
    buffer: Vec<u8>,
    /// The stream's first bytes, so many of them.
    file: Option<(Fd, u64)>,
    /// The pipe that splice reads from, and how many bytes of the stream are already in it.
    pipe: Option<(Fd, Fd)>,
    piped_bytes: usize,
}

impl Sender {
    /// # Errors
    /// When a call fails.
    pub fn new(fd: Fd, config: &Config, pattern: Pattern, seed: u64) -> Result<Self, Stop> {
        let mut sender = Self {
            fd,
            pattern,
            form: config.tx,
            position: 0,
            max_bytes: config.max_bytes,
            whole: config.exchange == Exchange::Mutual,
            pause: config.tx_pause,
            rng: Rng::new(seed),
            buffer: vec![0; config.max_bytes],
            file: None,
            pipe: None,
            piped_bytes: 0,
        };
        if matches!(config.tx, TxForm::SendFile | TxForm::Mixed) {
            let file = sys::anonymous_file().map_err(failed("memfd_create"))?;
            let len_bytes = FILE_BYTES.min(config.sends_bytes());
            let mut whole = vec![0; len_bytes as usize];
            pattern.fill(0, &mut whole);
            let mut done = 0;
            while done < whole.len() {
                done += sys::write(file, &whole[done..]).map_err(failed("write to a file"))?;
            }
            sender.file = Some((file, len_bytes));
        }
        if config.tx == TxForm::Splice {
            sender.pipe = Some(sys::pipe().map_err(failed("pipe"))?);
        }
        Ok(sender)
    }

    /// One call; the number of bytes that it sent, `None` for EAGAIN. Never beyond `target`.
    ///
    /// # Errors
    /// When the call fails otherwise.
    pub fn step(&mut self, target: u64, flags: i32) -> Result<Option<usize>, Stop> {
        super::exchange::pause(self.pause, &mut self.rng);
        let left = target - self.position;
        let size = if self.whole { self.max_bytes } else { self.rng.size(self.max_bytes) };
        let len = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        let is_last = len as u64 == left;
        match self.call(len, is_last, flags) {
            Ok(0) => Err(failed("a send of 0 bytes")(Error::from(ErrorKind::WriteZero))),
            Ok(sent) => {
                self.position += sent as u64;
                Ok(Some(sent))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Stop::Failed { call: self.form.text(), error }),
        }
    }

    fn call(&mut self, len: usize, is_last: bool, flags: i32) -> Result<usize, Error> {
        let mut form = self.form;
        while form == TxForm::Mixed {
            form = TxForm::ALL[self.rng.below(TxForm::ALL.len() as u64) as usize];
            if form == TxForm::Splice {
                form = TxForm::Mixed;
            }
        }
        // These have no flags of their own.
        let fits = flags == 0;
        let fd = self.fd;
        match form {
            TxForm::Splice => return self.splice(len),
            TxForm::SendFile if fits => {
                if let Some((file, len_bytes)) = self.file
                    && self.position < len_bytes
                {
                    let file_left = len_bytes - self.position;
                    let len = len.min(usize::try_from(file_left).unwrap_or(len));
                    return sys::sendfile(fd, file, self.position, len);
                }
            }
            _ => {}
        }
        let data = &mut self.buffer[..len];
        self.pattern.fill(self.position, data);
        let data = &*data;
        let parts = split(data, &mut self.rng);
        match form {
            TxForm::Write if fits => sys::write(fd, data),
            TxForm::Writev if fits => sys::writev(fd, &parts),
            TxForm::SendMore => {
                let more = if is_last { 0 } else { libc::MSG_MORE };
                sys::send(fd, data, flags | more)
            }
            TxForm::SendTo => sys::sendto(fd, data, flags | libc::MSG_NOSIGNAL, None),
            TxForm::SendMsg => sys::sendmsg(fd, &parts, flags),
            TxForm::SendMmsg => {
                let full: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                sys::sendmmsg(fd, &full, flags).map(|sent| sent.iter().sum())
            }
            _ => sys::send(fd, data, flags | libc::MSG_NOSIGNAL),
        }
    }

    fn splice(&mut self, len: usize) -> Result<usize, Error> {
        let (read_end, write_end) = self.pipe.unwrap_or((-1, -1));
        if self.piped_bytes == 0 {
            // A pipe holds 64 KiB, so this never blocks.
            let data = &mut self.buffer[..len.min(60 << 10)];
            self.pattern.fill(self.position, data);
            self.piped_bytes = sys::write(write_end, data)?;
        }
        let sent = sys::splice(read_end, self.fd, self.piped_bytes, 0)?;
        self.piped_bytes -= sent;
        Ok(sent)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let (read_end, write_end) = self.pipe.map_or((None, None), |(r, w)| (Some(r), Some(w)));
        for fd in [self.file.map(|(file, _)| file), read_end, write_end].into_iter().flatten() {
            let _ = sys::close(fd);
        }
    }
}

/// Up to four parts, some of them perhaps empty.
fn split<'a>(data: &'a [u8], rng: &mut Rng) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> =
        (0..rng.below(4)).map(|_| rng.below(data.len() as u64 + 1) as usize).collect();
    cuts.sort_unstable();
    let mut parts = Vec::with_capacity(cuts.len() + 1);
    let mut from = 0;
    for cut in cuts.into_iter().chain([data.len()]) {
        parts.push(&data[from..cut]);
        from = cut;
    }
    parts
}
