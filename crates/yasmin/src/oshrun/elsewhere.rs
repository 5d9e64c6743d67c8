//! The parts of a job in other domains, and what was started to start them.

use std::ffi::OsString;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::board::{Board, PartState};
use super::domain::{Domain, line, words};
use super::pes::{GRACE, describe};
use super::{NO_PROGRAM, Ticket, say};
use crate::exit;
use crate::signals::Signals;

struct There {
    part: usize,
    domain: Domain,
    /// What podman's or ssh's end of it is here.
    client: Option<Child>,
    ended: Option<ExitStatus>,
    is_done: bool,
}

/// Dropped, it waits until what was started has ended.
#[derive(Default)]
pub struct Elsewhere(Vec<There>);

impl Elsewhere {
    /// Starts a part, or says how to. `Some`: it cannot be, and that is the exit code.
    pub fn start(
        &mut self,
        domain: Domain,
        ticket: &Ticket,
        segment: Option<&str>,
        program: &[OsString],
        signals: &Signals,
    ) -> anyhow::Result<Option<u8>> {
        let words = words(&ticket.to_string(), segment, program);
        let mut client = None;
        if let Some(mut command) = domain.command(&words)? {
            if ticket.part > 0 {
                command.stdin(Stdio::null());
            }
            signals.give_back_to(&mut command);
            match command.spawn() {
                Ok(child) => client = Some(child),
                Err(error) => {
                    let engine = command.get_program().display();
                    say(format_args!("{domain}: {engine} cannot be started: {error}"));
                    return Ok(Some(NO_PROGRAM));
                }
            }
        } else {
            say(format_args!("in {domain}, start: {}", line(&words)?.display()));
        }
        self.0.push(There { part: ticket.part, domain, client, ended: None, is_done: false });
        Ok(None)
    }

    pub fn are_done(&self) -> bool {
        self.0.iter().all(|there| there.is_done)
    }

    /// The exit code that all have to end with, if one of them is gone.
    pub fn look(&mut self, board: &Board) -> anyhow::Result<Option<u8>> {
        for there in self.0.iter_mut().filter(|there| !there.is_done) {
            there.reap()?;
            let domain = &there.domain;
            match (board.state(there.part), there.ended) {
                (PartState::Done, _) => there.is_done = true,
                (PartState::Dead, _) => {
                    // Or it has ended with all others, and says so.
                    if let Some(code) = board.ended() {
                        return Ok(Some(code));
                    }
                    say(format_args!("{domain}: its oshrun was killed: all others end"));
                    return Ok(Some(1));
                }
                (PartState::Awaited, Some(status)) => {
                    let how = describe(status);
                    say(format_args!("{domain}: {how} before it joined: all others end"));
                    return Ok(Some(exit::code(status).max(1)));
                }
                (PartState::Awaited | PartState::Runs, _) => {}
            }
        }
        Ok(None)
    }

    fn have_ended(&mut self) -> bool {
        self.0.iter_mut().all(|there| matches!(there.reap(), Ok(true) | Err(_)))
    }
}

impl There {
    /// Whether nothing of it runs here any more.
    fn reap(&mut self) -> std::io::Result<bool> {
        let Some(client) = &mut self.client else { return Ok(true) };
        if self.ended.is_none() {
            self.ended = client.try_wait()?;
        }
        Ok(self.ended.is_some())
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let begun = Instant::now();
        // Their PEs have as long as those here, and they some time behind that.
        while !self.have_ended() && begun.elapsed() < GRACE * 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        for client in self.0.iter_mut().filter_map(|there| there.client.as_mut()) {
            // What has ended stays so.
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}
