//! Sends back whatever comes, one thread for each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Small, for there may be a thousand.
const STACK_BYTES: usize = 128 << 10;
const BUFFER_BYTES: usize = 16 << 10;

pub fn run(address: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)?;
    loop {
        let (stream, _) = listener.accept()?;
        thread::Builder::new().stack_size(STACK_BYTES).spawn(move || echo(stream))?;
    }
}

/// Ends when the client does, however it does.
fn echo(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut buffer = [0; BUFFER_BYTES];
    while let Ok(len) = stream.read(&mut buffer) {
        if len == 0 || stream.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
}
