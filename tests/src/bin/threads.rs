//! Threads that get in each other's way on one connection: `threads closing SEED ROUNDS`,
//! `threads handler SEED ROUNDS` or `threads realtime SEED ROUNDS`. Says `done` and what was done, or ends by a signal.
//!
//! What each call gives is a matter of chance; that all bytes arrive, that nobody hangs and
//! that nothing is touched that is gone, is not.

use std::io::{Error, Result};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use yasmin_tests::closing::{self, MARK, Random, listener, pair};
use yasmin_tests::sys::{self, libc, scheduling};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let [seed, rounds] = numbers[..] else {
        eprintln!("threads closing|handler|realtime SEED ROUNDS");
        return ExitCode::FAILURE;
    };
    let done = match words[0].as_str() {
        "closing" => {
            closing::closing(seed, rounds).map(|reads| format!("{rounds} rounds, {reads} reads"))
        }
        "handler" => handler(seed, rounds),
        _ => real_time(rounds),
    };
    match done {
        Ok(what) => println!("done {what}"),
        Err(error) => {
            println!("failed: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

static CLOSED_BY_HANDLER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn closes(_: libc::c_int) {
    let _ = sys::close(CLOSED_BY_HANDLER.load(Ordering::SeqCst));
}

/// A signal handler closes the connection that its own thread waits on, at any moment of it.
fn handler(seed: u64, rounds: u64) -> Result<String> {
    use std::os::unix::thread::JoinHandleExt;
    scheduling::end_after(60);
    // SAFETY: the handler makes one system call.
    unsafe { libc::signal(libc::SIGUSR1, closes as *const () as usize) };
    let listener = listener()?;
    let mut random = Random(seed | 1);
    let mut echoes = 0;
    for _ in 0..rounds {
        let (connects, accepts) = pair(listener)?;
        for fd in [connects, accepts] {
            sys::set_nonblocking(fd, false)?;
        }
        CLOSED_BY_HANDLER.store(connects, Ordering::SeqCst);
        let asks = std::thread::spawn(move || {
            let (mut block, mut count) = ([MARK; 64], 0u64);
            while sys::send(connects, &block, libc::MSG_NOSIGNAL).is_ok()
                && matches!(sys::recv(connects, &mut block, 0), Ok(1..))
            {
                count += 1;
            }
            count
        });
        let answers = std::thread::spawn(move || {
            let mut block = [0; 64];
            while let Ok(got @ 1..) = sys::recv(accepts, &mut block, 0) {
                if sys::send(accepts, &block[..got], libc::MSG_NOSIGNAL).is_err() {
                    break;
                }
            }
            sys::close(accepts)
        });
        std::thread::sleep(Duration::from_micros(2000 + random.below(2000)));
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(asks.as_pthread_t(), libc::SIGUSR1) };
        echoes += asks.join().map_err(|_| Error::other("the asker panicked"))?;
        answers.join().map_err(|_| Error::other("the answerer panicked"))??;
    }
    Ok(format!("{rounds} rounds, {echoes} echoes"))
}

/// Two threads of different real-time priority on one CPU send on one connection; all arrives.
fn real_time(rounds: u64) -> Result<String> {
    scheduling::end_after(30);
    let (connects, accepts) = pair(listener()?)?;
    let allowed = std::thread::spawn(|| scheduling::real_time(1)).join();
    if !matches!(allowed, Ok(Ok(()))) {
        return Ok("nothing: real-time threads are not allowed".to_owned());
    }
    let sends = |priority: i32| -> Result<()> {
        scheduling::pin(0)?;
        scheduling::real_time(priority)?;
        let block = [MARK; 100];
        for round in 0..rounds {
            let mut done = 0;
            while done < block.len() {
                match sys::send(connects, &block[done..], libc::MSG_NOSIGNAL) {
                    Ok(sent) => done += sent,
                    Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                        sys::poll_events(connects, libc::POLLOUT, 1000)?;
                    }
                    Err(error) => return Err(error),
                }
            }
            // The one that goes before others lets them in at odd moments.
            if priority > 1 && round % 3 == 0 {
                std::thread::sleep(Duration::from_micros(20 + round % 50));
            }
        }
        Ok(())
    };
    let total = 2 * 100 * rounds;
    let got = std::thread::scope(|scope| -> Result<u64> {
        let senders = [1, 2].map(|priority| scope.spawn(move || sends(priority)));
        let (mut got, mut buffer) = (0, vec![0; 4096]);
        while got < total {
            match sys::recv(accepts, &mut buffer, 0) {
                Ok(0) => return Err(Error::other(format!("the end after {got}"))),
                Ok(len) => got += len as u64,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    if sys::poll_events(accepts, libc::POLLIN, 10_000)? == 0 {
                        return Err(Error::other(format!("nothing more after {got} of {total}")));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        for sender in senders {
            sender.join().map_err(|_| Error::other("a sender panicked"))??;
        }
        Ok(got)
    })?;
    Ok(format!("{got} bytes"))
}
