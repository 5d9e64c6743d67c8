//! Two ends of a byte stream, one of them served by a thread on the other CPU.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;

use super::plan::Budget;
use super::{Latency, Subject};
use yasmin_measure::cpus::{self, Pair};

/// One end of a byte stream.
pub trait End: Send {
    /// Sends all of `message`.
    fn send(&mut self, message: &[u8]) -> anyhow::Result<()>;
    /// Fills all of `message`.
    fn receive(&mut self, message: &mut [u8]) -> anyhow::Result<()>;
}

pub type Ends = (Box<dyn End>, Box<dyn End>);

/// What the other side does next.
enum Task {
    /// Sends every message back.
    Echo { len_bytes: usize, count: u32 },
    /// Takes every message, then says so with one byte.
    Drain { len_bytes: usize, count: u32 },
}

pub struct Linked {
    name: &'static str,
    end: Box<dyn End>,
    tasks: Option<Sender<Task>>,
    peer: Option<JoinHandle<anyhow::Result<()>>>,
}

/// Reading the clock takes some 25 ns: a batch is timed, not a message.
const BATCH_TIME: Duration = Duration::from_micros(2);
/// Round trips from which the batch's size is guessed.
const TRIAL: u32 = 20;

impl Linked {
    pub fn start(name: &'static str, (end, other): Ends, pair: Pair) -> anyhow::Result<Self> {
        let (tasks, inbox) = channel();
        let peer = std::thread::spawn(move || {
            cpus::pin_this_thread(pair.second)?;
            let mut other = other;
            while let Ok(task) = inbox.recv() {
                serve(other.as_mut(), &task)?;
            }
            Ok(())
        });
        Ok(Self { name, end, tasks: Some(tasks), peer: Some(peer) })
    }

    fn ask(&self, task: Task) -> anyhow::Result<()> {
        let tasks = self.tasks.as_ref().context("the other side has gone")?;
        tasks.send(task).ok().context("the other side has gone")
    }

    fn echo(
        &mut self,
        message: &mut [u8],
        batches: u32,
        batch: u32,
    ) -> anyhow::Result<Histogram<u64>> {
        self.ask(Task::Echo { len_bytes: message.len(), count: batches * batch })?;
        let mut times = histogram()?;
        for _ in 0..batches {
            let begun = Instant::now();
            for _ in 0..batch {
                self.end.send(message)?;
                self.end.receive(message)?;
            }
            record(&mut times, begun.elapsed(), 2 * batch);
        }
        Ok(times)
    }

    fn stream(&mut self, message: &[u8], count: u32) -> anyhow::Result<Duration> {
        self.ask(Task::Drain { len_bytes: message.len(), count })?;
        let begun = Instant::now();
        for _ in 0..count {
            self.end.send(message)?;
        }
        self.end.receive(&mut [0])?;
        Ok(begun.elapsed())
    }
}

fn serve(end: &mut dyn End, task: &Task) -> anyhow::Result<()> {
    match *task {
        Task::Echo { len_bytes, count } => {
            let mut message = vec![0; len_bytes];
            for _ in 0..count {
                end.receive(&mut message)?;
                end.send(&message)?;
            }
        }
        Task::Drain { len_bytes, count } => {
            let mut message = vec![0; len_bytes];
            for _ in 0..count {
                end.receive(&mut message)?;
            }
            end.send(&[1])?;
        }
    }
    Ok(())
}

impl Subject for Linked {
    fn name(&self) -> &'static str {
        self.name
    }

    fn latency(&mut self, len_bytes: usize, budget: Budget) -> anyhow::Result<Option<Latency>> {
        let mut message = vec![0x5a; len_bytes];
        let trial = self.echo(&mut message, TRIAL, 1)?;
        let round_trip = Duration::from_nanos(2 * trial.value_at_quantile(0.5) / PS_IN_NS);
        let batch = Budget { time: BATCH_TIME }.count(round_trip, 1);
        let batches = budget.count(round_trip * batch, 5);
        let times = self.echo(&mut message, batches, batch)?;
        Ok(Some(summary(&times)))
    }

    fn bandwidth(&mut self, len_bytes: usize, budget: Budget) -> anyhow::Result<Option<f64>> {
        let message = vec![0x5a; len_bytes];
        let mut count = 1;
        // The first messages say little: longer and longer trials, until one is long enough to
        // tell how many fill the budget.
        let once = loop {
            let took = self.stream(&message, count)?;
            if took > budget.time / 8 {
                break took / count;
            }
            count *= 4;
        };
        let count = budget.count(once, 1);
        let took = self.stream(&message, count)?;
        Ok(Some(len_bytes as f64 * f64::from(count) / took.as_secs_f64()))
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(peer) = self.peer.take() {
            let _ = peer.join();
        }
    }
}

const PS_IN_NS: u64 = 1000;
const LONGEST_PS: u64 = 100 * 1_000_000_000_000;

/// Of one-way times in picoseconds: a batch's mean is finer than the clock.
pub fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LONGEST_PS, 3)?)
}

/// Records that `ways` one-way trips took so long together.
pub fn record(times: &mut Histogram<u64>, took: Duration, ways: u32) {
    let one_way_ps = took.as_nanos() as u64 * PS_IN_NS / u64::from(ways);
    times.saturating_record(one_way_ps.max(1));
}

pub fn summary(times: &Histogram<u64>) -> Latency {
    let ns = |quantile| times.value_at_quantile(quantile) as f64 / PS_IN_NS as f64;
    Latency { p50_ns: ns(0.5), p99_ns: ns(0.99) }
}
