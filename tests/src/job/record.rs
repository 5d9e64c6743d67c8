//! What a job gave, for the table.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Job, Rings, Way};

/// One job in one way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    pub program: String,
    pub job: String,
    pub way: String,
    pub passed: bool,
    pub seconds: f64,
    /// Of connections with a channel.
    pub ring_bytes: u64,
    pub tcp_bytes: u64,
    /// What the interfaces saw of all connections, headers included.
    pub wire_bytes: Option<u64>,
    pub channels: u64,
    /// How many connections had no channel, by program and reason.
    pub without: BTreeMap<String, usize>,
    pub note: String,
}

impl Record {
    pub fn new(job: &Job, way: Way, took: Duration, passed: bool) -> Self {
        let why = match job.rings {
            Rings::Used => "",
            Rings::UsedWhenForced(why) | Rings::Unused(why) => why,
        };
        Self {
            program: job.program.to_owned(),
            job: job.job.to_owned(),
            way: way.name().to_owned(),
            passed,
            seconds: took.as_secs_f64(),
            note: [why, job.note].join(" ").trim().to_owned(),
            ..Self::default()
        }
    }

    /// Of the bytes that ring and interfaces carried, the percentage that went by ring.
    pub fn share(&self) -> f64 {
        let tcp_bytes = self.wire_bytes.unwrap_or(self.tcp_bytes);
        100.0 * self.ring_bytes as f64 / (self.ring_bytes + tcp_bytes).max(1) as f64
    }

    /// Into the folder that `YASMIN_JOBS_OUT` names.
    #[track_caller]
    pub fn save(&self) {
        let Some(folder) = std::env::var_os("YASMIN_JOBS_OUT").map(PathBuf::from) else { return };
        let letters = |text: &str| -> String {
            text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
        };
        let name = format!("{}-{}-{}", letters(&self.program), letters(&self.job), self.way);
        std::fs::create_dir_all(&folder).unwrap();
        let text = serde_json::to_string_pretty(self).unwrap();
        std::fs::write(folder.join(name).with_extension("json"), text).unwrap();
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {} in {:.1} s; {} channels, {} by ring ({:.1} %), {} by TCP beside them",
            self.program,
            self.way,
            if self.passed { "passed" } else { "FAILED" },
            self.seconds,
            self.channels,
            self.ring_bytes,
            self.share(),
            self.tcp_bytes,
        )?;
        if let Some(bytes) = self.wire_bytes {
            write!(f, ", {bytes} on all interfaces")?;
        }
        for (who, count) in &self.without {
            write!(f, "\n  {count} without a channel: {who}")?;
        }
        Ok(())
    }
}
