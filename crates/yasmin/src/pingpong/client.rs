//! Asks and waits for the answer, as fast as it comes or at a rate, on all connections in turn or in a thread for each;
//! or lets connections idle.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::cli::PingPongClient;

/// What a client prints.
#[derive(Serialize, Deserialize)]
pub struct Answer {
    pub rounds: u64,
    /// Of round trips.
    pub p50_ns: f64,
    pub mean_ns: f64,
}

/// Rounds before the clock starts: they bring the connection to its ring.
const WARM_UP: u32 = 200;
const LONGEST_NS: u64 = 60_000_000_000;

/// Of round trips, in nanoseconds.
type Times = Histogram<u64>;

pub fn run(options: &PingPongClient) -> anyhow::Result<()> {
    let mut pairs = connect(options)?;
    if options.idle {
        return idle(options, &mut pairs);
    }
    let times =
        if options.threads { ask_at_once(options, &mut pairs)? } else { ask(options, &mut pairs)? };
    let answer = Answer {
        rounds: times.len(),
        p50_ns: times.value_at_quantile(0.5) as f64,
        mean_ns: times.mean(),
    };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

/// Each connection in a thread of its own.
fn ask_at_once(options: &PingPongClient, pairs: &mut [Pair]) -> anyhow::Result<Times> {
    thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .iter_mut()
            .map(|pair| scope.spawn(|| ask(options, std::slice::from_mut(pair))))
            .collect();
        let mut times = Times::new_with_bounds(1, LONGEST_NS, 3)?;
        for thread in threads {
            times.add(thread.join().expect("no thread panics")?)?;
        }
        Ok(times)
    })
}

/// The connections in turn.
fn ask(options: &PingPongClient, pairs: &mut [Pair]) -> anyhow::Result<Times> {
    let mut times = Times::new_with_bounds(1, LONGEST_NS, 3)?;
    let period = options.rate_hz.map(|rate| Duration::from_secs(1) / rate);
    let begun = Instant::now();
    let end = begun + Duration::from_secs(u64::from(options.seconds));
    let (mut next, mut turn) = (begun, 0);
    while Instant::now() < end {
        let connections = pairs.len();
        let pair = &mut pairs[turn];
        turn = (turn + 1) % connections;
        if let Some(period) = period {
            next += period;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let asked = Instant::now();
        pair.round()?;
        times.saturating_record(asked.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// Each of them has been busy.
fn connect(options: &PingPongClient) -> anyhow::Result<Vec<Pair>> {
    let warm = |_| {
        let mut pair = Pair::connect(options)?;
        (0..WARM_UP).try_for_each(|_| pair.round())?;
        Ok(pair)
    };
    (0..options.connections).map(warm).collect()
}

/// Says "idle", leaves the connections alone, and shows that they still work.
fn idle(options: &PingPongClient, pairs: &mut [Pair]) -> anyhow::Result<()> {
    println!("idle");
    thread::sleep(Duration::from_secs(u64::from(options.seconds)));
    pairs.iter_mut().try_for_each(Pair::round)
}

struct Pair {
    stream: TcpStream,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Pair {
    fn connect(options: &PingPongClient) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(options.address)?;
        stream.set_nodelay(true)?;
        let len = options.message_bytes;
        Ok(Self { stream, sent: vec![0; len], received: vec![0; len] })
    }

    /// One round trip; every byte that comes back is compared.
    fn round(&mut self) -> anyhow::Result<()> {
        for byte in &mut self.sent {
            *byte = byte.wrapping_add(17);
        }
        self.stream.write_all(&self.sent)?;
        self.stream.read_exact(&mut self.received)?;
        ensure!(self.sent == self.received, "the answer is not what was sent");
        Ok(())
    }
}
