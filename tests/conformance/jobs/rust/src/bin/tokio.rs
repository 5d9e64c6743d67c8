//! As echo.c, by tokio, whose set has two numbers.

use echo::{Load, Messages, Task};
use std::io::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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
        tokio::spawn(async { echo(stream).await.expect("echo") });
    }
}

async fn ask(port: u16, number: u32, load: Load) -> Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let (mut receiver, mut sender) = stream.into_split();
    let mut messages = Messages::new(number, load);
    for _ in 0..load.exchanges {
        let message = messages.compose();
        let mut came = vec![0; message.len()];
        // At the same time: a large one does not fit into the buffers on the way.
        let (sent, received) =
            tokio::join!(sender.write_all(&message), receiver.read_exact(&mut came));
        sent?;
        received?;
        assert!(came == message, "bytes differ");
    }
    sender.shutdown().await?;
    assert_eq!(receiver.read(&mut [0]).await?, 0, "bytes after the end");
    Ok(())
}

async fn run(task: Task) -> Result<()> {
    if let Some(listener) = task.listener {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let server = tokio::spawn(async { serve(listener).await.expect("serve") });
        if task.load.is_none() {
            return Ok(server.await.expect("a task"));
        }
    }
    let load = task.load.expect("a load");
    let askers: Vec<_> =
        (0..load.connections).map(|number| tokio::spawn(ask(task.port, number, load))).collect();
    for asker in askers {
        asker.await.expect("a task")?;
    }
    println!("all came back");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    run(Task::from_arguments()).await
}
