//! ^C: ends what the demo started, so that every wait returns and everything is put away.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use rustix::process::{Pid, Signal, kill_process_group};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Process groups that the demo started.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Exit code of a program that ^C ended.
const EXIT_CODE: i32 = 130;

/// From here on SIGINT, SIGTERM and SIGHUP kill the groups; a second one exits at once.
pub fn catch_signals() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(EXIT_CODE);
        }
        let groups = GROUPS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        groups.iter().for_each(|group| kill(*group));
    })?;
    Ok(())
}

pub fn check() -> anyhow::Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) { bail!("interrupted") } else { Ok(()) }
}

pub fn add(group: u32) {
    let mut groups = GROUPS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    groups.insert(group.cast_signed());
    // The signal may have come between the start and this entry.
    if INTERRUPTED.load(Ordering::Relaxed) {
        kill(group.cast_signed());
    }
}

pub fn remove(group: u32) {
    let mut groups = GROUPS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    groups.remove(&group.cast_signed());
}

fn kill(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}
