//! As echo.c, by mio: edge-triggered, and registered through a duplicate of the set's number, as
//! runtimes on mio do.

use echo::{Load, Messages, Task};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr};

const LISTENER: Token = Token(usize::MAX);
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// None: later.
fn now(done: Result<usize>) -> Result<Option<usize>> {
    match done {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(None),
        done => done.map(Some),
    }
}

struct Echo {
    stream: TcpStream,
    buffer: Vec<u8>,
    sent: usize,
    length: usize,
}

impl Echo {
    /// As far as it goes. False at the end.
    fn go(&mut self) -> Result<bool> {
        loop {
            while self.sent < self.length {
                match now(self.stream.write(&self.buffer[self.sent..self.length]))? {
                    Some(count) => self.sent += count,
                    None => return Ok(true),
                }
            }
            self.sent = 0;
            self.length = match now(self.stream.read(&mut self.buffer))? {
                Some(0) => return Ok(false),
                Some(count) => count,
                None => 0,
            };
            if self.length == 0 {
                return Ok(true);
            }
        }
    }
}

fn serve(listener: std::net::TcpListener) -> Result<()> {
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    let mut poll = Poll::new()?;
    let registry = poll.registry().try_clone()?;
    registry.register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut ends = HashMap::new();
    let mut next = 0;
    let mut events = Events::with_capacity(64);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            let token = event.token();
            if token != LISTENER {
                if let Some(end) = ends.get_mut(&token) {
                    if !Echo::go(end)? {
                        ends.remove(&token);
                    }
                }
                continue;
            }
            loop {
                let mut stream = match listener.accept() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    accepted => accepted?.0,
                };
                stream.set_nodelay(true)?;
                let token = Token(next);
                next += 1;
                registry.register(&mut stream, token, BOTH)?;
                ends.insert(token, Echo { stream, buffer: vec![0; 65536], sent: 0, length: 0 });
            }
        }
    }
}

struct Asker {
    stream: TcpStream,
    messages: Messages,
    left: u32,
    message: Vec<u8>,
    sent: usize,
    received: usize,
    buffer: Vec<u8>,
}

impl Asker {
    fn new(registry: &Registry, port: u16, number: u32, load: Load) -> Result<Self> {
        let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
        stream.set_nodelay(true)?;
        registry.register(&mut stream, Token(number as usize), BOTH)?;
        let mut messages = Messages::new(number, load);
        let message = messages.compose();
        let left = load.exchanges;
        Ok(Self { stream, messages, left, message, sent: 0, received: 0, buffer: vec![0; 65536] })
    }

    /// As far as it goes. False when the connection is done.
    fn go(&mut self) -> Result<bool> {
        loop {
            let mut is_stuck = true;
            if self.left > 0 && self.sent < self.message.len() {
                if let Some(count) = now(self.stream.write(&self.message[self.sent..]))? {
                    self.sent += count;
                    is_stuck = false;
                }
            }
            if let Some(count) = now(self.stream.read(&mut self.buffer))? {
                if count == 0 {
                    assert_eq!(self.left, 0, "an early end");
                    return Ok(false);
                }
                assert!(self.left > 0, "bytes after the end");
                let end = self.received + count;
                assert!(self.message[self.received..end] == self.buffer[..count], "bytes differ");
                self.received = end;
                is_stuck = false;
            }
            if self.left > 0 && self.received == self.message.len() {
                self.left -= 1;
                (self.sent, self.received) = (0, 0);
                self.message = self.messages.compose();
                if self.left == 0 {
                    self.stream.shutdown(Shutdown::Write)?;
                }
            } else if is_stuck {
                return Ok(true);
            }
        }
    }
}

fn ask(port: u16, load: Load) -> Result<()> {
    let mut poll = Poll::new()?;
    let registry = poll.registry().try_clone()?;
    let mut askers = (0..load.connections)
        .map(|number| Ok((Token(number as usize), Asker::new(&registry, port, number, load)?)))
        .collect::<Result<HashMap<_, _>>>()?;
    let mut events = Events::with_capacity(64);
    while !askers.is_empty() {
        poll.poll(&mut events, None)?;
        for event in &events {
            let token = event.token();
            if let Some(asker) = askers.get_mut(&token) {
                if !asker.go()? {
                    askers.remove(&token);
                }
            }
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let task = Task::from_arguments();
    let server = task.listener.map(|listener| std::thread::spawn(|| serve(listener)));
    let Some(load) = task.load else {
        return server.expect("a server").join().expect("its thread");
    };
    ask(task.port, load)?;
    println!("all came back");
    Ok(())
}
