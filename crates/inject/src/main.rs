//! yasmin-inject: gives a program without libc, or without a loader, `libyasmin.so` before its first instruction.
//!
//!     yasmin-inject THREAD LIBRARY >PIPE
//!     yasmin-inject --exec PROGRAM ARGUMENTS...
//!
//! Whoever is about to call exec starts it, with the number of the calling thread. It leaves a process
//! that traces this thread, says so by writing that process's number (4 bytes), and ends. The process stops
//! the thread at the end of its exec, maps the library and lets the program go. Where anything is not as
//! it has to be, the program goes on as it is.
//!
//! With `--exec` it becomes the program, as libc would that starts it: the library, which it is preloaded with, sees this
//! call, and not the one that is within posix_spawn. The first of ARGUMENTS is the program's name for itself.
//!
//! ptrace(2), because nothing else reaches a program that has no loader or no libc, and leaves all that it can see of
//! itself as it was: its number, its name, /proc/self/exe.

#![no_main]

mod library;
mod program;
mod thread;

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use anyhow::{Context, bail};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

/// Without what Rust does before `main`: the program inherits SIGPIPE's handling and closed descriptors.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    const FAILED: c_int = 127;
    // SAFETY: C strings, and null behind them.
    unsafe {
        if count > 2 && CStr::from_ptr(*words.add(1)) == c"--exec" {
            libc::execv(*words.add(2), words.add(3));
            let path = CStr::from_ptr(*words.add(2)).to_string_lossy();
            eprintln!("yasmin-inject: {path}: {}", std::io::Error::last_os_error());
            return FAILED;
        }
    }
    injects()
}

fn injects() -> c_int {
    const USAGE: c_int = 2;
    let mut words = std::env::args_os().skip(1);
    let (Some(thread), Some(library), None) = (words.next(), words.next(), words.next()) else {
        eprintln!("yasmin-inject: called by yasmin run and its programs: THREAD LIBRARY");
        return USAGE;
    };
    let Some(thread) = thread.to_str().and_then(|text| text.parse().ok()).filter(|it| *it > 0)
    else {
        eprintln!("yasmin-inject: {} is not the number of a thread", thread.display());
        return USAGE;
    };
    // Nothing that the caller has open stays open for longer.
    // SAFETY: no descriptor of this program's own is among them.
    unsafe { libc::close_range(3, u32::MAX, 0) };
    // The caller gets no child that it does not know.
    // SAFETY: one thread.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Child) => match attend(Pid::from_raw(thread), &PathBuf::from(library)) {
            Ok(()) => libc::EXIT_SUCCESS,
            Err(_) => libc::EXIT_FAILURE,
        },
        Ok(ForkResult::Parent { .. }) => libc::EXIT_SUCCESS,
        Err(error) => {
            eprintln!("yasmin-inject: fork: {error}");
            libc::EXIT_FAILURE
        }
    }
}

/// Attaches, and waits for the exec.
fn attend(thread: Pid, library: &std::path::Path) -> anyhow::Result<()> {
    ptrace::seize(thread, Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_TRACESYSGOOD)?;
    // At once: standard output's buffer would write what is behind a byte that is a line's end by itself, and the
    // caller reads once.
    let pipe = std::io::stdout();
    nix::unistd::write(&pipe, &std::process::id().to_ne_bytes())?;
    nix::unistd::close(pipe.as_raw_fd())?;
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL))? {
            WaitStatus::PtraceEvent(process, _, libc::PTRACE_EVENT_EXEC) => {
                return thread::at_exec(process, |stopped| program::inject(stopped, library));
            }
            WaitStatus::Stopped(thread, signal) => ptrace::cont(thread, signal)?,
            // Stopped with all of its process.
            WaitStatus::PtraceEvent(thread, ..) => {
                ptrace::detach(thread, None).context("detach")?;
                bail!("stopped");
            }
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => bail!("ended"),
            _ => {}
        }
    }
}
