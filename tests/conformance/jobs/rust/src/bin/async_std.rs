//! As echo.c, by async-std, whose sockets are libc's and whose waits are bare system calls.

use async_std::io::{ReadExt, WriteExt};
use async_std::net::{Shutdown, TcpListener, TcpStream};
use async_std::task::spawn;
use echo::{Load, Messages, Task};
use futures_lite::future::zip;
use std::io::Result;

async fn echo(mut stream: TcpStream) -> Result<()> {
    let mut buffer = vec![0; 65536];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}

async fn serve(listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        spawn(async { echo(stream).await.expect("echo") });
    }
}

async fn ask(port: u16, number: u32, load: Load) -> Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let (mut sender, mut receiver) = (stream.clone(), stream);
    let mut messages = Messages::new(number, load);
    for _ in 0..load.exchanges {
        let message = messages.compose();
        let mut came = vec![0; message.len()];
        // At the same time: a large one does not fit into the buffers on the way.
        let (sent, received) =
            zip(sender.write_all(&message), receiver.read_exact(&mut came)).await;
        sent?;
        received?;
        assert!(came == message, "bytes differ");
    }
    receiver.shutdown(Shutdown::Write)?;
    assert_eq!(receiver.read(&mut [0]).await?, 0, "bytes after the end");
    Ok(())
}

async fn run(task: Task) -> Result<()> {
    if let Some(listener) = task.listener {
        let listener = TcpListener::from(listener);
        let server = spawn(async { serve(listener).await.expect("serve") });
        if task.load.is_none() {
            return Ok(server.await);
        }
    }
    let load = task.load.expect("a load");
    let askers: Vec<_> =
        (0..load.connections).map(|number| spawn(ask(task.port, number, load))).collect();
    for asker in askers {
        asker.await?;
    }
    println!("all came back");
    Ok(())
}

fn main() -> Result<()> {
    async_std::task::block_on(run(Task::from_arguments()))
}
