//! Between the processes and `guests`: who asked, whose socket it is, what `status` shows.

use super::Broker;
use super::status::shown;
use crate::channel::EndLabel;
use crate::client::Gone;
use crate::facts::Facts;
use crate::guests::{Guests, Moved};
use rustix::fd::AsFd;
use std::time::Instant;
use yasmin_control::guest::Endpoint;
use yasmin_control::status::{Connection, Direction};
use yasmin_control::{Decline, FromBroker, Role, Socket};

/// Ends that go by vsock which `status` shows; the oldest are forgotten.
const SHOWN_MAX: usize = 4096;

/// An end that goes by vsock.
pub(super) struct ByVsock {
    label: EndLabel,
    facts: Facts,
    since: Instant,
}

impl Broker {
    pub fn serve_guests(&mut self, guests: Guests) {
        self.guests = Some(guests);
    }

    pub fn guests(&self) -> Option<&Guests> {
        self.guests.as_ref()
    }

    pub(super) fn prepare(&mut self, token: u64, to: Endpoint, now: Instant) -> Result<(), Gone> {
        match &mut self.guests {
            Some(guests) => guests.prepare(token, to, now),
            None => return self.no_guest(token),
        }
        self.tell_of_guests(now);
        Ok(())
    }

    pub(super) fn join(
        &mut self,
        token: u64,
        role: Role,
        wait_ms: u32,
        socket: &Socket,
        now: Instant,
    ) -> Result<(), Gone> {
        if self.guests.is_none() {
            return self.no_guest(token);
        }
        let facts = self.look(token, socket).and_then(super::ends::connected);
        if let Some(guests) = &mut self.guests
            && guests.join(token, role, wait_ms, now)
        {
            guests.found(token, facts, now);
        }
        self.tell_of_guests(now);
        Ok(())
    }

    fn no_guest(&mut self, token: u64) -> Result<(), Gone> {
        let message = FromBroker::Decline { id: 0, reason: Decline::NoGuest };
        self.clients.get_mut(&token).ok_or(Gone)?.send(message, &[])
    }

    /// Something happened on a vsock connection.
    pub fn turn_guests(&mut self, now: Instant) {
        if let Some(guests) = &mut self.guests {
            guests.turn(now);
        }
        self.tell_of_guests(now);
    }

    pub(super) fn expire_guests(&mut self, now: Instant) {
        if let Some(guests) = &mut self.guests
            && guests.next_expiry().is_some_and(|at| at <= now)
        {
            guests.expire(now);
            self.tell_of_guests(now);
        }
    }

    /// Passes on what `guests` has to say.
    fn tell_of_guests(&mut self, now: Instant) {
        let Some(guests) = &mut self.guests else { return };
        let (moved, answers) = (guests.moved(), guests.answers());
        for Moved { client, role, facts } in moved {
            let Some(client) = self.clients.get(&client) else { continue };
            if self.by_vsock.len() >= SHOWN_MAX {
                self.by_vsock.pop_front();
            }
            // The next connection of the same process, mostly: five system calls less.
            let last = self.by_vsock.back().map(|end| &end.label);
            let program = match last.filter(|last| last.pid == client.pid) {
                Some(last) => last.program.clone(),
                None => program_of(client.pid),
            };
            let label = EndLabel {
                uid: client.uid,
                pid: client.pid,
                program,
                role,
                local: facts.local,
                peer: facts.peer,
            };
            self.by_vsock.push_back(ByVsock { label, facts, since: now });
        }
        for answer in answers {
            let Some(client) = self.clients.get_mut(&answer.client) else { continue };
            let fds: Vec<_> = answer.fd.iter().map(AsFd::as_fd).collect();
            if client.send(answer.message, &fds).is_err() {
                self.doomed.push(answer.client);
            }
        }
    }

    /// The end that goes by vsock at this place, as `status` shows it, and the next place.
    pub(super) fn shown_by_vsock(
        &mut self,
        at: usize,
        sees: impl Fn(&EndLabel) -> bool,
        now: Instant,
    ) -> (Option<usize>, Option<Connection>) {
        let (Some(guests), Some(end)) = (&self.guests, self.by_vsock.get(at)) else {
            return (None, None);
        };
        // The TCP connection behind it lives as long as it does.
        if !guests.diag.holds(&end.facts) {
            self.by_vsock.remove(at);
            return (Some(at), None);
        }
        let shown = sees(&end.label).then(|| Connection {
            ends: vec![shown(
                &end.label,
                Direction { state: "vsock".to_owned(), ..Direction::default() },
            )],
            reason: None,
            memory_bytes: 0,
            age_s: now.duration_since(end.since).as_secs_f64(),
        });
        (Some(at + 1), shown)
    }
}

/// Its name, as /proc has it.
fn program_of(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    crate::client::printable(name.trim_ascii_end())
}
