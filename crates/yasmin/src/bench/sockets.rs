//! Unix and TCP sockets, blocking, as most programs use them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use super::linked::{End, Ends};

impl<S: Read + Write + Send> End for S {
    fn send(&mut self, message: &[u8]) -> anyhow::Result<()> {
        Ok(self.write_all(message)?)
    }

    fn receive(&mut self, message: &mut [u8]) -> anyhow::Result<()> {
        Ok(self.read_exact(message)?)
    }
}

pub fn unix() -> anyhow::Result<Ends> {
    let (first, second) = UnixStream::pair()?;
    Ok((Box::new(first), Box::new(second)))
}

pub fn tcp() -> anyhow::Result<Ends> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let first = TcpStream::connect(listener.local_addr()?)?;
    let (second, _) = listener.accept()?;
    for stream in [&first, &second] {
        stream.set_nodelay(true)?;
    }
    Ok((Box::new(first), Box::new(second)))
}
