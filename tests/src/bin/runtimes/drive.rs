//! The load: one thread with a set, a request under way on each connection, every byte checked.

use std::io::{Error, Result, Write};
use std::net::SocketAddr;
use std::time::Instant;

use yasmin_tests::sys::{self, Fd, libc};

const PAYLOAD_BYTES: usize = 64;
const IN: u32 = libc::EPOLLIN as u32;

/// What stands before and behind the bytes that are to come back.
#[derive(Clone, Copy)]
pub struct Framing {
    ask: (&'static [u8], &'static [u8]),
    answer: (&'static [u8], &'static [u8]),
}

pub const BYTES: Framing = Framing { ask: (b"", b""), answer: (b"", b"") };
pub const REDIS: Framing =
    Framing { ask: (b"*2\r\n$4\r\nECHO\r\n$64\r\n", b"\r\n"), answer: (b"$64\r\n", b"\r\n") };

/// A request that no other connection and no other turn has.
fn payload(who: usize, turn: u64) -> [u8; PAYLOAD_BYTES] {
    let mut x = (who as u64) << 40 | turn | 1 << 63;
    let mut out = [0; PAYLOAD_BYTES];
    for word in out.chunks_exact_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        word.copy_from_slice(&x.to_le_bytes());
    }
    out
}

fn framed((before, behind): (&[u8], &[u8]), payload: &[u8]) -> Vec<u8> {
    [before, payload, behind].concat()
}

struct Connection {
    fd: Fd,
    turn: u64,
    wanted: Vec<u8>,
    got: usize,
}

struct Load {
    framing: Framing,
    epoll: Fd,
    connections: Vec<Connection>,
}

impl Load {
    fn connect(to: SocketAddr, count: usize, framing: Framing) -> Result<Self> {
        let epoll = sys::epoll_create()?;
        let mut connections = Vec::new();
        for who in 0..count {
            let fd = sys::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
            sys::connect(fd, to)?;
            sys::set_int(fd, libc::SOL_TCP, libc::TCP_NODELAY, 1)?;
            sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, IN, who as u64)?;
            connections.push(Connection { fd, turn: 0, wanted: Vec::new(), got: 0 });
        }
        Ok(Self { framing, epoll, connections })
    }

    fn ask(&mut self, who: usize) -> Result<()> {
        let one = &mut self.connections[who];
        let payload = payload(who, one.turn);
        let request = framed(self.framing.ask, &payload);
        one.wanted = framed(self.framing.answer, &payload);
        one.got = 0;
        one.turn += 1;
        let sent = sys::send(one.fd, &request, 0)?;
        if sent == request.len() { Ok(()) } else { Err(Error::other("sent in part")) }
    }

    /// Whether the whole answer is there now.
    fn answered(&mut self, who: usize) -> Result<bool> {
        let one = &mut self.connections[who];
        let mut room = [0; 4096];
        let len = match sys::recv(one.fd, &mut room, libc::MSG_DONTWAIT) {
            Ok(0) => return Err(Error::other("the server closed")),
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        if one.wanted.get(one.got..one.got + len) != Some(&room[..len]) {
            return Err(Error::other(format!(
                "connection {who}, turn {}: the echo differs",
                one.turn
            )));
        }
        one.got += len;
        Ok(one.got == one.wanted.len())
    }

    fn run(&mut self, requests: u64) -> Result<()> {
        let mut room = vec![libc::epoll_event { events: 0, u64: 0 }; 128];
        let (mut asked, mut left) = (0, requests);
        for who in 0..self.connections.len() {
            if asked < requests {
                self.ask(who)?;
                asked += 1;
            }
        }
        while left > 0 {
            let found = sys::epoll_wait_into(self.epoll, &mut room, -1)?;
            for event in &room[..found] {
                let who = event.u64 as usize;
                if !self.answered(who)? {
                    continue;
                }
                left -= 1;
                if asked < requests {
                    self.ask(who)?;
                    asked += 1;
                }
            }
        }
        Ok(())
    }
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn await_line() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map(drop)
}

/// Says `warm` after a quarter as many requests, waits for a line, and says how many of `requests`
/// were answered in a second.
pub fn run(framing: Framing, address: &str, port: &str, count: &str, requests: &str) -> Result<()> {
    let to = format!("{address}:{port}").parse().map_err(Error::other)?;
    let count = count.parse().map_err(Error::other)?;
    let requests: u64 = requests.parse().map_err(Error::other)?;
    let mut load = Load::connect(to, count, framing)?;
    load.run(requests / 4)?;
    say("warm")?;
    await_line()?;
    let begun = Instant::now();
    load.run(requests)?;
    say(&format!("rate={}", requests as f64 / begun.elapsed().as_secs_f64()))?;
    // The connections stay for a look at what they carried.
    say("done")?;
    await_line()
}
