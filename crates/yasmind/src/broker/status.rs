//! What `yasmin status` is told, part by part: whoever asks waits for what he asks for, all
//! others for one part.

use super::{Broker, EndState, OfferedEnd};
use crate::channel::{Channel, EndLabel};
use crate::client::Gone;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Instant;
use yasmin_control::Role;
use yasmin_control::status::{self, Connection, Direction, End};
use yasmin_wire::State;
use yasmin_wire::layout::class_bytes;

/// Why an end that waits has no channel.
const WAITS: &str = "peer not seen under yasmin";

/// A part is sent when it is so long, or when so much was looked at.
const PART_BYTES: usize = 8 << 10;
const LOOKED_AT: usize = 1024;

/// What one asker is told, as far as it was.
struct Report {
    client: u64,
    uid: u32,
    /// Not sent yet.
    text: Vec<u8>,
    any: bool,
    next: Next,
}

/// What comes next in a report: names of channels and ends above these, indices from these on.
#[derive(Clone, Copy)]
enum Next {
    Broker,
    Channels(u64),
    Ends(u64),
    Declined(usize),
    ByVsock(usize),
    Last,
}

/// Reports that are under way.
#[derive(Default)]
pub(super) struct Reports {
    /// By user, who take turns; no queue is empty.
    users: BTreeMap<u32, VecDeque<Report>>,
    last_uid: u32,
    /// Reports take half of the broker's time at most.
    after: Option<Instant>,
    /// Nobody who asked reads.
    stalled: bool,
}

impl Reports {
    /// Begins a report; one at a time for each client.
    pub fn ask(&mut self, client: u64, uid: u32) -> Result<(), Gone> {
        let queue = self.users.entry(uid).or_default();
        if queue.iter().any(|report| report.client == client) {
            return Err(Gone);
        }
        queue.push_back(Report { client, uid, text: Vec::new(), any: false, next: Next::Broker });
        self.stalled = false;
        Ok(())
    }

    pub fn disconnected(&mut self, client: u64) {
        self.users.retain(|_, queue| {
            queue.retain(|report| report.client != client);
            !queue.is_empty()
        });
    }

    /// The next report of the next user that `can` be gone on with.
    fn pick(&mut self, can: impl Fn(u64) -> bool) -> Option<Report> {
        let after = self.users.range((Excluded(self.last_uid), Unbounded));
        let mut turns = after.chain(self.users.range(..=self.last_uid));
        let (uid, at) = turns.find_map(|(&uid, queue)| {
            queue.iter().position(|report| can(report.client)).map(|at| (uid, at))
        })?;
        let queue = self.users.get_mut(&uid)?;
        let report = queue.remove(at);
        if queue.is_empty() {
            self.users.remove(&uid);
        }
        self.last_uid = uid;
        report
    }
}

impl Broker {
    /// When a report can be gone on with.
    pub fn next_report(&self, now: Instant) -> Option<Instant> {
        let waits = !self.reports.users.is_empty() && !self.reports.stalled;
        waits.then(|| self.reports.after.unwrap_or(now))
    }

    /// Somebody may read again.
    pub fn reports_go_on(&mut self) {
        self.reports.stalled = false;
    }

    /// Goes on with one report; gives whose.
    pub fn report(&mut self, now: Instant) -> Option<u64> {
        if self.next_report(now).is_none_or(|at| at > now) {
            return None;
        }
        let start = Instant::now();
        let clients = &self.clients;
        let can = |client| clients.get(&client).is_some_and(crate::client::Client::writable);
        let Some(mut report) = self.reports.pick(can) else {
            self.reports.stalled = true;
            return None;
        };
        let client = report.client;
        self.write_part(&mut report, now);
        let is_last = matches!(report.next, Next::Last) && report.text.is_empty();
        let text = std::mem::take(&mut report.text);
        // An empty part would be the last.
        let says = is_last || !text.is_empty();
        let sends =
            |to: &mut crate::client::Client| if says { to.send_status(&text) } else { Ok(()) };
        match self.clients.get_mut(&client).map(sends) {
            Some(Ok(())) if is_last => {}
            Some(Ok(())) => self.reports.users.entry(report.uid).or_default().push_back(report),
            _ => self.doomed.push(client),
        }
        let end = Instant::now();
        self.reports.after = Some(end + (end - start));
        Some(client)
    }

    /// A few KiB of JSON; nothing when all is told.
    fn write_part(&mut self, report: &mut Report, now: Instant) {
        let uid = report.uid;
        let sees = |label: &EndLabel| uid == 0 || label.uid == uid;
        let mut looked_at = 0;
        while report.text.len() < PART_BYTES && looked_at < LOOKED_AT {
            looked_at += 1;
            let shown = match report.next {
                Next::Broker => {
                    report.text.extend_from_slice(b"{\"broker\":");
                    report.write(&self.shown_broker(now));
                    report.text.extend_from_slice(b",\"connections\":[");
                    report.next = Next::Channels(0);
                    continue;
                }
                Next::Channels(last) => {
                    let mut after = self.channels.range_mut((Excluded(last), Unbounded));
                    let Some((&name, channel)) = after.next() else {
                        report.next = Next::Ends(0);
                        continue;
                    };
                    report.next = Next::Channels(name);
                    let is_seen = channel.ends.iter().any(|end| sees(&end.label));
                    is_seen.then(|| with_channel(channel, now))
                }
                Next::Ends(last) => {
                    let mut after = self.ends.range((Excluded(last), Unbounded));
                    let Some((&serial, end)) = after.next() else {
                        report.next = Next::Declined(0);
                        continue;
                    };
                    report.next = Next::Ends(serial);
                    let is_seen = uid == 0 || self.uid_of(end) == Some(uid);
                    if is_seen { self.shown_waiting(end, now) } else { None }
                }
                Next::Declined(at) => {
                    let Some(declined) = self.declined.get(at) else {
                        report.next = Next::ByVsock(0);
                        continue;
                    };
                    report.next = Next::Declined(at + 1);
                    let (label, reason) = (&declined.label, declined.reason);
                    sees(label).then(|| without_channel(label, reason, declined.since, now))
                }
                Next::ByVsock(at) => {
                    // Each is asked for in the kernel.
                    looked_at += 15;
                    let (next, shown) = self.shown_by_vsock(at, sees, now);
                    report.next = next.map_or(Next::Last, Next::ByVsock);
                    if next.is_none() {
                        report.text.extend_from_slice(b"]}");
                    }
                    shown
                }
                Next::Last => return,
            };
            if let Some(connection) = shown {
                if std::mem::replace(&mut report.any, true) {
                    report.text.push(b',');
                }
                report.write(&connection);
            }
        }
    }

    fn uid_of(&self, end: &OfferedEnd) -> Option<u32> {
        self.clients.get(&end.client).map(|client| client.uid)
    }

    fn shown_waiting(&self, end: &OfferedEnd, now: Instant) -> Option<Connection> {
        let EndState::Waiting { facts, since } = &end.state else { return None };
        Some(without_channel(&self.label_of(end, facts)?, WAITS, *since, now))
    }

    fn shown_broker(&self, now: Instant) -> status::Broker {
        status::Broker {
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
        }
    }
}

impl Report {
    fn write(&mut self, shown: &impl Serialize) {
        // Into memory, of types of numbers and strings: it cannot fail.
        let _ = serde_json::to_writer(&mut self.text, shown);
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
