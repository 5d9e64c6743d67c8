//! What `yasmin host` asks the broker of KVM guests' memory, and its answers: one line of JSON each way.

use serde::{Deserialize, Serialize};

/// File name of that broker's socket in the system broker's directory.
pub const HOST_SOCKET_NAME: &str = "host.sock";

/// Longer ones are not read.
pub const ASK_BYTES: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    Status,
    /// One guest gives up all memory and gets none, or two give up what they share. Answered when it has
    /// gone, or has not within so many seconds.
    Leave {
        guests: Vec<String>,
        within_s: u32,
    },
    /// They may have memory again.
    Join {
        guests: Vec<String>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Status(HostStatus),
    Done,
    /// Why not.
    Refused(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    pub version: String,
    pub pid: u32,
    pub memory_used_bytes: u64,
    pub memory_limit_bytes: u64,
    pub guest_limit_bytes: u64,
    pub guests: Vec<Guest>,
    /// Pairs that have left, by `yasmin host leave A B`.
    pub pairs_left: Vec<[String; 2]>,
    /// One for each pair that has memory.
    pub regions: Vec<Region>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Guest {
    pub name: String,
    /// Its QEMU answers.
    pub has_qemu: bool,
    /// The broker in it has been heard.
    pub has_broker: bool,
    /// By `yasmin host leave`.
    pub has_left: bool,
    pub memory_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Region {
    /// Its number, as in logs.
    pub region: String,
    pub guests: [String; 2],
    /// "coming", "ready" or "going".
    pub state: String,
    pub memory_bytes: u64,
    /// Connections that it has room for, and that hold a part of it.
    pub slices: usize,
    pub held: usize,
}
