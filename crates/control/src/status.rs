//! What `yasmin status --json` prints and the broker answers to STATUS.

use serde::{Deserialize, Serialize};

/// The broker and every connection that it knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    pub broker: Broker,
    pub connections: Vec<Connection>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Broker {
    pub version: String,
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// How ends are proven to belong together: "bpf" or "addresses".
    pub proof: String,
    pub processes: u32,
    pub memory_used_bytes: u64,
    pub memory_limit_bytes: u64,
    /// Channels handed out since the start.
    pub channels_total: u64,
    /// Ring and TCP bytes of connections that are closed by now, all together.
    pub closed_ring_bytes: u64,
    pub closed_tcp_bytes: u64,
}

/// One TCP connection, or one end of it while the other has not been offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Connector first, where it is known.
    pub ends: Vec<End>,
    /// `None` with a channel; otherwise why there is none.
    pub reason: Option<String>,
    /// Ring memory set aside for it.
    pub memory_bytes: u64,
    /// Seconds since the channel was handed out (or the offer made).
    pub age_s: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    pub program: String,
    pub pid: u32,
    /// "connector" or "acceptor".
    pub role: String,
    /// "address:port" as the socket names itself and its peer.
    pub local: String,
    pub peer: String,
    /// The direction on which this end sends.
    pub sends: Direction,
}

/// A direction as its sending end counts it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Direction {
    /// "parked", "offered", "open"; "tcp" without a channel.
    pub state: String,
    pub ring_size_bytes: u64,
    pub ring_bytes: u64,
    pub tcp_bytes: u64,
    /// Bytes a second, by ring and TCP, since the status was last asked for (or the start).
    pub rate_bytes_s: f64,
    /// Times it went from open to parked.
    pub parked: u64,
}

/// A segment, as `yasmin segment` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Segment {
    pub name: String,
    /// The user who made it.
    pub owner: u32,
    /// It is no user's: the host of this guest gives it to several guests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_host: bool,
    pub size_bytes: u64,
    /// Of its own bytes, in every process.
    pub address: u64,
    /// Memory that it takes now.
    pub used_bytes: u64,
    /// Of huge pages.
    pub huge: bool,
    /// The process with which it ends, where there is one.
    pub creator: Option<u32>,
    /// Seconds since it was made.
    pub age_s: u64,
    pub rights: Vec<Grant>,
    /// Whether any process has it.
    pub attached: bool,
    /// Who has it, where this was asked for. A process that forked counts once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// Not all of them are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_holders: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// `None`: everyone who is not named.
    pub user: Option<u32>,
    /// "none", "read" or "write".
    pub rights: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// 0: in a PID namespace that the broker does not see.
    pub pid: u32,
    pub user: u32,
    pub rights: String,
}
