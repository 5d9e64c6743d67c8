//! Commands in threads of their own.

use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use yasmin_tests::sys::{self, libc};
use yasmin_tests::{astray, closing};

use crate::{Running, Script, execute, lock, number, ok, wrong};

pub fn run(script: &Arc<Script>, words: &[&str]) -> Result<String> {
    match *words {
        ["async", name, ref command @ ..] => {
            let thread = Arc::new(AtomicI32::new(0));
            let (own, command) = (thread.clone(), command.join(" "));
            let script_there = script.clone();
            let handle = std::thread::spawn(move || {
                own.store(sys::thread_id(), Ordering::SeqCst);
                execute(&script_there, &command)
            });
            lock(&script.running).insert(name.to_owned(), Running { thread, handle });
            Ok("ok".to_owned())
        }
        ["asleep", name] => {
            let thread = thread_of(script, name)?;
            let begun = Instant::now();
            // Asleep for several looks in a row: not just between two instructions.
            let mut looks = 0;
            while looks < 5 {
                let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
                let sleeps = stat.is_ok_and(|stat| {
                    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
                });
                looks = if sleeps { looks + 1 } else { 0 };
                if begun.elapsed() > Duration::from_secs(5) {
                    return Ok("awake".to_owned());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok("asleep".to_owned())
        }
        ["nudge", name] => sys::kill_thread(thread_of(script, name)?, libc::SIGUSR2).map(ok),
        // Asleep, or long enough at it to be watching.
        ["waiting", name] => wait_for_wait(thread_of(script, name)?, 60),
        ["waiting", name, ms] => wait_for_wait(thread_of(script, name)?, number(ms)?),
        // One thread of many closes, so many times.
        ["closing", seed, rounds] => {
            closing::closing(number(seed)?, number(rounds)?).map(|_| ok(()))
        }
        // One thread connects, another one closes; so many times.
        ["opening", seed, rounds] => closing::opening(number(seed)?, number(rounds)?).map(ok),
        // Bytes go past libc; on so many connections.
        ["astray", seed, rounds] => astray::astray(number(seed)?, number(rounds)?).map(ok),
        ["kick", name] => sys::kill_thread(thread_of(script, name)?, libc::SIGUSR1).map(ok),
        ["join", name] => {
            let running = lock(&script.running).remove(name).ok_or_else(|| wrong(name))?;
            Ok(running.handle.join().unwrap_or_else(|_| "panicked".to_owned()))
        }
        _ => Err(wrong(&words.join(" "))),
    }
}

fn thread_of(script: &Script, name: &str) -> Result<i32> {
    let thread = lock(&script.running).get(name).map(|running| running.thread.clone());
    let thread = thread.ok_or_else(|| wrong(name))?;
    loop {
        match thread.load(Ordering::SeqCst) {
            0 => std::thread::yield_now(),
            number => return Ok(number),
        }
    }
}

/// `awake_ms`: the time on a CPU after which it must be watching.
fn wait_for_wait(thread: i32, awake_ms: u64) -> Result<String> {
    let begun = Instant::now();
    let mut looks = 0;
    loop {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"))?;
        let sleeps = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'));
        looks = if sleeps { looks + 1 } else { 0 };
        if looks >= 5 || cpu_ms(thread)? >= awake_ms {
            return Ok("waiting".to_owned());
        }
        if begun.elapsed() > Duration::from_secs(5) {
            return Ok("neither".to_owned());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Milliseconds that a thread has run so far.
fn cpu_ms(thread: i32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"))?;
    let ns: u64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
    Ok(ns / 1_000_000)
}
