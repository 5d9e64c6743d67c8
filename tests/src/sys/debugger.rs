//! A process that a debugger stops. A debugger is a thread: the one that stops it lets it go on.

use std::fs;
use std::io::{Error, Result};
use std::ptr::{null, null_mut};

use libc::{PTRACE_DETACH, PTRACE_INTERRUPT, PTRACE_SEIZE, pid_t};

use super::check_int;

/// All threads of a process, stopped wherever they were until this is dropped.
pub struct Stopped(Vec<pid_t>);

impl Stopped {
    /// # Errors
    /// As ptrace(2).
    pub fn all_of(pid: u32) -> Result<Self> {
        let mut stopped = Self(Vec::new());
        // A thread that still ran may have made another.
        while let Some(thread) = threads(pid)?.into_iter().find(|id| !stopped.0.contains(id)) {
            match stopped.seize(thread) {
                // It was about to end, and soon nobody lists it any more.
                Err(error) if is_ending(&error) && thread as u32 != pid => {
                    std::thread::yield_now();
                }
                result => result?,
            }
        }
        Ok(stopped)
    }

    fn seize(&mut self, thread: pid_t) -> Result<()> {
        ask(PTRACE_SEIZE, thread)?;
        self.0.push(thread);
        ask(PTRACE_INTERRUPT, thread)?;
        // SAFETY: its status is of no interest.
        check_int(unsafe { libc::waitpid(thread, null_mut(), libc::__WALL) })?;
        Ok(())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for &thread in &self.0 {
            let _ = ask(PTRACE_DETACH, thread);
        }
    }
}

fn is_ending(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EPERM))
}

fn threads(pid: u32) -> Result<Vec<pid_t>> {
    let names = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(names.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect())
}

fn ask(request: libc::c_uint, thread: pid_t) -> Result<()> {
    // SAFETY: these requests read and write no memory of ours.
    let ret = unsafe { libc::ptrace(request, thread, null::<u8>(), null::<u8>()) };
    if ret == -1 { Err(Error::last_os_error()) } else { Ok(()) }
}
