//! The exit codes of what this process has started, as its own.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What was killed by a signal has this and the signal's number, as shells have it.
const KILLED: i32 = 128;

pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| KILLED + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(1)
}
