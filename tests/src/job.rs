//! A job: a real program that does all of some work, whose result is checked. It runs over plain
//! TCP first, then under `yasmin run` in several ways; how much went through rings is recorded.
//!
//! `YASMIN_JOBS_OUT=FOLDER`: one JSON file for each job and way, from which `jobs-table` makes
//! docs/programs.md. `YASMIN_JOBS=all`: the large programs and longer runs too.
//! `YASMIN_JOBS_WAYS=plain,default,forced,chaos`: only these ways.

mod record;
mod stage;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

pub use record::Record;
pub use stage::Stage;

use crate::installed::find;
use crate::lab::{Knobs, Lab};
use crate::netns::Net;

/// How the programs of a job are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Plain TCP.
    Plain,
    /// `yasmin run` as users start it.
    Default,
    /// A ring from the first bytes of every connection on.
    Forced,
    /// As forced; and every so often the library parks, or does not offer, or is late.
    Chaos,
}

impl Way {
    pub const ALL: [Self; 4] = [Self::Plain, Self::Default, Self::Forced, Self::Chaos];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Default => "default",
            Self::Forced => "forced",
            Self::Chaos => "chaos",
        }
    }

    fn lab(self) -> Lab {
        // A peer may accept late, or have no library: the wait for a channel is short.
        let forced =
            Knobs { promote_messages: Some(0), promote_wait_ms: Some(20), ..Knobs::default() };
        match self {
            Self::Plain => Lab::plain(Net::Netns),
            Self::Default => Lab::new(Net::Netns, Knobs::default()),
            Self::Forced => Lab::new(Net::Netns, forced),
            Self::Chaos => Lab::new(Net::Netns, forced.chaos(100, 7)),
        }
    }
}

/// What a job shows of rings.
#[derive(Clone, Copy, Debug)]
pub enum Rings {
    /// They carry some of its bytes, by default and when forced.
    Used,
    /// They carry some of its bytes, but by default it is too short for that.
    UsedWhenForced(&'static str),
    /// They carry nothing, and why.
    Unused(&'static str),
}

pub struct Job {
    pub program: &'static str,
    pub job: &'static str,
    /// Programs that must be installed.
    pub needs: &'static [&'static str],
    /// Its packages are too large for every run.
    pub is_large: bool,
    pub rings: Rings,
    /// What of it stays TCP, and why.
    pub note: &'static str,
    pub run: fn(&Stage),
}

/// The long form, with everything that is to be installed by hand.
pub fn all() -> bool {
    std::env::var("YASMIN_JOBS").is_ok_and(|which| which == "all")
}

/// Runs the job in every way; fails when one of them does.
#[track_caller]
pub fn check(job: &Job) {
    if job.is_large && !all() {
        eprintln!("skipped: {}: only with YASMIN_JOBS=all", job.program);
        return;
    }
    if let Some(missing) = job.needs.iter().find(|name| find(name).is_none()) {
        eprintln!("skipped: {}: {missing} is not installed", job.program);
        return;
    }
    let chosen = std::env::var("YASMIN_JOBS_WAYS").ok();
    for way in Way::ALL {
        if chosen.as_ref().is_none_or(|ways| ways.split(',').any(|word| word == way.name())) {
            run(job, way);
        }
    }
}

#[track_caller]
fn run(job: &Job, way: Way) {
    let stage = Stage::new(way, way.lab());
    let begun = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (job.run)(&stage)));
    let mut record = Record::new(job, way, begun.elapsed(), result.is_ok());
    stage.account(&mut record);
    eprintln!("{record}");
    record.save();
    if let Err(panic) = result {
        eprintln!("{} ({}) failed {}", job.program, job.job, way.name());
        resume_unwind(panic);
    }
    let must = match job.rings {
        Rings::Used => matches!(way, Way::Default | Way::Forced),
        Rings::UsedWhenForced(_) => way == Way::Forced,
        Rings::Unused(_) => false,
    };
    if must {
        stage.lab.assert_some_by_ring(record.ring_bytes);
    }
}
