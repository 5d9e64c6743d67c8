//! Processes that are killed at random moments while they use mutex, reader-writer lock,
//! semaphore and heap.
//!
//! `YASMIN_KILLS=10000 cargo test -p yasmin-segment --release --test kill` kills so many for each.
//! No test harness: its threads have no place in a process that forks.
#![allow(clippy::undocumented_unsafe_blocks, reason = "test processes, one block a call")]

mod common;
#[path = "kill/heap.rs"]
mod heap;
#[path = "kill/locks.rs"]
mod locks;

use common::{Random, failure, fork, kill, reap, sleep_us};

/// So many processes at a time.
const WORKERS: usize = 4;
const KILLS: u64 = 1500;

/// Kills one of the workers again and again; `work` never returns, but panics if something is
/// wrong. Once in a while `check` looks at everything, all workers being dead.
fn rounds(name: &str, work: &dyn Fn(u64), check: &dyn Fn()) {
    let kills = std::env::var("YASMIN_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let seed = std::env::var("YASMIN_SEED").map_or(0x9E37_79B9_7F4A_7C15, |s| s.parse().unwrap());
    failure();
    let is_well = || failure().load(std::sync::atomic::Ordering::Relaxed) == 0;
    let mut random = Random(seed);
    let mut next_id = 0;
    let mut start = || {
        next_id += 1;
        fork(|| work(next_id))
    };
    let mut workers: Vec<i32> = (0..WORKERS).map(|_| start()).collect();
    for round in 1..=kills {
        assert!(is_well(), "{name}: a worker failed, seed {seed}");
        sleep_us(random.below(2_000));
        let victim = random.below(WORKERS as u64) as usize;
        kill(workers[victim]);
        assert_eq!(reap(workers[victim]), None, "{name}: a worker ended by itself, seed {seed}");
        if round.is_multiple_of(100) {
            for (index, worker) in workers.iter().enumerate() {
                if index != victim {
                    kill(*worker);
                    assert_eq!(reap(*worker), None, "{name}: a worker ended, seed {seed}");
                }
            }
            check();
            workers = (0..WORKERS).map(|_| start()).collect();
        } else {
            workers[victim] = start();
        }
    }
    for worker in workers {
        kill(worker);
        assert_eq!(reap(worker), None, "{name}: a worker ended by itself, seed {seed}");
    }
    check();
    println!("{name}: {kills} kills, seed {seed}");
}

fn main() {
    locks::mutex();
    locks::rwlock();
    locks::semaphore_and_condition();
    heap::heap();
}
