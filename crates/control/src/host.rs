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
    /// Of a segment that guests share.
    Segment(SegmentAsk),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentAsk {
    Create {
        name: String,
        size_bytes: u64,
        rights: Vec<Right>,
    },
    /// Each in place of what that user had.
    Allow {
        name: String,
        rights: Vec<Right>,
    },
    /// It goes when nobody has it any more; with force, from under whoever has it.
    Remove {
        name: String,
        force: bool,
    },
}

/// What users of a guest may do with a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Right {
    pub guest: String,
    /// By the number that the guest knows; `None`: everyone there who is not named.
    pub user: Option<u32>,
    /// "none", "read" or "write".
    pub rights: String,
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
    /// That guests share by name.
    pub segments: Vec<SegmentStatus>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SegmentStatus {
    pub name: String,
    pub size_bytes: u64,
    /// Of its own bytes, in every process of every guest.
    pub address: u64,
    /// That is plugged for it, and that it takes now.
    pub memory_bytes: u64,
    pub used_bytes: u64,
    /// It goes when nobody has it any more.
    pub is_removed: bool,
    pub guests: Vec<SegmentGuest>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SegmentGuest {
    pub guest: String,
    /// "coming", "ready", "going" or "absent".
    pub state: String,
    pub rights: Vec<Right>,
    /// How often sleepers there were woken for a change in another guest, since the broker began.
    pub rings: u64,
    /// Why it is not there, where that is known.
    pub trouble: Option<String>,
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
