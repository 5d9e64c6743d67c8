//! What work cost, whoever else had the processor meanwhile.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// CPU time that the calling thread has used.
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
