//! `oshrun`: starts the processing elements (PEs) of an OpenSHMEM program, and ends them together.
//!
//! The PEs find each other by a job's name in their environment; the first one makes their segment.
//! One that ends otherwise than well ends the others, which would wait for it for ever.
//!
//! ```text
//!  oshrun --domains .,a,b ──▶ PEs of its own domain ('.'), as with no domains at all
//!    │   ▲
//!    │   └── board: a small segment, by which they end together ──┐
//!    ├─ podman exec -i a oshrun --join JOB:1 ──▶ PEs in a         │
//!    └─ ssh b oshrun --join JOB:2 ──▶ PEs in b  ◀──────────────┘
//! ```
//!
//! With `--segment` the board and the PEs' memory are in a segment that is there before, as one that
//! a host gives to several guests.

mod board;
mod domain;
mod elsewhere;
mod pes;

use std::fmt;
use std::io::{PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use rustix::io::FdFlags;
use yasmin_segment::Broker;

use crate::broker::{socket, start};
use crate::cli::Oshrun;
use crate::signals::Signals;
use board::{Board, PARTS_MAX, PES_AT};
pub use domain::Domain;
use elsewhere::Elsewhere;
use pes::Pes;

/// A command line that cannot be understood.
const USAGE: u8 = 2;
/// The program cannot be started, as shells have it.
const NO_PROGRAM: u8 = 127;
/// How often the domains of a job look what the others say.
const LOOK: Duration = Duration::from_millis(50);

/// A part of a job that another process leads: `JOB:PART`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    job: String,
    part: usize,
}

impl FromStr for Ticket {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.rsplit_once(':').and_then(|(job, part)| {
            let part = part.parse().ok().filter(|_| !job.is_empty())?;
            Some(Self { job: job.to_owned(), part })
        });
        parsed.ok_or_else(|| "give JOB:PART, as the oshrun that leads the job prints it".to_owned())
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.job, self.part)
    }
}

/// A line to the user. Whoever reads it may be gone, as an ssh is that has been killed.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "oshrun: {line}");
}

pub fn run(options: &Oshrun) -> ExitCode {
    let run = match &options.join {
        Some(ticket) => join(options, ticket),
        None => lead(options),
    };
    match run {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// All PEs, here and wherever else.
fn lead(options: &Oshrun) -> anyhow::Result<u8> {
    let parts = options.domains.len();
    if parts > PARTS_MAX || parts > usize::from(options.n) {
        say(format_args!(
            "{parts} domains for {} PEs: each needs a PE, and there can be {PARTS_MAX} domains",
            options.n
        ));
        return Ok(USAGE);
    }
    let socket = socket::resolve(options.broker.socket.as_deref())?;
    if !options.no_broker {
        start::ensure(&socket).with_context(|| format!("broker {}", socket.display()))?;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.map_or(0, |since| since.as_millis() & 0xffff_ffff);
    let name = format!("{}-{since:x}", std::process::id());
    // Ends behind the job, whose end its oshruns have to learn first.
    let mut elsewhere = Elsewhere::default();
    let mut job = Job::new(name, options, socket, options.n)?;
    let broker = Broker::at(&job.socket);
    if let Some(segment) = &options.segment {
        job.board = Some(Board::take(broker, segment, &job.name, options.n, parts.max(1))?);
    } else if parts > 0 {
        job.board = Some(Board::make(broker, &job.name, options.n, parts)?);
    }
    let here = [Domain::Here];
    let domains = if parts == 0 { &here } else { options.domains.as_slice() };
    for (number, domain) in domains.iter().enumerate() {
        let failed = match domain.clone().found() {
            Domain::Here => job.start(Part::of(number, options.n, domains.len()))?,
            domain => {
                let ticket = Ticket { job: job.name.clone(), part: number };
                let segment = options.segment.as_deref();
                elsewhere.start(domain, &ticket, segment, &options.program, &job.signals)?
            }
        };
        if let Some(code) = failed {
            return Ok(job.end(code));
        }
    }
    job.watch(&mut elsewhere)
}

/// A part of a job that another process leads.
fn join(options: &Oshrun, ticket: &Ticket) -> anyhow::Result<u8> {
    let socket = socket::resolve(options.broker.socket.as_deref())?;
    let broker = Broker::at(&socket);
    let (board, pes, parts) =
        Board::join(broker, options.segment.as_deref(), &ticket.job, ticket.part)?;
    let mut job = Job::new(ticket.job.clone(), options, socket, pes)?;
    job.board = Some(board);
    match job.start(Part::of(ticket.part, pes, parts))? {
        Some(code) => Ok(job.end(code)),
        None => job.watch(&mut Elsewhere::default()),
    }
}

/// Some PEs that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    first: u16,
    count: u16,
}

impl Part {
    /// As many in each, or one more in the first ones.
    fn of(number: usize, pes: u16, parts: usize) -> Self {
        let (number, parts) = (number as u16, parts as u16);
        let (each, more) = (pes / parts, pes % parts);
        let first = number * each + number.min(more);
        Self { first, count: each + u16::from(number < more) }
    }
}

/// What this process does of a job.
struct Job<'a> {
    name: String,
    options: &'a Oshrun,
    socket: PathBuf,
    n: u16,
    signals: Signals,
    /// With other domains. Goes first, so that they learn of an end before the PEs here do.
    board: Option<Board>,
    started: Pes,
    /// Each PE inherits it: a byte there is the status of a global exit. Goes behind them: nobody
    /// writes to a pipe that nobody reads.
    says: PipeWriter,
}

impl<'a> Job<'a> {
    fn new(name: String, options: &'a Oshrun, socket: PathBuf, n: u16) -> anyhow::Result<Self> {
        let signals = Signals::new().context("cannot watch signals")?;
        let (said, says) = std::io::pipe().context("cannot make a pipe")?;
        rustix::io::fcntl_setfd(&says, FdFlags::empty())?;
        rustix::io::ioctl_fionbio(&said, true)?;
        Ok(Self { name, options, socket, n, signals, board: None, started: Pes::new(said), says })
    }

    /// Starts these PEs. `Some`: the program cannot be, and that is the exit code.
    fn start(&mut self, part: Part) -> anyhow::Result<Option<u8>> {
        for number in part.first..part.first + part.count {
            match self.pe(number, part.count) {
                Ok(child) => self.started.add(number, child)?,
                Err(error) => {
                    let program = self.options.program[0].display();
                    say(format_args!("{program} cannot be started: {error}"));
                    return Ok(Some(NO_PROGRAM));
                }
            }
        }
        Ok(None)
    }

    fn pe(&self, number: u16, here: u16) -> std::io::Result<Child> {
        let program = &self.options.program;
        let mut command = Command::new(&program[0]);
        command
            .args(&program[1..])
            .env(yasmin_control::SOCKET_ENV, &self.socket)
            .env("YASMIN_SHMEM_PES", self.n.to_string())
            .env("YASMIN_SHMEM_PE", number.to_string())
            .env("YASMIN_SHMEM_JOB", &self.name)
            .env("YASMIN_SHMEM_LAUNCHER", std::process::id().to_string())
            .env("YASMIN_SHMEM_EXIT_FD", self.says.as_raw_fd().to_string());
        if let Some(segment) = &self.options.segment {
            command
                .env("YASMIN_SHMEM_SEGMENT", segment)
                .env("YASMIN_SHMEM_OFFSET", PES_AT.to_string())
                .env("YASMIN_SHMEM_PES_HERE", here.to_string());
        }
        if number > 0 {
            command.stdin(Stdio::null());
        }
        self.signals.give_back_to(&mut command);
        command.spawn()
    }

    /// Until all have ended well, or one has not: the exit code.
    fn watch(mut self, elsewhere: &mut Elsewhere) -> anyhow::Result<u8> {
        loop {
            self.started.sleep(Some(&self.signals), self.board.is_some().then_some(LOOK))?;
            if let Some(code) = self.look(elsewhere)? {
                return Ok(self.end(code));
            }
            if self.started.have_ended() && elsewhere.are_done() {
                if let Some(board) = &self.board {
                    board.done();
                }
                return Ok(0);
            }
        }
    }

    /// The exit code that all have to end with, if so.
    fn look(&mut self, elsewhere: &mut Elsewhere) -> anyhow::Result<Option<u8>> {
        if let Some(code) = self.board.as_ref().and_then(Board::ended) {
            return Ok(Some(code));
        }
        while let Some(sent) = self.signals.next_sent() {
            // A terminal has sent it to all that it knows of.
            if !sent.by_terminal {
                self.started.kill(sent.signal);
            }
            if let Some(board) = self.board.as_ref().filter(|board| board.leads()) {
                board.ask(sent.signal);
            }
        }
        if let Some(code) = self.started.look()? {
            return Ok(Some(code));
        }
        let Some(board) = &mut self.board else { return Ok(None) };
        if board.leads() {
            return elsewhere.look(board);
        }
        if let Some(signal) = board.asked() {
            self.started.kill(signal);
        }
        if !board.has_lead() {
            say(format_args!("the oshrun that leads job {} has ended: all others end", self.name));
            return Ok(Some(1));
        }
        Ok(None)
    }

    /// Ends all of the job, if nobody else has: its exit code.
    fn end(self, code: u8) -> u8 {
        self.board.as_ref().map_or(code, |board| board.end(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pe_is_in_one_part() {
        for (pes, parts) in [(1, 1), (5, 2), (4096, 64), (64, 64), (7, 3)] {
            let mut next = 0;
            for number in 0..parts {
                let part = Part::of(number, pes, parts);
                assert_eq!(part.first, next);
                assert!(part.count > 0 && part.count <= pes.div_ceil(parts as u16));
                next += part.count;
            }
            assert_eq!(next, pes);
        }
    }

    #[test]
    fn tickets_are_read_as_they_are_printed() {
        let ticket = Ticket { job: "47-1a".into(), part: 3 };
        assert_eq!(ticket.to_string().parse(), Ok(ticket));
        for bad in ["", "47", ":1", "47:", "47:x", "47:-1"] {
            assert!(bad.parse::<Ticket>().is_err(), "{bad}");
        }
    }
}
