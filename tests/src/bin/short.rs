//! Streams that end soon: `short listen COUNT SEED`, or `short connect ADDRESS PORT COUNT SEED`.
//!
//! COUNT connections, one after the other in each of three threads. The listening end sends a
//! few pieces on each and closes it at once, so that its FIN comes while the other end reads
//! and checks. Says `done` at the end.

use std::io::{Error, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use yasmin_tests::pattern::{Pattern, Rng};

const THREADS: u64 = 3;
const PIECES_MAX: u64 = 12;
const PIECE_MAX: u64 = 500;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => {
            println!("done");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| -> Result<u64> { word.parse().map_err(Error::other) };
    match words[..] {
        ["listen", count, seed] => {
            let listener = TcpListener::bind("0.0.0.0:0")?;
            println!("listening {}", listener.local_addr()?.port());
            let (count, seed) = (number(count)?, number(seed)?);
            in_threads(count, seed, |_| serve(&listener.accept()?.0))
        }
        ["connect", address, port, count, seed] => {
            let to = format!("{address}:{port}");
            let (count, seed) = (number(count)?, number(seed)?);
            in_threads(count, seed, |seed| take(&TcpStream::connect(&to)?, seed))
        }
        _ => Err(Error::other("what is to be done?")),
    }
}

/// `one` gets a number of its own each time.
fn in_threads(count: u64, seed: u64, one: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|nth| {
                scope.spawn(move || (0..count).try_for_each(|k| one(seed + nth * count + k)))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::other("a thread panicked")))
        })
    })
}

/// The first bytes say which stream it shall be.
fn serve(mut stream: &TcpStream) -> Result<()> {
    let mut seed = [0; 8];
    stream.read_exact(&mut seed)?;
    let seed = u64::from_le_bytes(seed);
    let mut rng = Rng::new(seed);
    let mut sent = 0;
    let mut piece = [0; PIECE_MAX as usize];
    for _ in 0..=rng.below(PIECES_MAX) {
        let piece = &mut piece[..=rng.below(PIECE_MAX - 1) as usize];
        Pattern::new(seed).fill(sent, piece);
        stream.write_all(piece)?;
        sent += piece.len() as u64;
    }
    Ok(())
}

fn take(mut stream: &TcpStream, seed: u64) -> Result<()> {
    stream.write_all(&seed.to_le_bytes())?;
    let mut rng = Rng::new(seed);
    let total: u64 = (0..=rng.below(PIECES_MAX)).map(|_| 1 + rng.below(PIECE_MAX - 1)).sum();
    let mut received = 0;
    let mut buffer = [0; 2 * PIECE_MAX as usize];
    loop {
        let most = 1 + rng.below(2 * PIECE_MAX - 1) as usize;
        match stream.read(&mut buffer[..most]) {
            Ok(0) if received == total => return Ok(()),
            Ok(0) => return Err(Error::other(format!("{seed}: end at {received} of {total}"))),
            Ok(len) => {
                let right = Pattern::new(seed).check(received, &buffer[..len]);
                right.map_err(|why| Error::other(format!("{seed}: {why}")))?;
                received += len as u64;
            }
            Err(error) => return Err(Error::other(format!("{seed}, at {received}: {error}"))),
        }
    }
}
