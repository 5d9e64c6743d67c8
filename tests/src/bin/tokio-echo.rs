//! An echo by tokio.
//!
//! ```text
//! tokio-echo current | multi       one thread, or two workers; says `port NUMBER`
//! ```

use std::io::{Error, Result};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

async fn echo(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 65536];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}

async fn serve() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:0").await?;
    println!("port {}", listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(echo(stream));
    }
}

fn main() -> Result<()> {
    let mut builder = match std::env::args().nth(1).as_deref() {
        Some("current") => Builder::new_current_thread(),
        Some("multi") => Builder::new_multi_thread(),
        _ => return Err(Error::other("use: tokio-echo current | multi")),
    };
    // In a task of its own: what `block_on` runs is no worker's.
    builder
        .worker_threads(2)
        .enable_io()
        .build()?
        .block_on(async { tokio::spawn(serve()).await.map_err(Error::other)? })
}
