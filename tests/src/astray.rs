//! Bytes that go past libc, in code made at run time, between others that do not.
//!
//! Who looks at the calls cannot see them. They come where they were sent, or the connection is
//! reset: it does not go on, and end well, with bytes elsewhere.

use std::io::{Error, Result};
use std::time::{Duration, Instant};

use crate::closing::{Random, listener, pair};
use crate::sys::{self, Fd, libc, ways};

/// The sender goes on for so long after bytes that went past.
const GOES_ON: Duration = Duration::from_millis(60);

/// # Errors
/// The system call that failed, or which byte came in the place of another one.
pub fn astray(seed: u64, rounds: u64) -> Result<()> {
    let listener = listener()?;
    for round in 0..rounds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round << 1 | 1);
        let (connects, accepts) = pair(listener)?;
        let (from, to) =
            if random.below(2) == 0 { (connects, accepts) } else { (accepts, connects) };
        let (sent, got) = std::thread::scope(|scope| {
            let got = scope.spawn(move || gather(to));
            let sent = send(from, &mut random);
            let got = got.join().map_err(|_| Error::other("the reader panicked"));
            (sent, got)
        });
        sys::close(connects)?;
        sys::close(accepts)?;
        let (sent, got) = (sent?, got??);
        // A reset ends both, the one before the other.
        if let (Some(sent), Some(got)) = (sent, got)
            && let Some(at) = (0..sent.max(got.len())).find(|at| got.get(*at) != Some(&byte(*at)))
        {
            let got = got.get(at);
            return Err(Error::other(format!("round {round}: WRONG at {at} of {sent}: {got:?}")));
        }
    }
    sys::close(listener.0)
}

/// So that each stands for its place.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

fn is_reset(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE))
}

/// Everything up to the end; `None` if that was a reset.
fn gather(fd: Fd) -> Result<Option<Vec<u8>>> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match sys::recv(fd, &mut buffer, 0) {
            Ok(0) => return Ok(Some(all)),
            Ok(got) => all.extend_from_slice(&buffer[..got]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                sys::poll_events(fd, libc::POLLIN, -1)?;
            }
            Err(error) if is_reset(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// How many bytes were sent before the end; `None` after a reset.
fn send(fd: Fd, random: &mut Random) -> Result<Option<usize>> {
    let mut sent = 0;
    let mut past_at = None;
    let mut left = random.below(300);
    let mut data = [0; 200];
    while past_at.is_none_or(|at: Instant| at.elapsed() < GOES_ON) {
        let len = 1 + random.below(200) as usize;
        for (nth, place) in data[..len].iter_mut().enumerate() {
            *place = byte(sent + nth);
        }
        let goes_past = left == 0 && past_at.is_none();
        left = left.saturating_sub(1);
        let result = if goes_past {
            past_at = Some(Instant::now());
            ways::send("bare", fd, &data[..len]).map(|done| done.unwrap_or(0))
        } else {
            sys::send(fd, &data[..len], libc::MSG_NOSIGNAL)
        };
        match result {
            Ok(done) => sent += done,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                sys::poll_events(fd, libc::POLLOUT, -1)?;
            }
            Err(error) if is_reset(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        if random.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(300)));
        }
    }
    match sys::shutdown(fd, libc::SHUT_WR) {
        Ok(()) => Ok(Some(sent)),
        // The reset came behind the last of them.
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(None),
        Err(error) => Err(error),
    }
}
