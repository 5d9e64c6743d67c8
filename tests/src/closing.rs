//! One thread closes what others of its process use, round after round.
//!
//! What each call gives is a matter of chance; that nobody hangs, that no bytes come that nobody
//! sent, and that nothing is touched that is gone, is not.

use std::io::{Error, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys::{self, Fd, borrowed, libc};

/// All bytes are this one.
pub const MARK: u8 = b'x';

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}

/// # Errors
/// The system call that failed.
pub fn listener() -> Result<(Fd, SocketAddr)> {
    let fd = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    sys::bind(fd, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
    sys::listen(fd, 50)?;
    Ok((fd, sys::getsockname(fd)?))
}

/// The end that connects and the one that accepts. Both at once: a call that offers may wait
/// until the other side offers too.
///
/// # Errors
/// The system call that failed.
pub fn pair((listener, address): (Fd, SocketAddr)) -> Result<(Fd, Fd)> {
    let connects = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    let accepts = std::thread::scope(|scope| {
        let accepts = scope.spawn(move || sys::accept(listener, libc::SOCK_CLOEXEC));
        sys::connect(connects, address)?;
        accepts.join().map_err(|_| Error::other("the acceptor panicked"))?
    })?;
    let accepts = accepts.0;
    for fd in [connects, accepts] {
        sys::set_int(fd, libc::SOL_TCP, libc::TCP_NODELAY, 1)?;
        sys::set_nonblocking(fd, true)?;
    }
    Ok((connects, accepts))
}

/// One thread connects and begins to use what another one closes at about the time at which the call
/// returns: while a connection gets its channel, or has it just now.
///
/// # Errors
/// The system call that failed, or that bytes came that nobody sent.
pub fn opening(seed: u64, rounds: u64) -> Result<()> {
    /// What waits in vain for a channel takes longer.
    const USUAL_US: u64 = 3000;
    const ENOUGH: Duration = Duration::from_secs(2);
    let (listener, address) = listener()?;
    let (begun, strange, usual_us) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(300));
    for round in (0..rounds).take_while(|_| begun.elapsed() < ENOUGH) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round << 1 | 1);
        let connects = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
        let over = AtomicBool::new(false);
        let use_it = |fd| {
            let (mut buffer, flags) = ([0; 512], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            let _ = sys::send(fd, &[MARK; 64], flags);
            if let Ok(got) = sys::recv(fd, &mut buffer, flags) {
                let wrong = buffer[..got].iter().filter(|byte| **byte != MARK).count();
                strange.fetch_add(wrong as u64, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let begun = Instant::now();
                if sys::connect(connects, address).is_ok() {
                    (0..6).for_each(|_| use_it(connects));
                    let took_us = begun.elapsed().as_micros() as u64;
                    if took_us < USUAL_US {
                        usual_us.store(took_us, Ordering::SeqCst);
                    }
                    while !over.load(Ordering::SeqCst) {
                        use_it(connects);
                    }
                }
            });
            // Then the connection is there, if not to the calls that make it.
            sys::poll_events(listener, libc::POLLIN, -1)?;
            let accepts = scope.spawn(|| {
                let accepts = sys::accept(listener, libc::SOCK_CLOEXEC)?.0;
                while !over.load(Ordering::SeqCst) {
                    use_it(accepts);
                }
                sys::close(accepts)
            });
            let pause_us = random.below(usual_us.load(Ordering::SeqCst) * 5 / 4);
            std::thread::sleep(Duration::from_micros(pause_us));
            let closed = sys::close(connects);
            over.store(true, Ordering::SeqCst);
            let accepted = accepts.join().map_err(|_| Error::other("the acceptor panicked"))?;
            closed.and(accepted)
        })?;
    }
    sys::close(listener)?;
    match strange.load(Ordering::SeqCst) {
        0 => Ok(()),
        strange => Err(Error::other(format!("{strange} bytes that nobody sent"))),
    }
}

/// Two threads read a connection, one of them asleep each other time; one polls it, two wait on the
/// set that holds it, one begins children in borrowed memory, and one closes it under them all.
/// Gives the number of reads.
///
/// # Errors
/// The system call that failed, or that bytes came that nobody sent.
pub fn closing(seed: u64, rounds: u64) -> Result<u64> {
    let set = sys::epoll_create()?;
    let listener = listener()?;
    let (shared, over) = (AtomicI32::new(-1), AtomicBool::new(false));
    let (reads, strange) = (AtomicU64::new(0), AtomicU64::new(0));
    // Readers that may use the number still, which the next round uses for something else.
    let busy = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for flags in [libc::MSG_DONTWAIT, 0] {
            let (shared, over, busy) = (&shared, &over, &busy);
            let (reads, strange) = (&reads, &strange);
            scope.spawn(move || {
                let mut buffer = [0; 512];
                while !over.load(Ordering::SeqCst) {
                    let fd = shared.load(Ordering::SeqCst);
                    if fd < 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    busy.fetch_add(1, Ordering::SeqCst);
                    if shared.load(Ordering::SeqCst) == fd
                        && let Ok(got) = sys::recv(fd, &mut buffer, flags)
                    {
                        reads.fetch_add(1, Ordering::SeqCst);
                        let wrong = buffer[..got].iter().filter(|byte| **byte != MARK).count();
                        strange.fetch_add(wrong as u64, Ordering::SeqCst);
                    }
                    busy.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let _ = sys::poll_events(shared.load(Ordering::SeqCst), libc::POLLIN, 1);
            }
        });
        for timeout_ms in [0, 1] {
            scope.spawn({
                let over = &over;
                move || {
                    while !over.load(Ordering::SeqCst) {
                        let _ = sys::epoll_wait(set, 16, timeout_ms);
                    }
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let fd = shared.load(Ordering::SeqCst);
                if fd >= 0 {
                    let _ = borrowed::child_uses(fd, "dup2");
                }
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let result = (0..rounds).try_for_each(|round| {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round << 1 | 1);
            let (connects, accepts) = pair(listener)?;
            // Who sleeps is woken by the end of `connects`.
            sys::set_nonblocking(accepts, round % 2 == 0)?;
            let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
            sys::epoll_ctl(set, libc::EPOLL_CTL_ADD, accepts, events, 0)?;
            let (block, mut answer) = ([MARK; 64], [0; 64]);
            for _ in 0..3 {
                let _ = sys::send(accepts, &block, libc::MSG_NOSIGNAL);
                let _ = sys::send(connects, &block, libc::MSG_NOSIGNAL);
                let _ = sys::recv(connects, &mut answer, 0);
            }
            shared.store(accepts, Ordering::SeqCst);
            for nth in 0..20 + random.below(40) {
                let _ = sys::send(connects, &block, libc::MSG_NOSIGNAL);
                if nth % 4 == 0 {
                    std::thread::sleep(Duration::from_micros(random.below(30)));
                }
            }
            let closed = sys::close(accepts);
            shared.store(-1, Ordering::SeqCst);
            sys::close(connects)?;
            while busy.load(Ordering::SeqCst) != 0 {
                std::thread::yield_now();
            }
            closed
        });
        over.store(true, Ordering::SeqCst);
        result
    })?;
    sys::close(listener.0)?;
    sys::close(set)?;
    match strange.load(Ordering::SeqCst) {
        0 => Ok(reads.load(Ordering::SeqCst)),
        strange => Err(Error::other(format!("{strange} bytes that nobody sent"))),
    }
}
