//! What `lab/kernels/sockets.c` measures, over publish-subscribe of iceoryx2: a transport by
//! shared memory that programs are written for. Both sides look for samples all the time, which is
//! its fastest way; a sender copies into shared memory, and a receiver reads there.
//!
//!   iceoryx2-pingpong serve NAME
//!   iceoryx2-pingpong measure NAME latency|bandwidth LEN

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

const WINDOW: u64 = 64;
const MOST_BYTES: usize = 1 << 26;
/// As in `sockets.c`.
const SETTLING: Duration = Duration::from_millis(200);
const MEASURING: Duration = Duration::from_millis(800);
const LATENCY_ANSWERS: u64 = 1000;
const VOLUME_BYTES: u64 = 40_000_000;

/// What the client says before each run; the last one has no answers.
#[derive(Clone, Copy)]
struct Plan {
    len: u64,
    /// Answers that the server gives, each to `window` messages.
    answers: u64,
    window: u64,
    answer_len: u64,
}

impl Plan {
    fn to_bytes(self) -> Vec<u8> {
        [self.len, self.answers, self.window, self.answer_len]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    fn from_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        let number = |nth: usize| -> anyhow::Result<u64> {
            let bytes = bytes.get(8 * nth..8 * nth + 8).context("a plan is too short")?;
            Ok(u64::from_le_bytes(bytes.try_into()?))
        };
        Ok(Self { len: number(0)?, answers: number(1)?, window: number(2)?, answer_len: number(3)? })
    }
}

/// Both directions of a connection, as one side has them.
struct Link {
    sends: Publisher<ipc::Service, [u8], ()>,
    receives: Subscriber<ipc::Service, [u8], ()>,
    _node: Node<ipc::Service>,
}

impl Link {
    fn open(name: &str, [own, other]: [&str; 2]) -> anyhow::Result<Self> {
        let node = NodeBuilder::new().create::<ipc::Service>()?;
        let direction = |side: &str| -> anyhow::Result<_> {
            let name = format!("{name}/{side}");
            Ok(node
                .service_builder(&name.as_str().try_into()?)
                .publish_subscribe::<[u8]>()
                .max_publishers(1)
                .max_subscribers(1)
                .history_size(0)
                .subscriber_max_buffer_size(WINDOW as usize)
                // A full buffer holds the sender up, as a socket's does.
                .enable_safe_overflow(false)
                .open_or_create()?)
        };
        let receives = direction(other)?.subscriber_builder().create()?;
        let sends = direction(own)?
            .publisher_builder()
            .initial_max_slice_len(1 << 16)
            .allocation_strategy(AllocationStrategy::PowerOfTwo)
            .unable_to_deliver_strategy(UnableToDeliverStrategy::Block)
            .create()?;
        Ok(Self { sends, receives, _node: node })
    }

    fn put(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let sample = self.sends.loan_slice_uninit(bytes.len())?;
        sample.write_from_slice(bytes).send()?;
        Ok(())
    }

    /// Waits for a message and lets `look` see it.
    fn get<T>(&self, look: impl FnOnce(&[u8]) -> T) -> anyhow::Result<T> {
        loop {
            if let Some(sample) = self.receives.receive()? {
                return Ok(look(&sample));
            }
            std::hint::spin_loop();
        }
    }

    fn get_len(&self, len: u64) -> anyhow::Result<()> {
        let came = self.get(|bytes| bytes.len() as u64)?;
        ensure!(came == len, "{came} bytes came instead of {len}");
        Ok(())
    }
}

fn byte_of(at: u64, len: u64) -> u8 {
    (at.wrapping_mul(7).wrapping_add(len)) as u8
}

fn serve(name: &str) -> anyhow::Result<()> {
    let link = Link::open(name, ["answers", "questions"])?;
    println!("listens");
    loop {
        let plan = link.get(Plan::from_bytes)??;
        if plan.answers == 0 {
            return Ok(());
        }
        let answer = vec![0; plan.answer_len as usize];
        for _ in 0..plan.answers {
            for _ in 0..plan.window {
                link.get_len(plan.len)?;
            }
            link.put(&answer)?;
        }
        let is_intact = link.get(|bytes| {
            bytes.len() as u64 == plan.len
                && bytes.iter().enumerate().all(|(at, byte)| *byte == byte_of(at as u64, plan.len))
        })?;
        link.put(&[u8::from(is_intact)])?;
    }
}

/// What a client has done.
#[derive(Default)]
struct Done {
    moved: u64,
    right: u64,
    all: u64,
}

/// Seconds for an answer.
fn one_run(link: &Link, plan: Plan, done: &mut Done) -> anyhow::Result<f64> {
    let mut bytes = vec![0; plan.len as usize];
    link.put(&plan.to_bytes())?;
    let begun = Instant::now();
    for _ in 0..plan.answers {
        for _ in 0..plan.window {
            link.put(&bytes)?;
        }
        link.get_len(plan.answer_len)?;
    }
    let seconds = begun.elapsed().as_secs_f64() / plan.answers as f64;
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = byte_of(at as u64, plan.len);
    }
    link.put(&bytes)?;
    done.right += u64::from(link.get(|verdict| verdict == [1])?);
    done.all += 1;
    done.moved += plan.answers * (plan.window * plan.len + plan.answer_len) + plan.len;
    Ok(seconds)
}

fn measure(name: &str, what: &str, len: &str) -> anyhow::Result<bool> {
    let len: usize = len.parse().with_context(|| format!("{len:?} is no number"))?;
    ensure!((1..=MOST_BYTES).contains(&len), "{len} bytes are not from 1 to {MOST_BYTES}");
    let len = len as u64;
    let plan = match what {
        "latency" => Plan { len, answers: LATENCY_ANSWERS, window: 1, answer_len: len },
        "bandwidth" => {
            let answers = VOLUME_BYTES / len / WINDOW + 1;
            Plan { len, answers, window: WINDOW, answer_len: 1 }
        }
        _ => bail!("{what:?} is neither latency nor bandwidth"),
    };
    let link = Link::open(name, ["questions", "answers"])?;
    let mut done = Done::default();
    let begun = Instant::now();
    while begun.elapsed() < SETTLING {
        one_run(&link, plan, &mut done)?;
    }
    let (begun, mut sum, mut runs) = (Instant::now(), 0.0, 0.0);
    while runs == 0.0 || begun.elapsed() < MEASURING {
        sum += one_run(&link, plan, &mut done)?;
        runs += 1.0;
    }
    link.put(&Plan { answers: 0, ..plan }.to_bytes())?;
    let answer_s = sum / runs;
    let message_s = answer_s / plan.window as f64;
    match what {
        "latency" => println!("point {len} {:.3} 0 0", 1e9 * answer_s / 2.0),
        _ => println!("point {len} 0 {:.3} {:.3}", len as f64 / message_s, 1.0 / message_s),
    }
    println!("cpus 0 {}", cpus()?);
    println!("moved {}", done.moved);
    println!("checked {} {}", done.right, done.all);
    Ok(done.right == done.all)
}

/// That this process may use, as in 0-1,4.
fn cpus() -> anyhow::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(list.context("the kernel does not say which CPUs are allowed")?.trim().to_owned())
}

fn main() -> anyhow::Result<()> {
    set_log_level(LogLevel::Error);
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", name] => serve(name),
        ["measure", name, what, len] => {
            ensure!(measure(name, what, len)?, "messages came changed");
            Ok(())
        }
        _ => bail!("usage: iceoryx2-pingpong serve NAME | measure NAME latency|bandwidth LEN"),
    }
}
