//! As echo.c, by the standard library: a thread for each connection, which is read by one number and
//! written by a copy of it.

use echo::{Load, Messages, Task};
use std::io::{Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{scope, spawn};

fn echo(stream: TcpStream) -> Result<()> {
    let (mut sender, mut receiver) = (stream.try_clone()?, stream);
    let mut buffer = vec![0; 65536];
    loop {
        let length = receiver.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        sender.write_all(&buffer[..length])?;
    }
}

fn serve(listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        spawn(|| echo(stream).expect("echo"));
    }
}

fn ask(port: u16, number: u32, load: Load) -> Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let (mut sender, mut receiver) = (stream.try_clone()?, stream);
    let mut messages = Messages::new(number, load);
    for _ in 0..load.exchanges {
        let message = messages.compose();
        let mut came = vec![0; message.len()];
        // At the same time: a large one does not fit into the buffers on the way.
        scope(|scope| {
            let sent = scope.spawn(|| sender.write_all(&message));
            receiver.read_exact(&mut came)?;
            sent.join().expect("a sender")
        })?;
        assert!(came == message, "bytes differ");
    }
    receiver.shutdown(Shutdown::Write)?;
    assert_eq!(receiver.read(&mut [0])?, 0, "bytes after the end");
    Ok(())
}

fn main() -> Result<()> {
    let task = Task::from_arguments();
    if let Some(listener) = task.listener {
        let server = spawn(|| serve(listener).expect("serve"));
        if task.load.is_none() {
            server.join().expect("a server");
            return Ok(());
        }
    }
    let (load, port) = (task.load.expect("a load"), task.port);
    let askers: Vec<_> =
        (0..load.connections).map(|number| spawn(move || ask(port, number, load))).collect();
    for asker in askers {
        asker.join().expect("an asker")?;
    }
    println!("all came back");
    Ok(())
}
