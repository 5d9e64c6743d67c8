//! An echo over many connections, of which some are busy.

use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use yasmin_measure::spread::Spread;
use yasmin_tests::sys::{self, Fd, libc};

pub const BUSY: usize = 100;
pub const MANY: usize = 9_900;
const MESSAGE_BYTES: usize = 64;
/// Messages each way until every connection has long proven busy.
const WARM_TURNS: usize = 20;
const WARM_ROUNDS: usize = 500;
const BATCHES: usize = 41;
const ROUNDS: usize = 25;
const IN: u32 = libc::EPOLLIN as u32;

/// Echoes until every connection is closed.
pub fn listen() -> Result<()> {
    sys::raise_descriptor_limit()?;
    let listener = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    sys::bind(listener, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
    sys::listen(listener, 4096)?;
    println!("listening {}", sys::getsockname(listener)?.port());
    let epoll = sys::epoll_create()?;
    sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, listener, IN, listener as u64)?;
    let mut room = vec![libc::epoll_event { events: 0, u64: 0 }; 128];
    let mut buffer = [0; 4096];
    let mut open = 0;
    loop {
        let found = sys::epoll_wait_into(epoll, &mut room, -1)?;
        for event in &room[..found] {
            let fd = event.u64 as Fd;
            if fd == listener {
                let (new, _) = sys::accept(listener, libc::SOCK_CLOEXEC)?;
                sys::set_int(new, libc::SOL_TCP, libc::TCP_NODELAY, 1)?;
                sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, new, IN, new as u64)?;
                open += 1;
                continue;
            }
            match sys::recv(fd, &mut buffer, libc::MSG_DONTWAIT) {
                Ok(0) => {
                    sys::close(fd)?;
                    open -= 1;
                    if open == 0 {
                        return Ok(());
                    }
                }
                Ok(len) => {
                    sys::send(fd, &buffer[..len], 0)?;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// One message on each of `connections`, and its echo.
fn round(epoll: Fd, connections: &[Fd], room: &mut [libc::epoll_event]) -> Result<()> {
    for &fd in connections {
        sys::send(fd, &[7; MESSAGE_BYTES], 0)?;
    }
    let mut left = connections.len() * MESSAGE_BYTES;
    let mut buffer = [0; 4096];
    while left > 0 {
        let found = sys::epoll_wait_into(epoll, room, -1)?;
        for event in &room[..found] {
            match sys::recv(event.u64 as Fd, &mut buffer, libc::MSG_DONTWAIT) {
                Ok(len) => left -= len,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Nanoseconds for each message there and back on BUSY of `count` connections.
pub fn drive(address: &str, port: &str, count: &str) -> Result<()> {
    let to: SocketAddr = format!("{address}:{port}").parse().map_err(std::io::Error::other)?;
    let count: usize = count.parse().map_err(std::io::Error::other)?;
    sys::raise_descriptor_limit()?;
    let epoll = sys::epoll_create()?;
    let mut room = vec![libc::epoll_event { events: 0, u64: 0 }; 128];
    let mut connections = Vec::new();
    for _ in 0..count {
        let fd = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
        sys::connect(fd, to)?;
        sys::set_int(fd, libc::SOL_TCP, libc::TCP_NODELAY, 1)?;
        sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, IN, fd as u64)?;
        for _ in 0..WARM_TURNS {
            round(epoll, &[fd], &mut room)?;
        }
        connections.push(fd);
    }
    // Spread over the whole table.
    let step = count / BUSY;
    let busy: Vec<Fd> = connections.iter().step_by(step.max(1)).take(BUSY).copied().collect();
    for _ in 0..WARM_ROUNDS {
        round(epoll, &busy, &mut room)?;
    }
    let mut samples = Spread::default();
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            round(epoll, &busy, &mut room)?;
        }
        samples.add(begun.elapsed().as_nanos() as f64 / (ROUNDS * BUSY) as f64);
    }
    samples.finish();
    println!("a message, {BUSY} of {count} connections busy={}", samples.median);
    println!("done");
    // The driver asks the broker what went by ring; then it lets go.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map(drop)
}
