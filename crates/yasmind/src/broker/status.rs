//! What `yasmin status` is told, part by part: whoever asks waits for what he asks for, all
//! others for one part.

use super::{Broker, EndState, OfferedEnd};
use crate::channel::{EndLabel, View};
use crate::client::Gone;
use crate::errands::Found;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use yasmin_control::Role;
use yasmin_control::status::{self, Connection, Direction, End};
use yasmin_wire::State;
use yasmin_wire::layout::class_bytes;

/// Why an end that waits has no channel.
const WAITS: &str = "peer not seen under yasmin";

/// A part is sent when it is so long, or when so much was looked at.
const PART_BYTES: usize = 8 << 10;
const LOOKED_AT: usize = 1024;

/// What closed connections sent is counted at once, or a user holds it up.
const COUNTED_WITHIN: Duration = Duration::from_millis(100);

/// Channels that an errand reads at once: about a part.
const CHANNELS: usize = 12;

/// What one asker is told, as far as it was.
struct Report {
    client: u64,
    uid: u32,
    /// Not sent yet.
    text: Vec<u8>,
    any: bool,
    next: Next,
    /// Until then it waits for what closed connections sent to be counted.
    counted_by: Instant,
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
    /// By client: an errand reads what comes next.
    away: HashMap<u64, Report>,
    /// Reports take half of the broker's time at most.
    after: Option<Instant>,
    /// Nobody who asked reads.
    stalled: bool,
}

impl Reports {
    /// Begins a report; one at a time for each client.
    pub fn ask(&mut self, client: u64, uid: u32) -> Result<(), Gone> {
        let queue = self.users.entry(uid).or_default();
        let is_of_client = |report: &Report| report.client == client;
        if queue.iter().any(is_of_client) || self.away.contains_key(&client) {
            return Err(Gone);
        }
        let counted_by = Instant::now() + COUNTED_WITHIN;
        let (text, next) = (Vec::new(), Next::Broker);
        queue.push_back(Report { client, uid, text, any: false, next, counted_by });
        self.stalled = false;
        Ok(())
    }

    /// An errand has read connections.
    pub fn go_on_with(&mut self, client: u64, connections: &[u8]) {
        let Some(mut report) = self.away.remove(&client) else { return };
        report.begin_connection();
        report.text.extend_from_slice(connections);
        self.users.entry(report.uid).or_default().push_back(report);
        self.stalled = false;
    }

    pub fn disconnected(&mut self, client: u64) {
        self.away.remove(&client);
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
        let is_early = matches!(report.next, Next::Broker) && now < report.counted_by;
        if is_early && self.totals.closed.uncounted.load(Ordering::Acquire) > 0 {
            self.reports.users.entry(report.uid).or_default().push_back(report);
            self.reports.after = Some(Instant::now() + Duration::from_millis(1));
            return None;
        }
        let channels = self.write_part(&mut report, now);
        if !channels.is_empty() {
            self.errands.report(report.uid, client, move || {
                Found::Connections(connections_json(&channels, now))
            });
            self.reports.away.insert(client, report);
            return None;
        }
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

    /// A few KiB of JSON; nothing when all is told. Gives the channels that come next.
    fn write_part(&mut self, report: &mut Report, now: Instant) -> Vec<View> {
        let uid = report.uid;
        let sees = |label: &EndLabel| uid == 0 || label.uid == uid;
        let (mut looked_at, mut channels) = (0, Vec::new());
        while report.text.len() < PART_BYTES && looked_at < LOOKED_AT && channels.len() < CHANNELS {
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
                    let mut after = self.channels.range((Excluded(last), Unbounded));
                    let Some((&name, channel)) = after.next() else {
                        report.next = Next::Ends(0);
                        // These come first.
                        if channels.is_empty() {
                            continue;
                        }
                        break;
                    };
                    report.next = Next::Channels(name);
                    if channel.ends.iter().any(|end| sees(&end.label)) {
                        channels.push(channel.view());
                    }
                    continue;
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
                Next::Last => break,
            };
            if let Some(connection) = shown {
                report.begin_connection();
                report.write(&connection);
            }
        }
        channels
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
            closed_ring_bytes: self.totals.closed.ring.load(Ordering::Relaxed),
            closed_tcp_bytes: self.totals.closed.tcp.load(Ordering::Relaxed),
        }
    }
}

/// With commas between them.
fn connections_json(channels: &[View], now: Instant) -> Vec<u8> {
    let mut text = Vec::new();
    for channel in channels {
        if !text.is_empty() {
            text.push(b',');
        }
        // As in `Report::write`.
        let _ = serde_json::to_writer(&mut text, &with_channel(channel, now));
    }
    text
}

impl Report {
    /// Another one follows.
    fn begin_connection(&mut self) {
        if std::mem::replace(&mut self.any, true) {
            self.text.push(b',');
        }
    }

    fn write(&mut self, shown: &impl Serialize) {
        // Into memory, of types of numbers and strings: it cannot fail.
        let _ = serde_json::to_writer(&mut self.text, shown);
    }
}

fn with_channel(channel: &View, now: Instant) -> Connection {
    let ends = [Role::Connector, Role::Acceptor].map(|role| {
        let (state, class) = match channel.word(role) {
            Some(word) => (state_name(word.state), word.class),
            // Gone, or spoilt by one of the ends.
            None => ("tcp", 0),
        };
        let end = channel.end(role);
        let counters = end.counters();
        // The process can write its counters: whatever they are, nothing here overflows.
        let sent = counters.ring_bytes.wrapping_add(counters.tcp_bytes);
        shown(
            &end.label,
            Direction {
                state: state.to_owned(),
                ring_size_bytes: u64::from(class_bytes(class)),
                ring_bytes: counters.ring_bytes,
                tcp_bytes: counters.tcp_bytes,
                rate_bytes_s: end.rate(sent, now),
                parked: counters.parked,
            },
        )
    });
    let age_s = now.duration_since(channel.since).as_secs_f64();
    Connection { ends: ends.into(), reason: None, memory_bytes: channel.memory_bytes, age_s }
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
