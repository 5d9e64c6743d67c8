//! As echo.c, by smol, whose sockets are libc's and whose waits are bare system calls.

use echo::{Load, Messages, Task};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};
use std::io::Result;
use std::net::Shutdown;

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
        smol::spawn(async { echo(stream).await.expect("echo") }).detach();
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
            smol::future::zip(sender.write_all(&message), receiver.read_exact(&mut came)).await;
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
        let listener = TcpListener::try_from(smol::Async::new(listener)?).expect("a listener");
        let server = smol::spawn(async { serve(listener).await.expect("serve") });
        if task.load.is_none() {
            return Ok(server.await);
        }
        server.detach();
    }
    let load = task.load.expect("a load");
    let askers: Vec<_> =
        (0..load.connections).map(|number| smol::spawn(ask(task.port, number, load))).collect();
    for asker in askers {
        asker.await?;
    }
    println!("all came back");
    Ok(())
}

fn main() -> Result<()> {
    smol::block_on(run(Task::from_arguments()))
}
