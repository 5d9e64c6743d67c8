//! Many connections in one epoll set: `crowd listen COUNT` or `crowd connect ADDRESS PORT COUNT`.
//!
//! Says `listening PORT`, and `idle` when every connection has gone to and fro and it sleeps in
//! epoll_wait. Each line on its input makes the connector go round all of them once more and
//! say `checked`; the end of its input ends it. The listener echoes until all are closed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use yasmin_tests::pattern::Pattern;
use yasmin_tests::sys::{self, Fd, libc};

const MESSAGE_BYTES: usize = 64;
/// Messages each way until a connection counts as busy.
const ROUNDS: u64 = 20;
const IN: u32 = libc::EPOLLIN as u32;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match *words.as_slice() {
        ["listen", count] => count.parse().map_err(|_| bad()).and_then(listen),
        ["connect", address, port, count] => match (address.parse(), port.parse(), count.parse()) {
            (Ok(address), Ok(port), Ok(count)) => connect(SocketAddr::new(address, port), count),
            _ => Err(bad()),
        },
        _ => Err(bad()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bad() -> std::io::Error {
    std::io::Error::other("use: crowd listen COUNT, or crowd connect ADDRESS PORT COUNT")
}

fn listen(count: usize) -> std::io::Result<()> {
    sys::raise_descriptor_limit()?;
    let listener = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    sys::bind(listener, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?;
    sys::listen(listener, 4096)?;
    println!("listening {}", sys::getsockname(listener)?.port());
    let epoll = sys::epoll_create()?;
    sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, listener, IN, listener as u64)?;
    let (mut accepted, mut closed) = (0, 0);
    let mut buffer = [0; 4096];
    while closed < count {
        for (_, data) in sys::epoll_wait(epoll, 64, -1)? {
            let fd = data as Fd;
            if fd == listener {
                let (new, _) = sys::accept(listener, libc::SOCK_CLOEXEC)?;
                sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, new, IN, new as u64)?;
                accepted += 1;
                if accepted == count {
                    println!("accepted {accepted}");
                }
                continue;
            }
            match sys::recv(fd, &mut buffer, libc::MSG_DONTWAIT) {
                Ok(0) => {
                    sys::close(fd)?;
                    closed += 1;
                }
                Ok(len) => {
                    if sys::send(fd, &buffer[..len], 0)? != len {
                        return Err(std::io::Error::other("a short send of an echo"));
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn connect(to: SocketAddr, count: usize) -> std::io::Result<()> {
    sys::raise_descriptor_limit()?;
    let epoll = sys::epoll_create()?;
    let mut connections = Vec::new();
    for _ in 0..count {
        let fd = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
        sys::connect(fd, to)?;
        sys::set_int(fd, libc::SOL_TCP, libc::TCP_NODELAY, 1)?;
        connections.push(fd);
        for round in 0..ROUNDS {
            turn(fd, fd as u64, round)?;
        }
        sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, IN, fd as u64)?;
    }
    let input = 0;
    sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, input, IN, u64::MAX)?;
    println!("idle");
    let mut round = ROUNDS;
    loop {
        for (_, data) in sys::epoll_wait(epoll, 64, -1)? {
            if data != u64::MAX {
                return Err(std::io::Error::other("an event where nobody sends"));
            }
            let mut line = [0; 16];
            if sys::read(input, &mut line)? == 0 {
                return Ok(());
            }
            for &fd in &connections {
                turn(fd, fd as u64, round)?;
            }
            round += 1;
            println!("checked");
        }
    }
}

/// One message there and back.
fn turn(fd: Fd, seed: u64, round: u64) -> std::io::Result<()> {
    let pattern = Pattern::new(seed);
    let position = round * MESSAGE_BYTES as u64;
    let mut message = [0; MESSAGE_BYTES];
    pattern.fill(position, &mut message);
    if sys::send(fd, &message, 0)? != MESSAGE_BYTES {
        return Err(std::io::Error::other("a short send"));
    }
    let mut echo = [0; MESSAGE_BYTES];
    let len = sys::recv(fd, &mut echo, libc::MSG_WAITALL)?;
    if len != MESSAGE_BYTES {
        return Err(std::io::Error::other(format!("{len} bytes of an echo")));
    }
    pattern.check(position, &echo).map_err(std::io::Error::other)
}
