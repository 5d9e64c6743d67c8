//! What `yasmin status` is told.

use super::Broker;
use crate::channel::{Channel, EndLabel};
use std::time::Instant;
use yasmin_control::Role;
use yasmin_control::status::{self, Connection, Direction, End, Status};
use yasmin_wire::State;
use yasmin_wire::layout::class_bytes;

/// Why an end that waits has no channel.
const WAITS: &str = "peer not seen under yasmin";

impl Broker {
    /// The status as `uid` may see it: root all connections, others those with an end of
    /// theirs. Rates are since the last call, whoever made it.
    pub(super) fn status(&mut self, uid: u32, now: Instant) -> Status {
        let sees = |label: &EndLabel| uid == 0 || label.uid == uid;
        let mut connections = Vec::new();
        for channel in self.channels.values_mut() {
            if channel.ends.iter().any(|end| sees(&end.label)) {
                connections.push(with_channel(channel, now));
            }
        }
        for (label, since) in self.waiting() {
            if sees(&label) {
                connections.push(without_channel(&label, WAITS, since, now));
            }
        }
        for declined in &self.declined {
            if sees(&declined.label) {
                connections.push(without_channel(
                    &declined.label,
                    declined.reason,
                    declined.since,
                    now,
                ));
            }
        }
        connections.extend(self.shown_by_vsock(sees, now));
        let broker = status::Broker {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: now.duration_since(self.started).as_secs_f64(),
            proof: self.proof.name().to_owned(),
            processes: u32::try_from(self.processes()).unwrap_or(u32::MAX),
            memory_used_bytes: self.budget.used_bytes(),
            memory_limit_bytes: self.budget.limit_bytes(),
            channels_total: self.totals.channels,
            closed_ring_bytes: self.totals.closed_ring_bytes,
            closed_tcp_bytes: self.totals.closed_tcp_bytes,
        };
        Status { broker, connections }
    }
}

fn with_channel(channel: &mut Channel, now: Instant) -> Connection {
    let memory_bytes = channel.memory_bytes();
    let age_s = now.duration_since(channel.since).as_secs_f64();
    let ends = [Role::Connector, Role::Acceptor].map(|role| {
        let (state, class) = match channel.word(role) {
            Some(word) => (state_name(word.state), word.class),
            // Gone, or spoilt by one of the ends.
            None => ("tcp", 0),
        };
        let end = channel.end_mut(role);
        let counters = end.counters();
        // The process can write its counters: whatever they are, nothing here overflows.
        let sent = counters.ring_bytes.wrapping_add(counters.tcp_bytes);
        let (last_sent, last_time) = std::mem::replace(&mut end.last, (sent, now));
        let seconds = now.duration_since(last_time).as_secs_f64();
        let rate = sent.saturating_sub(last_sent) as f64 / seconds.max(1e-6);
        shown(
            &end.label,
            Direction {
                state: state.to_owned(),
                ring_size_bytes: u64::from(class_bytes(class)),
                ring_bytes: counters.ring_bytes,
                tcp_bytes: counters.tcp_bytes,
                rate_bytes_s: rate,
                parked: counters.parked,
            },
        )
    });
    Connection { ends: ends.into(), reason: None, memory_bytes, age_s }
}

fn without_channel(label: &EndLabel, reason: &str, since: Instant, now: Instant) -> Connection {
    let direction = Direction { state: "tcp".to_owned(), ..Direction::default() };
    Connection {
        ends: vec![shown(label, direction)],
        reason: Some(reason.to_owned()),
        memory_bytes: 0,
        age_s: now.duration_since(since).as_secs_f64(),
    }
}

pub(super) fn shown(label: &EndLabel, sends: Direction) -> End {
    let role = match label.role {
        Role::Connector => "connector",
        Role::Acceptor => "acceptor",
    };
    End {
        program: label.program.clone(),
        pid: label.pid,
        role: role.to_owned(),
        local: label.local.to_string(),
        peer: label.peer.to_string(),
        sends,
    }
}

const fn state_name(state: State) -> &'static str {
    match state {
        State::Parked => "parked",
        State::Offered => "offered",
        State::Open => "open",
    }
}
